//! What a client gets in place of the server's words: why its statement was killed, and what it cost.

use tidegate_sql::{Column, Kind, Table, Value};

use super::super::capability::Capabilities;
use super::super::frame::Header;
use super::super::reply::{Reply, Seen};
use super::link::{Asked, Link, OK, ROWS, logged_in, packet, packets, query};
use super::step::Event;
use super::{Answer, Command, Decision, ProtocolError, Refusal, Settings};
use crate::session::Side;

const INTERRUPTED: &[u8] = b"\xff\x25\x05#70100Query execution was interrupted";

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
    link.hear(Side::Client, &[query("select a"), query("update b")].concat()).unwrap();
    link.hear(Side::Server, &packets(1, &ROWS[..1])).unwrap();
    assert!(link.machine.kill(1, runaway()), "its result has begun");
    link.hear(Side::Server, &packets(2, &ROWS[1..])).unwrap();
    assert!(link.machine.kill(2, runaway()), "it is done when its only packet comes");
    link.hear(Side::Server, &packet(1, OK)).unwrap();
    assert_eq!(link.to_client, [packets(1, &ROWS), packet(1, OK)].concat());
    assert_eq!(ends(&link), [(1, 1, None), (2, 0, None)]);
}

#[test]
fn a_result_that_begins_after_the_kill_is_not_given_out() {
    let mut link = logged_in(Settings::default(), |_| None);
    link.hear(Side::Client, &[query("do 1; select sleep(9); select 2"), query("select b")].concat()).unwrap();
    // As a server answers that gives a value for what was interrupted, between other results.
    let more = packet(1, b"\0\0\0\x0a\0\0\0");
    link.hear(Side::Server, &more).unwrap();
    assert!(link.machine.kill(1, runaway()));
    let cut: [&[u8]; 4] = [b"\x01", b"\x03def", b"\x011", b"\xfe\0\0\x0b\0\0\0"];
    let last: [&[u8]; 4] = [b"\x01", b"\x03def", b"\x012", b"\xfe\0\0\x03\0\0\0"];
    link.hear(Side::Server, &[packets(2, &cut), packets(6, &last), packets(1, &ROWS)].concat()).unwrap();
    let told = packet(2, b"\xff\x3d\x20#HY000a runaway");
    assert_eq!(link.to_client, [more, told, packets(1, &ROWS)].concat());
    assert_eq!(ends(&link), [(1, 2, Some(8253)), (2, 1, None)]);
    assert!(!link.machine.in_transaction(), "as the server said last");
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
    // The cost has to be sent between the two; a caller sends it when it hears of the end.
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

/// A statement that is prepared to be explained, with parameters and columns of its own; what the client got.
fn prepare_explained(parameters: u8, columns: u8, ends: bool, piece: usize) -> (Link, Vec<u8>) {
    let mut link = logged_in(Settings::default(), |asked| match asked.command {
        Command::Prepare => {
            let inner = asked.sql.strip_prefix("explain ru ")?;
            Some(Decision::Prepare(9, inner.as_bytes().to_vec()))
        }
        _ => asked.explained.then_some(Decision::ExplainRun),
    });
    if ends {
        link.machine.forbid(Capabilities::DEPRECATE_EOF);
    }
    link.hear(Side::Client, &packet(0, b"\x16explain ru select ?")).unwrap();
    assert_eq!(link.to_server, packet(0, b"\x16select ?"));
    link.to_server.clear();
    let first = [0, 7, 0, 0, 0, columns, 0, parameters, 0, 0, 0, 0];
    let end: &[&[u8]] = if ends { &[b"\xfe\0\0\x02\0"] } else { &[] };
    let several = |count: u8, payload: &'static [u8]| {
        let end = if count > 0 { end } else { &[] };
        [&vec![payload; usize::from(count)][..], end].concat()
    };
    let reply =
        [&[&first[..]], &several(parameters, b"\x03def?")[..], &several(columns, b"\x03defx")].concat();
    for piece in packets(1, &reply).chunks(piece) {
        link.hear(Side::Server, piece).unwrap();
    }
    let got = std::mem::take(&mut link.to_client);
    (link, got)
}

#[test]
fn a_statement_prepared_to_be_explained_is_described_by_its_cost() {
    for (parameters, columns, ends) in
        [(0, 0, false), (1, 2, false), (2, 0, false), (0, 0, true), (0, 3, true), (1, 2, true), (2, 0, true)]
    {
        let (link, got) = prepare_explained(parameters, columns, ends, 3);
        assert_eq!(prepare_explained(parameters, columns, ends, 1_000).1, got);
        let mut reply = Reply::to(Command::Prepare).unwrap();
        let (mut at, mut number) = (0, 1);
        loop {
            let header = Header::parse(&got[at..]).unwrap();
            let payload = &got[at + 4..][..header.len];
            if number == 1 {
                assert_eq!(payload[..9], [0, 7, 0, 0, 0, 3, 0, parameters, 0]);
            }
            assert_eq!(header.sequence, number, "{parameters} {columns} {ends}");
            let seen = reply.read(payload, header.len, link.machine.wire().handshake.capabilities());
            (at, number) = (at + 4 + header.len, number + 1);
            if matches!(seen, Seen::Last(_)) {
                break;
            }
        }
        assert_eq!(at, got.len(), "{parameters} {columns} {ends}");
        assert!(
            got.windows(4).any(|window| window == b"used") && !got.windows(4).any(|window| window == b"defx")
        );
        assert!(link.machine.is_quiet());
    }
}

