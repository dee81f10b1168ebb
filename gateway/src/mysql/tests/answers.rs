//! The bytes of the gateway's own answers, as clients read them.

use tidegate_sql::{Column, Kind, Table, Value};

use super::super::answer::{Audience, MESSAGE_LIMIT, columns};
use super::super::capability::Capabilities;
use super::super::ending::Status;
use super::link::{packet, packets};
use super::{Answer, Refusal};

const NEW: Capabilities = Capabilities::DEPRECATE_EOF;
const OLD: Capabilities = Capabilities(0);

/// In a transaction, with a cursor and more results of the statement before, which are no part of an answer.
fn audience(capabilities: Capabilities, binary: bool) -> Audience {
    Audience { capabilities, status: Status(0x0001 | 0x0008 | 0x0040 | 0x0200), binary }
}

fn column(name: &str, kind: Kind) -> Column {
    Column { name: name.into(), kind }
}

/// A column's description: type, character set, length, flags and decimals.
fn described(name: &str, extended: bool, kind: u8, rest: [u8; 9]) -> Vec<u8> {
    let [charset, charset_high, length @ .., flags, flags_high, decimals] = rest;
    let name = [&[u8::try_from(name.len()).unwrap()], name.as_bytes()].concat();
    let extended: &[u8] = if extended { &[0] } else { &[] };
    [
        b"\x03def\0\0\0",
        &name[..],
        &name,
        extended,
        &[0x0c, charset, charset_high],
        &length,
        &[kind, flags, flags_high, decimals, 0, 0],
    ]
    .concat()
}

const TEXT: [u8; 9] = [45, 0, 0, 16, 0, 0, 0, 0, 0];
const INT: [u8; 9] = [63, 0, 20, 0, 0, 0, 0, 0x80, 0];
const INT32: [u8; 9] = [63, 0, 11, 0, 0, 0, 0, 0x80, 0];
const FLOAT: [u8; 9] = [63, 0, 22, 0, 0, 0, 0, 0x80, 31];

fn table() -> Table {
    let columns = vec![
        column("t", Kind::Text),
        column("i", Kind::Int),
        column("s", Kind::Int32),
        column("f", Kind::Float),
    ];
    let first = vec![Value::Text("x".repeat(300)), Value::Int(-2), Value::Int(1 << 40), Value::Float(1.5)];
    // A null, a value of another type, a small number, and none.
    let second = vec![Value::Null, Value::Text("7".into()), Value::Int(-3)];
    Table { columns, rows: vec![first, second], notes: vec!["a note".into(), "another".into()] }
}

fn descriptions(extended: bool) -> [Vec<u8>; 4] {
    [
        described("t", extended, 0xfd, TEXT),
        described("i", extended, 0x08, INT),
        described("s", extended, 0x03, INT32),
        described("f", extended, 0x05, FLOAT),
    ]
}

fn joined(first: u8, parts: &[&[Vec<u8>]]) -> Vec<u8> {
    let payloads: Vec<&[u8]> = parts.iter().flat_map(|part| part.iter().map(Vec::as_slice)).collect();
    packets(first, &payloads)
}

#[test]
fn a_result_has_the_shape_that_the_client_has_agreed_to() {
    let long = "x".repeat(300);
    let first = [b"\xfc\x2c\x01", long.as_bytes(), b"\x02-2\x0d1099511627776\x031.5"].concat();
    let rows = [first, b"\xfb\x017\x02-3\xfb".to_vec()];
    let answer = Answer::Rows(table());
    // Status: in a transaction, no backslash escapes.
    let ended = [b"\xfe\0\0\x01\x02\x02\0".to_vec()];
    let new = joined(3, &[&[b"\x04".to_vec()], &descriptions(false), &rows, &ended]);
    assert_eq!(answer.packets(3, audience(NEW, false)), new);
    let (columns_end, ended) = ([b"\xfe\0\0\x01\x02".to_vec()], [b"\xfe\x02\0\x01\x02".to_vec()]);
    let old = joined(3, &[&[b"\x04".to_vec()], &descriptions(false), &columns_end, &rows, &ended]);
    assert_eq!(answer.packets(3, audience(OLD, false)), old);
    // MariaDB: the columns follow, with a field more.
    let capabilities = Capabilities::EXTENDED_METADATA | Capabilities::CACHE_METADATA;
    let extended = joined(3, &[&[b"\x04\x01".to_vec()], &descriptions(true), &columns_end, &rows, &ended]);
    assert_eq!(answer.packets(3, audience(capabilities, false)), extended);
}

