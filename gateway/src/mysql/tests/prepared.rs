//! Which statement an execution is of: by its number, or as the last that was prepared.

use super::super::capability::Capabilities;
use super::link::{Asked, Link, OK, logged_in, packet, packets, query};
use super::step::Event;
use super::{Answer, Command, Decision, Refusal, Settings};
use crate::session::Side;

const LAST: u32 = u32::MAX;
const UNKNOWN: [u8; 3] = [0xff, 0xdb, 0x04];

fn prepare(sql: &str) -> Vec<u8> {
    packet(0, &[b"\x16", sql.as_bytes()].concat())
}

fn naming(code: u8, id: u32) -> Vec<u8> {
    packet(0, &[&[code][..], &id.to_le_bytes(), &[0, 1, 0, 0, 0]].concat())
}

fn run(id: u32) -> Vec<u8> {
    naming(0x17, id)
}

/// Without columns and parameters.
fn prepared(id: u32) -> Vec<u8> {
    packet(1, &[&[0][..], &id.to_le_bytes(), &[0; 7]].concat())
}

fn refuse(word: &'static str) -> impl FnMut(&Asked) -> Option<Decision<u64>> {
    let refusal = Refusal { code: 8252, state: *b"HY000", message: "throttled".into() };
    move |asked| asked.sql.contains(word).then(|| Decision::Answer(Answer::Refused(refusal.clone())))
}

fn last_template(link: &Link) -> Option<u64> {
    link.asked().last().unwrap().template
}

#[test]
fn the_last_statement_is_the_last_that_was_prepared() {
    let mut link = logged_in(Settings::default(), refuse("heavy"));
    link.hear(
        Side::Client,
        &[prepare("select 1"), query("select 2"), query("select heavy"), run(LAST)].concat(),
    )
    .unwrap();
    let asked = link.asked();
    assert_eq!((asked.len(), asked[3].command, asked[3].template), (4, Command::Execute, Some(1)));
    assert!(!asked[3].explained);
    link.hear(Side::Server, &[prepared(7), packet(1, OK), packet(1, OK)].concat()).unwrap();
    assert!(link.machine.is_quiet());
    // The server gives it up as the last, and keeps it by its number.
    link.hear(Side::Client, &[naming(0x19, LAST), run(LAST)].concat()).unwrap();
    assert_eq!(last_template(&link), None);
    link.hear(Side::Client, &run(7)).unwrap();
    assert_eq!(last_template(&link), Some(1));
}

#[test]
fn a_statement_that_was_not_prepared_is_neither_run_nor_closed() {
    let mut link = logged_in(Settings::default(), refuse("heavy"));
    let ahead =
        [prepare("select heavy"), naming(0x18, LAST), naming(0x19, LAST), run(LAST), naming(0x1a, LAST)];
    link.hear(Side::Client, &ahead.concat()).unwrap();
    assert!(link.to_server.is_empty());
    let refused = packet(1, b"\xff\x3c\x20#HY000throttled");
    let unknown = link.to_client.strip_prefix(&refused[..]).unwrap();
    // One error for each of the last two, nothing for the others.
    let (one, other) = unknown.split_at(4 + usize::from(unknown[0]));
    assert_eq!((&one[4..7], one), (&UNKNOWN[..], other));
    // A text of the same bytes is a text.
    link.hear(Side::Client, &packet(0, b"\x03\xff\xff\xff\xff")).unwrap();
    assert_eq!(link.to_server, packet(0, b"\x03\xff\xff\xff\xff"));
}

#[test]
fn a_number_is_of_a_statement_in_commands_that_name_one() {
    let mut link = logged_in(Settings::default(), |_| None);
    let id = u32::from_le_bytes(*b"sele");
    link.hear(Side::Client, &prepare("select ?")).unwrap();
    link.hear(Side::Server, &prepared(id)).unwrap();
    link.hear(Side::Client, &query("select 1")).unwrap();
    assert_eq!(last_template(&link), None, "a text is none");
    // To send it values, or to have it forget them, leaves it.
    link.hear(Side::Client, &[naming(0x18, id), naming(0x1a, id), run(id)].concat()).unwrap();
    assert_eq!(last_template(&link), Some(1));
    link.hear(Side::Client, &[naming(0x19, id), run(id)].concat()).unwrap();
    assert_eq!(last_template(&link), None);
}

#[test]
fn a_session_as_if_new_has_nothing_prepared_but_what_was_sent_since() {
    let mut link = logged_in(Settings::default(), |_| None);
    link.hear(Side::Client, &prepare("select old")).unwrap();
    link.hear(Side::Server, &prepared(7)).unwrap();
    link.hear(Side::Client, &[packet(0, b"\x1f"), run(LAST)].concat()).unwrap();
    assert_eq!(last_template(&link), None, "the last is of the former session");
    link.hear(Side::Client, &prepare("select new")).unwrap();
    link.hear(Side::Server, &[packet(1, OK), packet(1, b"\xff\xdb\x04#HY000unknown")].concat()).unwrap();
    // The reset has been done since the statement was sent.
    link.hear(Side::Client, &run(LAST)).unwrap();
    assert_eq!(last_template(&link), Some(3));
    link.hear(Side::Client, &run(7)).unwrap();
    assert_eq!(last_template(&link), None);
}

