//! Responses that the gateway gives in place of the server: ERR, OK, and results of text.
//!
//! In: what is to be said. Out: packets in the shape that the client has agreed to, numbered from the sequence id
//! that follows its command. Text is UTF-8.
//!
//! *Source*: MySQL "ERR_Packet", "OK_Packet", "Text Resultset"; MariaDB adds a byte to the column count and a field
//! to each column where those capabilities are agreed to.

use tidegate_sql::{Column, Kind, Table, Value};

use super::capability::Capabilities;
use super::ending::Status;
use super::frame::{HEADER, Header};
use super::moment;

/// Longest answer, in bytes: it is made as a whole. Less than one frame, so that no packet is split.
pub(super) const ANSWER_LIMIT: usize = 4 << 20;
/// Longest message of an error, in bytes: what clients have room for.
pub(super) const MESSAGE_LIMIT: usize = 511;

/// `utf8mb4_general_ci`, and the collation of what is no text.
const UTF8MB4: u16 = 45;
const BINARY: u16 = 63;

/// An error for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// MySQL's number.
    pub(super) code: u16,
    /// SQLSTATE.
    pub(super) state: [u8; 5],
    /// What, how much, what to do; cut at [`MESSAGE_LIMIT`].
    pub(super) message: String,
}

/// A response that the gateway gives.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer {
    /// An error.
    Refused(Refusal),
    /// Done, with so many rows changed.
    Done {
        /// Rows changed.
        affected: u64,
        /// How many warnings come with it.
        warnings: usize,
    },
    /// A result.
    Rows(Table),
}

/// What a client has agreed to, and where its session stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Audience {
    pub(super) capabilities: Capabilities,
    pub(super) status: Status,
    /// Whether it has prepared the statement, and gets binary rows.
    pub(super) binary: bool,
}

/// The packets that describe these columns to who prepares a statement; the first has the sequence id `first`.
pub(super) fn columns(columns: &[Column], first: u8, audience: Audience) -> Vec<u8> {
    let mut packets = Packets::new(first);
    for column in columns {
        packets.column(column, audience.capabilities);
    }
    if !audience.capabilities.has(Capabilities::DEPRECATE_EOF) {
        packets.end_of(audience.status, 0);
    }
    packets.bytes
}

impl Answer {
    /// The packets; the first has the sequence id `first`.
    pub(super) fn packets(&self, first: u8, audience: Audience) -> Vec<u8> {
        let mut packets = Packets::new(first);
        match self {
            Self::Refused(refusal) => packets.error(refusal, true),
            Self::Done { affected, warnings } => packets.ok(0x00, *affected, audience.status, *warnings),
            Self::Rows(table) => packets.table(table, audience),
        }
        if packets.bytes.len() <= ANSWER_LIMIT {
            return packets.bytes;
        }
        let message = format!("an answer of more than {ANSWER_LIMIT} bytes; ask for fewer rows");
        // ER_NET_PACKET_TOO_LARGE
        Refusal { code: 1153, state: *b"08S01", message }.packet(first)
    }
}

impl Refusal {
    /// One packet.
    pub(super) fn packet(&self, sequence: u8) -> Vec<u8> {
        let mut packets = Packets::new(sequence);
        packets.error(self, true);
        packets.bytes
    }

    /// The packet in place of a greeting: a client that knows of no server yet would take the state for text.
    pub(super) fn first_packet(&self) -> Vec<u8> {
        let mut packets = Packets::new(0);
        packets.error(self, false);
        packets.bytes
    }
}

struct Packets {
    bytes: Vec<u8>,
    sequence: u8,
    begun: usize,
}

impl Packets {
    fn new(first: u8) -> Self {
        Self { bytes: Vec::new(), sequence: first, begun: 0 }
    }

    fn begin(&mut self) {
        self.begun = self.bytes.len();
        self.bytes.extend([0; HEADER]);
    }

    fn finish(&mut self) {
        let len = self.bytes.len() - self.begun - HEADER;
        let header = Header { len, sequence: self.sequence }.to_bytes();
        if let Some(place) =
            self.bytes.get_mut(self.begun..).and_then(|tail| tail.first_chunk_mut::<HEADER>())
        {
            *place = header;
        }
        self.sequence = self.sequence.wrapping_add(1);
    }

    fn error(&mut self, refusal: &Refusal, with_state: bool) {
        self.begin();
        self.bytes.push(0xff);
        self.bytes.extend(refusal.code.to_le_bytes());
        if with_state {
            self.bytes.push(b'#');
            self.bytes.extend(refusal.state);
        }
        self.bytes.extend(cut(&refusal.message, MESSAGE_LIMIT).as_bytes());
        self.finish();
    }

    fn ok(&mut self, first: u8, affected: u64, status: Status, warnings: usize) {
        self.begin();
        self.bytes.push(first);
        self.lenenc(affected);
        self.lenenc(0);
        self.bytes.extend(status.lasting().0.to_le_bytes());
        self.bytes.extend(counted(warnings));
        self.finish();
    }

