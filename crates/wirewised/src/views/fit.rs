// SPDX-License-Identifier: Apache-2.0
//! Tables of counters as wide as there is room: a number is written shorter, or its column left out and named, but never cut.

use std::borrow::Cow;

use crate::text::table::Columns;
use crate::text::units::{format_count, thousands};
use crate::views::terminal;

/// What stands in a cell: in full, and as short as it may be said.
#[derive(Debug, Clone)]
pub struct Cell {
    full: String,
    short: String,
    /// Says that something occurred.
    occurred: bool,
}

impl Cell {
    pub fn words(text: impl Into<String>) -> Self {
        let full = text.into();
        Self { short: full.clone(), full, occurred: true }
    }

    pub fn count(count: u64) -> Self {
        Self { full: thousands(count), short: format_count(count as f64), occurred: count > 0 }
    }

    /// A second; `None`: there is none yet.
    pub fn rate(rate: Option<f64>) -> Self {
        Self::words(rate.map_or("-".to_string(), format_count))
    }

    fn text(&self, short: bool) -> &str {
        if short { &self.short } else { &self.full }
    }
}

/// What becomes of a column where there is not enough room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// It stays.
    Always,
    /// It goes, those with the highest number first.
    Room(u8),
    /// It goes where nothing of it occurred, and else as `Room`.
    Occurrence(u8),
}

#[derive(Debug, Clone)]
pub struct Column {
    pub name: Cow<'static, str>,
    pub need: Need,
}

#[derive(Debug)]
pub struct Table {
    pub columns: Vec<Column>,
    /// Columns of words, which stand left; the others hold numbers.
    pub left: usize,
    pub rows: Vec<Vec<Cell>>,
}

/// What of a table there is room for.
#[derive(Debug)]
pub struct Fitted {
    /// Names of the columns, then the rows.
    pub lines: Vec<Vec<String>>,
    pub left: usize,
    /// Columns there was no room for.
    pub left_out: Vec<String>,
}

impl Table {
    /// width : `None` if nothing limits it.
    pub fn fit(&self, width: Option<usize>) -> Fitted {
        let all: Vec<usize> = (0..self.columns.len()).collect();
        let Some(width) = width else { return self.shown(&all, false, Vec::new()) };
        let mut shown: Vec<usize> = all.into_iter().filter(|column| self.is_wanted(*column)).collect();
        let full = self.shown(&shown, false, Vec::new());
        if full.width() <= width {
            return full;
        }
        let mut left_out = Vec::new();
        loop {
            let short = self.shown(&shown, true, left_out.clone());
            let spare = |place: &usize| match self.columns[shown[*place]].need {
                Need::Always => None,
                Need::Room(rank) | Need::Occurrence(rank) => Some(rank),
            };
            let next =
                (0..shown.len()).filter(|place| spare(place).is_some()).max_by_key(|place| spare(place));
            match next {
                Some(place) if short.width() > width => {
                    left_out.push(self.columns[shown.remove(place)].name.to_string())
                }
                _ => return short,
            }
        }
    }

    fn is_wanted(&self, column: usize) -> bool {
        let occurred = || self.rows.iter().any(|row| row[column].occurred);
        !matches!(self.columns[column].need, Need::Occurrence(_)) || occurred()
    }

    fn shown(&self, columns: &[usize], short: bool, left_out: Vec<String>) -> Fitted {
        let header = columns.iter().map(|column| self.columns[*column].name.to_string()).collect();
        let row =
            |row: &Vec<Cell>| columns.iter().map(|column| row[*column].text(short).to_string()).collect();
        let lines = std::iter::once(header).chain(self.rows.iter().map(row)).collect();
        Fitted { lines, left: columns.iter().filter(|column| **column < self.left).count(), left_out }
    }

    pub fn print(&self) {
        self.print_from(0);
    }

    /// Without the names of its columns.
    pub fn print_rows(&self) {
        self.print_from(1);
    }

    fn print_from(&self, first: usize) {
        let fitted = self.fit(terminal::width());
        let columns = Columns::of(&fitted.lines);
        for line in &fitted.lines[first..] {
            println!("{}", columns.line(line, fitted.left));
        }
        if let Some(note) = fitted.note() {
            terminal::print_wrapped(&format!("{note}; --json has all"), 2);
        }
    }
}

