//! `LOAD DATA LOCAL INFILE`, passed and refused.

use super::link::{OK, logged_in, packet, packets};
use super::step::Event;
use super::{Answer, Decision, INPUT_LIMIT, ProtocolError, Refusal, Settings};
use crate::session::Side;

const LOAD: &[u8] = b"\x03load data local infile 'f' into table t; select 1";
const REQUEST: &[u8] = b"\xfbf";

/// The beginning of a value of a prepared statement, which has no response.
const VALUE: &[u8] = b"\x20\0\0\0\x18\x07\0\0\0\0\0value";

fn passing() -> Settings {
    Settings { local_infile: true, ..Settings::default() }
}

#[test]
fn a_file_is_no_command_and_what_follows_it_is() {
    let mut link = logged_in(passing(), |_| None);
    link.hear(Side::Client, &packet(0, LOAD)).unwrap();
    link.hear(Side::Server, &packet(1, REQUEST)).unwrap();
    let file = packets(2, &[b"\x03not a query", b""]);
    link.hear(Side::Client, &file).unwrap();
    assert_eq!(link.asked().len(), 1);
    link.hear(Side::Server, &packet(4, OK)).unwrap();
    assert!(matches!(link.told()[..], [Event::StatementEnds(_)]));
    link.hear(Side::Client, &packet(0, b"\x03select 1")).unwrap();
    assert_eq!(link.asked().len(), 2);
}

#[test]
fn a_refused_file_is_empty_to_the_server_and_an_error_to_the_client() {
    let mut link = logged_in(Settings::default(), |_| None);
    link.hear(Side::Client, &packet(0, LOAD)).unwrap();
    link.to_server.clear();
    link.hear(Side::Server, &packet(1, REQUEST)).unwrap();
    assert_eq!(link.to_server, [0, 0, 0, 2]);
    assert_eq!(link.to_client[3..7], [1, 0xff, 0x6c, 0x0f]);
    let told = link.to_client.clone();
    // The statement has a second result, of which the client gets nothing.
    let more =
        packets(3, &[b"\x00\x00\x00\x0a\x00\x00\x00", b"\x01", b"\x03def", b"\x011", b"\xfe\0\0\x02\0\0\0"]);
    for byte in more.chunks(1) {
        link.hear(Side::Server, byte).unwrap();
    }
    assert_eq!(link.to_client, told);
    let [Event::StatementEnds(ends)] = &link.told()[..] else { panic!("{:?}", link.told()) };
    assert_eq!((ends.error, ends.complete), (Some(3948), true));
    link.hear(Side::Client, &packet(0, b"\x0e")).unwrap();
    link.hear(Side::Server, &packet(1, OK)).unwrap();
    assert_eq!(link.to_client, [told, packet(1, OK)].concat());
}

#[test]
fn a_second_file_of_one_statement_is_refused_silently() {
    let mut link = logged_in(Settings::default(), |_| None);
    link.hear(Side::Client, &packet(0, LOAD)).unwrap();
    link.to_server.clear();
    link.hear(Side::Server, &packet(1, REQUEST)).unwrap();
    let told = link.to_client.clone();
    link.hear(Side::Server, &packets(3, &[b"\x00\x00\x00\x0a\x00\x00\x00", REQUEST])).unwrap();
    assert_eq!(link.to_server, [0, 0, 0, 2, 0, 0, 0, 5]);
    link.hear(Side::Server, &packet(6, OK)).unwrap();
    assert_eq!(link.to_client, told);
    assert!(link.machine.is_idle());
}

#[test]
fn a_command_that_the_server_takes_for_a_file_ends_the_connection() {
    let mut link = logged_in(passing(), |_| None);
    link.hear(Side::Client, &[packet(0, LOAD), packet(0, b"\x03select 1")].concat()).unwrap();
    assert_eq!(link.hear(Side::Server, &packet(1, REQUEST)), Err(ProtocolError::Ahead));
}

