// SPDX-License-Identifier: Apache-2.0
//! From byte code to what the back ends translate.

pub mod insn;
