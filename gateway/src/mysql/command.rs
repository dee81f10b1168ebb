//! What a client can ask of a server, by the first byte of a packet, and what comes back.
//!
//! *Source*: MySQL `include/my_command.h`; MariaDB `include/mysql_com.h`.

use super::capability::Capabilities;
use super::login::NAME_LIMIT;
use super::reader::Reader;

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Command {
    /// SQL as text.
    Query,
    /// SQL to be prepared.
    Prepare,
    /// A prepared statement with its values.
    Execute,
    /// A prepared statement with many rows of values (MariaDB).
    BulkExecute,
    /// Rows of an open cursor.
    Fetch,
    /// A value of a prepared statement, in parts. No response.
    LongData,
    /// A prepared statement is given up. No response.
    Close,
    /// A prepared statement forgets its values and its cursor.
    Reset,
    /// Another default database.
    InitDb,
    /// Another user on the same connection.
    ChangeUser,
    /// A session as if new.
    ResetConnection,
    /// Columns of a table.
    FieldList,
    /// Options of the connection.
    SetOption,
    /// Figures of the server, as a line.
    Statistics,
    /// Is the server there?
    Ping,
    /// The client leaves. No response.
    Quit,
    /// Ends another connection.
    Kill,
    /// The server's log of changes, for as long as the connection lasts.
    BinlogDump,
    /// A list of connections.
    ProcessInfo,
    /// A command with a response of one packet, by its code.
    Plain(u8),
    /// A command that the gateway does not know, by its code.
    Unknown(u8),
}

/// The shape of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// None.
    Nothing,
    /// One packet.
    Single,
    /// OK, results, or the request for a file.
    Results,
    /// Rows up to an end.
    Rows,
    /// A prepared statement.
    Prepared,
    /// A conversation about who the client is.
    Auth,
    /// An unknown response: it has ended when the client goes on.
    Opaque,
}

impl Command {
    /// The command of a packet's first byte; a packet without one is `COM_SLEEP` to the server.
    pub(super) fn of(code: u8) -> Self {
        match code {
            0x01 => Self::Quit,
            0x02 => Self::InitDb,
            0x03 => Self::Query,
            0x04 => Self::FieldList,
            0x09 => Self::Statistics,
            0x0a => Self::ProcessInfo,
            0x0c => Self::Kill,
            0x0e => Self::Ping,
            0x11 => Self::ChangeUser,
            0x12 | 0x1e => Self::BinlogDump,
            0x16 => Self::Prepare,
            0x17 => Self::Execute,
            0x18 => Self::LongData,
            0x19 => Self::Close,
            0x1a => Self::Reset,
            0x1b => Self::SetOption,
            0x1c => Self::Fetch,
            0x1f => Self::ResetConnection,
            0xfa => Self::BulkExecute,
            // Sleep, create and drop of databases, refresh, shutdown, connect, debug, time, delayed insert,
            // registration of a replica.
            0x00 | 0x05..=0x08 | 0x0b | 0x0d | 0x0f | 0x10 | 0x15 => Self::Plain(code),
            _ => Self::Unknown(code),
        }
    }

    pub(super) fn shape(self) -> Shape {
        match self {
            Self::LongData | Self::Close | Self::Quit => Shape::Nothing,
            Self::Query | Self::Execute | Self::BulkExecute | Self::ProcessInfo => Shape::Results,
            Self::Fetch | Self::FieldList | Self::BinlogDump => Shape::Rows,
            Self::Prepare => Shape::Prepared,
            Self::ChangeUser => Shape::Auth,
            Self::Unknown(_) => Shape::Opaque,
            Self::Reset
            | Self::InitDb
            | Self::ResetConnection
            | Self::SetOption
            | Self::Statistics
            | Self::Ping
            | Self::Kill
            | Self::Plain(_) => Shape::Single,
        }
    }

    /// Whether it is work that has to be admitted; commands about the connection itself are not.
    pub(super) fn is_governed(self) -> bool {
        match self {
            Self::Query
            | Self::Prepare
            | Self::Execute
            | Self::BulkExecute
            | Self::Fetch
            | Self::FieldList
            | Self::BinlogDump
            | Self::ProcessInfo
            | Self::Plain(_)
            | Self::Unknown(_) => true,
            Self::LongData
            | Self::Close
            | Self::Reset
            | Self::InitDb
            | Self::ChangeUser
            | Self::ResetConnection
            | Self::SetOption
            | Self::Statistics
            | Self::Ping
            | Self::Quit
            | Self::Kill => false,
        }
    }

    /// Whether the id of a prepared statement follows the first byte.
    pub(super) fn names_statement(self) -> bool {
        matches!(
            self,
            Self::Execute | Self::BulkExecute | Self::Fetch | Self::LongData | Self::Close | Self::Reset
        )
    }
}

/// The SQL in the payload of a query, as far as it has been seen: after the attributes, if there may be any.
pub(super) fn sql(payload: &[u8], capabilities: Capabilities) -> &[u8] {
    let after = payload.get(1..).unwrap_or_default();
    if !capabilities.has(Capabilities::QUERY_ATTRIBUTES) {
        return after;
    }
    after_attributes(after).unwrap_or_default()
}

