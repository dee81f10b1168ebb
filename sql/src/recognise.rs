//! Decides fast which texts cannot be ours, since the gateway asks about every statement.
//!
//! In: the bytes of a text, in any dialect. Out: whether it may be ours. It may err towards yes, never towards no:
//! what it refuses goes to the database unread. Nothing is allocated, and each byte is looked at a bounded number of
//! times: the first words decide, words behind a semicolon as well, and a query is searched for the names of our
//! tables by their rarest letters.

use memchr::{memchr, memchr_iter, memchr2_iter};

/// What a statement can be, judged by its first words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// The words are ours alone.
    Ours,
    /// The words are shared with the database; what follows decides.
    Perhaps,
    /// A query; the tables decide.
    Query,
    /// The database's.
    Other,
}

/// Whether `text` may hold a statement of ours. When it is false, [`Statement::parse`](crate::Statement::parse) gives
/// `None`.
pub fn may_be_ours(text: &[u8]) -> bool {
    let mut queries = false;
    let mut reached = 0;
    let behind_semicolons = memchr_iter(b';', text).map(|at| at + 1);
    for start in std::iter::once(0).chain(behind_semicolons) {
        // A semicolon in a comment that was skipped; looking again would take quadratic time.
        if start < reached {
            continue;
        }
        let mut words = Words { bytes: text, at: start, nested: false };
        match words.start() {
            Start::Ours | Start::Perhaps => return true,
            // A comment in a comment: its end depends on the dialect, and with it where the statement begins.
            _ if words.nested => return true,
            Start::Query => queries = true,
            Start::Other => {}
        }
        reached = words.at;
    }
    queries && names_ours(text)
}

/// Whether the first statement begins with words that only we use, so that we report its faults.
pub(crate) fn begins_as_ours(text: &[u8]) -> bool {
    Words::of(text).start() == Start::Ours
}

/// Whether a name of ours occurs, in whatever case and quotes.
fn names_ours(text: &[u8]) -> bool {
    let around = |at: usize, before: &[u8], after: &[u8]| {
        let head = at.checked_sub(before.len()).and_then(|start| text.get(start..at));
        let tail = text.get(at..).and_then(|rest| rest.get(..after.len()));
        head.is_some_and(|head| head.eq_ignore_ascii_case(before))
            && tail.is_some_and(|tail| tail.eq_ignore_ascii_case(after))
    };
    // `resource_group` covers the table `resource_groups` and the function `current_resource_group`.
    memchr2_iter(b'g', b'G', text)
        .any(|at| around(at, b"tide", b"gate") || around(at, b"resource_", b"group"))
        || memchr2_iter(b'w', b'W', text).any(|at| around(at, b"runa", b"way_watches"))
}

/// The words at the beginning of a statement.
pub(crate) struct Words<'t> {
    bytes: &'t [u8],
    at: usize,
    /// A comment holds the beginning of another.
    nested: bool,
}

impl<'t> Words<'t> {
    pub(crate) fn of(bytes: &'t [u8]) -> Self {
        Self { bytes, at: 0, nested: false }
    }

    /// Whether a comment held the beginning of another: where it ends depends on the dialect.
    pub(crate) fn is_nested(&self) -> bool {
        self.nested
    }

    fn start(&mut self) -> Start {
        let Some(first) = self.next() else { return Start::Other };
        let is = |word: &[u8]| first.eq_ignore_ascii_case(word);
        // Commonest first.
        if is(b"SELECT") || is(b"WITH") || first == b"(" {
            Start::Query
        } else if is(b"INSERT") || is(b"REPLACE") || is(b"DELETE") {
            self.next();
            self.when(Self::our_schema, Start::Perhaps)
        } else if is(b"UPDATE") {
            self.when(Self::our_schema, Start::Perhaps)
        } else if is(b"SET") {
            self.when(Self::resource_group, Start::Ours)
        } else if is(b"SHOW") {
            self.show()
        } else if is(b"EXPLAIN") {
            self.when(|words| words.word(b"RU"), Start::Perhaps)
        } else if is(b"CREATE") || is(b"ALTER") || is(b"DROP") {
            self.definition()
        } else if is(b"TRUNCATE") {
            let table = self.next();
            let named = table.is_some_and(|word| word.eq_ignore_ascii_case(b"TIDEGATE"));
            if named { Start::Perhaps } else { self.when(Self::our_schema, Start::Perhaps) }
        } else if is(b"QUERY") {
            self.when(|words| words.word(b"WATCH"), Start::Ours)
        } else if is(b"CALIBRATE") {
            self.when(|words| words.word(b"RESOURCE"), Start::Ours)
        } else {
            Start::Other
        }
    }

    fn when(&mut self, holds: impl FnOnce(&mut Self) -> bool, then: Start) -> Start {
        if holds(self) { then } else { Start::Other }
    }

    fn show(&mut self) -> Start {
        match self.next() {
            Some(word) if word.eq_ignore_ascii_case(b"CREATE") => {
                self.when(Self::resource_group, Start::Ours)
            }
            Some(word) if word.eq_ignore_ascii_case(b"RESOURCE") => {
                self.when(Self::groups_or_proposal, Start::Ours)
            }
            _ => Start::Other,
        }
    }

    fn groups_or_proposal(&mut self) -> bool {
        self.next().is_some_and(|word| {
            word.eq_ignore_ascii_case(b"GROUPS")
                || word.eq_ignore_ascii_case(b"GROUP") && self.word(b"PROPOSAL")
        })
    }

