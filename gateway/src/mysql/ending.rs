//! Packets that end a result: OK, EOF and ERR.
//!
//! With [`Capabilities::DEPRECATE_EOF`] an OK packet that begins with `0xfe` stands where an EOF packet stood.
//!
//! *Source*: MySQL "OK_Packet", "EOF_Packet", "ERR_Packet"; MariaDB's progress reports are ERR packets with the
//! code `0xffff` that end nothing.

use super::capability::Capabilities;
use super::frame::MAX_PAYLOAD;
use super::login::NAME_LIMIT;
use super::reader::Reader;

/// Most bytes of an ending that are looked at: counts, status, and the change of the database if that comes early.
pub(super) const ENDING_LOOK: usize = 1024;

/// The server's account of the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Status(pub(super) u16);

impl Status {
    pub(super) const IN_TRANSACTION: Self = Self(0x0001);
    pub(super) const AUTOCOMMIT: Self = Self(0x0002);
    pub(super) const MORE_RESULTS: Self = Self(0x0008);
    pub(super) const CURSOR_EXISTS: Self = Self(0x0040);
    pub(super) const NO_BACKSLASH_ESCAPES: Self = Self(0x0200);
    const IN_READ_ONLY_TRANSACTION: Self = Self(0x2000);
    const STATE_CHANGED: Self = Self(0x4000);

    pub(super) fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// What holds beyond one response.
    pub(super) fn lasting(self) -> Self {
        let lasting = Self::IN_TRANSACTION.0
            | Self::AUTOCOMMIT.0
            | Self::NO_BACKSLASH_ESCAPES.0
            | Self::IN_READ_ONLY_TRANSACTION.0;
        Self(self.0 & lasting)
    }
}

/// Errors that say that InnoDB has rolled back the transaction as a whole: a lost deadlock (`ER_LOCK_DEADLOCK`), no room
/// for more locks (`ER_LOCK_TABLE_FULL`), and under MariaDB's `innodb_snapshot_isolation` a row that others have changed
/// (`ER_CHECKREAD`). A wait for a lock that took too long (1205) does so under `innodb_rollback_on_timeout` alone, of which
/// the error does not say anything: the next status does.
///
/// *Source*: InnoDB `convert_error_code_to_mysql`; MySQL "InnoDB Error Handling"; 1020 and 1205 tried with MariaDB 10.11.
const ROLLED_BACK: [u16; 3] = [1213, 1206, 1020];

/// How a result ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ending {
    /// Absent in errors, and where a packet is of none of the three kinds.
    pub(super) status: Option<Status>,
    /// Rows that were changed.
    pub(super) affected: u64,
    /// The server's error.
    pub(super) error: Option<u16>,
    /// The default database, if it has changed and the server says so.
    pub(super) database: Option<String>,
}

impl Ending {
    /// Reads the beginning of a packet.
    pub(super) fn parse(payload: &[u8], capabilities: Capabilities) -> Self {
        let mut reader = Reader::new(payload);
        match reader.u8() {
            Some(0xff) => Self { error: Some(reader.u16().unwrap_or_default()), ..Self::default() },
            Some(0xfe) if !capabilities.has(Capabilities::DEPRECATE_EOF) => {
                reader.skip(2);
                Self { status: reader.u16().map(Status), ..Self::default() }
            }
            Some(0x00 | 0xfe) => Self::ok(reader, capabilities).unwrap_or_default(),
            _ => Self::default(),
        }
    }

    fn ok(mut reader: Reader<'_>, capabilities: Capabilities) -> Option<Self> {
        let affected = reader.lenenc()?;
        reader.lenenc()?;
        let status = Status(reader.u16()?);
        reader.skip(2);
        let changed = capabilities.has(Capabilities::SESSION_TRACK) && status.has(Status::STATE_CHANGED);
        let database = if changed { changed_database(reader) } else { None };
        Some(Self { status: Some(status), affected, error: None, database })
    }

    /// The status of the session after it, given that before it.
    pub(super) fn status_after(&self, before: Status) -> Status {
        match (self.status, self.error) {
            (Some(status), _) => status.lasting(),
            (None, Some(error)) if ROLLED_BACK.contains(&error) => {
                Status(before.0 & !Status::IN_TRANSACTION.0)
            }
            (None, _) => before,
        }
    }

    pub(super) fn more_results(&self) -> bool {
        self.status.is_some_and(|status| status.has(Status::MORE_RESULTS))
    }
}

/// Whether a packet that begins so is MariaDB's report of progress.
pub(super) fn is_progress(payload: &[u8]) -> bool {
    payload.starts_with(&[0xff, 0xff, 0xff])
}

