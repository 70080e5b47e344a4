// SPDX-License-Identifier: Apache-2.0
//! Packets go back out of the interface they came by.

use serde_json::Value;

use super::{Act, ActionMap, Does, Pool, Steering};
use crate::abi;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounce;

impl Act for Bounce {
    const DOES: Does = Does::Sends;
    const KIND: u32 = abi::STEER_BOUNCE;
    const NAME: &'static str = "bounce";
    const ABSENT: Value = Value::Bool(false);
    const IS_WORD: bool = true;

    fn read(file: &ActionMap, _: &[Pool]) -> Result<Option<Self>, String> {
        Ok(Self::is_named(file).then_some(Self))
    }

    fn check(&self, class: &Steering) -> Result<(), String> {
        if class.redirect.is_none() {
            return Ok(());
        }
        Err("a packet cannot go elsewhere and back to its sender: give redirect or the action bounce"
            .to_string())
    }

    fn destination(&self) -> Option<String> {
        Some("bounced".to_string())
    }
}
