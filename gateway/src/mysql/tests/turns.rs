//! Whose turn it is: what a client sends too early waits, so that nothing passes for what it is not.

use super::captured::{GREETING, LOGIN};
use super::link::{Link, OK, logged_in, packet, packets, query};
use super::step::Event;
use super::{PIPELINE_LIMIT, ProtocolError, Settings};
use crate::session::Side;

#[test]
fn a_command_behind_a_login_waits_until_the_login_has_ended() {
    let mut link = Link::new(Settings::default());
    link.hear(Side::Client, &[LOGIN.to_vec(), query("select 1")].concat()).unwrap();
    assert!(link.to_server.is_empty(), "nothing before the greeting");
    link.hear(Side::Server, GREETING).unwrap();
    assert_eq!(link.to_server.len(), LOGIN.len());
    link.hear(Side::Server, &packet(2, OK)).unwrap();
    assert_eq!(link.asked().len(), 1, "it is asked about like any other");
}

#[test]
fn the_fast_way_of_caching_sha2_gives_no_turn() {
    let mut link = Link::new(Settings::default());
    link.hear(Side::Server, GREETING).unwrap();
    link.hear(Side::Client, &[LOGIN.to_vec(), packet(3, &[9; 32]), query("select 1")].concat()).unwrap();
    link.hear(Side::Server, &packet(2, b"\xfecaching_sha2_password\0aaaaaaaaaaaaaaaaaaaa\0")).unwrap();
    let before = link.to_server.len();
    assert_eq!(before, LOGIN.len() + 36, "the answer that was asked for");
    link.hear(Side::Server, &packet(4, &[1, 3])).unwrap();
    assert_eq!(link.to_server.len(), before);
    link.hear(Side::Server, &packet(5, OK)).unwrap();
    assert_eq!(link.asked().len(), 1);
}

#[test]
fn the_full_way_of_caching_sha2_goes_through() {
    let mut link = Link::new(Settings::default());
    link.hear(Side::Server, GREETING).unwrap();
    link.hear(Side::Client, LOGIN).unwrap();
    link.to_client.clear();
    link.to_server.clear();
    let key = [b"\x01-----BEGIN PUBLIC KEY-----".as_slice(), &[b'A'; 800]].concat();
    let server: [&[u8]; 3] = [b"\xfecaching_sha2_password\0aaaaaaaaaaaaaaaaaaaa\0", &[1, 4], &key];
    let client: [&[u8]; 3] = [&[9; 32], &[2], &[8; 256]];
    let mut sequence = 2;
    for (question, answer) in server.into_iter().zip(client) {
        link.hear(Side::Server, &packet(sequence, question)).unwrap();
        link.hear(Side::Client, &packet(sequence + 1, answer)).unwrap();
        sequence += 2;
    }
    link.hear(Side::Server, &packet(sequence, OK)).unwrap();
    assert_eq!(
        link.to_client,
        [packet(2, server[0]), packet(4, server[1]), packet(6, server[2]), packet(8, OK)].concat()
    );
    assert_eq!(link.to_server, [packet(3, client[0]), packet(5, client[1]), packet(7, client[2])].concat());
    assert!(matches!(link.told()[..], [Event::Login(_)]));
}

#[test]
fn a_command_behind_a_change_of_user_waits_too() {
    let mut link = logged_in(Settings::default(), |_| None);
    let change = packet(0, b"\x11bob\0\0other\0\x2d\0mysql_native_password\0\0");
    link.hear(Side::Client, &[query("select 1"), change.clone(), query("select 2")].concat()).unwrap();
    assert_eq!(link.to_server, [query("select 1"), change].concat());
    link.hear(Side::Server, &packet(1, OK)).unwrap();
    assert_eq!(link.asked().len(), 1);
    link.hear(Side::Server, &packet(1, OK)).unwrap();
    assert_eq!(link.asked().len(), 2);
}

#[test]
fn a_login_that_is_turned_away_is_the_end() {
    let mut link = Link::new(Settings::default());
    link.hear(Side::Server, GREETING).unwrap();
    link.hear(Side::Client, LOGIN).unwrap();
    link.to_client.clear();
    let denied = packet(2, b"\xff\x15\x04#28000Access denied");
    link.hear(Side::Server, &denied).unwrap();
    assert_eq!(link.to_client, denied);
    link.to_server.clear();
    link.hear(Side::Client, &query("select 1")).unwrap();
    assert!(link.to_server.is_empty() && link.heard.is_empty() && link.kept() == 0);
}

#[test]
fn a_server_without_room_is_heard() {
    let mut link = Link::new(Settings::default());
    let full = packet(0, b"\xff\x10\x04Too many connections");
    link.hear(Side::Server, &full).unwrap();
    assert_eq!(link.to_client, full);
}

#[test]
fn a_client_far_ahead_waits_for_the_server() {
    let mut link = logged_in(Settings::default(), |_| None);
    let pings = packet(0, b"\x0e").repeat(PIPELINE_LIMIT + 10);
    link.hear(Side::Client, &pings).unwrap();
    assert_eq!(link.to_server.len(), PIPELINE_LIMIT * 5);
    link.hear(Side::Server, &packet(1, OK).repeat(4)).unwrap();
    assert_eq!(link.to_server.len(), (PIPELINE_LIMIT + 4) * 5);
}

#[test]
fn a_response_of_unknown_shape_ends_when_the_client_goes_on() {
    let mut link = logged_in(Settings::default(), |_| None);
    link.hear(Side::Client, &[packet(0, b"\x70what"), query("select 1")].concat()).unwrap();
    assert_eq!(link.asked().len(), 1, "not before anything has come");
    link.hear(Side::Server, &packets(1, &[b"\x05hello", b"\xfb"])).unwrap();
    assert_eq!(link.asked().len(), 2);
    assert!(matches!(link.told()[..], [Event::StatementEnds(_)]));
}

#[test]
fn a_farewell_takes_its_place_in_the_numbers() {
    let error = ProtocolError::ClientTls;
    let mut link = Link::new(Settings::default());
    let number = |link: &Link| link.machine.farewell(&(&error).into()).map(|packet| packet[3]);
    assert_eq!(number(&link), Some(0));
    link.hear(Side::Server, GREETING).unwrap();
    link.hear(Side::Client, LOGIN).unwrap();
    assert_eq!(number(&link), Some(2));
    let mut link = logged_in(Settings::default(), |_| None);
    link.hear(Side::Client, &query("select 1")).unwrap();
    assert_eq!(number(&link), Some(1));
    link.hear(Side::Server, &packets(1, &[b"\x01", b"\x03def"])).unwrap();
    assert_eq!(number(&link), Some(3));
    link.hear(Side::Server, b"\x05\0\0\x03\x04").unwrap();
    assert_eq!(number(&link), None, "in the middle of a row");
}

#[test]
fn a_server_that_closes_may_say_so() {
    let mut link = logged_in(Settings::default(), |_| None);
    let farewell = packet(0, b"\xff\xbf\x0f#08S01disconnected because of inactivity");
    link.hear(Side::Server, &farewell).unwrap();
    assert_eq!(link.to_client, farewell);
}
