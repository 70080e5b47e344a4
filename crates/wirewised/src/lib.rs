// SPDX-License-Identifier: Apache-2.0
//! The wirewise agent: loads bundles into the kernel, attaches them, and shows what they do.
//!
//! `cli` names the commands, `commands` holds one module for each; the modules beside them are what commands share.

#[macro_use]
pub mod text;

pub mod abi;
pub mod attachment;
pub mod bundle;
pub mod cli;
pub mod commands;
pub mod completing;
pub mod ending;
pub mod error;
pub mod features;
pub mod files;
pub mod harmless;
pub mod inference;
pub mod interface;
pub mod kernel;
pub mod labels;
pub mod object;
pub mod offline;
pub mod packets;
pub mod plane;
pub mod policy;
pub mod reading;
pub mod recording;
pub mod rows;
pub mod stop;
pub mod trust;
pub mod views;
pub mod wire;
