//! The last packet to a client: numbered as the next that the client awaits, and nothing in the middle of another.

use super::super::login::NAME_LIMIT;
use super::captured::{GREETING, LOGIN};
use super::link::{Link, OK, ROWS, explain, logged_in, packet, packets};
use super::{ClientTls, Decision, ProtocolError, Refusal, Settings};
use crate::session::Side;

fn runaway() -> Refusal {
    Refusal { code: 8253, state: *b"HY000", message: "a runaway".into() }
}

fn number(link: &Link) -> Option<u8> {
    link.machine.farewell(&runaway()).map(|packet| packet[3])
}

#[test]
fn a_client_that_gets_nothing_of_a_result_has_the_reason_in_its_place() {
    let mut link = logged_in(Settings::default(), explain);
    link.hear(Side::Client, &packet(0, b"\x03explain ru select a")).unwrap();
    // As many packets as a number counts, and the half of one, of which the client sees none.
    let rows =
        [&packets(1, &ROWS[..3])[..], &packets(4, &[&b"\x011"[..]; 250]), b"\x02\0\0\xfe\x01"].concat();
    link.hear(Side::Server, &rows).unwrap();
    assert!(link.to_client.is_empty());
    assert_eq!(number(&link), Some(1));
}

#[test]
fn a_result_that_is_withheld_is_replaced_by_the_reason() {
    let mut link = logged_in(Settings::default(), |_| None);
    link.hear(Side::Client, &packet(0, b"\x03do 1; select sleep(9)")).unwrap();
    link.hear(Side::Server, &packet(1, b"\0\0\0\x0a\0\0\0")).unwrap();
    assert!(link.machine.kill(1, runaway()));
    link.hear(Side::Server, &packets(2, &ROWS[..3])).unwrap();
    assert_eq!(number(&link), Some(2));
}

#[test]
fn a_description_that_the_gateway_gives_is_cut_where_it_is() {
    let mut link = logged_in(Settings::default(), explain);
    link.hear(Side::Client, &packet(0, b"\x16explain ru select ?")).unwrap();
    let described = packets(1, &[&[0, 7, 0, 0, 0, 2, 0, 1, 0, 0, 0, 0], b"\x03def?", b"\x03defx"]);
    link.hear(Side::Server, &described).unwrap();
    assert_eq!(number(&link), Some(3), "behind its parameter");
}

#[test]
fn a_client_whose_file_was_refused_has_its_error_and_awaits_what_it_asks_next() {
    let mut link = logged_in(Settings::default(), |_| None);
    link.hear(Side::Client, &packet(0, b"\x03load data local infile 'f' into table t; select 1")).unwrap();
    link.hear(Side::Server, &packet(1, b"\xfbf")).unwrap();
    link.hear(Side::Server, &packets(3, &[b"\x00\x00\x00\x0a\x00\x00\x00", b"\x01"])).unwrap();
    assert_eq!(number(&link), Some(1));
}

#[test]
fn a_login_that_cannot_go_on_is_answered_behind_it() {
    // The server has no TLS and has to; the client asks for it and may not have it; the login is none, or too long.
    let plain = Settings::default();
    let secure = Settings { server_tls: true, ..plain };
    let long = [&[1, 0, 1, 1][..], &LOGIN[4..]].concat();
    let asks = packet(1, &[&LOGIN[4..5], &[LOGIN[5] | 8], &LOGIN[6..36]].concat());
    for (settings, login) in [(secure, LOGIN), (plain, &asks), (plain, &packet(1, b"hello")), (plain, &long)]
    {
        let mut link = Link::new(settings);
        link.hear(Side::Server, GREETING).unwrap();
        let error = link.hear(Side::Client, login).unwrap_err();
        let farewell = link.machine.farewell(&(&error).into()).unwrap();
        assert_eq!(farewell[3], 2, "{error}");
    }
    // Nor can one whose user has a name that no server takes, and that would be another's if it were cut.
    let mut link = Link::new(plain);
    link.hear(Side::Server, GREETING).unwrap();
    let login = [&LOGIN[4..36], &vec![b'u'; NAME_LIMIT + 1], b"\0\0"].concat();
    let error = link.hear(Side::Client, &packet(1, &login)).unwrap_err();
    assert_eq!(error, ProtocolError::LongName { what: "user", len: NAME_LIMIT + 1, limit: NAME_LIMIT });
    assert!(link.to_server.is_empty());
    let farewell = link.machine.farewell(&(&error).into()).unwrap();
    assert_eq!(farewell[3..13], *b"\x02\xff\xbe\x05#HY000", "1470");
    // Under TLS the login is the second packet.
    let mut link = Link::new(Settings { client_tls: ClientTls::Always, ..secure });
    link.hear(Side::Server, GREETING).unwrap();
    link.hear(Side::Client, &asks).unwrap();
    assert_eq!(number(&link), Some(2));
    let mut login = LOGIN.to_vec();
    login[3] = 2;
    assert_eq!(link.hear(Side::Client, &login), Err(ProtocolError::ServerTls));
    assert_eq!(number(&link), Some(3));
}

