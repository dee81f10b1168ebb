//! What stands in a table: a text, safe for a terminal, and in which tone.

use std::fmt::Write as _;

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::plain::one_line;

/// Why a text is worth a colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    #[default]
    Plain,
    /// A heading.
    Strong,
    /// Beside the point.
    Faint,
    /// Somebody waits, or was refused.
    Warn,
    /// Something is wrong.
    Bad,
    /// The chosen row.
    Chosen,
}

impl Tone {
    /// `text` in this tone, for a terminal that shows colours.
    pub(crate) fn paint(self, text: &str) -> String {
        let code = match self {
            Self::Plain => return text.to_owned(),
            Self::Strong => "1",
            Self::Faint => "2",
            Self::Warn => "33",
            Self::Bad => "31;1",
            Self::Chosen => "7",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// A cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(super) text: String,
    pub(super) tone: Tone,
}

impl Cell {
    /// `text` in a tone; an empty one shows as `-`.
    pub(crate) fn new(text: impl AsRef<str>, tone: Tone) -> Self {
        let text = text.as_ref();
        Self { text: if text.is_empty() { "-".to_owned() } else { one_line(text).into_owned() }, tone }
    }

    /// A count that is better 0.
    pub(crate) fn warns(count: u128) -> Self {
        Self::new(count.to_string(), if count > 0 { Tone::Warn } else { Tone::Plain })
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::new(text, Tone::Plain)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::new(text, Tone::Plain)
    }
}

/// Columns of a terminal that `text` takes.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// The sign that something is left out.
const LEFT_OUT: char = '…';

/// `text` in at most `most` columns, its end left out.
pub(crate) fn cut_end(text: &str, most: usize) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    let mut cut = head(text, most.saturating_sub(1)).to_owned();
    cut.push(LEFT_OUT);
    cut
}

/// `text` in at most `most` columns, its middle left out.
pub(super) fn cut_middle(text: &str, most: usize) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    let kept = most.saturating_sub(1);
    let tail = tail(text, kept / 2);
    let mut cut = head(text, kept.saturating_sub(width(tail))).to_owned();
    // Writing to a string cannot fail.
    let _ = write!(cut, "{LEFT_OUT}{tail}");
    cut
}

/// The words of `text` in lines of at most `most` columns; a word that is longer is broken.
pub(crate) fn wrapped(text: &str, most: usize) -> Vec<String> {
    let most = most.max(1);
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        let mut word = word;
        let room = most.saturating_sub(width(&line));
        if !line.is_empty() && width(word) >= room {
            lines.push(std::mem::take(&mut line));
        } else if !line.is_empty() {
            line.push(' ');
        }
        while width(word) > most {
            let part = match head(word, most) {
                // One character that is wider than a line.
                "" => word,
                part => part,
            };
            lines.push(part.to_owned());
            word = word.get(part.len()..).unwrap_or_default();
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

/// The longest beginning of `text` that takes at most `most` columns.
fn head(text: &str, most: usize) -> &str {
    let mut taken = 0_usize;
    let end = text.char_indices().find_map(|(at, c)| {
        taken = taken.saturating_add(c.width().unwrap_or_default());
        (taken > most).then_some(at)
    });
    text.get(..end.unwrap_or(text.len())).unwrap_or(text)
}

/// The longest end of `text` that takes at most `most` columns.
fn tail(text: &str, most: usize) -> &str {
    let mut taken = 0_usize;
    let from = text.char_indices().rev().find_map(|(at, c)| {
        taken = taken.saturating_add(c.width().unwrap_or_default());
        (taken > most).then(|| at.saturating_add(c.len_utf8()))
    });
    text.get(from.unwrap_or_default()..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_by_the_columns_it_takes() {
        assert_eq!(cut_end("abcdef", 6), "abcdef");
        assert_eq!(cut_end("abcdef", 4), "abc…");
        assert_eq!(cut_end("日本語", 4), "日…");
        assert_eq!(cut_middle("sql-node-host-123", 11), "sql-n…t-123");
        assert_eq!(cut_middle("日本語日本語", 7), "日本…語");
        for most in 1..8 {
            for text in
                ["日本語x日本語", "e\u{301}e\u{301}e\u{301}e\u{301}e\u{301}e\u{301}e\u{301}e\u{301}e\u{301}"]
            {
                assert!(
                    width(&cut_end(text, most)) <= most && width(&cut_middle(text, most)) <= most,
                    "{text} {most}"
                );
            }
        }
    }

    #[test]
    fn lines_are_filled_with_words_and_longer_words_are_broken() {
        assert_eq!(wrapped("a bc def", 4), ["a bc", "def"]);
        assert_eq!(wrapped("abcdefgh i", 3), ["abc", "def", "gh", "i"]);
        assert_eq!(wrapped("", 3), [""]);
        assert_eq!(wrapped("日本", 1), ["日本", ""]);
    }
}
