//! Interrupts that come at any moment: the client has one error in the right place, or none.

use super::link::{Asked, Link, OK, ROWS, logged_in, packet, packets};
use super::step::Event;
use super::{Answer, Decision, Refusal, Settings};
use crate::session::Side;

const INTERRUPTED: &[u8] = b"\xff\x25\x05#70100Query execution was interrupted";
const TOLD: &[u8] = b"\xff\x3d\x20#HY000a runaway";

fn runaway() -> Refusal {
    Refusal { code: 8253, state: *b"HY000", message: "a runaway".into() }
}

fn errors(link: &Link) -> Vec<Option<u16>> {
    let told = link.told().into_iter().filter_map(|event| match event {
        Event::StatementEnds(ends) => Some(ends.error),
        _ => None,
    });
    told.collect()
}

/// What the client gets when `before` has come, the statement is killed, and `after` comes, in one piece as in many.
fn killed(judge: fn(&Asked) -> Option<Decision<u64>>, sql: &str, before: &[u8], after: &[u8]) -> Vec<u8> {
    let played = |piece: usize| {
        let mut link = logged_in(Settings::default(), judge);
        link.hear(Side::Client, &packet(0, &[b"\x03", sql.as_bytes()].concat())).unwrap();
        link.hear(Side::Server, before).unwrap();
        assert!(link.machine.kill(1, runaway()));
        for piece in after.chunks(piece) {
            link.hear(Side::Server, piece).unwrap();
        }
        link.machine.explain(&Answer::Done { affected: 0, warnings: 0 });
        assert!(link.machine.is_quiet());
        assert_eq!(errors(&link), [Some(8253)]);
        link.hear(Side::Client, &packet(0, b"\x0e")).unwrap();
        link.hear(Side::Server, &packet(1, OK)).unwrap();
        link.to_client.strip_suffix(&packet(1, OK)[..]).unwrap().to_vec()
    };
    let whole = played(usize::MAX);
    assert_eq!(played(1), whole, "byte by byte");
    whole
}

#[test]
fn what_comes_together_with_the_interruption_is_not_taken_for_it() {
    // Rows of a result that had begun.
    let (begun, more) = (packets(1, &ROWS[..2]), packets(3, &[b"\x011", b"\x012"]));
    let got = killed(|_| None, "select a", &begun, &[&more[..], &packet(5, INTERRUPTED)].concat());
    assert_eq!(got, [begun, more, packet(5, TOLD)].concat());
    // The result before, which is an OK, and another that has rows.
    let done = packet(1, b"\0\0\0\x0a\0\0\0");
    let got = killed(|_| None, "do 1; select sleep(9)", &[], &[&done[..], &packet(2, INTERRUPTED)].concat());
    assert_eq!(got, [done.clone(), packet(2, TOLD)].concat());
    let got = killed(|_| None, "do 1; select sleep(9)", &[], &[&done[..], &packets(2, &ROWS)].concat());
    assert_eq!(got, [done, packet(2, TOLD)].concat());
}

#[test]
fn an_explained_statement_that_is_killed_says_why_in_place_of_its_cost() {
    let explain = |asked: &Asked| {
        asked.sql.strip_prefix("explain ru ").map(|inner| Decision::Explain(inner.as_bytes().to_vec()))
    };
    let (begun, row) = (packets(1, &ROWS[..2]), packet(3, b"\x011"));
    for before in [&begun[..], b""] {
        let after = if before.is_empty() {
            packet(1, INTERRUPTED)
        } else {
            [&row[..], &packet(4, INTERRUPTED)].concat()
        };
        assert_eq!(killed(explain, "explain ru select a", before, &after), packet(1, TOLD));
    }
}

#[test]
fn a_kill_of_a_statement_that_the_server_is_not_at_changes_nothing() {
    let mut link = logged_in(Settings::default(), |_| None);
    link.hear(Side::Client, &packet(0, b"\x03select a")).unwrap();
    assert!(!link.machine.kill(2, runaway()));
    link.hear(Side::Server, &packet(1, INTERRUPTED)).unwrap();
    assert_eq!(link.to_client, packet(1, INTERRUPTED), "another's interruption");
    assert_eq!(errors(&link), [Some(1317)]);
}

#[test]
fn a_database_that_a_killed_statement_has_changed_is_known() {
    let mut link = logged_in(Settings::default(), |_| None);
    link.hear(Side::Client, &packet(0, b"\x03use other; select sleep(9)")).unwrap();
    link.hear(Side::Server, &packet(1, &super::payers::changed(0x08, &[], "other"))).unwrap();
    assert!(link.machine.kill(1, runaway()));
    link.hear(Side::Server, &packet(2, INTERRUPTED)).unwrap();
    assert_eq!(link.told().last(), Some(&Event::DatabaseChanged { database: "other".into() }));
}
