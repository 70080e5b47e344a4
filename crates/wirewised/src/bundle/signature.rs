// SPDX-License-Identifier: Apache-2.0
//! Who made a bundle: `signature.json`, a member that signs all others with Ed25519 (RFC 8032).
//!
//! What is signed is a text: a line with its purpose and version, then, in the order of their names, the SHA-256 and the name of
//! each member, as `sha256sum` writes them. So `sha256sum` and `openssl` can check a signature too.

use std::collections::BTreeMap;

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub const MEMBER: &str = "signature.json";
const FORMAT: &str = "wirewise-signature";
const VERSION: u32 = 1;
const ALGORITHM: &str = "ed25519";
const AGAIN: &str = "sign the bundle again with `wirewised sign`";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    format: String,
    version: u32,
    algorithm: String,
    /// Hexadecimal, as is the signature.
    public_key: String,
    signature: String,
}

/// Whose key signed a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signer {
    /// SHA-256 of the public key's 32 bytes, in hexadecimal.
    pub fingerprint: String,
    /// What this machine calls the key; null: it does not trust it.
    pub trusted_as: Option<String>,
}

impl Signer {
    pub fn describe(&self) -> String {
        let key = &self.fingerprint[..32];
        match &self.trusted_as {
            Some(name) => format!("by {name}, trusted here (key {key})"),
            None => format!("by the key {key}, which is not trusted here"),
        }
    }
}

/// "by NAME, ..." or "none".
pub fn describe(signer: Option<&Signer>) -> String {
    signer.map_or("by nobody, so who made it is not known".to_string(), Signer::describe)
}

pub fn sha256(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

pub fn fingerprint(key: &VerifyingKey) -> String {
    sha256(key.as_bytes())
}

/// What is signed; digests: of every member but the signature, by name.
pub fn statement<'a>(digests: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut text = format!("wirewise-bundle-signature {VERSION}\n");
    for (name, digest) in digests.into_iter().collect::<BTreeMap<_, _>>() {
        text += &format!("{digest}  {name}\n");
    }
    text
}

/// The content of `signature.json`.
pub fn sign(key: &SigningKey, statement: &str) -> String {
    let document = Document {
        format: FORMAT.to_string(),
        version: VERSION,
        algorithm: ALGORITHM.to_string(),
        public_key: hexadecimal(key.verifying_key().as_bytes()),
        signature: hexadecimal(&key.sign(statement.as_bytes()).to_bytes()),
    };
    // A structure of strings and a number always has a JSON form.
    serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
}

/// The key that signed the statement, which nobody has been asked about yet. The error is one line.
pub fn check(document: &[u8], statement: &str) -> Result<Signer, String> {
    let document: Document =
        serde_json::from_slice(document).map_err(|error| format!("{MEMBER}: {error}; {AGAIN}"))?;
    if (document.format.as_str(), document.version, document.algorithm.as_str())
        != (FORMAT, VERSION, ALGORITHM)
    {
        return Err(format!(
            "{MEMBER} is not a signature of version {VERSION} with {ALGORITHM}, which is what this wirewised reads; {AGAIN}"
        ));
    }
    let key = bytes(&document.public_key).and_then(|bytes| VerifyingKey::from_bytes(&bytes).ok());
    let signature = bytes(&document.signature).map(|bytes| Signature::from_bytes(&bytes));
    let (Some(key), Some(signature)) = (key, signature) else {
        return Err(format!("{MEMBER} holds no Ed25519 key and signature; {AGAIN}"));
    };
    key.verify_strict(statement.as_bytes(), &signature)
        .map_err(|_| format!("the signature is not of this content: it was changed since; {AGAIN}"))?;
    Ok(Signer { fingerprint: fingerprint(&key), trusted_as: None })
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; N];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statement_is_what_sha256sum_writes_in_the_order_of_names() {
        assert_eq!(statement([("b", "22"), ("a", "11")]), "wirewise-bundle-signature 1\n11  a\n22  b\n");
    }

    #[test]
    fn a_signature_holds_for_its_text_alone() {
        let key = SigningKey::from_bytes(&[7; 32]);
        let document = sign(&key, "text");
        let signer = check(document.as_bytes(), "text").unwrap();
        assert_eq!(signer.fingerprint, fingerprint(&key.verifying_key()));
        assert!(check(document.as_bytes(), "texT").unwrap_err().contains("changed since"));
        for damaged in [
            "",
            "{}",
            &document.replace("ed25519", "rsa"),
            &document.replace("\"version\": 1", "\"version\": 2"),
        ] {
            check(damaged.as_bytes(), "text").unwrap_err();
        }
    }
}
