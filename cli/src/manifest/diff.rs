//! What differs between two texts, as diff(1) and patch(1) write it: unified, three lines around each difference.

/// Lines around a difference.
const AROUND: usize = 3;
/// Lines of a text that are compared one by one; a longer one is shown as wholly different. A document has 30, and the
/// work grows with the square.
const MAX_LINES: usize = 1_000;

/// A line of both texts, of the first only, or of the second only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line<'t> {
    Both(&'t str),
    Old(&'t str),
    New(&'t str),
}

/// The difference between two texts, whose names head it; nothing where there is none.
pub(crate) fn unified(old: (&str, &str), new: (&str, &str)) -> String {
    if old.1 == new.1 {
        return String::new();
    }
    let (before, after): (Vec<&str>, Vec<&str>) = (old.1.lines().collect(), new.1.lines().collect());
    let lines = compared(&before, &after);
    let mut text = format!("--- {}\n+++ {}\n", old.0, new.0);
    for (begin, end) in hunks(&lines) {
        let passed = lines.get(..begin).unwrap_or_default();
        let hunk = lines.get(begin..end).unwrap_or_default();
        let of = |lines: &[Line<'_>], other: fn(&Line<'_>) -> bool| {
            lines.iter().filter(|line| !other(line)).count()
        };
        let is_new = |line: &Line<'_>| matches!(line, Line::New(_));
        let is_old = |line: &Line<'_>| matches!(line, Line::Old(_));
        let range = |first: usize, count: usize| match count {
            // Of no line, the one before.
            0 => format!("{first},0"),
            1 => format!("{}", first + 1),
            _ => format!("{},{count}", first + 1),
        };
        let (old, new) =
            (range(of(passed, is_new), of(hunk, is_new)), range(of(passed, is_old), of(hunk, is_old)));
        text.push_str(&format!("@@ -{old} +{new} @@\n"));
        for line in hunk {
            let (sign, line) = match line {
                Line::Both(line) => (' ', line),
                Line::Old(line) => ('-', line),
                Line::New(line) => ('+', line),
            };
            text.push(sign);
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// Where hunks begin and end: differences whose surroundings touch are one.
fn hunks(lines: &[Line<'_>]) -> Vec<(usize, usize)> {
    let mut hunks: Vec<(usize, usize)> = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        if matches!(line, Line::Both(_)) {
            continue;
        }
        let (begin, end) = (index.saturating_sub(AROUND), (index + AROUND + 1).min(lines.len()));
        match hunks.last_mut().filter(|last| begin <= last.1) {
            Some(last) => last.1 = end,
            None => hunks.push((begin, end)),
        }
    }
    hunks
}

/// All lines in order, by the longest sequence that both have.
fn compared<'t>(before: &[&'t str], after: &[&'t str]) -> Vec<Line<'t>> {
    if before.len().max(after.len()) > MAX_LINES {
        let old = before.iter().map(|line| Line::Old(line));
        return old.chain(after.iter().map(|line| Line::New(line))).collect();
    }
    // How long the common sequence of what follows is, row by row from the end.
    let width = after.len() + 1;
    let mut longest = vec![0_usize; (before.len() + 1) * width];
    let at = |longest: &[usize], row: usize, column: usize| {
        longest.get(row * width + column).copied().unwrap_or_default()
    };
    for (row, old) in before.iter().enumerate().rev() {
        for (column, new) in after.iter().enumerate().rev() {
            let value = if old == new {
                at(&longest, row + 1, column + 1) + 1
            } else {
                at(&longest, row + 1, column).max(at(&longest, row, column + 1))
            };
            if let Some(slot) = longest.get_mut(row * width + column) {
                *slot = value;
            }
        }
    }
    let (mut row, mut column) = (0, 0);
    let mut lines = Vec::with_capacity(before.len().max(after.len()));
    loop {
        let next = match (before.get(row), after.get(column)) {
            (None, None) => return lines,
            (Some(old), Some(new)) if old == new => Line::Both(old),
            (Some(old), None) => Line::Old(old),
            (Some(old), Some(_)) if at(&longest, row + 1, column) >= at(&longest, row, column + 1) => {
                Line::Old(old)
            }
            (_, Some(new)) => Line::New(new),
        };
        row += usize::from(!matches!(next, Line::New(_)));
        column += usize::from(!matches!(next, Line::Old(_)));
        lines.push(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_written_as_patch_reads_them() {
        let old =
            "kind: Group\nname: a\nparent: /\nru_per_sec: \"5\"\nburst: default\nweight: 1\nx: 1\ny: 2\n";
        let new = old.replace("\"5\"", "\"6\"");
        assert_eq!(
            unified(("live", old), ("f", &new)),
            "--- live\n+++ f\n@@ -1,7 +1,7 @@\n kind: Group\n name: a\n parent: /\n-ru_per_sec: \"5\"\n+ru_per_sec: \"6\"\n \
             burst: default\n weight: 1\n x: 1\n"
        );
        assert_eq!(unified(("live", ""), ("f", "a\n")), "--- live\n+++ f\n@@ -0,0 +1 @@\n+a\n");
        assert_eq!(unified(("live", "a\nb\n"), ("f", "")), "--- live\n+++ f\n@@ -1,2 +0,0 @@\n-a\n-b\n");
        assert_eq!(unified(("live", old), ("f", old)), "");
    }

    #[test]
    fn differences_far_from_each_other_are_hunks_of_their_own() {
        let old: String = (0..30).map(|line| format!("{line}\n")).collect();
        let new = old.replace("\n3\n", "\nthree\n").replace("\n25\n", "\n");
        let text = unified(("a", &old), ("b", &new));
        assert_eq!(text.matches("@@ -").count(), 2, "{text}");
        assert!(text.contains("@@ -1,7 +1,7 @@") && text.contains("@@ -23,7 +23,6 @@"), "{text}");
        let long: String = (0..2_000).map(|line| format!("{line}\n")).collect();
        assert!(unified(("a", &long), ("b", "0\n")).contains("@@ -1,2000 +1 @@"));
    }
}
