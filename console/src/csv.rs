//! Tables as CSV (RFC 4180), for spreadsheets.

/// Lines of cells, the first one with the names of the columns.
pub fn text<R: AsRef<[String]>>(names: &[&str], rows: impl IntoIterator<Item = R>) -> String {
    let mut text = line(names.iter().copied());
    for row in rows {
        text.push_str(&line(row.as_ref().iter().map(String::as_str)));
    }
    text
}

fn line<'c>(cells: impl Iterator<Item = &'c str>) -> String {
    let cells: Vec<String> = cells.map(cell).collect();
    cells.join(",") + "\r\n"
}

/// A cell. One that a spreadsheet would run as a formula is marked as text by an apostrophe, as they do it.
fn cell(text: &str) -> String {
    let is_number =
        text.strip_prefix('-').unwrap_or(text).bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let text = match text.as_bytes().first() {
        Some(b'=' | b'+' | b'-' | b'@' | b'\t' | b'\r') if !is_number => format!("'{text}"),
        _ => text.to_owned(),
    };
    if text.contains(['"', ',', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_read_back_as_they_were_and_never_run() {
        for (cell, written) in [
            ("a,b", "\"a,b\""),
            ("say \"hi\"", "\"say \"\"hi\"\"\""),
            ("two\nlines", "\"two\nlines\""),
            ("two\rlines", "\"two\rlines\""),
            ("=1+1", "'=1+1"),
            ("+1", "'+1"),
            ("@a", "'@a"),
            ("\t=1", "'\t=1"),
            ("\r=1", "\"'\r=1\""),
            ("-x", "'-x"),
            ("-3.5", "-3.5"),
            ("7", "7"),
            ("", ""),
            // What has to be in quotes is run as what has not.
            ("=HYPERLINK(\"http://x\",\"y\")", "\"'=HYPERLINK(\"\"http://x\"\",\"\"y\"\")\""),
            ("@a,b", "\"'@a,b\""),
            ("-x\ny", "\"'-x\ny\""),
            ("-1,5", "\"'-1,5\""),
        ] {
            let text = text(&["one", "two"], [[cell.to_owned(), "end".to_owned()]]);
            assert_eq!(text, format!("one,two\r\n{written},end\r\n"), "{cell:?}");
        }
    }
}
