//! Statements that do not go to the server: what the client gets, and when.

use super::link::{Asked, OK, logged_in, packet, packets, query};
use super::step::Event;
use super::{Answer, Command, Decision, ProtocolError, Refusal, Settings};
use crate::session::Side;
use tidegate_sql::{Column, Kind, Table, Value};

fn throttled() -> Decision<u64> {
    let message = "group batch is throttled; retry in 2 s".into();
    Decision::Answer(Answer::Refused(Refusal { code: 8252, state: *b"HY000", message }))
}

fn refuse(word: &'static str) -> impl FnMut(&Asked) -> Option<Decision<u64>> {
    move |asked| asked.sql.contains(word).then(throttled)
}

const ERROR: &[u8] = b"\xff\x3c\x20#HY000group batch is throttled; retry in 2 s";

#[test]
fn a_refused_statement_gets_an_error_and_the_connection_goes_on() {
    let mut link = logged_in(Settings::default(), refuse("heavy"));
    link.hear(Side::Client, &query("select heavy")).unwrap();
    assert_eq!(link.to_client, packet(1, ERROR));
    assert!(link.to_server.is_empty() && link.machine.is_idle());
    link.hear(Side::Client, &query("select light")).unwrap();
    assert_eq!(link.to_server, query("select light"));
}

#[test]
fn a_refusal_waits_for_the_responses_before_it() {
    let mut link = logged_in(Settings::default(), refuse("heavy"));
    let ahead = [query("select a"), query("select heavy"), query("select b"), packet(0, b"\x0e")].concat();
    link.hear(Side::Client, &ahead).unwrap();
    assert_eq!(link.to_server, [query("select a"), query("select b"), packet(0, b"\x0e")].concat());
    assert!(link.to_client.is_empty());
    let first = packets(1, &[b"\x01", b"\x03def", b"\x011", b"\xfe\0\0\x02\0\0\0"]);
    link.hear(Side::Server, &first[..first.len() - 3]).unwrap();
    assert_eq!(link.to_client, first[..first.len() - 11], "not before the last packet is whole");
    link.hear(Side::Server, &first[first.len() - 3..]).unwrap();
    assert_eq!(link.to_client, [first.clone(), packet(1, ERROR)].concat());
    link.hear(Side::Server, &[packet(1, OK), packet(1, OK)].concat()).unwrap();
    assert_eq!(link.to_client, [first, packet(1, ERROR), packet(1, OK), packet(1, OK)].concat());
    assert!(link.machine.is_idle());
}

#[test]
fn a_refused_statement_of_several_frames_is_taken_as_a_whole() {
    let mut link = logged_in(Settings::default(), |_| Some(throttled()));
    let mut long = vec![0xff, 0xff, 0xff, 0, 0x03];
    long.resize(4 + 0xff_ffff, b'x');
    for piece in long.chunks(1 << 20) {
        link.hear(Side::Client, piece).unwrap();
        assert!(link.to_client.is_empty() && link.kept() <= 1 << 20);
    }
    link.hear(Side::Client, &packet(1, b"tail")).unwrap();
    assert_eq!(link.to_client, packet(2, ERROR));
    let asked = &link.asked()[0];
    assert_eq!((asked.sql.len(), asked.whole), (64 * 1024 - 1, false));
    assert!(link.to_server.is_empty());
}

#[test]
fn what_stands_for_a_refused_statement_does_not_reach_the_one_before() {
    let mut link = logged_in(Settings::default(), refuse("heavy"));
    link.hear(Side::Client, &packet(0, b"\x16select light")).unwrap();
    link.hear(Side::Server, &packet(1, b"\x00\x05\0\0\0\0\0\0\0\0\0\0")).unwrap();
    link.to_client.clear();
    link.to_server.clear();
    let last = b"\x17\xff\xff\xff\xff\x00\x01\0\0\0";
    let closes = b"\x19\xff\xff\xff\xff";
    let ahead = [packet(0, b"\x16select heavy"), packet(0, last), packet(0, closes)].concat();
    link.hear(Side::Client, &ahead).unwrap();
    assert!(link.to_server.is_empty(), "the server's own last statement is another");
    assert_eq!(link.to_client[..packet(1, ERROR).len()], packet(1, ERROR));
    let second = &link.to_client[packet(1, ERROR).len()..];
    assert_eq!(second[3..7], [1, 0xff, 0xdb, 0x04]);
    assert_eq!(link.asked().len(), 2);
    link.hear(Side::Client, &packet(0, b"\x17\x05\0\0\0\x00\x01\0\0\0")).unwrap();
    assert_eq!(link.asked()[2].template, Some(1), "the one before is still known by its id");
}

