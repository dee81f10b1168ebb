//! A response of the server, packet by packet: where it stands, and which packet is its last.
//!
//! In: the beginning of each packet and its length. Out: what the packet is, and counts. It distinguishes rows from
//! columns by counting the columns, and keeps nothing of them.
//!
//! *Source*: MySQL "COM_QUERY Response", "COM_STMT_PREPARE Response"; MariaDB "Result set packets".

use super::capability::Capabilities;
use super::command::{Command, Shape};
use super::ending::{ENDING_LOOK, Ending, Status, ends_rows, is_progress};
use super::reader::Reader;

/// Most bytes that are looked at of a packet that ends nothing: a column count, or what a prepared statement has.
const LOOK: usize = 16;

/// The state of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) rows: u64,
    pub(super) affected: u64,
    pub(super) error: Option<u16>,
}

/// What a packet of a response is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// One of several.
    Middle,
    /// The first of a prepared statement's, with its id.
    Prepared { id: u32, last: bool },
    /// The request for a file of the client's.
    FileWanted,
    /// The last.
    Last(Ending),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The first packet of a result.
    First,
    /// The one packet.
    Single,
    Columns {
        left: u64,
    },
    ColumnsEnd,
    Rows,
    /// The client sends a file.
    File,
    Prepare,
    /// Descriptions of parameters, then of columns, each with an end where ends are sent.
    Described {
        left: u16,
        then: u16,
    },
    DescribedEnd {
        then: u16,
    },
    Opaque {
        begun: bool,
    },
}

/// A response that is awaited or has begun.
#[derive(Debug)]
pub(super) struct Reply {
    phase: Phase,
    counts_rows: bool,
    /// The client asked the server to keep the rows behind a cursor.
    may_open_cursor: bool,
    tally: Tally,
    /// The default database, if one of the results has changed it.
    database: Option<String>,
}

impl Reply {
    /// The response to `command`, if it has one that is read here.
    pub(super) fn to(command: Command) -> Option<Self> {
        let phase = match command.shape() {
            Shape::Nothing | Shape::Auth => return None,
            Shape::Single => Phase::Single,
            Shape::Results => Phase::First,
            Shape::Rows => Phase::Rows,
            Shape::Prepared => Phase::Prepare,
            Shape::Opaque => Phase::Opaque { begun: false },
        };
        let counts_rows = !matches!(command, Command::FieldList | Command::BinlogDump);
        Some(Self { phase, counts_rows, may_open_cursor: false, tally: Tally::default(), database: None })
    }

    /// The command asks for a cursor. Only then does the status of one mean that no rows follow: a procedure that
    /// answers while a cursor of its own is open has that status, too.
    pub(super) fn allow_cursor(&mut self) {
        self.may_open_cursor = true;
    }

    pub(super) fn tally(&self) -> Tally {
        self.tally
    }

    /// The client gets an error that the server does not know of.
    pub(super) fn set_error(&mut self, code: u16) {
        self.tally.error = Some(code);
    }

    /// Whether it may have ended without saying so: at least a packet of a response of unknown shape has come.
    pub(super) fn may_have_ended(&self) -> bool {
        self.phase == Phase::Opaque { begun: true }
    }

    /// Whether a packet that begins so is the request for a file.
    pub(super) fn asks_for_file(&self, payload: &[u8]) -> bool {
        self.phase == Phase::First && payload.first() == Some(&0xfb)
    }

    /// Whether a packet that begins so is the first of a result with rows.
    pub(super) fn begins_rows(&self, payload: &[u8]) -> bool {
        let other = matches!(payload.first(), None | Some(0x00 | 0xfb | 0xfe | 0xff));
        self.phase == Phase::First && !other
    }

    /// Whether the server waits for a file.
    pub(super) fn wants_file(&self) -> bool {
        self.phase == Phase::File
    }

    /// The server has its file, and goes on with a result.
    pub(super) fn file_sent(&mut self) {
        self.phase = Phase::First;
    }

    /// How many bytes of a packet must be seen, of which the first is `first`.
    pub(super) fn look(&self, first: Option<u8>, len: usize, capabilities: Capabilities) -> usize {
        let Some(first) = first else { return 1.min(len) };
        let (ends, otherwise) = match self.phase {
            Phase::Rows => (ends_rows(first, len, capabilities), 1),
            Phase::Columns { .. } | Phase::Described { .. } => (first == 0xff, 1),
            _ => (matches!(first, 0x00 | 0xfe | 0xff), LOOK),
        };
        len.min(if ends { ENDING_LOOK } else { otherwise })
    }