#[test]
fn a_command_that_the_server_takes_for_a_refused_file_ends_the_connection() {
    // A whole command, the beginning of a long one, and of one without a response.
    let long = [b"\0\0\x02\0\x03select".as_slice(), &[b' '; INPUT_LIMIT]].concat();
    for behind in [&packet(0, b"\x03select 1")[..], &long, VALUE] {
        let mut link = logged_in(Settings::default(), |_| None);
        link.hear(Side::Client, &[&packet(0, LOAD), behind].concat()).unwrap();
        link.to_server.clear();
        assert_eq!(link.hear(Side::Server, &packet(1, REQUEST)), Err(ProtocolError::Ahead));
        assert!(link.to_server.is_empty(), "nothing in the middle of a packet");
        // The client has had nothing yet.
        let farewell = link.machine.farewell(&(&ProtocolError::Ahead).into());
        assert_eq!(farewell.map(|packet| packet[3]), Some(1));
    }
}

#[test]
fn a_statement_that_the_gateway_answers_is_no_part_of_a_refused_file() {
    let mut link = logged_in(Settings::default(), |asked| {
        asked.sql.starts_with("ours").then_some(Decision::Answer(Answer::Done { affected: 0, warnings: 0 }))
    });
    link.hear(Side::Client, &[packet(0, LOAD), packet(0, b"\x03ours")].concat()).unwrap();
    link.hear(Side::Server, &[packet(1, REQUEST), packet(3, OK)].concat()).unwrap();
    assert!(link.to_client.ends_with(&packet(1, OK)) && link.machine.is_idle());
}

#[test]
fn a_statement_whose_file_was_refused_has_one_error_also_when_it_is_killed() {
    let mut link = logged_in(Settings::default(), |_| None);
    link.hear(Side::Client, &packet(0, LOAD)).unwrap();
    link.hear(Side::Server, &packet(1, REQUEST)).unwrap();
    let told = link.to_client.clone();
    assert!(link.machine.kill(1, Refusal { code: 8253, state: *b"HY000", message: "killed".into() }));
    link.hear(Side::Server, &packet(3, b"\xff\x25\x05#70100Query execution was interrupted")).unwrap();
    assert_eq!(link.to_client, told);
    let [Event::StatementEnds(ends)] = &link.told()[..] else { panic!("{:?}", link.told()) };
    assert_eq!(ends.error, Some(3948));
    assert!(link.machine.is_idle());
}

#[test]
fn a_command_that_has_begun_is_no_file() {
    let mut link = logged_in(passing(), |_| None);
    link.hear(Side::Client, &[&packet(0, LOAD)[..], VALUE].concat()).unwrap();
    assert_eq!(link.hear(Side::Server, &packet(1, REQUEST)), Err(ProtocolError::Ahead));
}

#[test]
fn a_client_that_sends_a_file_is_not_idle() {
    let mut link = logged_in(passing(), |_| None);
    assert!(link.machine.is_idle());
    link.hear(Side::Client, &packet(0, LOAD)).unwrap();
    link.hear(Side::Server, &packet(1, REQUEST)).unwrap();
    link.hear(Side::Client, &packet(2, b"line\n")).unwrap();
    assert!(!link.machine.is_idle());
    link.hear(Side::Client, &packet(3, b"")).unwrap();
    link.hear(Side::Server, &packet(4, OK)).unwrap();
    assert!(link.machine.is_idle());
}

#[test]
fn a_server_that_no_longer_reads_a_file_ends_the_connection() {
    let mut link = logged_in(passing(), |_| None);
    link.hear(Side::Client, &packet(0, LOAD)).unwrap();
    link.hear(Side::Server, &packet(1, REQUEST)).unwrap();
    link.hear(Side::Client, &packet(2, b"line\n")).unwrap();
    assert_eq!(link.hear(Side::Server, &packet(3, OK)), Err(ProtocolError::UploadCut));
}
