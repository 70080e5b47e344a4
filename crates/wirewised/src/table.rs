// SPDX-License-Identifier: Apache-2.0
//! Plain text in columns.

/// Prints rows of cells. The first `left` columns are words and stand left, the others numbers and stand right.
pub fn print<const N: usize>(rows: &[[String; N]], left: usize) {
    for line in lines(rows, left) {
        println!("{line}");
    }
}

fn lines<const N: usize>(rows: &[[String; N]], left: usize) -> Vec<String> {
    let mut columns = Columns::default();
    rows.iter().for_each(|row| columns.fit(row));
    rows.iter().map(|row| columns.line(row, left)).collect()
}

/// As wide as the cells they were fitted to.
#[derive(Debug)]
pub struct Columns<const N: usize>([usize; N]);

impl<const N: usize> Default for Columns<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> Columns<N> {
    pub fn fit(&mut self, row: &[String; N]) {
        for (width, cell) in self.0.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }

    pub fn line(&self, row: &[String; N], left: usize) -> String {
        let cells = row.iter().zip(self.0).enumerate().map(|(column, (cell, width))| {
            if column < left { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_left_and_numbers_right() {
        let rows = [["class", "packets"], ["a", "5"]].map(|row| row.map(str::to_string));
        assert_eq!(lines(&rows, 1), ["class  packets", "a            5"]);
        assert!(lines::<2>(&[], 1).is_empty());
    }
}