#[test]
fn a_session_that_has_ended_hears_no_more_commands() {
    let mut link = logged_in(Settings::default(), |_| None);
    link.hear(Side::Client, &packet(0, b"\x03select a")).unwrap();
    assert_eq!(link.machine.abandon().len(), 1);
    link.to_server.clear();
    link.hear(Side::Client, &packet(0, b"\x03select b")).unwrap();
    assert_eq!((link.asked().len(), link.to_server.len(), link.kept()), (1, 0, 0));
}

#[test]
fn what_follows_a_goodbye_is_no_command() {
    let mut link = logged_in(Settings::default(), |_| None);
    link.hear(Side::Client, &[packet(0, b"\x01"), packet(0, b"\x03select a")].concat()).unwrap();
    assert_eq!(link.to_server, packet(0, b"\x01"));
    assert!(link.asked().is_empty() && link.kept() == 0);
}

#[test]
fn a_server_without_room_is_heard_to_its_end_and_its_client_is_not() {
    let mut link = Link::new(Settings::default());
    let full = packet(0, b"\xff\x10\x04Too many connections");
    for bytes in [&full[..], b"and more"] {
        link.hear(Side::Server, bytes).unwrap();
    }
    assert_eq!(link.to_client, [&full[..], b"and more"].concat());
    link.hear(Side::Client, LOGIN).unwrap();
    assert_eq!((link.to_server.len(), link.kept(), link.machine.is_open()), (0, 0, false));
}

#[test]
fn an_answer_of_the_gateway_s_waits_for_the_end_of_a_server_s_own_words() {
    let mut link =
        logged_in(Settings::default(), |_| Some(Decision::Answer(super::Answer::Refused(runaway()))));
    let farewell = packet(0, b"\xff\xbf\x0f#08S01disconnected because of inactivity");
    link.hear(Side::Server, &farewell[..20]).unwrap();
    link.hear(Side::Client, &packet(0, b"\x03select a")).unwrap();
    assert!(!link.machine.is_idle());
    assert_eq!(link.to_client, farewell[..20]);
    link.hear(Side::Server, &farewell[20..]).unwrap();
    assert_eq!(link.to_client, [farewell, packet(1, b"\xff\x3d\x20#HY000a runaway")].concat());
}

#[test]
fn a_connection_is_idle_between_commands_only() {
    let mut link = logged_in(Settings::default(), |_| None);
    assert!(link.machine.is_idle() && link.machine.is_quiet() && link.machine.is_open());
    let ping = packet(0, b"\x0e");
    link.hear(Side::Client, &ping).unwrap();
    assert!(!link.machine.is_idle() && !link.machine.is_quiet());
    link.hear(Side::Server, &packet(1, OK)[..6]).unwrap();
    assert!(!link.machine.is_idle() && !link.machine.is_quiet());
    link.hear(Side::Server, &packet(1, OK)[6..]).unwrap();
    assert!(link.machine.is_idle() && link.machine.is_quiet());
    // A command without a response, of which half has come.
    link.hear(Side::Client, b"\x09\0\0\0\x18\x07\0\0\0\0\0").unwrap();
    assert!(!link.machine.is_idle() && link.machine.is_quiet());
    link.hear(Side::Client, b"va").unwrap();
    assert!(link.machine.is_idle());
    // What a server says of its own.
    link.hear(Side::Server, b"\x05\0\0\0\xff").unwrap();
    assert!(!link.machine.is_idle());
}