/// Its description could not be replaced.
#[test]
fn an_answer_to_a_preparation_that_is_cut_ends_the_connection_with_the_reason() {
    for len in 0..7_usize {
        let mut link = logged_in(Settings::default(), |asked| {
            (asked.command == Command::Prepare).then(|| Decision::Prepare(9, b"select 1".to_vec()))
        });
        link.hear(Side::Client, &packet(0, b"\x16explain ru select 1")).unwrap();
        let said = packet(1, &[0, 7, 0, 0, 0, 0, 0][..len]);
        assert_eq!(link.hear(Side::Server, &said), Err(ProtocolError::Prepared { len }));
        let refusal = Refusal::from(&ProtocolError::Prepared { len });
        assert_eq!(refusal.code, 1156);
        assert!(refusal.message.contains(&format!("only {len} bytes")), "{}", refusal.message);
    }
}

#[test]
fn an_execution_of_it_takes_no_cursor_and_shows_its_cost_in_binary() {
    let (mut link, _) = prepare_explained(1, 2, false, 1_000);
    let run = |flags: u8| packet(0, &[&[0x17, 7, 0, 0, 0, flags, 1, 0, 0, 0][..], &[5; 20]].concat());
    for piece in run(9).chunks(4) {
        link.hear(Side::Client, piece).unwrap();
    }
    assert_eq!(link.to_server, run(8));
    assert_eq!(link.asked().last().map(|asked| (asked.template, asked.explained)), Some((Some(9), true)));
    link.hear(Side::Server, &packets(1, &ROWS)).unwrap();
    assert!(link.to_client.is_empty());
    link.machine.explain(&cost());
    link.hear(Side::Client, &packet(0, b"\x0e")).unwrap();
    let row = [&[0, 0][..], &1.5_f64.to_le_bytes()].concat();
    assert!(link.to_client.windows(14).any(|window| window == [&[10, 0, 0, 3][..], &row].concat()));
    assert_eq!(link.to_client[3], 1);
    // A refusal of the server passes as it is.
    link.hear(Side::Server, &packet(1, OK)).unwrap();
    link.to_client.clear();
    link.hear(Side::Client, &run(0)).unwrap();
    link.hear(Side::Server, &packet(1, b"\xff\x15\x04#28000no")).unwrap();
    link.machine.explain(&cost());
    link.hear(Side::Client, &packet(0, b"\x0e")).unwrap();
    assert_eq!(link.to_client, packet(1, b"\xff\x15\x04#28000no"));
}

#[test]
fn a_statement_of_ours_is_prepared_for_its_number_and_answered_in_binary() {
    let mut link = logged_in(Settings::default(), |asked| match asked.command {
        Command::Prepare if asked.sql.starts_with("show") => Some(Decision::PrepareOurs(9)),
        Command::Execute if asked.template == Some(9) => Some(Decision::Answer(cost())),
        _ => None,
    });
    let run = |id: u32| packet(0, &[&[0x17][..], &id.to_le_bytes(), &[9, 1, 0, 0, 0]].concat());
    // MariaDB's clients name it as the last before they know its number.
    let ahead = [packet(0, b"\x16show resource groups"), run(u32::MAX), query("select b")].concat();
    for piece in ahead.chunks(7) {
        link.hear(Side::Client, piece).unwrap();
    }
    let stands = packet(0, b"\x16SET @tidegate = (SELECT 1 UNION ALL SELECT 2)");
    assert_eq!(link.to_server, [stands, query("select b")].concat());
    let prepared = packet(1, &[0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    link.hear(Side::Server, &[&prepared[..], &packet(1, OK)].concat()).unwrap();
    let told = link.to_client.strip_prefix(&prepared[..]).unwrap().strip_suffix(&packet(1, OK)[..]).unwrap();
    let row = [&[10, 0, 0, 3, 0, 0][..], &1.5_f64.to_le_bytes()].concat();
    assert_eq!(told[..5], [2, 0, 0, 1, 1], "numbered from the command on");
    assert!(told.windows(14).any(|window| window == row));
    let told = told.to_vec();
    link.to_client.clear();
    link.to_server.clear();
    let close = packet(0, b"\x19\x07\0\0\0");
    link.hear(Side::Client, &[run(7), close.clone(), run(7)].concat()).unwrap();
    // As the server sees it, one that is closed is unknown; ours is, too, from then on.
    assert_eq!((&link.to_client, &link.to_server), (&told, &[close, run(7)].concat()));
    assert_eq!(link.asked().last().map(|asked| asked.template), Some(None));
}

#[test]
fn many_executions_of_a_statement_of_ours_at_once_are_refused() {
    let ours = |asked: &Asked| match asked.command {
        Command::Prepare => Some(Decision::PrepareOurs(9)),
        _ => Some(Decision::Answer(cost())),
    };
    let mut link = logged_in(Settings::default(), ours);
    link.hear(Side::Client, &packet(0, b"\x16show resource groups")).unwrap();
    link.hear(Side::Server, &packet(1, &[0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])).unwrap();
    link.to_client.clear();
    link.hear(Side::Client, &packet(0, b"\xfa\x07\0\0\0\0\0")).unwrap();
    assert_eq!(link.to_client[4..7], [0xff, 0x0f, 0x05], "1295");
}

#[test]
fn an_explained_statement_that_fails_reports_its_error() {
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
