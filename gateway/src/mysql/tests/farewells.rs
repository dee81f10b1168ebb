//! The last packet to a client: numbered as the next that the client awaits, and nothing in the middle of another.

use super::captured::LOGIN;
use super::link::{Link, OK, logged_in, packet};
use super::{Decision, Refusal, Settings};
use crate::session::Side;

fn runaway() -> Refusal {
    Refusal { code: 8253, state: *b"HY000", message: "a runaway".into() }
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