/// The database of a `USE`, for clients that do not ask the server to report changes of it.
pub(super) fn used_database(sql: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(sql).ok()?.trim();
    let (word, rest) =
        text.split_once(|end: char| end.is_ascii_whitespace() || end == '`').unwrap_or((text, ""));
    if !word.eq_ignore_ascii_case("use") {
        return None;
    }
    let name = text.get(word.len()..).filter(|_| !rest.is_empty())?.trim_end_matches(';').trim();
    let bare =
        |name: &str| name.chars().all(|letter| letter.is_alphanumeric() || matches!(letter, '_' | '$'));
    match name.strip_prefix('`').and_then(|name| name.strip_suffix('`')) {
        Some(quoted) => Some(quoted.replace("``", "`")),
        None => Some(name.to_owned()).filter(|name| bare(name)),
    }
    .filter(|name| !name.is_empty() && name.len() <= NAME_LIMIT)
}

/// Steps over a query's attributes: their number, the number of sets (one), then a bitmap of nulls, a mark, types
/// with names, and values.
fn after_attributes(bytes: &[u8]) -> Option<&[u8]> {
    let mut reader = Reader::new(bytes);
    let count = usize::try_from(reader.lenenc()?).ok()?;
    reader.lenenc()?;
    if count == 0 {
        return Some(reader.rest());
    }
    let nulls = reader.take(count.div_ceil(8))?;
    if reader.u8()? != 1 {
        return None;
    }
    let mut named = reader;
    for _ in 0..count {
        named.u16()?;
        named.lenenc_bytes()?;
    }
    let mut values = named;
    for index in 0..count {
        let [kind, _] = reader.u16()?.to_le_bytes();
        reader.lenenc_bytes()?;
        let null = nulls.get(index / 8).is_some_and(|byte| byte >> (index % 8) & 1 == 1);
        if !null {
            skip_value(&mut values, kind)?;
        }
    }
    Some(values.rest())
}

/// Steps over a value of the binary protocol.
fn skip_value(reader: &mut Reader<'_>, kind: u8) -> Option<()> {
    match kind {
        // NULL
        0x06 => {}
        // TINY, BOOL
        0x01 | 0xf4 => drop(reader.take(1)?),
        // SHORT, YEAR
        0x02 | 0x0d => drop(reader.take(2)?),
        // LONG, FLOAT, INT24
        0x03 | 0x04 | 0x09 => drop(reader.take(4)?),
        // DOUBLE, LONGLONG
        0x05 | 0x08 => drop(reader.take(8)?),
        // TIMESTAMP, DATE, TIME, DATETIME
        0x07 | 0x0a | 0x0b | 0x0c => {
            let len = reader.u8()?;
            reader.take(usize::from(len))?;
        }
        _ => drop(reader.lenenc_bytes()?),
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sql_is_what_follows_the_attributes() {
        let plain = Capabilities::default();
        let attributes = Capabilities::QUERY_ATTRIBUTES;
        assert_eq!(sql(b"\x03select 1", plain), b"select 1");
        assert_eq!(sql(b"\x03\x00\x01select 1", attributes), b"select 1");
        // Two attributes: a string `n1` = "v", and a null `n2`.
        let two = b"\x03\x02\x01\x02\x01\xfe\x00\x02n1\x06\x00\x02n2\x01vselect 2";
        assert_eq!(sql(two, attributes), b"select 2");
        let number = b"\x03\x01\x01\x00\x01\x08\x00\x01n\x01\x00\x00\x00\x00\x00\x00\x00select 3";
        assert_eq!(sql(number, attributes), b"select 3");
        for len in 0..two.len() - 8 {
            assert_eq!(sql(&two[..len], attributes), b"", "{len} bytes");
        }
    }

    #[test]
    fn a_huge_number_of_attributes_takes_no_time() {
        let many = b"\x03\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x01select 1";
        assert_eq!(sql(many, Capabilities::QUERY_ATTRIBUTES), b"");
    }

    #[test]
    fn a_use_names_its_database() {
        for (sql, database) in [
            ("use shop", Some("shop")),
            (" USE\n`wei rd``name` ; ", Some("wei rd`name")),
            ("use`shop`", Some("shop")),
            ("use shop; select 1", None),
            ("use", None),
            ("use ``", None),
            ("user shop", None),
            ("select 1", None),
        ] {
            assert_eq!(used_database(sql.as_bytes()).as_deref(), database, "{sql}");
        }
    }

    #[test]
    fn every_code_has_a_shape() {
        for code in 0..=u8::MAX {
            let command = Command::of(code);
            assert_eq!(command.shape() == Shape::Opaque, matches!(command, Command::Unknown(_)));
            assert!(command.is_governed() || command.shape() != Shape::Opaque);
        }
        assert_eq!(Command::of(0xfa).shape(), Shape::Results);
    }
}