#[test]
fn a_prepared_result_has_values_of_its_columns_types() {
    let long = "x".repeat(300);
    let first = [
        b"\0\0\xfc\x2c\x01",
        long.as_bytes(),
        &(-2_i64).to_le_bytes(),
        &i32::MAX.to_le_bytes(),
        &1.5_f64.to_le_bytes(),
    ]
    .concat();
    // Of four columns the first, second and fourth are null, by bits that begin with the third.
    let second = [&[0, 0b10_1100][..], &(-3_i32).to_le_bytes()].concat();
    let ended = [b"\xfe\0\0\x01\x02\x02\0".to_vec()];
    let expected = joined(1, &[&[b"\x04".to_vec()], &descriptions(false), &[first, second], &ended]);
    assert_eq!(Answer::Rows(table()).packets(1, audience(NEW, true)), expected);
}

#[test]
fn many_columns_have_their_nulls_in_many_bytes() {
    let columns: Vec<Column> =
        ["a", "b", "c", "d", "e", "f", "g", "h"].map(|name| column(name, Kind::Int32)).into();
    let mut row = vec![Value::Int(1); 8];
    (row[5], row[6]) = (Value::Null, Value::Null);
    let table = Table { columns, rows: vec![row], notes: Vec::new() };
    let bytes = Answer::Rows(table).packets(1, audience(NEW, true));
    let row = [&[0, 0b1000_0000, 1][..], &1_i32.to_le_bytes().repeat(6)].concat();
    let ended = packets(10, &[&row, b"\xfe\0\0\x01\x02\0\0"]);
    assert!(bytes.ends_with(&ended), "{bytes:?}");
}

#[test]
fn columns_of_a_prepared_statement_end_where_ends_are_sent() {
    let described = descriptions(false);
    assert_eq!(columns(&table().columns, 5, audience(NEW, false)), joined(5, &[&described]));
    let end = [b"\xfe\0\0\x01\x02".to_vec()];
    assert_eq!(columns(&table().columns, 5, audience(OLD, false)), joined(5, &[&described, &end]));
}

#[test]
fn what_is_done_is_counted_in_any_number_of_bytes() {
    let done =
        |affected: u64, warnings: usize| Answer::Done { affected, warnings }.packets(1, audience(OLD, false));
    assert_eq!(done(7, 3), packet(1, b"\0\x07\0\x01\x02\x03\0"));
    for (affected, written) in [
        (250_u64, &b"\xfa"[..]),
        (251, b"\xfc\xfb\0"),
        (0xffff, b"\xfc\xff\xff"),
        (0x1_0000, b"\xfd\0\0\x01"),
        (0xff_ffff, b"\xfd\xff\xff\xff"),
        (0x100_0000, b"\xfe\0\0\0\x01\0\0\0\0"),
    ] {
        assert_eq!(done(affected, 70_000), packet(1, &[b"\0", written, b"\0\x01\x02\xff\xff"].concat()));
    }
}

#[test]
fn an_error_has_a_state_but_in_place_of_a_greeting() {
    let refusal = Refusal { code: 1040, state: *b"08004", message: "too many".into() };
    assert_eq!(refusal.first_packet(), packet(0, b"\xff\x10\x04too many"));
    assert_eq!(refusal.packet(2), packet(2, b"\xff\x10\x04#08004too many"));
    let long = Refusal { message: "x".repeat(MESSAGE_LIMIT + 1), ..refusal };
    assert_eq!(long.first_packet().len(), 4 + 3 + MESSAGE_LIMIT);
}