    fn end_of(&mut self, status: Status, warnings: usize) {
        self.begin();
        self.bytes.push(0xfe);
        self.bytes.extend(counted(warnings));
        self.bytes.extend(status.lasting().0.to_le_bytes());
        self.finish();
    }

    fn table(&mut self, table: &Table, audience: Audience) {
        let Audience { capabilities, status, binary } = audience;
        let ends = !capabilities.has(Capabilities::DEPRECATE_EOF);
        self.begin();
        self.lenenc(u64::try_from(table.columns.len()).unwrap_or(u64::MAX));
        if capabilities.has(Capabilities::CACHE_METADATA) {
            self.bytes.push(1);
        }
        self.finish();
        for column in &table.columns {
            self.column(column, capabilities);
        }
        if ends {
            self.end_of(status, 0);
        }
        for row in &table.rows {
            // A row stops the answer from growing without end; the caller sees that it is too long.
            if self.bytes.len() > ANSWER_LIMIT {
                return;
            }
            self.begin();
            if binary {
                self.binary_row(row, &table.columns);
                self.finish();
                continue;
            }
            for index in 0..table.columns.len() {
                match row.get(index) {
                    Some(Value::Text(text)) => self.text(text),
                    Some(Value::Int(number)) => self.text(&number.to_string()),
                    Some(Value::Float(number)) => self.text(&number.to_string()),
                    Some(Value::Null) | None => self.bytes.push(0xfb),
                }
            }
            self.finish();
        }
        let warnings = table.notes.len();
        if ends { self.end_of(status, warnings) } else { self.ok(0xfe, 0, status, warnings) }
    }

    /// Values of the columns' types; a value of another type becomes null.
    fn binary_row(&mut self, row: &[Value], columns: &[Column]) {
        self.bytes.push(0);
        let nulls = self.bytes.len();
        // Two bits go before those of the columns.
        self.bytes.resize(nulls + (columns.len() + 9) / 8, 0);
        for (at, column) in columns.iter().enumerate() {
            if !self.binary_value(row.get(at), column.kind)
                && let Some(byte) = self.bytes.get_mut(nulls + (at + 2) / 8)
            {
                *byte |= 1 << ((at + 2) % 8);
            }
        }
    }

    /// False where it is null.
    fn binary_value(&mut self, value: Option<&Value>, kind: Kind) -> bool {
        match (value, kind) {
            (Some(Value::Int(number)), Kind::Int32) => {
                self.bytes.extend(i32::try_from(*number).unwrap_or(i32::MAX).to_le_bytes());
            }
            (Some(Value::Int(number)), Kind::Int) => self.bytes.extend(number.to_le_bytes()),
            (Some(Value::Float(number)), Kind::Float) => self.bytes.extend(number.to_le_bytes()),
            (Some(Value::Text(text)), Kind::Text) => self.text(text),
            (Some(Value::Text(text)), Kind::Timestamp) => match moment::binary(text) {
                Some(moment) => self.bytes.extend(moment),
                None => return false,
            },
            _ => return false,
        }
        true
    }

    fn column(&mut self, column: &Column, capabilities: Capabilities) {
        const NUMBER: u16 = 0x8000;
        let (kind, charset, length, flags, decimals) = match column.kind {
            Kind::Text => (0xfd, UTF8MB4, 4 * 1024, 0, 0),
            Kind::Int => (0x08, BINARY, 20, NUMBER, 0),
            Kind::Int32 => (0x03, BINARY, 11, NUMBER, 0),
            Kind::Float => (0x05, BINARY, 22, NUMBER, 31),
            // With milliseconds.
            Kind::Timestamp => (0x0c, BINARY, 23, 0, 3),
        };
        self.begin();
        for text in ["def", "", "", "", &column.name, &column.name] {
            self.text(text);
        }
        if capabilities.has(Capabilities::EXTENDED_METADATA) {
            self.lenenc(0);
        }
        self.lenenc(0x0c);
        self.bytes.extend(charset.to_le_bytes());
        self.bytes.extend(u32::to_le_bytes(length));
        self.bytes.push(kind);
        self.bytes.extend(flags.to_le_bytes());
        self.bytes.extend([decimals, 0, 0]);
        self.finish();
    }

    fn text(&mut self, text: &str) {
        self.lenenc(u64::try_from(text.len()).unwrap_or(u64::MAX));
        self.bytes.extend(text.as_bytes());
    }

    fn lenenc(&mut self, number: u64) {
        let [a, b, c, ..] = number.to_le_bytes();
        match number {
            0..=0xfa => self.bytes.push(a),
            0xfb..=0xffff => self.bytes.extend([0xfc, a, b]),
            0x1_0000..=0xff_ffff => self.bytes.extend([0xfd, a, b, c]),
            _ => {
                self.bytes.push(0xfe);
                self.bytes.extend(number.to_le_bytes());
            }
        }
    }
}

/// A number of warnings, as far as the protocol counts.
fn counted(warnings: usize) -> [u8; 2] {
    u16::try_from(warnings).unwrap_or(u16::MAX).to_le_bytes()
}

