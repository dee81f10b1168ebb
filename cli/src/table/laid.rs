//! A table laid out for a width.

use super::Table;
use super::cell::{Cell, Tone, cut_end, cut_middle, width, wrapped};
use super::column::{Column, Fit};

/// Blanks between columns.
const GAP: usize = 2;

/// A piece of a line in one tone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) text: String,
    pub(crate) tone: Tone,
}

/// A line of a laid out table.
pub(crate) type Line = Vec<Span>;

/// A table that fits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Laid {
    pub(crate) head: Vec<Line>,
    /// The lines of each row.
    pub(crate) rows: Vec<Vec<Line>>,
    /// Titles of columns that had no room.
    pub(crate) hidden: Vec<String>,
}

/// A column and the width it is given.
struct Placed<'t> {
    index: usize,
    column: &'t Column,
    /// The width of its widest cell.
    cells: usize,
    given: usize,
}

impl Table {
    /// Lays it out in at most `most` columns, or in full. `wide` shows every column, and in full.
    pub(crate) fn laid(&self, most: Option<usize>, wide: bool) -> Laid {
        let shown = |column: &&(usize, &Column)| wide || !column.1.only_wide;
        let columns: Vec<(usize, &Column)> = self.columns.iter().enumerate().collect();
        let mut placed: Vec<Placed<'_>> =
            columns.iter().filter(shown).map(|(index, column)| self.place(*index, column)).collect();
        let most = most.filter(|_| !wide);
        let mut hidden = Vec::new();
        while !fits(&mut placed, most) {
            let step = placed.iter().map(|at| at.column.leaves).max().unwrap_or_default();
            if step == 0 {
                break;
            }
            let leave = |at: &Placed<'_>| at.column.leaves == step;
            hidden.extend(placed.iter().filter(|at| leave(at)).map(|at| at.column.title.clone()));
            placed.retain(|at| !leave(at));
        }
        // In the order in which they would stand.
        hidden.sort_by_key(|title| self.columns.iter().position(|column| column.title == *title));
        let cut = |line: Line| match most {
            Some(most) => cut_line(line, most),
            None => line,
        };
        Laid {
            head: head(&placed).into_iter().map(cut).collect(),
            rows: self.rows.iter().map(|row| body(&placed, row).into_iter().map(cut).collect()).collect(),
            hidden,
        }
    }

    fn place<'t>(&self, index: usize, column: &'t Column) -> Placed<'t> {
        let cells = self.rows.iter().filter_map(|row| row.get(index));
        let cells = cells.map(|cell| width(&cell.text)).max().unwrap_or_default();
        Placed { index, column, cells, given: cells.max(width(&column.title)) }
    }
}

