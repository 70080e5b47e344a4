// SPDX-License-Identifier: Apache-2.0
//! What is remembered of how something that runs came about: a note beside its maps (`kernel/note.rs`), which appears and goes with them.

use std::path::Path;

use libbpf_rs::MapHandle;
use serde::{Deserialize, Serialize};

use crate::abi;
use crate::bundle::Bundle;
use crate::bundle::manifest::Flow;
use crate::bundle::model::used_features;
use crate::bundle::reference::Reference;
use crate::bundle::signature::Signer;
use crate::error::Result;
use crate::files;
use crate::interface::netns;
use crate::kernel::{self, note};
use crate::plane::{Joining, Plane};
use crate::policy::Policy;

/// The version of this note and of the maps beside it. Agents of other versions leave both alone.
const VERSION: u32 = abi::ABI_VERSION << 16 | abi::ACT_VERSION << 8 | 1;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Meta {
    pub version: u32,
    pub agent: String,
    pub interface: String,
    /// Inode of the network namespace it was attached in: pins of several namespaces may lie in one bpffs.
    pub namespace: u64,
    /// The namespace's number, which is never given again; 0 if the agent that wrote this did not know it.
    #[serde(default)]
    pub namespace_cookie: u64,
    /// The plane asked for; what was obtained, the kernel knows.
    pub plane: Plane,
    /// How it joined the programs of others.
    #[serde(default)]
    pub joining: Joining,
    /// It judges packets only until a program does so on this plane.
    #[serde(default)]
    pub until: Option<Plane>,
    /// By `run`: what it took the place of does not come back.
    #[serde(default)]
    pub begins: bool,
    /// When this program was attached, RFC 3339.
    pub since: String,
    pub bundle: BundleMeta,
    /// The index is the class id.
    pub classes: Vec<String>,
    /// Names of a bank's networks; empty for other models.
    #[serde(default)]
    pub networks: Vec<String>,
    /// What the model reads.
    #[serde(default)]
    pub inputs: Vec<Input>,
    pub flow: Flow,
    /// What its flows are compared with.
    #[serde(default)]
    pub reference: Option<Reference>,
    /// The tunnels the feature set looks into: whose flows are counted depends on it.
    #[serde(default)]
    pub decapsulate: Vec<String>,
    /// Flow-table entries: of all CPUs together if they share the table, else of each.
    pub table_size: u32,
    /// Where the program reads the time.
    pub clock: String,
    pub policy: PolicyMeta,
}

/// A feature, and its place in the feature set.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Input {
    pub name: String,
    pub place: usize,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BundleMeta {
    pub name: String,
    pub digest: String,
    pub file: String,
    pub created: String,
    pub model: String,
    /// Who signed it, as known when it was loaded.
    #[serde(default)]
    pub signer: Option<Signer>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PolicyMeta {
    /// `None`: no policy file was given, every class passes.
    pub file: Option<String>,
    pub enforce_for_ns: Option<u64>,
    /// Each class with its action, as the file says it.
    pub actions: Vec<String>,
    /// The pin of the program that what passes goes on to.
    #[serde(default)]
    pub next: Option<String>,
    /// When policy or mode were last changed, RFC 3339.
    pub changed: String,
}

impl BundleMeta {
    pub fn new(bundle: &Bundle, file: &Path) -> Self {
        Self {
            name: bundle.manifest.name.clone(),
            digest: bundle.digest.clone(),
            file: files::full_name(file),
            created: bundle.manifest.created.clone(),
            model: bundle.manifest.model.summary.clone(),
            signer: bundle.signer.clone(),
        }
    }
}

fn inputs(bundle: &Bundle) -> Vec<Input> {
    let names = &bundle.manifest.feature_names;
    // A manifest that does not list them leaves all features possible.
    let used = used_features(&bundle.manifest, &bundle.model).unwrap_or_else(|_| (0..names.len()).collect());
    used.into_iter().map(|place| Input { name: names[place].clone(), place }).collect()
}

impl PolicyMeta {
    pub fn new(file: Option<&Path>, policy: &Policy) -> Self {
        Self {
            file: file.map(files::full_name),
            enforce_for_ns: policy.enforce_for.map(|duration| duration.0),
            actions: policy.actions.iter().map(ToString::to_string).collect(),
            next: policy.next.as_deref().map(|path| path.display().to_string()),
            changed: kernel::now(),
        }
    }
}

impl Meta {
    pub fn new(
        bundle: &Bundle,
        file: &Path,
        interface: &str,
        plane: Plane,
        config: &abi::Config,
        policy: PolicyMeta,
    ) -> Self {
        let manifest = &bundle.manifest;
        Self {
            version: VERSION,
            agent: env!("CARGO_PKG_VERSION").to_string(),
            interface: interface.to_string(),
            namespace: netns::inode(),
            namespace_cookie: netns::cookie(),
            plane,
            joining: Joining::default(),
            until: None,
            begins: false,
            since: kernel::now(),
            bundle: BundleMeta::new(bundle, file),
            classes: manifest.classes.clone(),
            networks: manifest.model.networks.clone().unwrap_or_default(),
            inputs: inputs(bundle),
            flow: manifest.flow.clone(),
            reference: manifest.reference.clone(),
            decapsulate: bundle.decapsulate(),
            table_size: (config.bucket_mask + 1) * abi::WAYS,
            clock: config.describe_clock().to_string(),
            policy,
        }
    }

    /// A new map that holds this.
    pub fn to_map(&self) -> Result<MapHandle> {
        note::new(self)
    }

    /// Reads a pinned map; `None` if it is not there or was written by an agent that put it differently.
    pub fn open(path: &Path) -> Option<Self> {
        note::read(path).filter(|meta: &Self| meta.version == VERSION)
    }

    /// Whether it was attached in this thread's network namespace.
    pub fn is_from_here(&self) -> bool {
        match self.namespace_cookie {
            0 => self.namespace == netns::inode(),
            cookie => cookie == netns::cookie(),
        }
    }

    pub fn class_name(&self, class_id: u8) -> Option<&str> {
        self.classes.get(usize::from(class_id)).map(String::as_str)
    }
}
