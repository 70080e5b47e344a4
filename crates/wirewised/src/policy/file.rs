// SPDX-License-Identifier: Apache-2.0
//! Parts of a policy file, before anything in them is checked against a bundle. What a class may ask for: act/.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_saphyr::Spanned;

use crate::policy::values::{Port, Prefix, Protocol, Switch};
use crate::policy::words::{Number, Text};
use crate::text::units::{Nanoseconds, Rate};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllowFile {
    pub prefixes: Option<Vec<Prefix>>,
    pub ports: Option<Vec<Port>>,
    pub source_ports: Option<Vec<Port>>,
    pub established: Option<Switch>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventsFile {
    #[serde(default, deserialize_with = "from_text")]
    pub rate: Option<Rate>,
    pub burst: Option<u32>,
    pub each: Option<String>,
    #[serde(default, deserialize_with = "from_text")]
    pub update: Option<Nanoseconds>,
    pub features: Option<Switch>,
}

/// Either a bare name (`drop`) or a mapping.
#[derive(Debug)]
pub enum NameOr<M> {
    Name(String),
    Map(M),
}

pub type TriggerFile = NameOr<TriggerMap>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolFile {
    pub method: Option<String>,
    pub interface: Option<String>,
    pub source: Option<String>,
    #[serde(default, deserialize_with = "from_text")]
    pub seed: Option<Number>,
    pub health: Option<HealthFile>,
    pub backends: Option<Vec<BackendFile>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackendFile {
    pub address: Option<String>,
    #[serde(default, deserialize_with = "from_text")]
    pub weight: Option<Number>,
    pub drain: Option<Switch>,
    pub mac: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HealthFile {
    #[serde(default, deserialize_with = "from_text")]
    pub tcp: Option<Number>,
    pub http: Option<String>,
    #[serde(default, deserialize_with = "from_text")]
    pub port: Option<Number>,
    #[serde(default, deserialize_with = "from_text")]
    pub interval: Option<Nanoseconds>,
    #[serde(default, deserialize_with = "from_text")]
    pub timeout: Option<Nanoseconds>,
    #[serde(default, deserialize_with = "from_text")]
    pub fall: Option<Number>,
    #[serde(default, deserialize_with = "from_text")]
    pub rise: Option<Number>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum OneOrMoreTexts {
    One(String),
    More(Vec<String>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TriggerMap {
    packets: Option<Vec<u32>>,
    #[serde(default, deserialize_with = "from_text")]
    interval: Option<Nanoseconds>,
    first_n: Option<u32>,
    any: Option<Vec<SelectorFile>>,
    every: Option<u32>,
}

/// A packet has to have all that it names.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SelectorFile {
    pub port: Option<Port>,
    pub source_port: Option<Port>,
    pub destination_port: Option<Port>,
    #[serde(default, deserialize_with = "from_text")]
    pub protocol: Option<Protocol>,
    pub tcp_flags: Option<OneOrMoreTexts>,
}

/// What a trigger is made of: its name, or the keys of its mapping.
#[derive(Debug, Default)]
pub struct TriggerParts {
    pub name: Option<String>,
    pub packets: Option<Vec<u32>>,
    pub interval: Option<Nanoseconds>,
    pub first_n: Option<u32>,
    pub any: Option<Vec<SelectorFile>>,
    pub every: Option<u32>,
}

impl TriggerFile {
    pub fn parts(self) -> TriggerParts {
        match self {
            NameOr::Name(name) => TriggerParts { name: Some(name), ..TriggerParts::default() },
            NameOr::Map(TriggerMap { packets, interval, first_n, any, every }) => {
                TriggerParts { name: None, packets, interval, first_n, any, every }
            }
        }
    }
}

impl<'de, M: Deserialize<'de>> Deserialize<'de> for NameOr<M> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Either<M>(PhantomData<M>);

        impl<'de, M: Deserialize<'de>> Visitor<'de> for Either<M> {
            type Value = NameOr<M>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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

/// What a policy may list itself or leave to a file.
pub trait Item {
    /// As an error calls many of them.
    const MANY: &'static str;
}

impl Item for Prefix {
    const MANY: &'static str = "prefixes";
}

impl Item for Spanned<TunnelFile> {
    const MANY: &'static str = "tunnels";
}

/// A list, or the name of a file that has one.
#[derive(Debug)]
pub enum FileOrList<T> {
    Named(String),
    Listed(Vec<T>),
}

pub type TunnelsFile = FileOrList<Spanned<TunnelFile>>;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TunnelFile {
    pub local: Option<String>,
    #[serde(default, deserialize_with = "from_text")]
    pub teid: Option<Number>,
    pub ue: Option<OneOrMoreTexts>,
    pub peer: Option<String>,
    #[serde(default, deserialize_with = "from_text")]
    pub peer_teid: Option<Number>,
    #[serde(default, deserialize_with = "from_text")]
    pub qfi: Option<Number>,
}

impl<'de, T: Item + Deserialize<'de>> Deserialize<'de> for FileOrList<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Either<T>(PhantomData<T>);

        impl<'de, T: Item + Deserialize<'de>> Visitor<'de> for Either<T> {
            type Value = FileOrList<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "the name of a file, or a list of {}", T::MANY)
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> std::result::Result<Self::Value, E> {
                Ok(FileOrList::Named(name.to_string()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> std::result::Result<Self::Value, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(seq)).map(FileOrList::Listed)
            }
        }

        deserializer.deserialize_any(Either(PhantomData))
    }
}

/// Reads a scalar with its type's `FromStr`.
pub(super) fn from_text<'de, D, T>(deserializer: D) -> std::result::Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: std::str::FromStr<Err = String>,
{
    Text::deserialize(deserializer).map(|text| text.0)
}
