//! Messages that the gateway writes itself, and the fields of the server's that it reads.

use std::sync::Arc;

use tidegate_sql::{Column, Kind, Value};

use crate::govern::Denied;

/// Answer to a `Parse`.
pub(super) const PARSE_COMPLETE: &[u8] = b"1\0\0\0\x04";
/// Answer to a `Bind`.
pub(super) const BIND_COMPLETE: &[u8] = b"2\0\0\0\x04";
/// Asks the server to send what it has.
pub(super) const FLUSH: &[u8] = b"H\0\0\0\x04";
/// Ends a unit of the extended protocol.
pub(super) const SYNC: &[u8] = b"S\0\0\0\x04";
/// SQLSTATE of a cancelled statement.
const QUERY_CANCELED: &[u8] = b"57014";
/// Code of an offer of mechanisms (`AuthenticationSASL`), and the end of the name of those that are bound to TLS.
const SASL: &[u8] = &[0, 0, 0, 10];
const BOUND: &[u8] = b"-PLUS";
/// Most result formats of a `Bind`; PostgreSQL knows no wider result.
const MAX_FORMATS: usize = 1_664;

/// An error that leaves the connection usable.
pub(crate) fn error(denied: &Denied) -> Vec<u8> {
    notice_like(b'E', "ERROR", denied.code.postgres_state, &denied.message, &denied.hint)
}

/// An error that ends the connection.
pub(crate) fn fatal(sqlstate: &str, message: &str) -> Vec<u8> {
    notice_like(b'E', "FATAL", sqlstate, message, "")
}

/// The same before protocol 3: a text without a length.
pub(super) fn old_fatal(message: &str) -> Vec<u8> {
    format!("EFATAL:  {message}\n\0").into_bytes()
}

/// An offer of mechanisms without those that are bound to TLS; `None` when `body` is no such offer, or has none of
/// them.
pub(super) fn without_binding(body: &[u8]) -> Option<Vec<u8>> {
    // Each name ends with a zero byte, and the list with another.
    let names = body.strip_prefix(SASL)?.strip_suffix(b"\0\0")?;
    let names: Vec<&[u8]> = names.split(|byte| *byte == 0).collect();
    let kept: Vec<&[u8]> = names.iter().copied().filter(|name| !name.ends_with(BOUND)).collect();
    if kept.is_empty() || kept.len() == names.len() {
        return None;
    }
    Some(framed(b'R', &[SASL, &kept.join(&0_u8), b"\0\0"].concat()))
}

/// Something to know.
pub(super) fn notice(message: &str) -> Vec<u8> {
    notice_like(b'N', "NOTICE", "00000", message, "")
}

fn notice_like(kind: u8, severity: &str, sqlstate: &str, message: &str, hint: &str) -> Vec<u8> {
    let mut body = Vec::new();
    for (field, text) in [(b'S', severity), (b'V', severity), (b'C', sqlstate), (b'M', message), (b'H', hint)]
    {
        if !text.is_empty() {
            body.push(field);
            body.extend(text.bytes().filter(|byte| *byte != 0));
            body.push(0);
        }
    }
    body.push(0);
    framed(kind, &body)
}

/// The server is ready, in this state of the transaction.
pub(super) fn ready_for_query(status: u8) -> Vec<u8> {
    framed(b'Z', &[status])
}

/// A simple query.
pub(super) fn query(text: &[u8]) -> Vec<u8> {
    let body: Vec<u8> = text.iter().copied().filter(|byte| *byte != 0).chain([0]).collect();
    framed(b'Q', &body)
}

/// Prepares a statement; `types` is what follows its text.
pub(super) fn parse(name: &[u8], text: &[u8], types: &[u8]) -> Vec<u8> {
    framed(b'P', &[name, &[0], text, &[0], types].concat())
}

/// Runs a portal to its end.
pub(super) fn execute(portal: &[u8]) -> Vec<u8> {
    framed(b'E', &[portal, &[0; 5]].concat())
}

/// Most rows that an `Execute` asks for, from what follows its name; 0 is all.
pub(super) fn row_limit(rest: &[u8]) -> u32 {
    let limit = rest.first_chunk::<4>().map(|limit| i32::from_be_bytes(*limit));
    // The server takes what is negative for all.
    limit.and_then(|limit| u32::try_from(limit).ok()).unwrap_or(0)
}

/// A statement has run.
pub(crate) fn command_complete(tag: &str) -> Vec<u8> {
    let body: Vec<u8> = tag.bytes().chain([0]).collect();
    framed(b'C', &body)
}

/// A statement takes no parameters.
pub(crate) fn no_parameters() -> Vec<u8> {
    framed(b't', &[0, 0])
}

/// A statement returns no rows.
pub(crate) fn no_data() -> Vec<u8> {
    framed(b'n', &[])
}

