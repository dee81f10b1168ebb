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
        let row = ["a,b", "say \"hi\"", "two\nlines", "=1+1", "-3.5", "-x", ""].map(str::to_owned);
        let text = text(&["one", "two"], [row]);
        assert_eq!(text, "one,two\r\n\"a,b\",\"say \"\"hi\"\"\",\"two\nlines\",'=1+1,-3.5,'-x,\r\n");
    }
}
