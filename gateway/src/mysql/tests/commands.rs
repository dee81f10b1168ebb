//! Commands by their first byte: who is asked about them, what answers them, what their text is.

use super::super::capability::Capabilities;
use super::super::command::{Shape, sql, used_database};
use super::super::login::NAME_LIMIT;
use super::Command;

#[test]
fn every_command_is_known_for_what_it_is() {
    use Shape::{Auth, Nothing, Opaque, Prepared, Results, Rows, Single};
    // Code, shape of the response, whether it is admitted, whether it names a statement.
    let known = [
        (0x01, Nothing, false, false),
        (0x02, Single, false, false),
        (0x03, Results, true, false),
        (0x04, Rows, true, false),
        (0x09, Single, false, false),
        (0x0a, Results, true, false),
        (0x0c, Single, false, false),
        (0x0e, Single, false, false),
        (0x11, Auth, false, false),
        (0x12, Rows, true, false),
        (0x16, Prepared, true, false),
        (0x17, Results, true, true),
        (0x18, Nothing, false, true),
        (0x19, Nothing, false, true),
        (0x1a, Single, false, true),
        (0x1b, Single, false, false),
        (0x1c, Rows, true, true),
        (0x1e, Rows, true, false),
        (0x1f, Single, false, false),
        (0xfa, Results, true, true),
    ];
    let plain = [0x00, 0x05, 0x06, 0x07, 0x08, 0x0b, 0x0d, 0x0f, 0x10, 0x15];
    for code in 0..=u8::MAX {
        let command = Command::of(code);
        let seen = (code, command.shape(), command.is_governed(), command.names_statement());
        let expected = match known.iter().find(|(known, ..)| *known == code) {
            Some(known) => *known,
            None if plain.contains(&code) => (code, Single, true, false),
            None => (code, Opaque, true, false),
        };
        assert_eq!(seen, expected, "{command:?}");
    }
}

/// A query with these attributes, `bound` or not: types with names, nulls, values.
fn with_attributes(nulls: &[u8], bound: u8, named: &[(u8, &str)], values: &[u8]) -> Vec<u8> {
    let mut query = vec![0x03, u8::try_from(named.len()).unwrap(), 1];
    query.extend(nulls);
    query.push(bound);
    for (kind, name) in named {
        query.extend([*kind, 0, u8::try_from(name.len()).unwrap()]);
        query.extend(name.as_bytes());
    }
    [&query, values, b"select 1"].concat()
}

#[test]
fn attributes_of_every_type_are_stepped_over() {
    let attributes = Capabilities::QUERY_ATTRIBUTES;
    for (kind, value) in [
        (0x06, &b""[..]),
        (0x01, b"\x01"),
        (0xf4, b"\x01"),
        (0x02, b"\x01\x02"),
        (0x0d, b"\x01\x02"),
        (0x03, b"\x01\x02\x03\x04"),
        (0x04, b"\x01\x02\x03\x04"),
        (0x09, b"\x01\x02\x03\x04"),
        (0x05, b"\x01\x02\x03\x04\x05\x06\x07\x08"),
        (0x08, b"\x01\x02\x03\x04\x05\x06\x07\x08"),
        (0x07, b"\x04\xe8\x07\x01\x02"),
        (0x0a, b"\x04\xe8\x07\x01\x02"),
        (0x0b, b"\x08\0\0\0\0\0\x01\x02\x03"),
        (0x0c, b"\x00"),
        (0xfe, b"\x02se"),
        (0xfd, b"\xfc\x02\0se"),
    ] {
        let query = with_attributes(&[0], 1, &[(kind, "a name")], value);
        assert_eq!(sql(&query, attributes), b"select 1", "type {kind:#x}");
        // One of nine, which is null, has no value; its bit is in the second byte.
        let mut many = vec![(0x01, ""); 8];
        many.push((kind, "n"));
        let query = with_attributes(&[0, 1], 1, &many, &[7; 8]);
        assert_eq!(sql(&query, attributes), b"select 1", "null of type {kind:#x}");
    }
    let unbound = with_attributes(&[0], 0, &[(0x01, "n")], &[1]);
    assert_eq!(sql(&unbound, attributes), b"", "types that are not there cannot be known");
}

#[test]
fn a_name_that_no_database_has_is_not_used() {
    let longest = "d".repeat(NAME_LIMIT);
    for (text, database) in [
        (format!("use {longest}"), Some(longest.as_str())),
        (format!("use {longest}d"), None),
        (format!("use `{longest}d`"), None),
        ("use a_b$1".to_owned(), Some("a_b$1")),
        ("USE ".to_owned(), None),
        ("use a-b".to_owned(), None),
    ] {
        assert_eq!(used_database(text.as_bytes()).as_deref(), database, "{text}");
    }
}
