// SPDX-License-Identifier: Apache-2.0
//! Reads bundles (`.wirewise`): a zip archive whose comment is the SHA-256 of all before it, with a manifest that
//! has the SHA-256 of every other member. Nothing of a file is used, or even unpacked, before its digest is checked.

mod byte_code;
mod elf;
pub mod emitted;
mod features;
pub mod inspection;
pub mod manifest;
pub mod model;
pub mod names;
pub mod network;
pub mod program;
pub mod ready_model;
pub mod reference;
mod shape;
pub mod signature;
pub mod tree;

use std::collections::BTreeMap;
use std::io::{Cursor, Read, Write};
use std::path::Path;

use serde_json::Value;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use crate::bundle::manifest::Manifest;
use crate::bundle::program::Program;
use crate::bundle::signature::{Signer, sha256};
use crate::error::{Error, Result};
use crate::files;
use crate::files::json::{self, Limits};

pub const MANIFEST: &str = "manifest.json";
pub const MODEL: &str = "model.json";
pub const FEATURES: &str = "features.json";
pub const PROGRAM: &str = "program.bpf.o";
pub const CARD: &str = "card.md";
const SOURCES: &str = "sources/";

/// Of the file. A forest of 100 trees of depth 10 needs less than one MiB.
pub const MAX_BYTES: u64 = 256 << 20;
/// Of an object: a million instructions, which no kernel takes more of, with all that is beside them.
pub const MAX_OBJECT: u64 = 16 << 20;
/// What members unpack to: so much, and so many times the file. Sources and models become five to ten times smaller.
const MAX_UNPACKED: u64 = 16 << 20;
const MAX_RATIO: u64 = 8;
const MAX_MEMBERS: usize = 4096;
/// A feature set has 128 features, with a few parameters each.
pub const FEATURES_LIMITS: Limits = Limits { bytes: 1 << 20, depth: 16, elements: 1 << 15 };
/// Hexadecimal digits of SHA-256.
const SEAL: usize = 64;
const AGAIN: &str = "copy it again or make one with `wirewise compile`";

/// A bundle whose digests were all right.
#[derive(Debug, Clone)]
pub struct Bundle {
    pub manifest: Manifest,
    /// `program.bpf.o`; of a bundle from a file, what the agent writes in its place.
    pub object: Vec<u8>,
    /// `model.json`, the model IR: within its limits, and of the form that its family has.
    pub model: Vec<u8>,
    /// `features.json`, the feature set.
    pub features: Value,
    /// What the object was compiled from, by file name.
    pub sources: BTreeMap<String, Vec<u8>>,
    /// Who signed it; the signature is right.
    pub signer: Option<Signer>,
    /// What a signature is of.
    pub statement: String,
    /// SHA-256 of the file but its last 64 bytes, which hold it: the bundle's identity.
    pub digest: String,
}