/// The columns of a result; `formats` says which are asked for in binary.
pub(crate) fn row_description(columns: &[Column], formats: &[bool]) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(short(columns.len()));
    for (at, column) in columns.iter().enumerate() {
        let (oid, size): (u32, i16) = match column.kind {
            Kind::Text | Kind::Timestamp => (25, -1),
            Kind::Int | Kind::Int32 => (20, 8),
            Kind::Float => (701, 8),
        };
        body.extend(column.name.bytes().filter(|byte| *byte != 0));
        body.extend([0; 7]);
        body.extend(oid.to_be_bytes());
        body.extend(size.to_be_bytes());
        body.extend((-1_i32).to_be_bytes());
        body.extend(i16::from(binary(formats, at)).to_be_bytes());
    }
    framed(b'T', &body)
}

/// One row.
pub(crate) fn data_row(cells: &[Value], formats: &[bool]) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(short(cells.len()));
    for (at, cell) in cells.iter().enumerate() {
        let bytes = match (cell, binary(formats, at)) {
            (Value::Null, _) => {
                body.extend((-1_i32).to_be_bytes());
                continue;
            }
            (Value::Text(text), _) => text.clone().into_bytes(),
            (Value::Int(number), true) => number.to_be_bytes().to_vec(),
            (Value::Int(number), false) => number.to_string().into_bytes(),
            (Value::Float(number), true) => number.to_be_bytes().to_vec(),
            (Value::Float(number), false) => number.to_string().into_bytes(),
        };
        body.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
        body.extend(bytes);
    }
    framed(b'D', &body)
}

fn binary(formats: &[bool], column: usize) -> bool {
    match formats {
        [all] => *all,
        each => each.get(column).copied().unwrap_or(false),
    }
}

fn short(number: usize) -> [u8; 2] {
    u16::try_from(number).unwrap_or(u16::MAX).to_be_bytes()
}

fn framed(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len().saturating_add(4)).unwrap_or(u32::MAX);
    let mut message = vec![kind];
    message.extend(length.to_be_bytes());
    message.extend_from_slice(body);
    message
}

/// What follows the parameters of a `Bind`, given what follows its two names.
fn behind_parameters(bound: &[u8]) -> Option<&[u8]> {
    let (parameter_formats, mut rest) = split_short(bound)?;
    rest = rest.get(2 * parameter_formats..)?;
    let (parameters, mut rest) = split_short(rest)?;
    for _ in 0..parameters {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0);
        rest = after.get(length..)?;
    }
    Some(rest)
}

/// A `Bind` with this body that asks for no formats; `bound` is what follows its two names.
pub(super) fn without_formats(body: &[u8], bound: &[u8]) -> Option<Vec<u8>> {
    let formats = behind_parameters(bound)?;
    let kept = body.get(..body.len().checked_sub(formats.len())?)?;
    Some(framed(b'B', &[kept, &short(0)].concat()))
}

/// The formats asked for a result, from a `Bind` behind its two names: true is binary.
pub(super) fn result_formats(bound: &[u8]) -> Arc<[bool]> {
    let read = || {
        let (formats, rest) = split_short(behind_parameters(bound)?)?;
        let codes = rest.chunks_exact(2).take(formats.min(MAX_FORMATS));
        Some(codes.map(|code| code != [0, 0]).collect())
    };
    read().unwrap_or_default()
}

fn split_short(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<2>()?;
    Some((usize::from(u16::from_be_bytes(*number)), rest))
}

