// SPDX-License-Identifier: Apache-2.0
//! Names in commands that are suggested. Others may have chosen them: an interface of another namespace can be called `a;reboot`.

use std::fmt::{Display, Write};

use crate::harmless::is_harmful;

/// A word that a shell takes as it stands.
pub fn quoted(word: impl Display) -> String {
    let word = word.to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word;
    }
    if !word.chars().any(is_harmful) {
        return format!("'{}'", word.replace('\'', r"'\''"));
    }
    let mut shown = String::from("$'");
    for character in word.chars() {
        match character {
            '\'' | '\\' => shown.extend(['\\', character]),
            character if is_harmful(character) => {
                for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                    let _ = write!(shown, "\\x{byte:02x}");
                }
            }
            character => shown.push(character),
        }
    }
    shown + "'"
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_shell_gives_the_word_back() {
        for word in [
            "eth0",
            "",
            "a;reboot;b",
            "$(id)",
            "`id`",
            "it's",
            "a b",
            "-x",
            "*",
            "~",
            "\\",
            "a\nb",
            "\u{1b}[2J'\\$x",
            "\u{202e}é",
            "#x",
            "!x",
            "a&b|c>d<e",
            "{a,b}",
        ] {
            let script = format!("printf %s {}", quoted(word));
            assert!(!script.chars().any(is_harmful), "{script:?}");
            let output = Command::new("bash").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word, "{script}");
        }
        assert_eq!(quoted("eth0.5"), "eth0.5");
        assert_eq!(quoted("a;reboot;b"), "'a;reboot;b'");
    }
}