impl Bundle {
    /// Reads a bundle from its file, or of a ready model (`@flood`), and refuses one with a program that wirewise does not make. Its object is then the agent's own,
    /// written from what was inspected.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = read_file(&ready_model::bundle_file(path)?)?;
        let bundle = Self::from_bytes(&bytes).and_then(|bundle| {
            let object = bundle.program()?.encode();
            Ok(Self { object, ..bundle })
        });
        bundle.map_err(|message| Error::input(format_args!("{}: {message}", path.display())))
    }

    /// Whether the program is one that wirewise makes, and the manifest tells the truth about it.
    pub fn check_program(&self) -> std::result::Result<(), String> {
        self.program().map(drop)
    }

    /// The program as the agent reads it.
    pub fn program(&self) -> std::result::Result<Program, String> {
        let program = inspection::check(&self.object, &self.manifest.flow);
        let means = |program: &Program| inspection::check_meaning(program, &self.manifest.meaning());
        program.and_then(|program| means(&program).map(|()| program)).map_err(|what| {
            format!("{PROGRAM} {what}; a bundle's program is what `wirewise compile` makes, and nothing else")
        })
    }

    /// Reads a bundle from its file's content. The error is one line without the file's name.
    pub fn from_bytes(bytes: &[u8]) -> std::result::Result<Self, String> {
        let digest = check_seal(bytes)?;
        let mut members = unpack(bytes)?;
        let manifest = members.remove(MANIFEST).ok_or_else(|| format!("has no {MANIFEST}; {AGAIN}"))?;
        let manifest_digest = sha256(&manifest);
        let manifest = Manifest::parse(&manifest)?;
        let signed = members.remove(signature::MEMBER);
        check_digests(&manifest, &members)?;
        for name in [MODEL, FEATURES, PROGRAM, CARD] {
            if !members.contains_key(name) {
                return Err(format!("{name} is missing; {AGAIN}"));
            }
        }
        let object = members.remove(PROGRAM).unwrap_or_default();
        if object.len() as u64 > MAX_OBJECT {
            return Err(format!(
                "{PROGRAM} is larger than {} MiB, which no program is; {AGAIN}",
                MAX_OBJECT >> 20
            ));
        }
        let model = members.remove(MODEL).unwrap_or_default();
        shape::check(&model).map_err(|rule| format!("{MODEL} {rule}; {AGAIN}"))?;
        let features: Value = json::from_slice(&members[FEATURES], &FEATURES_LIMITS)
            .map_err(|rule| format!("{FEATURES} {rule}; {AGAIN}"))?;
        if !features.is_object() {
            return Err(format!("{FEATURES} is no feature set; {AGAIN}"));
        }
        features::check(&features, &manifest).map_err(|rule| format!("{FEATURES}: {rule}; {AGAIN}"))?;
        let digests = manifest.digests.iter().map(|(name, digest)| (name.as_str(), digest.as_str()));
        let statement = signature::statement(digests.chain([(MANIFEST, manifest_digest.as_str())]));
        let signer = signed.map(|document| signature::check(&document, &statement)).transpose()?;
        let source = |(name, text): (String, _)| Some((name.strip_prefix(SOURCES)?.to_string(), text));
        let sources = members.into_iter().filter_map(source).collect();
        Ok(Self { manifest, object, model, features, sources, signer, statement, digest })
    }

    /// The tunnels the feature set looks into.
    pub fn decapsulate(&self) -> Vec<String> {
        let names = self.features["decapsulate"].as_array().into_iter().flatten();
        names.filter_map(Value::as_str).map(str::to_string).collect()
    }
}

/// A bundle's file, as it is.
pub fn read_file(path: &Path) -> Result<Vec<u8>> {
    files::read(path, MAX_BYTES)
}

/// The bundle with this signature instead of what it has. All other members stay as they are packed.
pub fn with_signature(bytes: &[u8], document: &[u8]) -> std::result::Result<Vec<u8>, String> {
    let pack = || -> zip::result::ZipResult<Vec<u8>> {
        let mut old = ZipArchive::new(Cursor::new(bytes))?;
        let mut new = ZipWriter::new(Cursor::new(Vec::new()));
        for index in 0..old.len() {
            let file = old.by_index_raw(index)?;
            if file.name()? != signature::MEMBER {
                new.raw_copy_file(file)?;
            }
        }
        new.start_file(signature::MEMBER, SimpleFileOptions::default().unix_permissions(0o644))?;
        new.write_all(document)?;
        new.set_comment("0".repeat(SEAL))?;
        Ok(new.finish()?.into_inner())
    };
    let mut packed = pack().map_err(|error| format!("cannot be packed again: {error}"))?;
    packed.truncate(packed.len() - SEAL);
    let seal = sha256(&packed);
    packed.extend(seal.as_bytes());
    Ok(packed)
}

fn check_seal(bytes: &[u8]) -> std::result::Result<String, String> {
    if !bytes.starts_with(b"PK\x03\x04") || bytes.len() < SEAL {
        return Err("is not a wirewise bundle; make one with `wirewise compile`".to_string());
    }
    let (body, seal) = bytes.split_at(bytes.len() - SEAL);
    let digest = sha256(body);
    if digest.as_bytes() == seal {
        Ok(digest)
    } else {
        Err(format!(
            "the file's digest does not match its content: it is damaged, cut off or no bundle; {AGAIN}"
        ))
    }
}