impl Fitted {
    pub fn width(&self) -> usize {
        Columns::of(&self.lines).width()
    }

    /// Which columns are missing, if any are.
    pub fn note(&self) -> Option<String> {
        (!self.left_out.is_empty()).then(|| format!("no room for: {}", self.left_out.join(", ")))
    }

    /// As `note`, with as many names as there is room for.
    pub fn note_within(&self, room: usize) -> Option<String> {
        let all = self.note()?;
        let some = |named: usize| {
            let (names, more) = self.left_out.split_at(named);
            format!("no room for: {} and {} more", names.join(", "), more.len())
        };
        let fits = |note: &String| note.chars().count() <= room;
        let shorter = || (1..self.left_out.len()).rev().map(some).find(fits);
        let none = || format!("no room for {}", self.left_out.len());
        Some(if fits(&all) { all } else { shorter().unwrap_or_else(none) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table(counts: &[[u64; 4]]) -> Table {
        let column = |name: &'static str, need| Column { name: name.into(), need };
        let columns = vec![
            column("class", Need::Always),
            column("packets", Need::Always),
            column("bytes", Need::Room(9)),
            column("drop", Need::Occurrence(1)),
            column("limited", Need::Occurrence(2)),
        ];
        let row = |counts: &[u64; 4]| {
            std::iter::once(Cell::words("syn-flood"))
                .chain(counts.iter().map(|count| Cell::count(*count)))
                .collect()
        };
        Table { columns, left: 1, rows: counts.iter().map(row).collect() }
    }

    #[test]
    fn a_note_names_as_many_columns_as_there_is_room_for() {
        let left_out = ["bytes", "bit/s", "action"].map(str::to_string).to_vec();
        let fitted = Fitted { lines: Vec::new(), left: 0, left_out };
        for (room, expected) in [
            (99, "no room for: bytes, bit/s, action"),
            (32, "no room for: bytes and 2 more"),
            (36, "no room for: bytes, bit/s, action"),
            (20, "no room for 3"),
        ] {
            assert_eq!(fitted.note_within(room).as_deref(), Some(expected));
        }
        assert_eq!(Fitted { left_out: Vec::new(), ..fitted }.note_within(9), None);
    }

    #[test]
    fn what_does_not_fit_is_shortened_then_left_out_and_named() {
        let table = table(&[[5_708_106, 1 << 40, 0, 17], [12, 1200, 0, 0]]);
        let all = table.fit(None);
        assert_eq!(all.lines[0], ["class", "packets", "bytes", "drop", "limited"]);
        assert_eq!(all.lines[1], ["syn-flood", "5,708,106", "1,099,511,627,776", "0", "17"]);
        let wide = table.fit(Some(80));
        assert_eq!(wide.lines[1], ["syn-flood", "5,708,106", "1,099,511,627,776", "17"]);
        assert_eq!(wide.note(), None);
        let short = table.fit(Some(36));
        assert_eq!(short.lines[1], ["syn-flood", "5.7 M", "1.1 T", "17"]);
        assert_eq!(short.note(), None);
        let narrow = table.fit(Some(30));
        assert_eq!(narrow.lines[0], ["class", "packets", "limited"]);
        assert_eq!(narrow.note().as_deref(), Some("no room for: bytes"));
    }

    proptest! {
        /// From 40 columns on there is room, and a number stands in full or with a unit.
        #[test]
        fn lines_fit_and_no_number_is_cut(counts in prop::collection::vec(any::<[u64; 4]>(), 1..4), width in 40usize..200) {
            let fitted = table(&counts).fit(Some(width));
            prop_assert!(fitted.width() <= width);
            for (line, counts) in fitted.lines[1..].iter().zip(&counts) {
                let known: Vec<_> = counts.iter().flat_map(|n| [thousands(*n), format_count(*n as f64)]).collect();
                prop_assert!(line[1..].iter().all(|cell| known.contains(cell)), "{line:?}");
            }
        }
    }
}
