//! Names that SQL gives to statements: as the server says, and until the session is reset.

use super::Settings;
use super::link::{Link, OK, logged_in, packet};
use crate::session::Side;

const ERROR: &[u8] = b"\xff\x28\x04#42000no";

/// The client sends this text, and the server answers so.
fn exchange(link: &mut Link, text: &str, answer: &[u8]) {
    link.hear(Side::Client, &packet(0, &[b"\x03", text.as_bytes()].concat())).unwrap();
    link.hear(Side::Server, &packet(1, answer)).unwrap();
}

#[test]
fn a_name_is_known_when_the_server_has_taken_it() {
    let mut link = logged_in(Settings::default(), |_| None);
    let prepare = packet(0, b"\x03prepare S from 'select 1'");
    link.hear(Side::Client, &prepare).unwrap();
    assert_eq!((link.machine.named("s"), link.machine.knows_names()), (None, true), "it will be, perhaps");
    link.hear(Side::Server, &packet(1, OK)).unwrap();
    assert_eq!((link.machine.named("s"), link.machine.knows_names()), (Some(&1), true));
    exchange(&mut link, "prepare s from 'select'", ERROR);
    exchange(&mut link, "drop prepare s", ERROR);
    exchange(&mut link, "execute s", OK);
    assert_eq!(link.machine.named("s"), Some(&1));
    exchange(&mut link, "prepare s from @a", OK);
    assert_eq!((link.machine.named("s"), link.machine.knows_names()), (None, false));
    exchange(&mut link, "prepare s from 'select 2'", OK);
    exchange(&mut link, "deallocate prepare `S`", OK);
    assert_eq!(link.machine.names(), 0);
}

#[test]
fn a_session_that_begins_again_has_no_names() {
    let change = b"\x11bob\0\0other\0\x2d\0mysql_native_password\0\0";
    for again in [&b"\x1f"[..], change] {
        let mut link = logged_in(Settings::default(), |_| None);
        exchange(&mut link, "prepare s from 'select 1'", OK);
        link.hear(Side::Client, &packet(0, again)).unwrap();
        assert_eq!(link.machine.names(), 1, "not before the server has done it");
        link.hear(Side::Server, &packet(1, OK)).unwrap();
        assert_eq!(link.machine.names(), 0);
    }
}

#[test]
fn a_statement_that_does_not_go_on_gives_no_name() {
    let mut link = logged_in(Settings::default(), |asked| {
        let refused = asked.sql.starts_with("prepare");
        refused.then_some(super::Decision::Answer(super::Answer::Done { affected: 0, warnings: 0 }))
    });
    link.hear(Side::Client, &packet(0, b"\x03prepare s from 'select 1'")).unwrap();
    link.hear(Side::Client, &packet(0, b"\x0e")).unwrap();
    link.hear(Side::Server, &packet(1, OK)).unwrap();
    assert_eq!(link.machine.names(), 0);
}

#[test]
fn a_backslash_is_one_where_the_server_says_so() {
    let mut link = logged_in(Settings::default(), |_| None);
    exchange(&mut link, "set sql_mode = no_backslash_escapes", b"\x00\x00\x00\x02\x02\x00\x00");
    assert!(!link.machine.escapes());
    exchange(&mut link, "prepare s from 'select \\'", b"\x00\x00\x00\x02\x02\x00\x00");
    assert_eq!(link.machine.names(), 0, "which is not read");
}