/// The members in memory; nothing is ever written to a path that an archive names.
fn unpack(bytes: &[u8]) -> std::result::Result<BTreeMap<String, Vec<u8>>, String> {
    let unreadable = |error: zip::result::ZipError| format!("is not a readable archive: {error}; {AGAIN}");
    // The list of members is built when an archive is opened, whatever its length.
    let listed = listed_members(bytes).ok_or_else(|| format!("is not an archive as bundles are; {AGAIN}"))?;
    if listed > MAX_MEMBERS {
        return Err(format!("has {listed} members, more than {MAX_MEMBERS}; {AGAIN}"));
    }
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(unreadable)?;
    if archive.len() > MAX_MEMBERS {
        return Err(format!("has {} members, more than {MAX_MEMBERS}; {AGAIN}", archive.len()));
    }
    archive.validate_header_consistency().map_err(unreadable)?;
    let mut members = BTreeMap::new();
    let most = MAX_UNPACKED + MAX_RATIO * bytes.len() as u64;
    let mut left = most;
    for index in 0..archive.len() {
        let file = archive.by_index(index).map_err(unreadable)?;
        let name = file.name().map_err(unreadable)?.into_owned();
        if !is_plain(&name) {
            return Err(format!("holds a member named {name:?}, which no bundle does; {AGAIN}"));
        }
        if !matches!(file.compression(), CompressionMethod::Stored | CompressionMethod::Deflated) {
            return Err(format!("{name} is packed with {}, not with deflate; {AGAIN}", file.compression()));
        }
        // The size an archive states may be a lie, so what comes out is counted.
        let mut content = Vec::with_capacity(file.size().min(left) as usize);
        let read = file.take(left + 1).read_to_end(&mut content);
        read.map_err(|error| format!("{name} cannot be unpacked: {error}; {AGAIN}"))?;
        left = left.checked_sub(content.len() as u64).ok_or_else(|| {
            format!("unpacks to more than {} MiB, which no bundle of its size does; {AGAIN}", most >> 20)
        })?;
        members.insert(name, content);
    }
    Ok(members)
}

/// How many members the end of an archive states, whose comment is the seal. `None`: it is of another form.
fn listed_members(bytes: &[u8]) -> Option<usize> {
    const END: usize = 22;
    const LARGE: usize = 20;
    let at = bytes.len().checked_sub(END + SEAL)?;
    let end = &bytes[at..at + END];
    let number = |place: usize| u16::from_le_bytes([end[place], end[place + 1]]);
    let is_large = at.checked_sub(LARGE).is_some_and(|at| bytes[at..].starts_with(b"PK\x06\x07"));
    let is_end = end.starts_with(b"PK\x05\x06") && usize::from(number(20)) == SEAL && !is_large;
    is_end.then(|| number(10).into())
}

/// A relative path of plain parts: nothing that would mean another place if somebody unpacked it.
fn is_plain(name: &str) -> bool {
    let character = |c: char| c.is_ascii_alphanumeric() || "._-+/".contains(c);
    name.len() <= 200
        && name.chars().all(character)
        && name.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
}

fn check_digests(
    manifest: &Manifest,
    members: &BTreeMap<String, Vec<u8>>,
) -> std::result::Result<(), String> {
    if let Some(missing) = manifest.digests.keys().find(|name| !members.contains_key(*name)) {
        return Err(format!("{missing:?} is missing; {AGAIN}"));
    }
    for (name, content) in members {
        match manifest.digests.get(name) {
            None => return Err(format!("{name} is not in the manifest; {AGAIN}")),
            Some(digest) if *digest != sha256(content) => {
                return Err(format!(
                    "the digest of {name} is not the one in the manifest: edited or damaged; {AGAIN}"
                ));
            }
            Some(_) => {}
        }
    }
    Ok(())
}
