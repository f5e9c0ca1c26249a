//! Rows of text in columns, for people.

use std::fmt;

/// A heading and rows, each of `N` columns.
pub(super) struct Table<const N: usize> {
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    pub(super) fn new(heading: [&str; N]) -> Self {
        let rows = vec![heading.map(str::to_uppercase)];
        Self { rows }
    }

    pub(super) fn row(&mut self, row: [String; N]) {
        self.rows.push(row);
    }
}

impl<const N: usize> fmt::Display for Table<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut widths = [0; N];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        for row in &self.rows {
            let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
            writeln!(f, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_one_another() {
        let mut table = Table::new(["id", "user"]);
        table.row(["1".to_owned(), "josé".to_owned()]);
        table.row(["12345".to_owned(), String::new()]);
        assert_eq!(table.to_string(), "ID     USER\n1      josé\n12345\n");
    }
}
