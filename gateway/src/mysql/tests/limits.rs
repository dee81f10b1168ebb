//! What is too long, or of no protocol that is known, ends a connection by its header.

use super::super::auth::AUTH_LIMIT;
use super::super::outstanding::WAITING_ANSWERS_LIMIT;
use super::captured::{GREETING, LOGIN};
use super::link::{Link, OK, logged_in, packet};
use super::{Answer, Decision, ProtocolError, Settings};
use crate::session::Side;
use tidegate_sql::{Column, Kind, Table, Value};

/// The header of a packet of this length.
fn header(len: usize, sequence: u8) -> Vec<u8> {
    let [a, b, c, ..] = len.to_le_bytes();
    vec![a, b, c, sequence]
}

fn greeted() -> Link {
    let mut link = Link::new(Settings::default());
    link.hear(Side::Server, GREETING).unwrap();
    link
}

#[test]
fn a_greeting_is_of_protocol_10_and_short() {
    let mut link = Link::new(Settings::default());
    assert_eq!(link.hear(Side::Server, &header(1025, 0)), Err(ProtocolError::Greeting { len: 1025 }));
    let mut other = GREETING.to_vec();
    other[4] = 9;
    let mut link = Link::new(Settings::default());
    assert_eq!(link.hear(Side::Server, &other), Err(ProtocolError::Greeting { len: 100 }));
    assert!(link.to_client.is_empty());
}

#[test]
fn a_packet_of_the_login_is_short() {
    let (len, limit) = (AUTH_LIMIT + 1, AUTH_LIMIT);
    let long = Err(ProtocolError::LongLogin { len, limit });
    assert_eq!(greeted().hear(Side::Client, &header(len, 1)), long);
    let mut link = greeted();
    link.hear(Side::Client, LOGIN).unwrap();
    link.hear(Side::Server, &packet(2, b"\xfemysql_native_password\0aaaaaaaabbbbbbbbcccc\0")).unwrap();
    assert_eq!(link.hear(Side::Client, &header(len, 3)), long);
    let mut link = logged_in(Settings::default(), |_| None);
    assert_eq!(link.hear(Side::Client, &[&header(len, 0)[..], &[0x11]].concat()), long);
    // Any other command may be as long as it likes.
    let mut link = logged_in(Settings::default(), |_| None);
    link.hear(Side::Client, &[&header(len, 0)[..], b"\x03select 1", &vec![b' '; AUTH_LIMIT - 8]].concat())
        .unwrap();
    assert_eq!(link.to_server.len(), 4 + len);
}

#[test]
fn a_client_before_4_1_is_none() {
    // In the lower half of the capabilities, and a request for TLS that asks for none.
    let mut old = LOGIN.to_vec();
    old[5] &= !2;
    assert_eq!(greeted().hear(Side::Client, &old), Err(ProtocolError::Login { len: 212 }));
    let short = packet(1, &LOGIN[4..36]);
    assert_eq!(greeted().hear(Side::Client, &short), Err(ProtocolError::Login { len: 32 }));
}

#[test]
fn answers_make_room_as_the_client_gets_them() {
    // Four that wait behind a statement are as many as there is room for; later ones follow all the same.
    let column = Column { name: "v".into(), kind: Kind::Text };
    let row = vec![Value::Text("x".repeat(WAITING_ANSWERS_LIMIT / 4))];
    let table = Table { columns: vec![column], rows: vec![row], notes: Vec::new() };
    let ours = Decision::Answer(Answer::Rows(table));
    let mut link =
        logged_in(Settings::default(), move |asked| asked.sql.starts_with("ours").then(|| ours.clone()));
    let (own, other) = (packet(0, b"\x03ours"), packet(0, b"\x03select 1"));
    for _ in 0..3 {
        let asked = link.asked().len();
        link.hear(Side::Client, &[other.clone(), own.repeat(6)].concat()).unwrap();
        assert_eq!((link.asked().len() - asked, link.kept()), (5, 2 * own.len()));
        link.to_client.clear();
        link.hear(Side::Server, &packet(1, OK)).unwrap();
        assert_eq!((link.asked().len() - asked, link.kept()), (7, 0));
        assert!(link.to_client.len() > 6 * WAITING_ANSWERS_LIMIT / 4 && link.machine.is_idle());
    }
}
