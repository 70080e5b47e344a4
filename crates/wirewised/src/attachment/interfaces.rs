// SPDX-License-Identifier: Apache-2.0
//! Several interfaces in one option: names and patterns, separated by commas (`eth0,wan*`).

use glob::Pattern;

use crate::error::{Error, Result};

/// The interfaces that `text` means, each once, in its order. candidates : asked for the names that there are, if they matter: patterns are
/// compared with them, and one of them that is exactly `text` is that interface.
pub fn expand(text: &str, candidates: impl FnOnce() -> Result<Vec<String>>) -> Result<Vec<String>> {
    if !text.contains([',', '*', '?']) {
        return Ok(vec![text.to_string()]);
    }
    let candidates = candidates()?;
    if candidates.iter().any(|name| name == text) {
        return Ok(vec![text.to_string()]);
    }
    let mut names: Vec<String> = Vec::new();
    for part in text.split(',').map(str::trim) {
        let matches: Vec<_> = match part.contains(['*', '?']) {
            true => matching(part, &candidates),
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

/// `*` matches any characters, `?` one, and all others themselves.
fn matching(part: &str, candidates: &[String]) -> Vec<String> {
    // Runs of stars, and brackets, mean something else to the library.
    let mut text = part.replace('[', "[[]");
    while text.contains("**") {
        text = text.replace("**", "*");
    }
    let pattern = Pattern::new(&text).ok();
    candidates.iter().filter(|name| pattern.as_ref().is_some_and(|it| it.matches(name))).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> std::result::Result<Vec<String>, String> {
        let all = ["lo", "eth0", "eth1", "eth10", "a,b", "v[1]"].map(str::to_string);
        expand(text, || Ok(all.to_vec())).map_err(|error| error.to_string())
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
            ("*", vec!["lo", "eth0", "eth1", "eth10", "a,b", "v[1]"]),
            ("eth**", vec!["eth0", "eth1", "eth10"]),
            ("v[*", vec!["v[1]"]),
            ("v[?]", vec!["v[1]"]),
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