    fn definition(&mut self) -> Start {
        match self.next() {
            Some(word) if word.eq_ignore_ascii_case(b"RESOURCE") => {
                self.when(|words| words.word(b"GROUP"), Start::Ours)
            }
            Some(word) if word.eq_ignore_ascii_case(b"USER") || word.eq_ignore_ascii_case(b"DATABASE") => {
                Start::Perhaps
            }
            _ => Start::Other,
        }
    }

    fn resource_group(&mut self) -> bool {
        self.word(b"RESOURCE") && self.word(b"GROUP")
    }

    fn our_schema(&mut self) -> bool {
        self.word(b"TIDEGATE")
    }

    fn word(&mut self, wanted: &[u8]) -> bool {
        self.next().is_some_and(|word| word.eq_ignore_ascii_case(wanted))
    }

    /// The next word without its quotes, or an opening bracket.
    pub(crate) fn next(&mut self) -> Option<&'t [u8]> {
        self.skip_blanks();
        let rest = self.bytes.get(self.at..)?;
        let (from, length, past) = match rest.first()? {
            b'(' => (0, 1, 1),
            quote @ (b'`' | b'"') => {
                let inside = memchr(*quote, rest.get(1..)?)?;
                (1, inside, inside + 2)
            }
            _ => {
                let length = rest.iter().take_while(|byte| is_word(**byte)).count();
                (0, length, length)
            }
        };
        self.at += past;
        rest.get(from..from + length).filter(|word| !word.is_empty())
    }

    /// The length of a comment without its ends; `None` when it has no end.
    fn comment(&mut self, inside: &[u8]) -> Option<usize> {
        for at in memchr2_iter(b'*', b'/', inside) {
            match inside.get(at..)? {
                [b'*', b'/', ..] => return Some(at),
                [b'/', b'*', ..] => self.nested = true,
                _ => {}
            }
        }
        None
    }

    /// White space and comments. Those that hold code, `/*! .. */`, end it.
    fn skip_blanks(&mut self) {
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            match rest {
                [b' ' | b'\t'..=b'\r' | 0, ..] => self.at += 1,
                [b'/', b'*', b'!', ..] => return,
                [b'/', b'*', inside @ ..] => {
                    let length = self.comment(inside);
                    self.at += length.map_or(rest.len(), |length| length + 4);
                }
                [b'-', b'-', line @ ..] | [b'#', line @ ..] => {
                    self.at +=
                        memchr(b'\n', line).map_or(rest.len(), |length| length + rest.len() - line.len());
                }
                _ => return,
            }
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_statements_are_not_ours() {
        for text in [
            "",
            " ;; ",
            "select 1",
            "SELECT a, b FROM orders WHERE id = 7 AND grade > 'g'",
            "INSERT INTO orders VALUES (1, 'x; y')",
            "insert into t select * from tidegate.usage",
            "update t set a = 1; delete from u",
            "BEGIN",
            "SET autocommit = 1",
            "SET resource = 'GROUP'",
            "/*!40101 SET RESOURCE GROUP x */",
            "SHOW TABLES",
            "SHOW CREATE TABLE resource",
            "SHOW RESOURCE GROUP a",
            "SHOW RESOURCE a PROPOSAL",
            "REPLACE INTO statements VALUES (1)",
            "SELECT tidegauge, tideGraph FROM resource_gap JOIN runaways",
            "EXPLAIN SELECT 1",
            "CREATE TABLE resource (g int)",
            "ALTER TABLE t ADD c int",
            "DROP TABLE resource_groups",
            "TRUNCATE TABLE statements",
            "-- CREATE RESOURCE GROUP a\nselect 1",
            "/* ; CREATE RESOURCE GROUP a */ select 1",
            "QUERY",
            "create",
            "`",
            "select 'tide' 'gate'",
        ] {
            assert!(!may_be_ours(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn ours_are_found_behind_blanks_comments_and_semicolons() {
        for text in [
            "create resource group a",
            " \t\r\n\0CREATE\nRESOURCE/* */GROUP a",
            "-- x\n# y\n/* z */ ALTER RESOURCE GROUP a",
            "drop Resource groUP a",
            "SHOW CREATE RESOURCE GROUP a",
            "show resource groups",
            "show resource /* */ group proposal a",
            "set resource group a",
            "alter user a",
            "ALTER DATABASE a",
            "create user a",
            "query watch add",
            "calibrate resource",
            "explain ru select 1",
            "truncate tidegate.statements",
            "TRUNCATE TideGate.statements",
            "truncate table `tidegate`.statements",
            "delete from \"TideGate\".statements",
            "insert into tidegate.statements values (1)",
            "REPLACE INTO tidegate.statements VALUES (1)",
            "Update tidegate.statements SET calls = 1",
            "select current_resource_group()",
            "select * from information_schema.RUNAWAY_WATCHES",
            "(select * from `Tidegate` . usage)",
            "with x as (select 1) select * from tidegate/**/.usage",
            "select 1; create resource group a",
            "select ';'; /*x*/ SET RESOURCE GROUP a",
            "/* /* */ */ create resource group a",
            "/* /* */ select 1 */ create resource group a",
            "/* /* */ (*/ set resource group a",
        ] {
            assert!(may_be_ours(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn hostile_texts_take_linear_time() {
        // Each of these would take minutes if a comment were skipped again for every semicolon in it.
        for pattern in ["--;\n", ";/*", "create \n--;", ";--", "/*;*/", "select;", ";(", "#;create\n"] {
            let text = pattern.repeat(400_000);
            may_be_ours(text.as_bytes());
        }
    }
}
