//! Texts that others wrote, made safe for a terminal.
//!
//! In: any text. Out: the same with control characters, and those that turn the direction of writing, as escapes
//! (`\u{202e}`): such a character in a name or a comment would move the cursor, or show another text than is there
//! (CVE-2021-42574). In JSON the escape is JSON's own, so the document stays what it is.

use std::borrow::Cow;
use std::fmt::Write as _;

/// `text` on one line: line ends are escaped, too.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false, spelled)
}

/// `text` with its lines.
pub(crate) fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| matches!(c, '\n' | '\t'), spelled)
}

/// A JSON document, in which such characters stand in texts only.
pub(crate) fn json(text: &str) -> Cow<'_, str> {
    let unit = |out: &mut String, c: char| {
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a string cannot fail.
            let _ = write!(out, "\\u{unit:04x}");
        }
    };
    escaped(text, |c| c == '\n', unit)
}

fn escaped(text: &str, keeps: impl Fn(char) -> bool, escape: impl Fn(&mut String, char)) -> Cow<'_, str> {
    let harmful = |c: char| is_harmful(c) && !keeps(c);
    if !text.contains(harmful) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if harmful(c) {
            escape(&mut safe, c);
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

fn spelled(out: &mut String, c: char) {
    match c {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        _ => {
            let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
        }
    }
}

/// Control characters of both sets; marks, embeddings, overrides and isolates of bidirectional text; separators of
/// lines that terminals take for one; invisible tags.
fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}'
            | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_the_cursor_or_turns_the_writing_is_spelled_out() {
        assert_eq!(one_line("a\u{1b}[2J\u{202e}b\nc\r\t"), "a\\u{1b}[2J\\u{202e}b\\nc\\r\\t");
        assert_eq!(lines("a\n\u{9b}b\u{2067}"), "a\n\\u{9b}b\\u{2067}");
        // Each first and last of what is harmful, and what stands beside it.
        for harmful in [
            "\0",
            "\u{1f}",
            "\u{7f}",
            "\u{80}",
            "\u{9f}",
            "\u{61c}",
            "\u{200e}",
            "\u{200f}",
            "\u{2028}",
            "\u{2029}",
            "\u{202a}",
            "\u{202e}",
            "\u{2066}",
            "\u{2069}",
            "\u{feff}",
            "\u{e0000}",
            "\u{e007f}",
        ] {
            let code = u32::from(harmful.chars().next().unwrap());
            assert_eq!(
                (one_line(harmful), lines(harmful)),
                (format!("\\u{{{code:x}}}").into(), format!("\\u{{{code:x}}}").into())
            );
            assert!(!json(&format!("[\"{harmful}\"]")).contains(harmful), "{code:x}");
        }
        for beside in
            [" ", "~", "\u{a0}", "\u{200d}", "\u{2010}", "\u{2027}", "\u{202f}", "\u{2065}", "\u{206a}"]
        {
            assert!(matches!(one_line(beside), Cow::Borrowed(_)), "{beside:?}");
        }
        assert_eq!((&*lines("a\n\tb\r"), &*json("[\n\"\r\"]")), ("a\n\tb\\r", "[\n\"\\u000d\"]"));
        for harmless in ["plain", "größer", "日本語", "👩\u{200d}🔧", "עברית"] {
            assert!(matches!(one_line(harmless), Cow::Borrowed(same) if same == harmless), "{harmless}");
        }
    }

    #[test]
    fn json_stays_the_same_document() {
        let value = serde_json::json!({"comment": "a\u{202e}b\u{9b}\u{7f}\u{e0041}"});
        let text = serde_json::to_string_pretty(&value).unwrap();
        let safe = json(&text);
        assert!(safe.contains("\\u202e") && safe.contains("\\udb40\\udc41"), "{safe}");
        assert!(!safe.contains(|c: char| is_harmful(c) && c != '\n'));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).unwrap(), value);
    }
}
