// SPDX-License-Identifier: Apache-2.0
//! The actor, which the agent carries compiled (`bpf/act/`), linked to the program of a bundle.
//!
//! A bundle's `ww_act` does nothing. Where a policy asks for more than passing, dropping and limiting, the agent replaces it with its own,
//! and adds the functions and maps that this one uses. Both are programs as the agent reads them (`bundle/program/`), so kernel and
//! engine get one object, written as any other.

use std::sync::LazyLock;

use crate::bundle::inspection;
use crate::bundle::program::Program;
use crate::error::{Error, Result};

/// `make act` writes it.
pub const OBJECT: &[u8] = include_bytes!("../../../../bpf/act/act.bpf.o");

static ACTOR: LazyLock<std::result::Result<Program, String>> =
    LazyLock::new(|| inspection::read_actor(OBJECT));

/// The object of a bundle with the actor in it. input : what errors call the bundle.
pub fn with_actor(input: &str, object: &[u8]) -> Result<Vec<u8>> {
    let actor = ACTOR.as_ref().map_err(|what| Error::other(format!("the agent's actor {what}")))?;
    let bundle = inspection::read(object).map_err(|what| Error::input(format!("{input}: {what}")))?;
    let linked = bundle.link(actor).map_err(|what| Error::input(format!("{input}: {what}")))?;
    Ok(linked.encode())
}
