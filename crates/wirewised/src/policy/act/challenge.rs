// SPDX-License-Identifier: Apache-2.0
//! Who opens a connection has to return a cookie. What the host needs for that: attachment/challenge.rs.

use serde_json::Value;

use super::{Act, ActionMap, Does, Pool, Steering};
use crate::abi;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Challenge {
    /// Who is to be addressed, to be looked up.
    pub guarded: Guarded,
}

/// A host that a challenge answers for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Guarded {
    pub address: [u8; 6],
    pub broadcast: [[u8; 4]; abi::BROADCASTS],
}

impl Act for Challenge {
    const DOES: Does = Does::Sends;
    const KIND: u32 = abi::STEER_CHALLENGE;
    const NAME: &'static str = "challenge";
    const ABSENT: Value = Value::Bool(false);
    const IS_WORD: bool = true;

    fn read(file: &ActionMap, _: &[Pool]) -> Result<Option<Self>, String> {
        Ok(Self::is_named(file).then(Self::default))
    }

    fn check(&self, class: &Steering) -> Result<(), String> {
        if class.kinds() == self.kinds() {
            return Ok(());
        }
        Err("challenge stands alone: who answers it passes as it came; give the class nothing else, or another action".to_string())
    }

    fn write(&self, steer: &mut abi::Steer) {
        (steer.address, steer.broadcast) = (self.guarded.address, self.guarded.broadcast);
    }
}
