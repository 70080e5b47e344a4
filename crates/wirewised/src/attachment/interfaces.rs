// SPDX-License-Identifier: Apache-2.0
//! Several interfaces in one option: names and patterns, separated by commas (`eth0,wan*`).

use crate::error::{Error, Result};

/// The interfaces that `text` means, each once, in its order. candidates : the names that there are; with them patterns are compared, and
/// one of them that is `text` as it stands is that interface.
pub fn expand(text: &str, candidates: &[String]) -> Result<Vec<String>> {
    if !text.contains([',', '*', '?']) || candidates.iter().any(|name| name == text) {
        return Ok(vec![text.to_string()]);
    }
    let mut names: Vec<String> = Vec::new();
    for part in text.split(',').map(str::trim) {
        let matches: Vec<_> = match part.contains(['*', '?']) {
            true => candidates.iter().filter(|name| is_match(part, name)).cloned().collect(),
            false => vec![part.to_string()],
        };
        if part.is_empty() {
            return Err(Error::input(format!("--interface {text}: a name is missing beside a comma")));
        }
        if matches.is_empty() {
            let there = if candidates.is_empty() { "none".to_string() } else { candidates.join(", ") };
            return Err(Error::input(format!(
                "--interface {text}: no interface matches '{part}'; there are: {there}"
            )));
        }
        for name in matches {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    Ok(names)
}

/// `*` matches any characters, `?` one.
fn is_match(pattern: &str, name: &str) -> bool {
    let Some(first) = pattern.chars().next() else { return name.is_empty() };
    let (rest, mut ends) = (&pattern[first.len_utf8()..], name.char_indices().map(|(at, _)| &name[at..]));
    match first {
        '*' => ends.any(|end| is_match(rest, end)) || is_match(rest, ""),
        '?' => name.chars().next().is_some_and(|one| is_match(rest, &name[one.len_utf8()..])),
        _ => name.strip_prefix(first).is_some_and(|end| is_match(rest, end)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> std::result::Result<Vec<String>, String> {
        let all = ["lo", "eth0", "eth1", "eth10", "a,b"].map(str::to_string);
        expand(text, &all).map_err(|error| error.to_string())
    }

    #[test]
    fn patterns_name_what_is_there_and_each_interface_comes_once() {
        for (text, expected) in [
            ("eth0", vec!["eth0"]),
            ("not-there", vec!["not-there"]),
            ("eth1,eth0, eth1", vec!["eth1", "eth0"]),
            ("eth*", vec!["eth0", "eth1", "eth10"]),
            ("eth?", vec!["eth0", "eth1"]),
            ("*0,lo", vec!["eth0", "eth10", "lo"]),
            ("*", vec!["lo", "eth0", "eth1", "eth10", "a,b"]),
            ("a,b", vec!["a,b"]),
        ] {
            assert_eq!(names(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn what_matches_nothing_is_refused() {
        assert!(
            names("eth0,wlan*").unwrap_err().contains("no interface matches 'wlan*'; there are: lo, eth0")
        );
        assert!(names("eth0,").unwrap_err().contains("a name is missing"));
    }
}
