// SPDX-License-Identifier: Apache-2.0
//! Plain text in columns.

/// Prints rows of cells. The first `left` columns are words and stand left, the others numbers and stand right.
pub fn print<const N: usize>(rows: &[[String; N]], left: usize) {
    for line in lines(rows, left) {
        println!("{line}");
    }
}

fn lines<const N: usize>(rows: &[[String; N]], left: usize) -> Vec<String> {
    let columns = Columns::of(rows);
    rows.iter().map(|row| columns.line(row, left)).collect()
}

/// Blanks between two columns.
const GAP: usize = 2;

/// As wide as the cells they were fitted to.
#[derive(Debug, Default)]
pub struct Columns(Vec<usize>);

impl Columns {
    pub fn of(rows: &[impl AsRef<[String]>]) -> Self {
        let mut columns = Self::default();
        rows.iter().for_each(|row| columns.fit(row.as_ref()));
        columns
    }

    pub fn fit(&mut self, row: &[String]) {
        self.0.resize(self.0.len().max(row.len()), 0);
        for (width, cell) in self.0.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }

    /// Of a line, without blanks at its end.
    pub fn width(&self) -> usize {
        self.0.iter().sum::<usize>() + GAP * self.0.len().saturating_sub(1)
    }

    /// Of each column.
    pub fn widths(&self) -> &[usize] {
        &self.0
    }

    pub fn line(&self, row: &[String], left: usize) -> String {
        let cells = row.iter().zip(&self.0).enumerate().map(|(column, (cell, width))| {
            if column < left { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        cells.collect::<Vec<_>>().join(&" ".repeat(GAP)).trim_end().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_left_and_numbers_right() {
        let rows = [["class", "packets"], ["a", "5"]].map(|row| row.map(str::to_string));
        assert_eq!(lines(&rows, 1), ["class  packets", "a            5"]);
        assert_eq!(Columns::of(&rows).width(), 14);
        assert!(lines::<2>(&[], 1).is_empty());
    }
}