fn taken(placed: &[Placed<'_>]) -> usize {
    let gaps = placed.len().saturating_sub(1).saturating_mul(GAP);
    placed.iter().map(|at| at.given).fold(gaps, usize::saturating_add)
}

/// Gives each column a width such that all together take at most `most`. False when that cannot be.
fn fits(placed: &mut [Placed<'_>], most: Option<usize>) -> bool {
    for at in placed.iter_mut() {
        at.given = at.cells.max(width(&at.column.title));
    }
    let Some(most) = most else {
        return true;
    };
    if taken(placed) <= most {
        return true;
    }
    // Titles go over several lines.
    for at in placed.iter_mut() {
        let words = at.column.title.split(' ').map(width);
        at.given = at.cells.max(words.max().unwrap_or_default());
    }
    // The widest of what may be cut gives first.
    while let over @ 1.. = taken(placed).saturating_sub(most) {
        let least = |at: &Placed<'_>| {
            let words = at.column.title.split(' ').map(width).max().unwrap_or_default();
            at.column.least().map(|least| least.max(words))
        };
        let gives = |at: &Placed<'_>| least(at).map_or(0, |least| at.given.saturating_sub(least));
        let mut widest: Vec<&mut Placed<'_>> = placed.iter_mut().filter(|at| gives(at) > 0).collect();
        widest.sort_by_key(|at| std::cmp::Reverse(at.given));
        let next = widest.get(1).map_or(0, |at| at.given);
        let Some(first) = widest.first_mut() else {
            return false;
        };
        // Down to the next widest, or one more where they are alike.
        let step = first.given.saturating_sub(next).max(1);
        first.given = first.given.saturating_sub(step.min(over).min(gives(first)));
    }
    true
}

/// The titles, over as many lines as the longest needs, the last of each beside the first row.
fn head(placed: &[Placed<'_>]) -> Vec<Line> {
    let titles: Vec<Vec<String>> = placed.iter().map(|at| wrapped(&at.column.title, at.given)).collect();
    let height = titles.iter().map(Vec::len).max().unwrap_or_default();
    let line = |row: usize| {
        let cells = placed.iter().zip(&titles).map(|(at, title)| {
            let above = height.saturating_sub(title.len());
            let text = row.checked_sub(above).and_then(|row| title.get(row));
            (at, text.map_or("", String::as_str), Tone::Strong)
        });
        aligned(cells)
    };
    (0..height).map(line).collect()
}

fn body(placed: &[Placed<'_>], row: &[Cell]) -> Vec<Line> {
    let empty = Cell::default();
    let cells: Vec<(Vec<String>, Tone)> = placed
        .iter()
        .map(|at| {
            let cell = row.get(at.index).unwrap_or(&empty);
            let lines = match at.column.fit {
                Fit::Whole => vec![cell.text.clone()],
                Fit::End(_) => vec![cut_end(&cell.text, at.given)],
                Fit::Middle(_) => vec![cut_middle(&cell.text, at.given)],
                Fit::Wrap(_) => wrapped(&cell.text, at.given),
            };
            (lines, cell.tone)
        })
        .collect();
    let height = cells.iter().map(|(lines, _)| lines.len()).max().unwrap_or_default();
    let line = |row: usize| {
        let cells = placed
            .iter()
            .zip(&cells)
            .map(|(at, (lines, tone))| (at, lines.get(row).map_or("", String::as_str), *tone));
        aligned(cells)
    };
    (0..height).map(line).collect()
}

/// One line, without blanks at its end.
fn aligned<'c>(cells: impl Iterator<Item = (&'c Placed<'c>, &'c str, Tone)>) -> Line {
    let mut line = Line::new();
    // What stands before the next text.
    let mut blanks = 0_usize;
    for (at, text, tone) in cells {
        let rest = at.given.saturating_sub(width(text));
        let (before, after) = if at.column.right { (rest, 0) } else { (0, rest) };
        if text.is_empty() {
            blanks = blanks.saturating_add(at.given).saturating_add(GAP);
            continue;
        }
        blanks = blanks.saturating_add(before);
        if blanks > 0 {
            line.push(Span { text: " ".repeat(blanks), tone: Tone::Plain });
        }
        line.push(Span { text: text.to_owned(), tone });
        blanks = after.saturating_add(GAP);
    }
    line
}

/// A line of at most `most` columns, where not even the columns that stay fit.
fn cut_line(line: Line, most: usize) -> Line {
    let mut room = most;
    let mut cut = Line::new();
    for span in line {
        if room == 0 {
            break;
        }
        let text = cut_end(&span.text, room);
        room = room.saturating_sub(width(&text));
        cut.push(Span { text, ..span });
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(laid: &Laid) -> Vec<String> {
        let line = |line: &Line| line.iter().map(|span| span.text.as_str()).collect();
        laid.head.iter().chain(laid.rows.iter().flatten()).map(line).collect()
    }

    fn table() -> Table {
        let mut table = Table::new([
            Column::name("GROUP"),
            Column::number("CAP (RU/s)"),
            Column::number("DEMAND (RU/s)").leaves(2),
            Column::number("POOL (RU)").leaves(1),
            Column::text("COMMENT"),
            Column::word("FALLBACK").wide(),
        ]);
        table.row(["a", "5", "1.5", "10", "", "stop"]);
        table.row(["reports-of-the-night", "12000", "0", "11", "what runs when nobody waits", "stop"]);
        table
    }

    #[test]
    fn in_full_columns_line_up_and_numbers_stand_right() {
        let laid = table().laid(None, false);
        assert_eq!(
            text(&laid),
            [
                "GROUP                 CAP (RU/s)  DEMAND (RU/s)  POOL (RU)  COMMENT",
                "a                              5            1.5         10  -",
                "reports-of-the-night       12000              0         11  what runs when nobody waits",
            ]
        );
        assert!(laid.hidden.is_empty());
        assert!(text(&table().laid(Some(20), true))[2].ends_with("nobody waits  stop"), "wide is in full");
    }

    #[test]
    fn titles_wrap_then_texts_are_cut_then_columns_leave() {
        assert_eq!(
            text(&table().laid(Some(70), false)),
            [
                "                         CAP  DEMAND  POOL",
                "GROUP                 (RU/s)  (RU/s)  (RU)  COMMENT",
                "a                          5     1.5    10  -",
                "reports-of-the-night   12000       0    11  what runs when nobody wai…",
            ]
        );
    }

    #[test]
    fn every_width_is_kept_and_no_number_is_cut() {
        for most in 1..120 {
            let laid = table().laid(Some(most), false);
            let lines = text(&laid);
            assert!(lines.iter().all(|line| width(line) <= most), "{most}: {lines:#?}");
            if most >= 30 {
                assert!(lines.iter().any(|line| line.contains("12000")), "{most}: {lines:#?}");
            }
            assert_eq!(
                laid.hidden.contains(&"DEMAND (RU/s)".to_owned()),
                !lines.join("").contains("1.5"),
                "{most}"
            );
        }
        let hidden = |most| table().laid(Some(most), false).hidden;
        assert_eq!(hidden(39), ["DEMAND (RU/s)"]);
        assert_eq!(hidden(31), ["DEMAND (RU/s)", "POOL (RU)"]);
    }

    #[test]
    fn prose_goes_on_below() {
        let mut sheet = Table::new([Column::word("SETTING"), Column::prose("VALUE")]);
        sheet.row(["query limit", "EXEC_ELAPSED='60s', RU=1000, ACTION=KILL"]);
        assert_eq!(
            text(&sheet.laid(Some(40), false)),
            ["SETTING      VALUE", "query limit  EXEC_ELAPSED='60s',", "             RU=1000, ACTION=KILL"]
        );
    }
}
