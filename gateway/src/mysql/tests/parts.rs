//! Values that are sent in parts, ahead of an execution that runs or is refused.

use std::cell::Cell;
use std::rc::Rc;

use super::link::{Link, OK, logged_in, packet, query};
use super::step::Event;
use super::{Answer, Command, Decision, Refusal, Settings};
use crate::session::Side;

const ID: u32 = 7;

/// A command about the statement.
fn about(code: u8, rest: &[u8]) -> Vec<u8> {
    packet(0, &[&[code][..], &ID.to_le_bytes(), rest].concat())
}

fn part() -> Vec<u8> {
    about(0x18, b"\0\0a part of a value")
}

fn run() -> Vec<u8> {
    about(0x17, &[0, 1, 0, 0, 0])
}

fn reset() -> Vec<u8> {
    about(0x1a, b"")
}

/// A client whose executions are refused while that is so.
fn throttled() -> (Link, Rc<Cell<bool>>) {
    let refuses = Rc::new(Cell::new(true));
    let refused = Rc::clone(&refuses);
    let refusal = Refusal { code: 8252, state: *b"HY000", message: "throttled".into() };
    let link = logged_in(Settings::default(), move |asked| {
        let refused = refused.get() && matches!(asked.command, Command::Execute | Command::BulkExecute);
        refused.then(|| Decision::Answer(Answer::Refused(refusal.clone())))
    });
    (link, refuses)
}

fn refusal() -> Vec<u8> {
    packet(1, b"\xff\x3c\x20#HY000throttled")
}

/// Bytes from the client, of each statement that has ended.
fn request_bytes(link: &Link) -> Vec<u64> {
    let ends = link.told().into_iter().filter_map(|event| match event {
        Event::StatementEnds(ends) => Some(ends.request_bytes),
        _ => None,
    });
    ends.collect()
}

fn len(packets: &[&[u8]]) -> u64 {
    u64::try_from(packets.concat().len()).unwrap()
}

/// Its client sends them again with the next execution, and the server would have the value twice.
#[test]
fn the_server_forgets_the_parts_of_an_execution_that_is_refused() {
    for runs in [run(), about(0xfa, &[0, 0])] {
        let (mut link, refuses) = throttled();
        link.hear(Side::Client, &[part(), part(), runs.clone()].concat()).unwrap();
        assert_eq!(link.to_server, [part(), part(), reset()].concat());
        assert_eq!(link.to_client, refusal(), "it need not wait for the server");
        // The answer to the reset is not the client's.
        link.hear(Side::Server, &packet(1, OK)).unwrap();
        assert_eq!((link.to_client.len(), link.machine.is_quiet()), (refusal().len(), true));
        refuses.set(false);
        link.to_server.clear();
        link.hear(Side::Client, &[part(), runs.clone()].concat()).unwrap();
        link.hear(Side::Server, &packet(1, OK)).unwrap();
        assert_eq!(link.to_server, [part(), runs].concat());
        assert_eq!(link.to_client, [refusal(), packet(1, OK)].concat());
    }
}

#[test]
fn a_refused_execution_waits_for_its_turn_and_the_reset_for_no_answer_of_the_client_s() {
    let (mut link, _) = throttled();
    let error = packet(1, b"\xff\xdb\x04#HY000unknown");
    link.hear(Side::Client, &[query("select 1"), part(), run(), query("select 2")].concat()).unwrap();
    assert_eq!(link.to_server, [query("select 1"), part(), reset(), query("select 2")].concat());
    assert!(link.to_client.is_empty(), "the first is not answered yet");
    // Nor is an error of the reset's the client's, as of a statement that is not there.
    link.hear(Side::Server, &[packet(1, OK), error, packet(1, OK)].concat()).unwrap();
    assert_eq!(link.to_client, [packet(1, OK), refusal(), packet(1, OK)].concat());
    assert_eq!(request_bytes(&link).len(), 2);
}

#[test]
fn where_the_server_has_no_parts_a_refused_execution_does_not_reach_it() {
    let other = [packet(0, &[b"\x18\x08\0\0\0\0\0of another"[..].to_vec()].concat())].concat();
    for before in [Vec::new(), reset(), about(0x19, b""), run(), other.clone()] {
        let (mut link, refuses) = throttled();
        refuses.set(false);
        if before != other && !before.is_empty() {
            link.hear(Side::Client, &part()).unwrap();
        }
        // Reset, closed or run: the server has no parts any more.
        link.hear(Side::Client, &before).unwrap();
        link.hear(Side::Server, &packet(1, OK)).unwrap();
        refuses.set(true);
        link.to_server.clear();
        link.hear(Side::Client, &run()).unwrap();
        assert!(link.to_server.is_empty(), "{before:?}");
    }
}

#[test]
fn parts_are_charged_to_the_execution_that_uses_them_and_to_nothing_before_it() {
    let (mut link, refuses) = throttled();
    link.hear(Side::Client, &[query("select 1"), part(), run()].concat()).unwrap();
    link.hear(Side::Server, &packet(1, OK).repeat(2)).unwrap();
    refuses.set(false);
    // Those of the refused one were sent, too.
    link.hear(Side::Client, &[part(), part(), run(), run()].concat()).unwrap();
    link.hear(Side::Server, &packet(1, OK).repeat(2)).unwrap();
    let expected = [len(&[&query("select 1")]), len(&[&part(), &part(), &part(), &run()]), len(&[&run()])];
    assert_eq!(request_bytes(&link), expected);
}