    /// A packet begins; `payload` is as much of it as [`look`](Self::look) asked for, and `len` that of its first
    /// frame.
    pub(super) fn read(&mut self, payload: &[u8], len: usize, capabilities: Capabilities) -> Seen {
        if is_progress(payload) {
            return Seen::Middle;
        }
        let first = payload.first().copied().unwrap_or_default();
        match self.phase {
            Phase::Single => self.end(Ending::parse(payload, capabilities)),
            Phase::First | Phase::File => self.first(first, payload, capabilities),
            Phase::Rows if ends_rows(first, len, capabilities) => self.result_ends(payload, capabilities),
            Phase::Rows => {
                self.tally.rows = self.tally.rows.saturating_add(u64::from(self.counts_rows));
                Seen::Middle
            }
            _ if first == 0xff => self.end(Ending::parse(payload, capabilities)),
            Phase::Columns { left } => {
                self.phase = Self::after_columns(left.saturating_sub(1), capabilities);
                Seen::Middle
            }
            Phase::ColumnsEnd => self.columns_end(payload, capabilities),
            Phase::Prepare => self.prepared(payload),
            Phase::Described { left, then } => self.described(left.saturating_sub(1), then, capabilities),
            Phase::DescribedEnd { then } => self.describes(then, 0),
            Phase::Opaque { begun: false } if matches!(first, 0x00 | 0xfe) => {
                self.end(Ending::parse(payload, capabilities))
            }
            Phase::Opaque { .. } => {
                self.phase = Phase::Opaque { begun: true };
                Seen::Middle
            }
        }
    }

    fn first(&mut self, first: u8, payload: &[u8], capabilities: Capabilities) -> Seen {
        match first {
            0x00 | 0xfe | 0xff => self.result_ends(payload, capabilities),
            0xfb => {
                self.phase = Phase::File;
                Seen::FileWanted
            }
            _ => {
                let mut reader = Reader::new(payload);
                let columns = reader.lenenc().unwrap_or_default();
                let cached = capabilities.has(Capabilities::CACHE_METADATA) && reader.u8() == Some(0);
                self.phase = Self::after_columns(if cached { 0 } else { columns }, capabilities);
                Seen::Middle
            }
        }
    }

    fn after_columns(left: u64, capabilities: Capabilities) -> Phase {
        match left {
            0 if capabilities.has(Capabilities::DEPRECATE_EOF) => Phase::Rows,
            0 => Phase::ColumnsEnd,
            _ => Phase::Columns { left },
        }
    }

    /// The end of the columns is that of the response, too, where a cursor keeps the rows.
    fn columns_end(&mut self, payload: &[u8], capabilities: Capabilities) -> Seen {
        let ending = Ending::parse(payload, capabilities);
        if self.may_open_cursor && ending.status.is_some_and(|status| status.has(Status::CURSOR_EXISTS)) {
            return self.result_ends(payload, capabilities);
        }
        self.phase = Phase::Rows;
        Seen::Middle
    }

    fn prepared(&mut self, payload: &[u8]) -> Seen {
        let mut reader = Reader::new(payload.get(1..).unwrap_or_default());
        let id = reader.u32().unwrap_or_default();
        let columns = reader.u16().unwrap_or_default();
        let parameters = reader.u16().unwrap_or_default();
        let last = matches!(self.describes(parameters, columns), Seen::Last(_));
        Seen::Prepared { id, last }
    }

    /// So many descriptions come now, and so many after them.
    fn describes(&mut self, left: u16, then: u16) -> Seen {
        match (left, then) {
            (0, 0) => return self.end(Ending::default()),
            (0, then) => self.phase = Phase::Described { left: then, then: 0 },
            (left, then) => self.phase = Phase::Described { left, then },
        }
        Seen::Middle
    }

    fn described(&mut self, left: u16, then: u16, capabilities: Capabilities) -> Seen {
        if left > 0 {
            self.phase = Phase::Described { left, then };
            return Seen::Middle;
        }
        if capabilities.has(Capabilities::DEPRECATE_EOF) {
            return self.describes(then, 0);
        }
        self.phase = Phase::DescribedEnd { then };
        Seen::Middle
    }

    /// A result ends, and with it the response unless another follows.
    fn result_ends(&mut self, payload: &[u8], capabilities: Capabilities) -> Seen {
        let ending = Ending::parse(payload, capabilities);
        if ending.more_results() {
            self.tally.affected = self.tally.affected.saturating_add(ending.affected);
            self.database = ending.database.or(self.database.take());
            self.phase = Phase::First;
            return Seen::Middle;
        }
        self.end(ending)
    }

