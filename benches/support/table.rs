//! A table of figures.

/// Columns that are aligned to the right, as wide as they need to be.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these heads.
    pub fn new(heads: &[&str]) -> Table {
        Table { rows: vec![heads.iter().map(ToString::to_string).collect()] }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Prints it.
    pub fn print(&self) {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.rows {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
            println!("  {}", cells.collect::<Vec<_>>().join("  "));
        }
    }
}
