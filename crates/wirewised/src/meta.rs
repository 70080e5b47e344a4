// SPDX-License-Identifier: Apache-2.0
//! What an attachment remembers of how it came about: JSON in a pinned map beside the link, so that it appears and
//! goes with it, and needs no other place to be written to.

use std::ffi::CStr;
use std::path::Path;
use std::time::SystemTime;

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::abi;
use crate::bundle::Bundle;
use crate::error::{Error, Result};
use crate::manifest::Flow;
use crate::netns;
use crate::policy::Policy;
use crate::signature::Signer;
use crate::xdp::Plane;

const MAP_NAME: &str = "ww_meta";
const VERSION: u32 = 1;

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
    /// When this program was attached, RFC 3339.
    pub since: String,
    pub bundle: BundleMeta,
    /// The index is the class id.
    pub classes: Vec<String>,
    pub flow: Flow,
    /// The tunnels the feature set looks into: whose flows are counted depends on it.
    #[serde(default)]
    pub decapsulate: Vec<String>,
    /// Flow-table entries: of all CPUs together if they share the table, else of each.
    pub table_size: u32,
    /// Where the program reads the time.
    pub clock: String,
    pub policy: PolicyMeta,
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
    /// When policy or mode were last changed, RFC 3339.
    pub changed: String,
}

impl BundleMeta {
    pub fn new(bundle: &Bundle, file: &Path) -> Self {
        Self {
            name: bundle.manifest.name.clone(),
            digest: bundle.digest.clone(),
            file: file.display().to_string(),
            created: bundle.manifest.created.clone(),
            model: bundle.manifest.model.summary.clone(),
            signer: bundle.signer.clone(),
        }
    }
}

impl PolicyMeta {
    pub fn new(file: Option<&Path>, policy: &Policy) -> Self {
        Self {
            file: file.map(|path| path.display().to_string()),
            enforce_for_ns: policy.enforce_for.map(|duration| duration.0),
            actions: policy.actions.iter().map(ToString::to_string).collect(),
            changed: now(),
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
            since: now(),
            bundle: BundleMeta::new(bundle, file),
            classes: manifest.classes.clone(),
            flow: manifest.flow.clone(),
            decapsulate: bundle.decapsulate(),
            table_size: (config.bucket_mask + 1) * abi::WAYS,
            clock: config.describe_clock().to_string(),
            policy,
        }
    }

    /// A new map that holds this.
    pub fn to_map(&self) -> Result<MapHandle> {
        new_map(self)
    }

    /// Reads a pinned map; `None` if it is not there or was written by an agent that put it differently.
    pub fn open(path: &Path) -> Option<Self> {
        read_map(path).filter(|meta: &Self| meta.version == VERSION)
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

/// A new map that holds what is to be remembered.
pub fn new_map(what: &impl Serialize) -> Result<MapHandle> {
    let failed =
        |error: &dyn std::fmt::Display| Error::other(format!("cannot keep what is attached: {error}"));
    let mut value = serde_json::to_vec(what).map_err(|error| failed(&error))?;
    value.resize(value.len().next_multiple_of(8) + 8, 0);
    let opts = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
        ..Default::default()
    };
    let map = MapHandle::create(MapType::Array, Some(MAP_NAME), 4, value.len() as u32, 1, &opts)
        .map_err(|error| failed(&error))?;
    map.update(&0u32.to_ne_bytes(), &value, MapFlags::ANY).map_err(|error| failed(&error))?;
    Ok(map)
}

/// What a pinned map of `new_map` holds; `None` if it is not there or holds something else.
pub fn read_map<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let map = MapHandle::from_pinned_path(path).ok()?;
    let value = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok()??;
    let text = CStr::from_bytes_until_nul(&value).ok()?;
    serde_json::from_slice(text.to_bytes()).ok()
}

/// This moment, RFC 3339 in UTC with seconds.
pub fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}
