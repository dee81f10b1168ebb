//! What a client is told instead of what the server says: why its statement was killed, and what it cost.

use tidegate_sql::{Column, Kind, Table, Value};

use super::link::{Asked, Link, OK, logged_in, packet, packets};
use super::step::{Event, Side};
use super::{Answer, Decision, Refusal, Settings};

const ROWS: [&[u8]; 4] = [b"\x01", b"\x03def", b"\x011", b"\xfe\0\0\x02\0\0\0"];
const INTERRUPTED: &[u8] = b"\xff\x25\x05#70100Query execution was interrupted";

fn query(sql: &str) -> Vec<u8> {
    packet(0, &[b"\x03", sql.as_bytes()].concat())
}

fn runaway() -> Refusal {
    Refusal { code: 8253, state: *b"HY000", message: "a runaway".into() }
}

fn ends(link: &Link) -> Vec<(u64, u64, Option<u16>)> {
    let told = link.told().into_iter().filter_map(|event| match event {
        Event::StatementEnds(ends) => Some((ends.number, ends.rows, ends.error)),
        _ => None,
    });
    told.collect()
}

#[test]
fn a_killed_statement_says_why_in_place_of_the_server() {
    let mut link = logged_in(Settings::default(), |_| None);
    link.hear(Side::Client, &[query("select a"), query("select b")].concat()).unwrap();
    let begun = packets(1, &ROWS[..3]);
    link.hear(Side::Server, &begun).unwrap();
    assert!(!link.machine.kill(2, runaway()), "the server is not at that one yet");
    assert!(link.machine.kill(1, runaway()));
    link.hear(Side::Server, &[packet(4, INTERRUPTED), packets(1, &ROWS)].concat()).unwrap();
    let told = packet(4, b"\xff\x3d\x20#HY000a runaway");
    assert_eq!(link.to_client, [begun, told, packets(1, &ROWS)].concat());
    assert_eq!(ends(&link), [(1, 1, Some(8253)), (2, 1, None)]);
}

#[test]
fn a_statement_that_ends_before_it_is_killed_has_ended() {
    let mut link = logged_in(Settings::default(), |_| None);
    link.hear(Side::Client, &query("select a")).unwrap();
    assert!(link.machine.kill(1, runaway()));
    link.hear(Side::Server, &packets(1, &ROWS)).unwrap();
    assert_eq!(link.to_client, packets(1, &ROWS));
    assert_eq!(ends(&link), [(1, 1, None)]);
}

fn explain(asked: &Asked) -> Option<Decision<u64>> {
    asked.sql.strip_prefix("explain ru ").map(|inner| Decision::Explain(inner.as_bytes().to_vec()))
}

fn cost() -> Answer {
    let columns = vec![Column { name: "ru".into(), kind: Kind::Float }];
    Answer::Rows(Table { columns, rows: vec![vec![Value::Float(1.5)]], notes: Vec::new() })
}

#[test]
fn an_explained_statement_runs_and_its_cost_is_the_result() {
    let mut link = logged_in(Settings::default(), explain);
    link.hear(Side::Client, &[query("explain ru select a"), query("select b")].concat()).unwrap();
    assert_eq!(link.to_server, [query("select a"), query("select b")].concat());
    // The cost has to be told between the two; a caller is at it when it hears of the end.
    let first = packets(1, &ROWS);
    link.hear(Side::Server, &first[..first.len() - 1]).unwrap();
    assert!(link.to_client.is_empty());
    link.hear(Side::Server, &first[first.len() - 1..]).unwrap();
    assert_eq!(ends(&link), [(1, 1, None)]);
    link.machine.explain(&cost());
    link.hear(Side::Server, &packet(1, OK)).unwrap();
    let second = packet(1, OK);
    let told = &link.to_client[..link.to_client.len() - second.len()];
    assert_eq!(told[..6], [2, 0, 0, 1, 1, 1], "numbered from the command on");
    assert!(told.windows(4).any(|window| window == b"\x031.5"));
    assert!(link.to_client.ends_with(&second));
}

#[test]
fn an_explained_statement_that_fails_tells_its_error() {
    let mut link = logged_in(Settings::default(), explain);
    link.hear(Side::Client, &query("explain ru select a")).unwrap();
    link.hear(Side::Server, &packets(1, &ROWS[..3])).unwrap();
    link.hear(Side::Server, &packet(4, b"\xff\x15\x04#28000no")).unwrap();
    assert_eq!(link.to_client, packet(1, b"\xff\x15\x04#28000no"));
    link.machine.explain(&cost());
    link.hear(Side::Client, &query("select b")).unwrap();
    link.hear(Side::Server, &packet(1, OK)).unwrap();
    assert_eq!(link.to_client, [packet(1, b"\xff\x15\x04#28000no"), packet(1, OK)].concat());
}
