//! The one table: a line for each figure beside ours, and one for ours alone when it has a mark of its own.

use super::row::{Mark, Row, Unit};
use super::samples::Samples;

const HEAD: [&str; 7] = ["case", "ours", "beside", "its figure", "ours / its", "mark", "met"];

/// All rows as text.
pub fn table(rows: &[Row]) -> String {
    let mut lines = vec![HEAD.map(str::to_owned)];
    rows.iter().for_each(|row| lines.extend(row_lines(row)));
    let mut widths = [0_usize; 7];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        let cells: Vec<String> =
            line.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text += &format!("{}\n", cells.join("  ").trim_end());
        if number == 0 {
            text += &format!("{}\n", widths.map(|width| "-".repeat(width)).join("  "));
        }
    }
    let noted = rows.iter().filter(|row| !row.note.is_empty());
    noted.for_each(|row| text += &format!("note: {}: {}\n", row.case, row.note));
    text
}

fn row_lines(row: &Row) -> Vec<[String; 7]> {
    let ours = figure(&row.ours, row.unit);
    let mut lines = Vec::new();
    if row.mark.is_some() || row.others.is_empty() {
        let (mark, met) = verdict(row.mark, row.ours.median(), row.unit);
        let empty = String::new;
        lines.push([row.case.clone(), ours.clone(), empty(), empty(), empty(), mark, met]);
    }
    for other in &row.others {
        let ratio = row.ours.over(&other.figure);
        let (mark, met) = verdict(other.mark, ratio.median(), Unit("x"));
        let first = lines.is_empty();
        lines.push([
            if first { row.case.clone() } else { String::new() },
            if first { ours.clone() } else { String::new() },
            format!("{} ({})", other.name, other.kind.name()),
            figure(&other.figure, row.unit),
            figure(&ratio, Unit("x")),
            mark,
            met,
        ]);
    }
    lines
}

fn verdict(mark: Option<Mark>, value: f64, unit: Unit) -> (String, String) {
    let Some(mark) = mark else {
        return (String::new(), String::new());
    };
    let text = match mark {
        Mark::AtMost(most) => format!("<= {} {}", number(most), unit.0),
        Mark::AtLeast(least) => format!(">= {} {}", number(least), unit.0),
        Mark::Within(least, most) => format!("{} to {} {}", number(least), number(most), unit.0),
    };
    (text, if mark.met(value) { "yes" } else { "NO" }.to_owned())
}

/// The median, and the quartiles when there are rounds enough to have any.
fn figure(samples: &Samples, unit: Unit) -> String {
    let median = number(samples.median());
    if samples.rounds() == 1 {
        return format!("{median} {}", unit.0);
    }
    let (low, high) = samples.quartiles();
    format!("{median} {} ({}..{})", unit.0, number(low), number(high))
}

/// Three significant digits, thousands apart.
pub fn number(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.9995 || size == 0.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.decimals$}");
    let (whole, rest) = text.split_once('.').map_or((text.as_str(), ""), |(whole, rest)| (whole, rest));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        let left = whole.len().saturating_sub(index);
        if index > 0 && left % 3 == 0 && digit.is_ascii_digit() && !grouped.ends_with('-') {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    if rest.is_empty() { grouped } else { format!("{grouped}.{rest}") }
}

#[cfg(test)]
mod tests {
    use super::super::row::{Kind, NS};
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_groups() {
        let shown = [0.0, 0.0123, 1.234, 12.34, 123.4, 1234.0, 1_234_567.0, -1234.0].map(number);
        assert_eq!(shown, ["0.00", "0.012", "1.23", "12.3", "123", "1 234", "1 234 567", "-1 234"]);
    }

    #[test]
    fn marks_of_figures_and_of_ratios_are_judged() {
        let row = Row::new("admission/1 thread", NS, Samples::new(vec![10.0, 12.0, 11.0]))
            .mark(Mark::AtMost(10.0))
            .beside(Kind::Peer, "governor", Samples::new(vec![40.0, 48.0, 44.0]), Some(Mark::AtMost(0.5)))
            .beside(Kind::Published, "elsewhere", Samples::new(vec![5.0]), None);
        let text = table(std::slice::from_ref(&row));
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[2].contains("11.0 ns (10.5..11.5)") && lines[2].ends_with("<= 10.0 ns  NO"), "{text}");
        assert!(lines[3].contains("governor (peer)") && lines[3].ends_with("<= 0.500 x  yes"), "{text}");
        assert!(lines[4].contains("5.00 ns") && lines[4].ends_with("2.20 x (2.10..2.30)"), "{text}");
        assert_eq!(row.verdicts().map(|(_, met)| met).collect::<Vec<_>>(), [false, true]);
    }
}