/// Whether a packet among rows is their end or an error. A row that begins with `0xfe` has a first value of 16 MiB
/// and more.
pub(super) fn ends_rows(first: u8, len: usize, capabilities: Capabilities) -> bool {
    let longest = if capabilities.has(Capabilities::DEPRECATE_EOF) { MAX_PAYLOAD - 1 } else { 8 };
    first == 0xff || first == 0xfe && len <= longest
}

/// The schema among the changes of the session that follow an OK packet's message, of which the first may have been
/// seen alone.
fn changed_database(mut reader: Reader<'_>) -> Option<String> {
    const SCHEMA: u8 = 1;
    reader.lenenc_bytes()?;
    let total = usize::try_from(reader.lenenc()?).ok()?;
    let rest = reader.rest();
    let mut changes = Reader::new(rest.get(..total).unwrap_or(rest));
    loop {
        let kind = changes.u8()?;
        let data = changes.lenenc_bytes()?;
        if kind == SCHEMA {
            let name = Reader::new(data).lenenc_bytes()?;
            let kept = (name.len() <= NAME_LIMIT).then_some(name)?;
            return Some(String::from_utf8_lossy(kept).into_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: Capabilities = Capabilities::DEPRECATE_EOF;
    const OLD: Capabilities = Capabilities(0);

    #[test]
    fn endings_are_read_in_either_mode() {
        let ok = Ending::parse(b"\x00\xfc\x2c\x01\x05\x03\x00\x00\x00", OLD);
        assert_eq!((ok.affected, ok.status), (300, Some(Status(3))));
        let eof = Ending::parse(b"\xfe\x00\x00\x0a\x00", OLD);
        assert_eq!((eof.status, eof.more_results()), (Some(Status(0x0a)), true));
        let end = Ending::parse(b"\xfe\x00\x00\x02\x00\x00\x00", NEW);
        assert_eq!((end.status, end.more_results()), (Some(Status(2)), false));
        assert_eq!(Ending::parse(b"\xff\x28\x04#42000No", NEW).error, Some(1064));
        assert_eq!(Ending::parse(b"Uptime: 5", NEW), Ending::default());
    }

    #[test]
    fn an_end_of_rows_has_warnings_where_an_ok_has_rows_changed() {
        let old = Ending::parse(b"\xfe\x05\x07\x0a\x00", OLD);
        assert_eq!((old.affected, old.status), (0, Some(Status(0x0a))));
        let new = Ending::parse(b"\xfe\x05\x07\x0a\x00\x01\x00", NEW);
        assert_eq!((new.affected, new.status), (5, Some(Status(0x0a))));
    }

    #[test]
    fn the_longest_name_of_a_database_is_taken_and_a_longer_one_is_none() {
        for (len, taken) in [(NAME_LIMIT, true), (NAME_LIMIT + 1, false)] {
            let lenenc = |len: usize| [&[0xfc][..], &len.to_le_bytes()[..2]].concat();
            let change = [&[1][..], &lenenc(len + 3), &lenenc(len), &vec![b'd'; len]].concat();
            let packet = [b"\x00\x00\x00\x02\x40\x00\x00\x00", &lenenc(change.len())[..], &change].concat();
            let database = Ending::parse(&packet, Capabilities::SESSION_TRACK).database;
            assert_eq!(database.map(|name| name.len()), taken.then_some(len));
        }
    }

    #[test]
    fn the_new_database_is_found_among_the_changes() {
        // No message; a system variable, then the schema.
        let packet = b"\x00\x00\x00\x02\x40\x00\x00\x00\x0d\x00\x04\x01x\x01y\x01\x05\x04shop";
        let ending = Ending::parse(packet, Capabilities::SESSION_TRACK);
        assert_eq!(ending.database.as_deref(), Some("shop"));
        assert_eq!(Ending::parse(packet, OLD).database, None);
    }

    #[test]
    fn an_error_by_which_innodb_rolls_back_the_whole_ends_the_transaction_and_others_do_not() {
        let before = Status(3);
        let error = |code| Ending { error: Some(code), ..Ending::default() };
        for code in [1213, 1206, 1020] {
            assert_eq!(error(code).status_after(before), Status(2), "{code}");
            assert_eq!(error(code).status_after(Status(2)), Status(2), "{code}");
        }
        // A duplicate key, a wait for a lock that took too long, a syntax error, one that was interrupted, and a full
        // table.
        for code in [1062, 1205, 1064, 1317, 1114] {
            assert_eq!(error(code).status_after(before), before, "{code}");
        }
    }

    #[test]
    fn a_row_of_a_huge_value_ends_nothing() {
        assert!(ends_rows(0xfe, 5, OLD) && !ends_rows(0xfe, 9, OLD));
        assert!(ends_rows(0xfe, 700, NEW) && !ends_rows(0xfe, MAX_PAYLOAD, NEW));
        assert!(ends_rows(0xff, 9, OLD) && !ends_rows(0xfb, 1, NEW));
    }
}
