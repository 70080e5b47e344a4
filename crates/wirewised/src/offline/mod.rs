// SPDX-License-Identifier: Apache-2.0
//! A bundle's program run on captured packets, with nothing attached.

pub mod capture_out;
pub mod engine_run;
pub mod replay;
pub mod runner;
pub mod runtime;
pub mod test_run;
pub mod trace_output;
pub mod tracker;

use crate::error::Error;

// Here and not beside Error, which the fuzzed readers share without the capture crate.
impl From<wirewise_capture::Error> for Error {
    fn from(error: wirewise_capture::Error) -> Self {
        Self::input(error)
    }
}
