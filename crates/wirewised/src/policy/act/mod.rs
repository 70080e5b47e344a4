// SPDX-License-Identifier: Apache-2.0
//! The actions of a class other than pass, drop, count and rate-limit: where packets go, and what is written on them. Each action has a file
//! with its keys, its rules, its arguments for the data path, and how it is shown; `acts!` lists them.

mod backend;
mod bounce;
mod challenge;
mod decapsulate;
mod dscp;
mod encapsulate;
pub mod forward;
mod inner_dscp;
mod mark;
mod mirror;
mod priority;
mod qfi;
mod queue;
mod redirect;

use std::fmt;

use bytemuck::Zeroable;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::abi;
use crate::policy::ban::BanFile;
use crate::policy::file::{NameOr, from_text};
use crate::policy::pools::Pool;
use crate::policy::words::{Dscp, Number, Text};
use crate::text::units::Rate;

pub use challenge::{Challenge, Guarded};
pub use encapsulate::Encapsulate;
pub use redirect::Redirect;

/// What an action does. A class's actions are shown in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Does {
    Writes,
    Copies,
    Sends,
    Tunnels,
}

/// An action of a class.
trait Act: Sized {
    const DOES: Does;
    /// `abi::STEER_*` bits.
    const KIND: u32;
    /// Its name in the normal form.
    const NAME: &'static str;
    /// Whether `action: NAME` selects it.
    const IS_WORD: bool = false;
    /// Its value in the normal form of a class that does not use it.
    const ABSENT: Value = Value::Null;

    /// Reads it from a class's mapping; `None`: the class does not use it. The error names the rule that was broken.
    fn read(file: &ActionMap, pools: &[Pool]) -> Result<Option<Self>, String>;

    /// Fails if the class has another action that it cannot be combined with.
    fn check(&self, _class: &Steering) -> Result<(), String> {
        Ok(())
    }

    /// As `KIND`, where the value decides which.
    fn kinds(&self) -> u32 {
        Self::KIND
    }

    /// Writes its arguments for the data path.
    fn write(&self, _steer: &mut abi::Steer) {}

    /// Where packets go instead, as part of a file's name.
    fn destination(&self) -> Option<String> {
        None
    }

    /// Its argument in the normal form; `true` if it has none.
    fn value(&self) -> Value {
        true.into()
    }

    /// Its part of the normal form, which has every key of every action.
    fn normal(act: Option<&Self>) -> Vec<(&'static str, Value)> {
        vec![(Self::NAME, act.map_or(Self::ABSENT, Self::value))]
    }

    /// For people.
    fn text(&self) -> String {
        match self.value() {
            Value::Bool(_) => Self::NAME.to_string(),
            value => format!("{} {value}", Self::NAME),
        }
    }

    /// Whether the class's `action` selects it.
    fn is_named(file: &ActionMap) -> bool {
        Self::IS_WORD && file.action.as_deref() == Some(Self::NAME)
    }
}

