// SPDX-License-Identifier: Apache-2.0
//! The shape of a policy file, before anything in it is checked against a bundle.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::marker::PhantomData;
use std::path::Path;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_saphyr::{MessageFormatter, UserMessageFormatter};

use crate::error::{Error, Result};
use crate::policy::{Port, Prefix};
use crate::units::{Nanoseconds, Rate};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyFile {
    pub version: u32,
    pub classes: Option<BTreeMap<String, ActionFile>>,
    pub trigger: Option<TriggerFile>,
    pub allow: Option<AllowFile>,
    #[serde(default, deserialize_with = "from_text")]
    pub enforce_for: Option<Nanoseconds>,
    pub malformed: Option<String>,
    pub essential: Option<String>,
    pub events: Option<EventsFile>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllowFile {
    pub prefixes: Option<Vec<Prefix>>,
    pub ports: Option<Vec<Port>>,
    pub source_ports: Option<Vec<Port>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventsFile {
    #[serde(default, deserialize_with = "from_text")]
    pub rate: Option<Rate>,
    pub burst: Option<u32>,
}

/// Either a bare name (`drop`) or a mapping.
#[derive(Debug)]
pub enum NameOr<M> {
    Name(String),
    Map(M),
}

pub type ActionFile = NameOr<ActionMap>;
pub type TriggerFile = NameOr<TriggerMap>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActionMap {
    action: String,
    #[serde(default, deserialize_with = "from_text")]
    rate: Option<Rate>,
    burst: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TriggerMap {
    packets: Option<Vec<u32>>,
    #[serde(default, deserialize_with = "from_text")]
    interval: Option<Nanoseconds>,
    first_n: Option<u32>,
}

impl ActionFile {
    /// Action, rate, burst.
    pub fn parts(self) -> (String, Option<Rate>, Option<u32>) {
        match self {
            NameOr::Name(name) => (name, None, None),
            NameOr::Map(map) => (map.action, map.rate, map.burst),
        }
    }
}

impl TriggerFile {
    /// Name, packets, interval, first-n.
    pub fn parts(self) -> (Option<String>, Option<Vec<u32>>, Option<Nanoseconds>, Option<u32>) {
        match self {
            NameOr::Name(name) => (Some(name), None, None, None),
            NameOr::Map(map) => (None, map.packets, map.interval, map.first_n),
        }
    }
}

impl<'de, M: Deserialize<'de>> Deserialize<'de> for NameOr<M> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Either<M>(PhantomData<M>);

        impl<'de, M: Deserialize<'de>> Visitor<'de> for Either<M> {
            type Value = NameOr<M>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a name or a mapping")
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> std::result::Result<Self::Value, E> {
                Ok(NameOr::Name(name.to_string()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> std::result::Result<Self::Value, A::Error> {
                M::deserialize(MapAccessDeserializer::new(map)).map(NameOr::Map)
            }
        }

        deserializer.deserialize_any(Either(PhantomData))
    }
}

/// Reads a scalar with its type's `FromStr`.
fn from_text<'de, D, T>(deserializer: D) -> std::result::Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: std::str::FromStr<Err = String>,
{
    String::deserialize(deserializer)?.parse().map(Some).map_err(D::Error::custom)
}

/// Reads one YAML document. The error is one line with the place in the text.
pub fn from_yaml<T: DeserializeOwned>(text: &str) -> std::result::Result<T, String> {
    serde_saphyr::from_str(text).map_err(|error| {
        let message = UserMessageFormatter.format_message(error.without_snippet());
        let message = message.escape_debug().to_string().replace("\\'", "'").replace("\\\"", "\"");
        match error.location() {
            Some(location) => format!("line {}, column {}: {message}", location.line(), location.column()),
            None => message,
        }
    })
}

/// Reads a whole file of at most `limit` bytes.
pub fn read(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let name = path.display();
    let failed = |error: std::io::Error| Error::input(format_args!("{name}: cannot be read: {error}"));
    let file = File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > limit {
        return Err(Error::input(format_args!("{name}: larger than {limit} bytes, so no file of this kind")));
    }
    Ok(bytes)
}