    fn end(&mut self, mut ending: Ending) -> Seen {
        self.tally.affected = self.tally.affected.saturating_add(ending.affected);
        self.tally.error = self.tally.error.or(ending.error);
        ending.database = ending.database.or(self.database.take());
        Seen::Last(ending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: Capabilities = Capabilities::DEPRECATE_EOF;
    const OLD: Capabilities = Capabilities(0);
    const MIDDLE: Seen = Seen::Middle;

    /// Reads packets to the last, which must be the last of them.
    fn read(command: Command, capabilities: Capabilities, packets: &[&[u8]]) -> Tally {
        read_of(Reply::to(command).unwrap(), capabilities, packets)
    }

    fn read_of(mut reply: Reply, capabilities: Capabilities, packets: &[&[u8]]) -> Tally {
        for (index, packet) in packets.iter().enumerate() {
            let seen = reply.read(packet, packet.len(), capabilities);
            let last = matches!(seen, Seen::Last(_) | Seen::Prepared { last: true, .. });
            assert_eq!(last, index + 1 == packets.len(), "packet {index}: {seen:?}");
        }
        reply.tally()
    }

    #[test]
    fn rows_are_counted_in_either_mode() {
        let rows: &[&[u8]] = &[b"\x01", b"\x03def", b"\xfe\0\0\x22\0", b"\x011", b"\xfb", b"\xfe\0\0\x22\0"];
        assert_eq!(read(Command::Query, OLD, rows).rows, 2);
        let rows: &[&[u8]] = &[b"\x01", b"\x03def", b"\x011", b"\xfb", b"\xfe\0\0\x22\0\0\0"];
        assert_eq!(read(Command::Query, NEW, rows).rows, 2);
        let binary: &[&[u8]] = &[b"\x01", b"\x03def", b"\x00\x00\x01", b"\xfe\0\0\x22\0\0\0"];
        assert_eq!(read(Command::Execute, NEW, binary).rows, 1);
    }

    #[test]
    fn several_results_are_one_response() {
        let more: &[&[u8]] = &[
            b"\x00\x02\x00\x0a\x00\x00\x00",
            b"\x01",
            b"\x03def",
            b"\x011",
            b"\xfe\0\0\x0a\0\0\0",
            b"\x00\x03\x00\x02\x00\x00\x00",
        ];
        assert_eq!(read(Command::Query, NEW, more), Tally { rows: 1, affected: 5, error: None });
    }

    #[test]
    fn an_error_ends_a_response_wherever_it_comes() {
        let error: &[u8] = b"\xff\x25\x05#70100no";
        for before in 0..4 {
            let mut packets: Vec<&[u8]> = vec![b"\x01", b"\x03def", b"\x011"];
            packets.truncate(before);
            packets.push(error);
            assert_eq!(read(Command::Query, NEW, &packets).error, Some(1317), "after {before} packets");
        }
    }

    /// What was changed before it stays changed, and what was read was read.
    #[test]
    fn an_error_behind_other_results_leaves_what_they_changed_and_gave() {
        let changed: &[u8] = b"\x00\x02\x00\x0a\x00\x00\x00";
        let error: &[u8] = b"\xff\x25\x05#70100no";
        let rows: [&[u8]; 4] = [b"\x01", b"\x03def", b"\x011", b"\xfe\0\0\x0a\0\0\0"];
        for (before, rows, affected) in [
            (vec![changed], 0, 2),
            (vec![changed, changed], 0, 4),
            ([&[changed][..], &rows].concat(), 1, 2),
            ([&rows[..], &[changed], &rows[..3]].concat(), 2, 2),
        ] {
            let packets = [&before[..], &[error]].concat();
            let tally = Tally { rows, affected, error: Some(1317) };
            for command in [Command::Query, Command::Execute] {
                assert_eq!(read(command, NEW, &packets), tally, "{before:?}");
            }
        }
    }

    #[test]
    fn a_report_of_progress_ends_nothing() {
        let progress: &[u8] = b"\xff\xff\xff\x01\x01\x02\x10\x00\x00\x00";
        let packets: &[&[u8]] = &[progress, progress, b"\x00\x00\x00\x02\x00\x00\x00"];
        assert_eq!(read(Command::Query, OLD, packets), Tally::default());
    }

    #[test]
    fn an_open_cursor_has_no_rows_yet() {
        let with_cursor = || {
            let mut reply = Reply::to(Command::Execute).unwrap();
            reply.allow_cursor();
            reply
        };
        let old: &[&[u8]] = &[b"\x01", b"\x03def", b"\xfe\0\0\x42\0"];
        assert_eq!(read_of(with_cursor(), OLD, old).rows, 0);
        let none_opened: &[&[u8]] =
            &[b"\x01", b"\x03def", b"\xfe\0\0\x02\0", b"\x00\x00\x01", b"\xfe\0\0\x02\0"];
        assert_eq!(read_of(with_cursor(), OLD, none_opened).rows, 1);
        let new: &[&[u8]] = &[b"\x01", b"\x03def", b"\xfe\0\0\x42\0\0\0"];
        assert_eq!(read_of(with_cursor(), NEW, new).rows, 0);
        let fetched: &[&[u8]] = &[b"\x00\x00\x01", b"\x00\x00\x02", b"\xfe\0\0\x82\0\0\0"];
        assert_eq!(read(Command::Fetch, NEW, fetched).rows, 2);
    }

    #[test]
    fn a_procedure_s_own_open_cursor_keeps_no_rows_from_the_client() {
        let row: &[u8] = b"\xfb";
        let end: &[u8] = b"\xfe\0\0\x4a\0";
        let ok: &[u8] = b"\x00\x00\x00\x02\x00\x00\x00";
        let called: &[&[u8]] = &[b"\x01", b"\x03def", end, row, end, ok];
        for command in [Command::Query, Command::Execute] {
            assert_eq!(
                read(command, OLD, called),
                Tally { rows: 1, affected: 0, error: None },
                "{command:?}"
            );
        }
    }

    #[test]
    fn descriptions_of_a_prepared_statement_are_counted() {
        let ok: &[u8] = b"\x00\x07\0\0\0\x01\0\x02\0\0\0\0";
        let new: &[&[u8]] = &[ok, b"\x03def", b"\x03def", b"\x03def"];
        read(Command::Prepare, NEW, new);
        let end: &[u8] = b"\xfe\0\0\x02\0";
        read(Command::Prepare, OLD, &[ok, b"\x03def", b"\x03def", end, b"\x03def", end]);
        read(Command::Prepare, OLD, &[b"\x00\x07\0\0\0\0\0\0\0\0\0\0"]);
        let mut reply = Reply::to(Command::Prepare).unwrap();
        assert_eq!(reply.read(ok, ok.len(), NEW), Seen::Prepared { id: 7, last: false });
    }

    #[test]
    fn columns_that_the_client_remembers_are_not_awaited() {
        let caching = Capabilities::DEPRECATE_EOF | Capabilities::CACHE_METADATA;
        let cached: &[&[u8]] = &[b"\x02\x00", b"\x00\x00\x01", b"\xfe\0\0\x02\0\0\0"];
        assert_eq!(read(Command::Execute, caching, cached).rows, 1);
        let sent: &[&[u8]] = &[b"\x01\x01", b"\x03def", b"\x00\x00\x01", b"\xfe\0\0\x02\0\0\0"];
        assert_eq!(read(Command::Execute, caching, sent).rows, 1);
        let old: &[&[u8]] = &[b"\x02\x00", b"\xfe\0\0\x02\0", b"\x00\x00\x01", b"\xfe\0\0\x02\0"];
        assert_eq!(read(Command::Execute, Capabilities::CACHE_METADATA, old).rows, 1);
    }

    #[test]
    fn a_file_comes_before_the_result() {
        let mut reply = Reply::to(Command::Query).unwrap();
        assert_eq!(reply.read(b"\xfb/tmp/x", 7, NEW), Seen::FileWanted);
        assert!(reply.wants_file());
        reply.file_sent();
        assert!(matches!(reply.read(b"\x00\x05\x00\x02\x00\x00\x00", 7, NEW), Seen::Last(_)));
        assert_eq!(reply.tally().affected, 5);
    }

    #[test]
    fn a_response_of_unknown_shape_ends_at_once_or_when_the_client_goes_on() {
        assert_eq!(read(Command::Unknown(0x40), NEW, &[b"\xff\x17\x04#08S01no"]).error, Some(1047));
        let mut reply = Reply::to(Command::Unknown(0x40)).unwrap();
        assert!(!reply.may_have_ended());
        assert_eq!(reply.read(b"\x05hello", 6, NEW), MIDDLE);
        assert!(reply.may_have_ended());
    }
}