#[test]
fn a_cursor_that_was_not_asked_for_keeps_no_rows() {
    // A procedure answers while a cursor of its own is open: to a text, and to an execution without flags.
    let open = b"\xfe\0\0\x4a\0";
    let called: [&[u8]; 6] = [b"\x01", b"\x03def", open, b"\x011", open, OK];
    for command in [query(" call p()"), run(7)] {
        let mut link = logged_in(Settings::default(), |_| None);
        link.machine.forbid(Capabilities::DEPRECATE_EOF);
        link.hear(Side::Client, &command).unwrap();
        link.hear(Side::Server, &packets(1, &called[..5])).unwrap();
        assert!(!link.machine.is_quiet());
        link.hear(Side::Server, &packet(6, OK)).unwrap();
        let [Event::StatementEnds(ends)] = &link.told()[..] else { panic!("{:?}", link.told()) };
        assert_eq!((ends.rows, link.machine.is_quiet()), (1, true));
    }
}

/// An execution that is explained, prepared as number 7.
fn explained() -> Link {
    let mut link = logged_in(Settings::default(), |asked| match asked.command {
        Command::Prepare => Some(Decision::Prepare(9, b"select ?".to_vec())),
        _ => asked.explained.then_some(Decision::ExplainRun),
    });
    link.hear(Side::Client, &prepare("explain ru select ?")).unwrap();
    link.hear(Side::Server, &prepared(7)).unwrap();
    link.to_client.clear();
    link.to_server.clear();
    link
}

#[test]
fn a_cost_is_numbered_behind_the_last_packet_of_its_execution() {
    let mut link = explained();
    // Values that fill a frame: the rest comes in the next, which is empty.
    let mut long = vec![0xff, 0xff, 0xff, 0, 0x17, 7, 0, 0, 0, 0, 1, 0, 0, 0];
    long.resize(4 + 0xff_ffff, b'x');
    for piece in [&long[..], &[0, 0, 0, 1]] {
        link.hear(Side::Client, piece).unwrap();
    }
    assert_eq!(link.to_server.len(), long.len() + 4);
    link.hear(Side::Server, &packet(2, OK)).unwrap();
    link.machine.explain(&Answer::Done { affected: 5, warnings: 0 });
    link.hear(Side::Client, &packet(0, b"\x0e")).unwrap();
    assert_eq!(link.to_client, packet(2, b"\0\x05\0\x02\0\0\0"));
}

#[test]
fn an_execution_that_is_refused_by_its_beginning_has_no_cost() {
    let mut link = explained();
    let run = packet(0, &[&[0x17, 7, 0, 0, 0, 0, 1, 0, 0, 0][..], &[5; 20]].concat());
    let error = packet(1, b"\xff\x15\x04#28000no");
    // The end of the execution meets the end of the error.
    link.hear(Side::Client, &run[..20]).unwrap();
    link.hear(Side::Server, &error[..13]).unwrap();
    link.hear(Side::Client, &run[20..]).unwrap();
    link.hear(Side::Server, &error[13..]).unwrap();
    link.machine.explain(&Answer::Done { affected: 5, warnings: 0 });
    link.hear(Side::Client, &packet(0, b"\x0e")).unwrap();
    assert_eq!(link.to_client, error);
}

#[test]
fn a_response_of_unknown_shape_is_heard_to_the_end_of_its_packet() {
    let mut link = logged_in(Settings::default(), |_| None);
    link.hear(Side::Client, &packet(0, b"\x70what")).unwrap();
    // An empty packet is one, too.
    let answer = packets(1, &[b"\x05hello, and so on to the end", b""]);
    link.hear(Side::Server, &answer[..24]).unwrap();
    link.hear(Side::Client, &query("select 1")).unwrap();
    assert_eq!((link.asked().len(), link.to_client.len()), (1, 24), "in the middle of a packet");
    link.hear(Side::Server, &answer[24..]).unwrap();
    assert_eq!((link.asked().len(), &link.to_client), (2, &answer));
    // One that is done at once has ended.
    let mut link = logged_in(Settings::default(), |_| None);
    link.hear(Side::Client, &packet(0, b"\x70what")).unwrap();
    link.hear(Side::Server, &packet(1, OK)).unwrap();
    assert!(link.machine.is_quiet());
}

#[test]
fn a_replica_that_has_read_to_the_end_is_a_client_like_any_other() {
    let mut link = logged_in(Settings::default(), |_| None);
    link.hear(Side::Client, &packet(0, b"\x12\x04\0\0\0\0\0\x01\0\0\0")).unwrap();
    link.hear(Side::Server, &packets(1, &[b"\x00event", b"\xfe\0\0\x02\0\0\0"])).unwrap();
    assert!(link.machine.is_idle());
}

#[test]
fn names_are_known_of_statements_that_give_some() {
    let mut link = logged_in(Settings::default(), |_| None);
    link.hear(Side::Client, &query("select 1")).unwrap();
    assert!(!link.machine.knows_names());
}
