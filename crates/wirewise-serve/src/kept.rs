// SPDX-License-Identifier: Apache-2.0
//! What the service did, written down so that the next one knows what is its own. The programs themselves are in the kernel.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use wirewised::error::{Error, Result};

use crate::config::{Place, Wish, is_ready_model};

const VERSION: u32 = 1;

/// What was put into force at a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    pub place: Place,
    pub wish: Wish,
    pub fingerprint: Fingerprint,
    /// Digest of the bundle that ran then, as the agent says it; another one is somebody else's.
    #[serde(default)]
    pub digest: Option<String>,
    /// A change of it was begun, and nobody noted its end.
    #[serde(default)]
    pub unsure: bool,
}

impl Applied {
    /// Whether what the other is to run surely runs already.
    pub fn holds(&self, other: &Self) -> bool {
        !self.unsure && self.fingerprint == other.fingerprint
    }
}

/// What the files held, as SHA-256 in hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// `None`: a ready model.
    bundle: Option<String>,
    policy: Option<String>,
}

impl Fingerprint {
    /// policy : its normal form, which holds whatever it names.
    pub fn of(bundle: &Path, policy: Option<&Value>) -> Result<Self> {
        let mut own = None;
        if !is_ready_model(bundle) {
            let mut hash = Sha256::new();
            File::open(bundle)
                .and_then(|mut file| io::copy(&mut file, &mut hash))
                .map_err(|error| Error::input(format!("{}: {error}", bundle.display())))?;
            own = Some(hexadecimal(&hash.finalize()));
        }
        let policy = policy.map(|policy| hexadecimal(&Sha256::digest(policy.to_string())));
        Ok(Self { bundle: own, policy })
    }
}

pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[derive(Serialize, Deserialize)]
struct Kept {
    version: u32,
    applied: Vec<Applied>,
}

/// What an earlier service wrote; nothing where there is no file.
pub fn read(file: &Path) -> Result<BTreeMap<Place, Applied>> {
    let text = match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        other => other.map_err(|error| Error::other(format!("{}: {error}", file.display())))?,
    };
    let kept: Kept = serde_json::from_str(&text).map_err(|error| {
        Error::other(format!(
            "{}: {error}; it says what an earlier service attached. Delete it to begin without that knowledge: what is attached \
             stays, and is adopted where it is what the configuration wishes",
            file.display()
        ))
    })?;
    if kept.version != VERSION {
        return Err(Error::other(format!("{}: version {} is not known here", file.display(), kept.version)));
    }
    Ok(kept.applied.into_iter().map(|applied| (applied.place.clone(), applied)).collect())
}

/// Replaces the file.
pub fn write(file: &Path, applied: &BTreeMap<Place, Applied>) -> Result<()> {
    let kept = Kept { version: VERSION, applied: applied.values().cloned().collect() };
    let text = serde_json::to_vec_pretty(&kept).map_err(|error| Error::other(error.to_string()))?;
    replace(file, &text)
}

/// Replaces a file as a whole, or leaves it as it was.
pub fn replace(file: &Path, text: &[u8]) -> Result<()> {
    let failed = |error: io::Error| Error::other(format!("{}: {error}", file.display()));
    let folder = file.parent().unwrap_or(Path::new("."));
    let mut new = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    new.write_all(text).and_then(|()| new.as_file().sync_all()).map_err(failed)?;
    new.persist(file).map_err(|error| failed(error.error))?;
    Ok(())
}
