//! How much is held, looked at and remembered.

use super::line::Line;
use super::*;
use crate::postgres::frame::ProtocolError;
use crate::postgres::machine::names::{Map, remember};

/// Most answers that may be outstanding, and most names.
const MOST: usize = 65_536;
const MOST_NAMES: usize = 4_096;
/// Most bytes of a text that are looked at.
const MAX_TEXT: usize = 65_536;

/// The client sends this message so many times, each of which passes. Returns what becomes of the next.
fn repeated(machine: &mut Tested, bytes: &[u8], times: usize) -> Stepped<&'static str> {
    let plain = known("");
    for _ in 0..times {
        loop {
            match machine.client(bytes).unwrap() {
                Step::Pass(0) | Step::Skip(0) => {}
                Step::Pass(_) | Step::Skip(_) => break,
                Step::Ask(Ask::Query(_)) => {
                    machine.decide(bytes, Decision::Go(1, Goes::default())).unwrap();
                }
                Step::Ask(Ask::Parse(_)) => {
                    machine.decide(bytes, Decision::Prepare(Prepared::Theirs(plain.clone()), None)).unwrap();
                }
                step => panic!("{step:?}"),
            }
        }
    }
    machine.client(bytes)
}

#[test]
fn a_client_that_sends_on_without_reading_is_cut_off() {
    for (what, bytes) in [("answers", message(b'F', &[])), ("names", parse("n", "select 1"))] {
        let next = repeated(&mut machine(), &bytes, MOST);
        assert_eq!(next.map(drop), Err(ProtocolError::TooMany { max: MOST }), "{what}");
    }
}

/// A server refuses a text without its end, and the gateway must not run what another part of it may take back.
#[test]
fn a_text_is_whole_only_with_its_end() {
    let long = "x".repeat(MAX_TEXT);
    for (bytes, seen, whole) in [
        (message(b'Q', b"select 1\0"), "select 1", true),
        (message(b'Q', b"select 1"), "select 1", false),
        (message(b'P', b"s\0select 1\0\0\0"), "select 1", true),
        (message(b'P', b"s\0select 1"), "select 1", false),
        (message(b'Q', format!("{long}\0").as_bytes()), &long, false),
        (message(b'P', format!("\0{long}\0\0\0").as_bytes()), &long[1..], false),
        (message(b'F', b"\0\0\0\0"), "", true),
    ] {
        let step = machine().client(&bytes);
        let Ok(Step::Ask(Ask::Query(text) | Ask::Parse(text))) = step else { panic!("{step:?}") };
        assert_eq!((&bytes[text.place], text.whole), (seen.as_bytes(), whole));
    }
}

/// As drivers pipeline batches of any length.
#[test]
fn neighbours_of_the_same_kind_count_once() {
    for bytes in [parse("", "select 1"), bind("", ""), close("S"), close("P"), bind("p", "o")] {
        let mut machine = machine();
        client(
            &mut machine,
            &[parse("", "select 1"), parse("o", "own")].concat(),
            100,
            &mut Decider::default(),
        );
        assert!(repeated(&mut machine, &bytes, MOST + 10).is_ok(), "{bytes:?}");
    }
}

fn close(of: &str) -> Vec<u8> {
    message(b'C', format!("{of}\0").as_bytes())
}

#[test]
fn a_message_before_the_login_is_bounded() {
    for (length, taken) in [(MOST - 5, true), (MOST - 4, false)] {
        let mut machine: Tested = Machine::new(known(""), false);
        let password = message(b'p', &vec![b'x'; length]);
        let step = machine.client(&password).map(drop);
        assert_eq!(step.is_ok(), taken, "{step:?}");
    }
    // Later ones are not.
    assert!(machine().client(&message(b'd', &vec![b'x'; 2 * MOST])).is_ok());
}

#[test]
fn a_result_goes_on_as_far_as_there_is_room() {
    let mut machine = machine();
    let rows = message(b'D', &[1; 95]).repeat(100);
    for (room, goes) in [(1_000, 1_000), (901, 1_000), (1, 100), (0, 0)] {
        let mut out = b"before".to_vec();
        assert_eq!(machine.server(&rows, &mut out, room).unwrap(), (goes, None), "{room}");
        assert_eq!(out.len(), 6 + goes);
        assert!(machine.is_between_messages());
    }
    machine.server(&rows[..150], &mut Vec::new(), 1_000).unwrap();
    assert!(!machine.is_between_messages());
}

/// A long error or tag passes in pieces, like a row.
#[test]
fn no_message_of_the_server_is_held_until_it_is_whole() {
    for kind in [b'E', b'C', b'N', b'D'] {
        let mut line = Line::new();
        line.client(&message(b'Q', b"select 1\0"));
        let long = message(kind, &[b'x'; 100_000]);
        let (used, _) = line.machine.server(&long[..3_000], &mut line.told, 10_000).unwrap();
        assert_eq!((used, line.told.len()), (3_000, 3_000), "{}", char::from(kind));
    }
}

