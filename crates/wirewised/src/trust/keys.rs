// SPDX-License-Identifier: Apache-2.0
//! Key files (PEM, as `openssl` reads and writes them), and the directory of those that this machine trusts.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
use ed25519_dalek::pkcs8::{
    DecodePrivateKey, DecodePublicKey, EncodePrivateKey, EncodePublicKey, KeypairBytes,
};
use ed25519_dalek::{SigningKey, VerifyingKey};

use crate::bundle::Bundle;
use crate::bundle::signature::{self, Signer};
use crate::error::{Error, Result};
use crate::files::place::cannot_write;
use crate::files::{self, Input, owned};
use crate::text::shell::quoted;

/// Where a machine keeps the public keys it trusts.
const TRUSTED: &str = "/etc/wirewise/keys";
const PUBLIC: &str = "pub";
const MAX_KEY_BYTES: u64 = 4096;

/// Options of the commands that ask who made a bundle.
#[derive(Debug, clap::Args)]
pub struct TrustArgs {
    /// Refuse a bundle that is not signed by a key this machine trusts
    #[arg(long)]
    require_signature: bool,

    /// Directory with the public keys (.pub) that are trusted [default: /etc/wirewise/keys]
    #[arg(long, value_name = "DIR")]
    trusted_keys: Option<PathBuf>,
}

impl TrustArgs {
    /// Reads a bundle, and says who signed it.
    pub fn read(&self, path: &Path) -> Result<Bundle> {
        let mut bundle = Bundle::read(path)?;
        if let Some(signer) = &mut bundle.signer {
            signer.trusted_as = self.name_of(signer)?;
        }
        let trusted = bundle.signer.as_ref().is_some_and(|signer| signer.trusted_as.is_some());
        if trusted || !self.require_signature {
            return Ok(bundle);
        }
        let (path, directory) = (path.display(), self.directory().display());
        Err(Error::input(match &bundle.signer {
            None => format!(
                "{path}: is not signed, and --require-signature wants a signature; whoever has a key can make one with `wirewised sign`"
            ),
            Some(Signer { fingerprint, .. }) => format!(
                "{path}: is signed by the key {fingerprint}, which is not among the trusted keys in {directory}; if you know whose \
                 it is, put its file there"
            ),
        }))
    }

    fn directory(&self) -> &Path {
        self.trusted_keys.as_deref().unwrap_or(Path::new(TRUSTED))
    }

    /// What this machine calls a key; `None`: it does not know it.
    fn name_of(&self, signer: &Signer) -> Result<Option<String>> {
        let directory = self.directory();
        let failed = |error: &io::Error| Error::input(format!("{}: {error}", directory.display()));
        let files = match fs::read_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.trusted_keys.is_none() => {
                return Ok(None);
            }
            other => other.map_err(|error| failed(&error))?,
        };
        only_ours(directory, &File::open(directory).map_err(|error| failed(&error))?)?;
        let mut paths: Vec<_> = files.filter_map(|file| Some(file.ok()?.path())).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == PUBLIC));
        paths.sort();
        for path in paths {
            if signature::fingerprint(&read_public(&path)?) == signer.fingerprint {
                let name = path.file_stem().unwrap_or_default().to_string_lossy();
                return Ok(Some(name.into_owned()));
            }
        }
        Ok(None)
    }
}

/// Who can write there decides what runs here.
fn only_ours(path: &Path, opened: &File) -> Result<()> {
    let metadata = opened.metadata().map_err(|error| Error::input(format!("{}: {error}", path.display())))?;
    if owned::flaw(&metadata).is_none() {
        return Ok(());
    }
    let name = quoted(path.display());
    Err(Error::input(format!(
        "{}: others than its owner may write to it, or it belongs to neither root nor you, so nothing in it can be trusted: \
         `chown root {name}; chmod go-w {name}`",
        path.display()
    )))
}

fn read_public(path: &Path) -> Result<VerifyingKey> {
    let failed = |error: &dyn std::fmt::Display| Error::input(format!("{}: {error}", path.display()));
    let file = Input::File.open(path)?;
    only_ours(path, &file)?;
    let text = files::read_open(file, path, MAX_KEY_BYTES)?;
    public_key(&text).ok_or_else(|| {
        failed(&"is no public Ed25519 key (PEM); `wirewised keygen` makes one: correct or remove it")
    })
}

/// The key of a `.pub` file's content.
pub fn public_key(text: &[u8]) -> Option<VerifyingKey> {
    VerifyingKey::from_public_key_pem(std::str::from_utf8(text).ok()?).ok()
}

pub fn read_private(path: &Path) -> Result<SigningKey> {
    let failed = |error: &dyn std::fmt::Display| Error::input(format!("{}: {error}", path.display()));
    let file = Input::File.open(path)?;
    let metadata = file.metadata().map_err(|error| failed(&error))?;
    if metadata.mode() & 0o077 != 0 {
        return Err(failed(&"others than its owner may read or write this private key; `chmod 600` it"));
    }
    let text = files::read_open(file, path, MAX_KEY_BYTES)?;
    private_key(&text)
        .ok_or_else(|| failed(&"is no private Ed25519 key (PKCS#8, PEM); `wirewised keygen` makes one"))
}

/// The key of a private key file's content.
pub fn private_key(text: &[u8]) -> Option<SigningKey> {
    SigningKey::from_pkcs8_pem(std::str::from_utf8(text).ok()?).ok()
}

/// Writes a new private key, and beside it its public key. Returns that file and the key's fingerprint.
pub fn generate(private: &Path) -> Result<(PathBuf, String)> {
    let public = private.with_extension(PUBLIC);
    if public == private {
        return Err(Error::input(format!(
            "{}: is the name of a public key; give another for the private one, such as NAME.key",
            private.display()
        )));
    }
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|error| Error::other(format!("no random numbers: {error}")))?;
    let key = SigningKey::from_bytes(&seed);
    let unwritten = |error: &dyn std::fmt::Display| Error::other(format!("the key has no PEM form: {error}"));
    // Without the public key in it, which older versions of openssl do not read.
    let pair = KeypairBytes { secret_key: seed, public_key: None };
    let pem = pair.to_pkcs8_pem(LineEnding::LF).map_err(|error| unwritten(&error))?;
    let public_pem =
        key.verifying_key().to_public_key_pem(LineEnding::LF).map_err(|error| unwritten(&error))?;
    write_new(private, 0o600, pem.as_bytes())?;
    if let Err(error) = write_new(&public, 0o644, public_pem.as_bytes()) {
        let _ = fs::remove_file(private);
        return Err(error);
    }
    Ok((public, signature::fingerprint(&key.verifying_key())))
}

/// A file that was not there before.
fn write_new(path: &Path, mode: u32, content: &[u8]) -> Result<()> {
    let mut file = owned::new_file(path, mode).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            Error::input(format!("{}: is there already; remove it or give another name", path.display()))
        }
        _ => cannot_write(path, &error),
    })?;
    let fill = |file: &mut File| {
        file.write_all(content)?;
        file.sync_all()
    };
    fill(&mut file).map_err(|error| {
        let _ = fs::remove_file(path);
        cannot_write(path, &error)
    })
}