/// The beginning of `text` of at most `limit` bytes, in whole characters.
fn cut(text: &str, limit: usize) -> &str {
    text.get(..text.floor_char_boundary(limit)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::command::Command;
    use super::super::reply::{Reply, Seen};
    use super::*;

    fn table() -> Table {
        let column = |name: &str, kind| Column { name: name.into(), kind };
        Table {
            columns: vec![column("name", Kind::Text), column("ru", Kind::Float)],
            rows: vec![
                vec![Value::Text("default".into()), Value::Float(1.5)],
                vec![Value::Text("x".repeat(300)), Value::Null],
                vec![],
            ],
            notes: Vec::new(),
        }
    }

    /// Rows that a reader of responses finds in `bytes`, with the sequence ids it passes.
    fn read(bytes: &[u8], capabilities: Capabilities) -> (u64, Vec<u8>) {
        let mut reply = Reply::to(Command::Query).unwrap();
        let (mut at, mut sequences) = (0, Vec::new());
        while at < bytes.len() {
            let header = Header::parse(&bytes[at..]).unwrap();
            let payload = &bytes[at + HEADER..][..header.len];
            let seen = reply.read(payload, header.len, capabilities);
            at += HEADER + header.len;
            sequences.push(header.sequence);
            assert_eq!(matches!(seen, Seen::Last(_)), at == bytes.len());
        }
        (reply.tally().rows, sequences)
    }

    #[test]
    fn a_result_is_read_as_it_is_meant_in_every_mode() {
        let modes = [
            (Capabilities(0), 8),
            (Capabilities::DEPRECATE_EOF, 7),
            (Capabilities::DEPRECATE_EOF | Capabilities::CACHE_METADATA, 7),
            (Capabilities::EXTENDED_METADATA | Capabilities::CACHE_METADATA, 8),
        ];
        for (capabilities, packets) in modes {
            let audience = Audience { capabilities, status: Status(2), binary: false };
            let bytes = Answer::Rows(table()).packets(254, audience);
            let (rows, sequences) = read(&bytes, capabilities);
            let expected: Vec<u8> = (0..packets).map(|index| 254_u8.wrapping_add(index)).collect();
            assert_eq!((rows, sequences), (3, expected), "{capabilities:?}");
        }
    }

    #[test]
    fn a_moment_is_a_text_in_a_row_of_text_and_a_moment_in_a_binary_one() {
        let text = "2026-01-31 23:59:58.250";
        let column = |name: &str, kind| Column { name: name.into(), kind };
        let row = |first: Value| vec![first, Value::Int(7)];
        let table = Table {
            columns: vec![column("at", Kind::Timestamp), column("n", Kind::Int)],
            rows: vec![row(Value::Text(text.into())), row(Value::Null), row(Value::Text("never".into()))],
            notes: Vec::new(),
        };
        // The packets from the first row on, and the type of the first column in its description.
        let rows = |binary| {
            let audience = Audience { capabilities: Capabilities::DEPRECATE_EOF, status: Status(2), binary };
            let bytes = Answer::Rows(table.clone()).packets(1, audience);
            let (mut at, mut payloads) = (0, Vec::new());
            while let Some(header) = Header::parse(&bytes[at..]) {
                payloads.push(bytes[at + HEADER..][..header.len].to_vec());
                at += HEADER + header.len;
            }
            let [.., kind, _, _, decimals, _, _] = payloads[1][..] else { panic!("{payloads:?}") };
            assert_eq!((kind, decimals), (0x0c, 3), "DATETIME(3)");
            payloads.drain(3..6).collect::<Vec<_>>()
        };
        let length = u8::try_from(text.len()).unwrap();
        let shown = [&[length][..], text.as_bytes(), b"\x017"].concat();
        assert_eq!(rows(false), [shown, b"\xfb\x017".to_vec(), b"\x05never\x017".to_vec()]);
        let seven = 7_i64.to_le_bytes();
        let told = [&[0, 0][..], &moment::binary(text).unwrap(), &seven].concat();
        let null = [&[0, 0b100][..], &seven].concat();
        assert_eq!(rows(true), [told, null.clone(), null]);
    }

    #[test]
    fn an_error_names_its_state_and_is_cut_between_characters() {
        let refusal = Refusal { code: 8252, state: *b"HY000", message: "ü".repeat(400) };
        let bytes = refusal.packet(1);
        assert_eq!(bytes[..13], *b"\x07\x02\x00\x01\xff\x3c\x20#HY000");
        assert_eq!(bytes.len(), HEADER + 9 + MESSAGE_LIMIT - 1);
    }

    #[test]
    fn an_answer_beyond_its_limit_is_an_error() {
        let value = Value::Text("x".repeat(1000));
        let table = Table {
            columns: vec![Column { name: "v".into(), kind: Kind::Text }],
            rows: vec![vec![value]; 5000],
            notes: Vec::new(),
        };
        let audience = Audience { capabilities: Capabilities(0), status: Status(0), binary: false };
        let bytes = Answer::Rows(table).packets(1, audience);
        assert_eq!(bytes[4..7], [0xff, 0x81, 0x04]);
    }
}