/// Takes a line for each action: field, type and, if it has a key of its own, the key and the type of its value.
macro_rules! acts {
    ($($field:ident: $act:ty $(= $key:literal as $file:ty)?),+ $(,)?) => {
        /// The mapping of a class in a policy file. Messages list keys in this order.
        #[derive(Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct ActionMap {
            pub action: Option<String>,
            #[serde(default, deserialize_with = "from_text")]
            pub rate: Option<Rate>,
            pub burst: Option<u32>,
            pub after: Option<u32>,
            pub ban: Option<BanFile>,
            pub severity: Option<u8>,
            $($(#[serde(default, rename = $key)] $field: $file,)?)+
        }

        /// The actions of a class: at least one.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct Steering {
            $(pub $field: Option<$act>,)+
        }

        impl Steering {
            /// `None`: the class has no such action.
            pub(super) fn read(file: &ActionMap, pools: &[Pool]) -> Result<Option<Self>, String> {
                let read = Self { $($field: <$act>::read(file, pools)?,)+ };
                $(read.$field.as_ref().map_or(Ok(()), |act| act.check(&read))?;)+
                Ok((read != Self::default()).then_some(read))
            }

            /// `abi::STEER_*` bits.
            pub fn kinds(&self) -> u32 {
                0 $(| self.$field.as_ref().map_or(0, Act::kinds))+
            }

            pub fn to_abi(&self) -> abi::Steer {
                let mut steer = abi::Steer { kinds: self.kinds(), ..abi::Steer::zeroed() };
                $(self.$field.iter().for_each(|act| act.write(&mut steer));)+
                steer
            }

            /// Where its packets go instead, as part of a file's name.
            pub fn destination(&self) -> Option<String> {
                None $(.or_else(|| self.$field.as_ref().and_then(Act::destination)))+
            }

            pub(super) fn normal(&self) -> Value {
                let mut normal = Map::new();
                $(normal.extend(<$act>::normal(self.$field.as_ref()).into_iter().map(|(key, value)| (key.to_owned(), value)));)+
                normal.into()
            }

            fn texts(&self) -> Vec<(Does, String)> {
                let texts = [$(self.$field.as_ref().map(|act| (<$act>::DOES, act.text())),)+];
                texts.into_iter().flatten().collect()
            }
        }

        /// The keys of actions, with what they do.
        const KEYS: &[(Does, &str)] = &[$($((<$act>::DOES, $key),)?)+];
        /// The names of actions; true: also values of `action`.
        const WORDS: &[(bool, &str)] = &[$((<$act>::IS_WORD, <$act>::NAME),)+];
    };
}

acts! {
    redirect: Redirect = "redirect" as Option<redirect::File>,
    mirror: mirror::Mirror = "mirror" as Option<mirror::File>,
    bounce: bounce::Bounce,
    forward: forward::Forward = "forward" as Option<forward::File>,
    challenge: Challenge,
    dscp: dscp::Dscp = "dscp" as Text<Dscp>,
    mark: mark::Mark = "mark" as Text<Number>,
    priority: priority::Priority = "priority" as Text<Number>,
    queue: queue::Queue = "queue" as Text<Number>,
    backend: backend::Backend = "backend" as Option<String>,
    decapsulate: decapsulate::Decapsulate = "decapsulate" as Option<String>,
    encapsulate: Encapsulate = "encapsulate" as Option<String>,
    qfi: qfi::Qfi = "qfi" as Text<Number>,
    inner_dscp: inner_dscp::InnerDscp = "inner-dscp" as Text<Dscp>,
}

impl NameOr<ActionMap> {
    /// A bare name is a mapping with nothing but an action.
    pub fn mapping(self) -> ActionMap {
        match self {
            Self::Name(action) => ActionMap { action: Some(action), ..ActionMap::default() },
            Self::Map(map) => map,
        }
    }
}

/// The values of `action` that select one of these.
pub fn words() -> impl Iterator<Item = &'static str> {
    WORDS.iter().filter(|(is_word, _)| *is_word).map(|(_, word)| *word)
}

/// The keys that select one of these: first those that send packets elsewhere, last those of tunnels.
pub fn keys() -> Vec<&'static str> {
    let mut keys = KEYS.to_vec();
    keys.sort_by_key(|(does, _)| (*does == Does::Tunnels, *does == Does::Writes));
    keys.into_iter().map(|(_, key)| key).collect()
}

impl Steering {
    /// Whether some of its packets do not come to their receiver.
    pub fn takes_away(&self) -> bool {
        self.kinds() & abi::STEER_ELSEWHERE != 0
    }
}

impl fmt::Display for Steering {
    /// `dscp AF41, redirect to eth2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut texts = self.texts();
        texts.sort_by_key(|(does, _)| *does);
        f.pad(&texts.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(", "))
    }
}
