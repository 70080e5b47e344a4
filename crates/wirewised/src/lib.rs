// SPDX-License-Identifier: Apache-2.0
//! The wirewise agent: loads bundles into the kernel, attaches them, and shows what they do.
//!
//! `cli` names the commands, `commands` holds one module for each; the modules beside them are what commands share.

pub mod abi;
pub mod cli;
pub mod commands;
pub mod error;
