//! Cuts a text into statements at semicolons outside of quotes and comments.
//!
//! Quotes are '..', "..", `..` and [..]; a doubled quote inside stays inside, since it closes and opens again.
//! Comments are `--` to the end of the line and `/* .. */`. Bodies of triggers hold semicolons and are not known
//! here.

/// The statements of `text`, trimmed, without those that are empty or only comments.
pub(crate) fn split(text: &str) -> Vec<&str> {
    let mut statements = Vec::new();
    let (mut start, mut has_code) = (0, false);
    let mut rest = text.char_indices().peekable();
    while let Some((at, c)) = rest.next() {
        let next = rest.peek().map(|(_, next)| *next);
        match (c, next) {
            ('-', Some('-')) => skip_until(&mut rest, |c, _| c == '\n'),
            ('/', Some('*')) => {
                rest.next();
                skip_until(&mut rest, |c, next| c == '*' && next == Some('/'));
                rest.next();
            }
            (';', _) => {
                if has_code {
                    statements.extend(text.get(start..at).map(str::trim));
                }
                (start, has_code) = (at + 1, false);
            }
            ('\'' | '"' | '`', _) => {
                has_code = true;
                skip_until(&mut rest, |other, _| other == c);
            }
            ('[', _) => {
                has_code = true;
                skip_until(&mut rest, |other, _| other == ']');
            }
            _ => has_code |= !c.is_whitespace(),
        }
    }
    if has_code {
        statements.extend(text.get(start..).map(str::trim));
    }
    statements
}

type Chars<'t> = std::iter::Peekable<std::str::CharIndices<'t>>;

/// Goes behind the first character for which `end` holds, given that and the one behind it.
fn skip_until(rest: &mut Chars<'_>, end: impl Fn(char, Option<char>) -> bool) {
    while let Some((_, c)) = rest.next() {
        if end(c, rest.peek().map(|(_, next)| *next)) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_end_at_semicolons_outside_of_quotes_and_comments() {
        for (text, statements) in [
            ("", vec![]),
            (" ; ;\n-- nothing; here\n/* or; here */;", vec![]),
            ("select 1", vec!["select 1"]),
            ("select 1; select 2;", vec!["select 1", "select 2"]),
            ("select ';''' , \"a;\", `b;`, [c;]; x", vec!["select ';''' , \"a;\", `b;`, [c;]", "x"]),
            ("select 1 -- one; two\n, 3; y", vec!["select 1 -- one; two\n, 3", "y"]),
            ("select /* ; * / */ 4 - 3 / 2; z", vec!["select /* ; * / */ 4 - 3 / 2", "z"]),
            ("select 'open; ", vec!["select 'open;"]),
            ("select 'ä;ö'; é", vec!["select 'ä;ö'", "é"]),
        ] {
            assert_eq!(split(text), statements, "{text:?}");
        }
    }
}
