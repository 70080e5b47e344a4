// SPDX-License-Identifier: Apache-2.0
//! What an engine gives its callers to name its parts by.

/// A program of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProgramId(pub(crate) u32);

/// A map of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MapId(pub(crate) usize);
