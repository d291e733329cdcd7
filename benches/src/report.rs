//! How results look on a terminal.

use std::io::{IsTerminal, stdout};

/// Rows under headings, with every column as wide as its widest cell.
#[derive(Debug)]
pub(crate) struct Table {
    headings: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

/// What a cell says.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

/// How a cell is meant, which a terminal may show in colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Good,
    Bad,
    Alarm,
}

impl Cell {
    pub(crate) fn new(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), tone }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(text, Tone::Plain)
    }
}

impl Table {
    pub(crate) fn new(headings: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { headings: headings.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The table as text: the first column to the left, the others to the right, as figures want it.
    pub(crate) fn render(&self, colours: bool) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.text.chars().count());
            cells.chain([self.headings[column].chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..self.headings.len()).map(width).collect();
        let mut text = String::new();
        let headings: Vec<_> = self.headings.iter().map(|heading| Cell::from(heading.as_str())).collect();
        let rule = widths.iter().map(|width| Cell::from("-".repeat(*width))).collect();
        for row in [&headings, &rule].into_iter().chain(&self.rows) {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let gap = " ".repeat(widths[column] - cell.text.chars().count());
                let shown = painted(cell, colours);
                if column == 0 {
                    line.push_str(&format!("{shown}{gap}"));
                } else {
                    line.push_str(&format!("  {gap}{shown}"));
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Whether standard output takes colours: a terminal does, unless the user has said no (no-color.org).
pub(crate) fn wants_colours() -> bool {
    stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

fn painted(cell: &Cell, colours: bool) -> String {
    let code = match cell.tone {
        Tone::Plain => return cell.text.clone(),
        Tone::Good => "32",
        Tone::Bad => "33",
        Tone::Alarm => "1;31",
    };
    painted_as(&cell.text, code, colours)
}

/// The text in a colour of the terminal, if it shows them.
pub(crate) fn painted_as(text: &str, code: &str, colours: bool) -> String {
    if colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// A figure with as many digits as it is worth: three that count, and separators in what is long.
pub(crate) fn figure(value: f64) -> String {
    if value >= 100.0 {
        thousands(value.round() as u64)
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_with_colours_and_without() {
        let mut table = Table::new(["name", "us"]);
        table.row(["a".into(), Cell::new("1,234", Tone::Alarm)]);
        table.row(["longer".into(), "9".into()]);
        assert_eq!(table.render(false), "name       us\n------  -----\na       1,234\nlonger      9\n");
        assert_eq!(table.render(true).matches("\x1b[1;31m1,234\x1b[0m").count(), 1);
    }

    #[test]
    fn figures_have_three_digits_that_count() {
        for (value, text) in [
            (0.0, "0.00"),
            (1.2345, "1.23"),
            (45.67, "45.7"),
            (128.4, "128"),
            (215_000.0, "215,000"),
            (1e6, "1,000,000"),
        ] {
            assert_eq!(figure(value), text);
        }
    }
}
