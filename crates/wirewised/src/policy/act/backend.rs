// SPDX-License-Identifier: Apache-2.0
//! Flows are spread over a pool of servers, which policy/pools.rs reads and attachment/pools.rs looks up.

use serde_json::Value;

use super::{Act, ActionMap, Does, Pool, Steering};
use crate::abi;
use crate::text::nearest::choose;

/// A pool of servers, of the policy's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backend {
    pub pool: String,
    /// In the order of names.
    number: u16,
}

impl Act for Backend {
    const DOES: Does = Does::Sends;
    const KIND: u32 = abi::STEER_BACKEND;
    const NAME: &'static str = "backend";

    fn read(file: &ActionMap, pools: &[Pool]) -> Result<Option<Self>, String> {
        let Some(name) = &file.backend else { return Ok(None) };
        if let Some(number) = pools.iter().position(|pool| pool.name == *name) {
            return Ok(Some(Self { pool: name.clone(), number: number as u16 }));
        }
        let names: Vec<_> = pools.iter().map(|pool| pool.name.as_str()).collect();
        Err(match names.is_empty() {
            true => format!(
                "backend: there is no pool '{name}'; write pools: {{{name}: {{backends: [{{address: 10.0.0.11}}]}}}}"
            ),
            false => format!("backend: unknown pool '{name}'; {}", choose(name, &names)),
        })
    }

    fn check(&self, class: &Steering) -> Result<(), String> {
        if class.bounce.is_none() && class.forward.is_none() && class.redirect.is_none() {
            return Ok(());
        }
        Err("a packet goes to a backend or elsewhere: give backend, redirect or the action bounce"
            .to_string())
    }

    fn write(&self, steer: &mut abi::Steer) {
        steer.pool = self.number;
    }

    fn destination(&self) -> Option<String> {
        Some(format!("to-pool-{}", self.pool))
    }

    fn value(&self) -> Value {
        self.pool.as_str().into()
    }

    fn text(&self) -> String {
        format!("backend {}", self.pool)
    }
}
