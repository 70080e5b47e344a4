// SPDX-License-Identifier: Apache-2.0
//! How wide standard output is, and text that is broken to fit.

use std::io::{IsTerminal, stdout};

use ratatui::crossterm::terminal;

use crate::harmless::one_line;
use crate::text::output;

/// Narrower than this nothing sensible fits; lines are as for this width then.
const LEAST: usize = 40;

/// How wide the terminal is of somebody for whom the service runs a command.
pub const COLUMNS: &str = "WIREWISE_COLUMNS";

/// Columns of the terminal on standard output. `None`: it is none, and nothing limits a line.
pub fn width() -> Option<usize> {
    if !stdout().is_terminal() {
        let told = std::env::var(COLUMNS).ok()?.parse().ok()?;
        return Some(usize::max(told, LEAST));
    }
    // A terminal that does not know its size (a serial line) says 0.
    let known = terminal::size().ok().map(|(columns, _)| usize::from(columns)).filter(|columns| *columns > 0);
    Some(known.unwrap_or(80).max(LEAST))
}

/// Prints a text over as many lines as it needs, all but the first with `indent` blanks before them.
pub fn print_wrapped(text: &str, indent: usize) {
    output::block(&wrapped(text, width(), indent));
}

/// Broken between words only: a longer one is for the terminal to break, so that whoever copies it gets it whole.
pub fn wrapped(text: &str, width: Option<usize>, indent: usize) -> String {
    let text = &one_line(text);
    let Some(width) = width.filter(|width| text.chars().count() > *width) else { return text.to_string() };
    let mut lines = String::new();
    let (mut used, mut blanks) = (0, 0);
    for word in text.split(' ') {
        if word.is_empty() {
            blanks += 1;
            continue;
        }
        // Blanks in a row, as between columns, stay where the line does.
        let before = blanks + usize::from(used > 0);
        let length = word.chars().count();
        let before = if used > 0 && used + before + length > width {
            lines.push('\n');
            used = 0;
            indent
        } else {
            before
        };
        lines.push_str(&" ".repeat(before));
        lines.push_str(word);
        used += before + length;
        blanks = 0;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words_and_hang() {
        let text = "  mode         enforce, 3 min 2 s left of ten";
        assert_eq!(wrapped(text, None, 15), text);
        assert_eq!(wrapped(text, Some(80), 15), text);
        let broken = "  mode         enforce, 3 min\n               2 s left of ten";
        assert_eq!(wrapped(text, Some(30), 15), broken);
        let long = "a /sys/fs/bpf/wirewise/eth0 b";
        assert_eq!(wrapped(long, Some(10), 2), "a\n  /sys/fs/bpf/wirewise/eth0\n  b");
    }
}