/// Fills a map beyond its bound with what only its governing needs, and then with what the gateway answers for.
fn fills(plain: impl Fn() -> Prepared<&'static str>, ours: impl Fn() -> Prepared<&'static str>) {
    let name = |number: usize| number.to_string().into_bytes();
    let mut names: Map<Prepared<&'static str>> = Map::default();
    remember(&mut names, b"ours", ours());
    for number in 0..MOST_NAMES + 10 {
        remember(&mut names, &name(number), plain());
        assert!(names.len() <= MOST_NAMES && names.contains_key(&name(number)));
        assert!(names.contains_key(&b"ours"[..]), "after {number}");
    }
    assert_eq!(names.len(), MOST_NAMES);
    // A name that is there already needs no room.
    remember(&mut names, b"ours", ours());
    assert_eq!(names.len(), MOST_NAMES);
    for number in 0..MOST_NAMES + 10 {
        remember(&mut names, &name(number), ours());
        assert!(names.len() <= MOST_NAMES && names.contains_key(&name(number)));
    }
    assert_eq!(names.len(), MOST_NAMES);
}

#[test]
fn names_are_bounded_and_those_make_room_that_only_governing_needs() {
    let plain = known("select 1");
    fills(|| Prepared::Theirs(plain.clone()), || Prepared::Ours(Arc::new("own")));
    fills(|| Prepared::Theirs(plain.clone()), || Prepared::Explained(plain.clone()));
}

#[test]
fn portals_are_bounded_and_those_of_the_gateway_stay_longest() {
    let (mut machine, mut decider) = (machine(), Decider::default());
    client(
        &mut machine,
        &[parse("o", "own"), parse("s", "select 1"), bind("p", "o")].concat(),
        100,
        &mut decider,
    );
    for number in 0..MOST_NAMES + 10 {
        client(&mut machine, &bind(&number.to_string(), "s"), 100, &mut decider);
    }
    assert_eq!(
        client(&mut machine, &execute("p"), 100, &mut decider),
        message(b'H', &[]),
        "it is the gateway's"
    );
}

/// Most bytes of answers of the gateway that wait for the server.
const MOST_HELD: usize = 1_048_576;

/// Whether nothing is taken that is answered.
fn waits(machine: &mut Tested) -> bool {
    let answered =
        [bind("p", "o"), message(b'Q', b"select 1\0"), message(b'F', &[]), parse("", ""), close("P")];
    answered.iter().all(|message| matches!(machine.client(message).unwrap(), Step::Wait))
}

/// What the client is answered behind a long statement is not kept without a bound, however little it reads.
#[test]
fn a_client_waits_while_many_answers_wait_for_the_server() {
    let long = [parse("", "select 1"), bind("", ""), execute(""), parse("o", "own")].concat();
    let (said, sync) = ([message(b'1', &[]), message(b'2', &[])].concat(), message(b'S', &[]));
    let (done, failed) = (message(b'C', b"SELECT 1\0"), message(b'E', b"C22012\0\0"));
    for (ends, answered) in [(done, MOST_HELD), (failed, 0)] {
        let (mut machine, mut out) = (machine(), Vec::new());
        client(&mut machine, &long, 100, &mut Decider::default());
        // Five bytes for each, and for the name.
        let step = repeated(&mut machine, &bind("p", "o"), MOST_HELD / 5).unwrap();
        assert!(matches!(step, Step::Wait) && waits(&mut machine));
        // The server may wait for what is not answered.
        assert_eq!(client(&mut machine, &sync, 10, &mut Decider::default()), sync);
        server(&mut machine, &[said.clone(), ends.clone()].concat(), &mut out);
        assert!(out.len() >= answered && !waits(&mut machine));
    }
    // The same for queries that are answered.
    let (mut machine, mut out) = (machine(), Vec::new());
    let query = message(b'Q', b"select 1\0");
    assert!(repeated(&mut machine, &query, 1).is_ok());
    machine.decide(&query, Decision::Answer(vec![0; MOST_HELD])).unwrap();
    while let Step::Skip(_) = machine.client(&query).unwrap() {}
    assert!(matches!(machine.client(&query).unwrap(), Step::Wait));
    server(&mut machine, &ready(b'I'), &mut out);
    assert!(out.len() > MOST_HELD && matches!(machine.client(&query).unwrap(), Step::Ask(_)));
}

/// It would wait for the server, and the server for its data.
#[test]
fn a_client_that_copies_in_and_has_many_answers_waiting_is_cut_off() {
    let mut machine = machine();
    let copy = [parse("", "copy t from stdin"), bind("", ""), execute(""), parse("o", "own")].concat();
    client(&mut machine, &copy, 100, &mut Decider::default());
    let said = [message(b'1', &[]), message(b'2', &[]), message(b'G', b"\0\0\0")].concat();
    server(&mut machine, &said, &mut Vec::new());
    let step = repeated(&mut machine, &bind("p", "o"), MOST_HELD / 5);
    assert_eq!(step.map(drop), Err(ProtocolError::TooMany { max: MOST }));
}