#[test]
fn our_own_answers_are_for_text_only() {
    let table = Table {
        columns: vec![Column { name: "g".into(), kind: Kind::Text }],
        rows: vec![vec![Value::Text("default".into())]],
        notes: Vec::new(),
    };
    let mut link =
        logged_in(Settings::default(), move |_| Some(Decision::Answer(Answer::Rows(table.clone()))));
    link.hear(Side::Client, &query("select current_resource_group()")).unwrap();
    assert_eq!(link.to_client[..6], [2, 0, 0, 1, 1, 1], "one column, with its description");
    link.to_client.clear();
    link.hear(Side::Client, &packet(0, b"\x16select current_resource_group()")).unwrap();
    assert_eq!(link.to_client[3..7], [1, 0xff, 0x0f, 0x05]);
}

#[test]
fn a_replica_reports_what_it_has_while_it_reads() {
    let dump = packet(0, b"\x12\x04\0\0\0\0\0\x01\0\0\0");
    let mut link = logged_in(Settings::default(), |_| None);
    link.hear(Side::Client, &dump).unwrap();
    link.hear(Side::Server, &packets(1, &[b"\x00event", b"\x00event"])).unwrap();
    let (receipt, smuggled) = (packet(0, b"\xef\0\0\0\0\0\0\0\0log"), query("select 1"));
    link.hear(Side::Client, &[receipt.clone(), smuggled.clone()].concat()).unwrap();
    assert_eq!(link.to_server, [dump.clone(), receipt.clone()].concat());
    link.hear(Side::Server, &packet(3, b"\xfe\0\0\x02\0\0\0")).unwrap();
    assert_eq!(link.to_server, [dump, receipt, smuggled].concat());
    assert_eq!(link.asked().last().map(|asked| asked.command), Some(Command::Query));
}

#[test]
fn a_statement_is_decided_upon_once() {
    let mut link = logged_in(Settings::default(), |_| None);
    assert_eq!(link.machine.decide(Decision::Go), Err(ProtocolError::NotAsked));
    link.hear(Side::Client, &query("select 1")).unwrap();
    assert_eq!(link.machine.decide(Decision::Go), Err(ProtocolError::NotAsked));
}

#[test]
fn statements_under_way_are_told_when_the_connection_ends() {
    let mut link = logged_in(Settings::default(), refuse("heavy"));
    link.hear(Side::Client, &[query("select a"), query("heavy"), query("select b")].concat()).unwrap();
    link.hear(Side::Server, &packets(1, &[b"\x01", b"\x03def", b"\x011", b"\x012"])).unwrap();
    let progress = link.machine.progress().unwrap();
    assert_eq!((progress.number, progress.rows), (1, 2));
    let ends = link.machine.abandon();
    let numbers: Vec<_> = ends.iter().map(|ends| (ends.number, ends.rows, ends.complete)).collect();
    assert_eq!(numbers, [(1, 2, false), (3, 0, false)]);
    assert!(link.told().iter().all(|event| !matches!(event, Event::StatementEnds(_))));
}

#[test]
fn statements_behind_refused_ones_are_told_when_the_connection_ends() {
    // Two refusals in a row, and one whose turn comes when the last packet of the response before it is whole.
    let failed = packet(1, b"\xff\x15\x04#28000no");
    for (texts, heard, expected) in [
        (&["select a", "heavy", "heavy", "select b", "select c"][..], 0, &[1, 4, 5][..]),
        (&["select a", "heavy", "select b"], failed.len() - 1, &[1, 3]),
        (&["select a", "heavy", "heavy", "select b"], failed.len(), &[4]),
    ] {
        let mut link = logged_in(Settings::default(), refuse("heavy"));
        let said: Vec<u8> = texts.iter().flat_map(|text| query(text)).collect();
        link.hear(Side::Client, &said).unwrap();
        link.hear(Side::Server, &failed[..heard]).unwrap();
        let ends = link.machine.abandon();
        let numbers: Vec<_> = ends.iter().map(|ends| ends.number).collect();
        assert_eq!(numbers, expected, "{texts:?} and {heard} bytes of the first answer");
        assert!(ends.iter().all(|ends| !ends.complete && ends.request_bytes > 0));
    }
}
