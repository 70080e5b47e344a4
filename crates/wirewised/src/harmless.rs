// SPDX-License-Identifier: Apache-2.0
//! What may go to a terminal. Names, notes, messages and what a capture holds were written by others.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether a character can change what a terminal does, or how the characters beside it are read: control characters, and
/// those that have no width or turn the direction of writing.
pub fn is_harmful(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
                | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        )
}

/// As `harmless`, in one line: line breaks and tabs too are written out, so that no name adds a line to a listing.
pub fn one_line(text: &str) -> Cow<'_, str> {
    match harmless(text) {
        shown if !shown.contains(['\n', '\t']) => shown,
        shown => Cow::Owned(shown.replace('\n', "\\u000a").replace('\t', "\\u0009")),
    }
}

/// The text with such characters as JSON writes them (`\u001b`); line breaks and tabs stay. So JSON stays the same document.
pub fn harmless(text: &str) -> Cow<'_, str> {
    let escape = |c: &char| is_harmful(*c) && !matches!(c, '\n' | '\t');
    if !text.chars().any(|character| escape(&character)) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::new();
    for character in text.chars() {
        if escape(&character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                let _ = write!(shown, "\\u{unit:04x}");
            }
        } else {
            shown.push(character);
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_written_out() {
        for (text, shown) in [
            ("a\u{1b}[2Jb", r"a\u001b[2Jb"),
            ("\u{9b}31m", r"\u009b31m"),
            ("\u{202e}evil\u{7f}", r"\u202eevil\u007f"),
            ("\u{e0041}", r"\udb40\udc41"),
            ("two\n\tlines, naïve 漢字 ▇", "two\n\tlines, naïve 漢字 ▇"),
        ] {
            assert_eq!(harmless(text), shown);
        }
    }

    #[test]
    fn json_stays_the_same_document() {
        let value = serde_json::json!({"summary": "\u{1b}]0;x\u{7}\u{9b}\u{7f}\u{202e}\u{e0041}\n"});
        let text = serde_json::to_string_pretty(&value).unwrap();
        let shown = harmless(&text);
        assert!(shown.chars().all(|c| c == '\n' || !is_harmful(c)), "{shown:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }
}
