// SPDX-License-Identifier: Apache-2.0
//! Which names there may be. `wirewise/names.py` has the same rules: tests of both read `tests/fixtures/names.json`.

use crate::harmless::is_harmful;

/// Characters of a name.
pub const MAX: usize = 200;
const MAX_NETWORK: usize = 63;
/// ASCII characters of a feature set's name, beside letters and digits.
const SIGNS: &str = " ._+(),:-";

/// Of classes, models and tools: one line of text, as people write it.
pub fn is_name(text: &str) -> bool {
    (1..=MAX).contains(&text.chars().count()) && text.chars().all(is_text)
}

/// Of feature sets, which are also in comments of generated sources.
pub fn is_set_name(text: &str) -> bool {
    let allowed = |c: char| !c.is_ascii() || c.is_ascii_alphanumeric() || SIGNS.contains(c);
    is_name(text) && text == text.trim() && text.chars().all(allowed)
}

/// Of features, and of variables of a flow's state: they are identifiers in generated sources.
pub fn is_feature_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    text.len() <= MAX && text.starts_with(|c: char| c.is_ascii_lowercase()) && text.chars().all(allowed)
}

/// Of a bank's networks, which are also file names.
pub fn is_network_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    (1..=MAX_NETWORK).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(allowed)
}

fn is_text(c: char) -> bool {
    c == ' ' || !(c.is_whitespace() || is_harmful(c))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(serde::Deserialize)]
    struct Rules {
        names: BTreeMap<String, Cases>,
        /// First and last, beyond ASCII, of those that no name holds.
        refused: Vec<(u32, u32)>,
    }

    #[derive(serde::Deserialize)]
    struct Cases {
        allowed: Vec<String>,
        refused: Vec<String>,
        ascii: String,
        length: usize,
    }

    #[test]
    fn rules_are_those_of_wirewise() {
        let rules: Rules = serde_json::from_str(include_str!("../../tests/fixtures/names.json")).unwrap();
        for (kind, cases) in &rules.names {
            let is_one = match kind.as_str() {
                "name" => is_name,
                "set" => is_set_name,
                "feature" => is_feature_name,
                "network" => is_network_name,
                _ => panic!("{kind}"),
            };
            for name in &cases.allowed {
                assert!(is_one(name), "{kind} {name:?}");
            }
            for name in &cases.refused {
                assert!(!is_one(name), "{kind} {name:?}");
            }
            let ascii: String = (0..0x80u8).map(char::from).filter(|c| is_one(&format!("a{c}a"))).collect();
            assert_eq!(ascii, cases.ascii, "{kind}");
            assert!(is_one(&"x".repeat(cases.length)) && !is_one(&"x".repeat(cases.length + 1)), "{kind}");
            let beyond = ('\u{80}'..=char::MAX).filter(|c| is_one(&format!("a{c}a")));
            let refused =
                |c: char| rules.refused.iter().any(|(first, last)| (*first..=*last).contains(&c.into()));
            let expected =
                ('\u{80}'..=char::MAX).filter(|c| ["name", "set"].contains(&kind.as_str()) && !refused(*c));
            assert!(beyond.eq(expected), "{kind}");
        }
    }
}