/// How many rows a command changed, from its tag, such as `INSERT 0 5`.
pub(super) fn changed_rows(tag: &[u8]) -> u64 {
    let tag = tag.split(|byte| *byte == 0).next().unwrap_or_default();
    let changes = [&b"INSERT "[..], b"UPDATE ", b"DELETE ", b"MERGE ", b"COPY "];
    if !changes.iter().any(|command| tag.starts_with(command)) {
        return 0;
    }
    let count = tag.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
    std::str::from_utf8(count).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Whether an `ErrorResponse` says that the statement was cancelled.
pub(super) fn is_cancelled(body: &[u8]) -> bool {
    let mut fields = body.split(|byte| *byte == 0);
    fields
        .any(|field| field.split_first().is_some_and(|(kind, text)| *kind == b'C' && text == QUERY_CANCELED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_is_made_without_what_is_bound_to_tls() {
        let offer = |names: &[u8]| [SASL, names, b"\0\0"].concat();
        let without = without_binding(&offer(b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256")).unwrap();
        assert_eq!(without, [&b"R\0\0\0\x17"[..], &offer(b"SCRAM-SHA-256")].concat());
        for other in [
            offer(b"SCRAM-SHA-256"),
            offer(b"SCRAM-SHA-256-PLUS"),
            vec![0, 0, 0, 5, 1, 2, 3, 4],
            SASL.to_vec(),
            Vec::new(),
        ] {
            assert_eq!(without_binding(&other), None, "{other:?}");
        }
    }

    #[test]
    fn tags_tell_changed_rows() {
        let table: [(&[u8], u64); 11] = [
            (b"INSERT 0 5\0", 5),
            (b"UPDATE 3\0", 3),
            (b"DELETE 4\0", 4),
            (b"MERGE 6\0", 6),
            (b"COPY 12\0", 12),
            (b"SELECT 9\0", 0),
            (b"FETCH 9\0", 0),
            (b"MOVE 9\0", 0),
            (b"BEGIN\0", 0),
            (b"INSERT\0", 0),
            (b"", 0),
        ];
        for (tag, rows) in table {
            assert_eq!(changed_rows(tag), rows, "{tag:?}");
        }
    }

    #[test]
    fn rows_are_written_in_text_and_in_binary() {
        let cells = [Value::Int(258), Value::Null, Value::Text("ä".into())];
        assert_eq!(
            data_row(&cells, &[]),
            b"D\0\0\0\x17\0\x03\0\0\0\x03258\xff\xff\xff\xff\0\0\0\x02\xc3\xa4"
        );
        let binary = data_row(&cells, &[true]);
        assert_eq!(&binary[7..19], b"\0\0\0\x08\0\0\0\0\0\0\x01\x02");
        let description = row_description(&[Column { name: "n".into(), kind: Kind::Int }], &[true]);
        assert_eq!(description.len(), 5 + 2 + 2 + 18);
        assert!(description.ends_with(&[0, 0, 0, 20, 0, 8, 255, 255, 255, 255, 0, 1]));
    }

    #[test]
    fn formats_are_read_behind_the_parameters_and_nonsense_is_text() {
        let body = b"\0\x01\0\x01\0\x02\xff\xff\xff\xff\0\0\0\x01x\0\x02\0\0\0\x01";
        assert_eq!(&*result_formats(body), [false, true]);
        assert_eq!(&*result_formats(b"\xff\xff"), [false; 0]);
        // Numbers of parameters have no sign.
        let many = u16::MAX.to_be_bytes();
        let nulls = vec![0xff; 4 * usize::from(u16::MAX)];
        let body = [&b"\0\0"[..], &many, &nulls, b"\0\x01\0\x01"].concat();
        assert_eq!(&*result_formats(&body), [true]);
    }

    #[test]
    fn formats_are_taken_out_and_the_rest_is_as_it_was() {
        let bound = b"\0\x01\0\x01\0\x02\xff\xff\xff\xff\0\0\0\x01x";
        let body = [&b"p\0s\0"[..], bound, b"\0\x02\0\0\0\x01"].concat();
        let bare = [&b"B\0\0\0\x19p\0s\0"[..], bound, b"\0\0"].concat();
        assert_eq!(without_formats(&body, &body[4..]), Some(bare));
        assert_eq!(without_formats(b"\0\0\0", b"\0"), None);
    }

    #[test]
    fn a_limit_of_rows_is_read_and_none_is_zero() {
        assert_eq!(row_limit(&[0, 0, 1, 0]), 256);
        assert_eq!((row_limit(&[0; 4]), row_limit(&[255; 4]), row_limit(&[1])), (0, 0, 0));
    }

    #[test]
    fn a_cancelled_statement_is_told_by_its_code() {
        let denied =
            Denied { code: tidegate_sql::Code::RUNAWAY, message: "C57014x".into(), hint: String::new() };
        assert!(is_cancelled(&error(&denied)[5..]));
        assert!(!is_cancelled(&fatal("57P01", "57014")[5..]));
    }
    /// A zero byte would end a text in the middle of its message, and what follows would be read as another field.
    #[test]
    fn zero_bytes_are_left_out_of_texts() {
        assert_eq!(notice("a\0b"), b"N\0\0\0\x20SNOTICE\0VNOTICE\0C00000\0Mab\0\0");
        assert_eq!(fatal("57P01", "\0x"), b"E\0\0\0\x1dSFATAL\0VFATAL\0C57P01\0Mx\0\0");
        assert_eq!(query(b"a\0b"), b"Q\0\0\0\x07ab\0");
        let description = row_description(&[Column { name: "a\0b".into(), kind: Kind::Int }], &[]);
        assert_eq!(description[..9], *b"T\0\0\0\x1b\0\x01ab");
    }

    #[test]
    fn an_error_has_a_hint_where_there_is_one() {
        let told = |hint: &str| {
            error(&Denied { code: tidegate_sql::Code::RUNAWAY, message: "m".into(), hint: hint.into() })
        };
        assert!(told("h").ends_with(b"\0Mm\0Hh\0\0") && told("").ends_with(b"\0Mm\0\0"));
    }
}
