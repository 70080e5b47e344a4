// SPDX-License-Identifier: Apache-2.0
//! Whether a bundle is what it says: who signed it, and whether its program is what its sources make.

pub mod keys;
pub mod rebuild;
