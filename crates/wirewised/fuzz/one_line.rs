// SPDX-License-Identifier: Apache-2.0
//! What every target checks of a refusal.

/// shown : the message as a person gets to see it.
pub fn assert_one_line(shown: &str) {
    assert!(!shown.is_empty() && !shown.chars().any(char::is_control), "not one line: {shown:?}");
    assert!(shown.len() < 2000, "not short: {} bytes", shown.len());
}
