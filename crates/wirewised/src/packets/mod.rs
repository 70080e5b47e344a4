// SPDX-License-Identifier: Apache-2.0
//! Frames as they stand in captures: what can be told of one without a program.

pub mod headers;
pub mod outer;
