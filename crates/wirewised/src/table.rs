// SPDX-License-Identifier: Apache-2.0
//! Plain text in columns.

/// Prints rows of cells. The first `left` columns are words and stand left, the others numbers and stand right.
pub fn print<const N: usize>(rows: &[[String; N]], left: usize) {
    for line in lines(rows, left) {
        println!("{line}");
    }
}

fn lines<const N: usize>(rows: &[[String; N]], left: usize) -> Vec<String> {
    let widths: [usize; N] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
            if column < left { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_string()
    };
    rows.iter().map(line).collect()
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
