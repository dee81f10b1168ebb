//! Captured sessions: every byte arrives, and the same is heard however the bytes come.

use super::captured::{SESSIONS, THREAD_ID, session};
use super::link::{Heard, Link};
use super::step::{Event, Login, StatementEnds};
use super::{ClientTls, Command, Settings};
use crate::session::Side;
use proptest::prelude::*;

const LENIENT: Settings =
    Settings { local_infile: true, client_tls: ClientTls::Never, server_tls: false, server_socket: false };

/// Plays a session in pieces, of which `piece` says the next length.
fn play(name: &str, mut piece: impl FnMut() -> usize) -> Link {
    let mut link = Link::new(LENIENT);
    for (side, bytes) in session(name) {
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(piece().clamp(1, rest.len()));
            link.hear(side, now).unwrap_or_else(|error| panic!("{name}: {error}"));
            rest = later;
        }
    }
    assert_eq!(link.kept(), 0, "{name}: everything is taken");
    link
}

fn said(name: &str, by: Side) -> Vec<u8> {
    session(name).into_iter().filter(|(side, _)| *side == by).flat_map(|(_, bytes)| bytes).collect()
}

fn ends(link: &Link) -> Vec<StatementEnds> {
    let ends = link.told().into_iter().filter_map(|event| match event {
        Event::StatementEnds(ends) => Some(ends),
        _ => None,
    });
    ends.collect()
}

#[test]
fn every_byte_arrives_but_for_capabilities_that_are_not_offered() {
    for (name, _) in SESSIONS {
        let link = play(name, || usize::MAX);
        assert!(link.to_server == said(name, Side::Client), "{name}: to the server");
        let (sent, got) = (said(name, Side::Server), &link.to_client);
        let greeting = 4 + usize::from(sent[0]);
        assert!(sent[greeting..] == got[greeting..], "{name}: to the client");
        let differ = (0..greeting).filter(|&at| sent[at] != got[at]).count();
        assert_eq!(differ, 1, "{name}: compression is offered no more");
    }
}

#[test]
fn a_session_byte_by_byte_is_heard_as_one_in_whole_turns() {
    for (name, _) in SESSIONS {
        let (whole, bytes) = (play(name, || usize::MAX), play(name, || 1));
        assert_eq!(whole.heard, bytes.heard, "{name}");
        assert!(whole.to_client == bytes.to_client && whole.to_server == bytes.to_server, "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn a_session_in_any_pieces_is_heard_alike(pieces in prop::collection::vec(1_usize..200, 1..40)) {
        for (name, _) in SESSIONS {
            let mut next = pieces.iter().cycle();
            let split = play(name, || next.next().copied().unwrap_or(1));
            prop_assert_eq!(&split.heard, &play(name, || usize::MAX).heard, "{}", name);
        }
    }
}

#[test]
fn a_login_is_told_when_the_server_lets_it_in() {
    let link = play("cli", || usize::MAX);
    let login = Login {
        user: "gate".into(),
        database: Some("shop".into()),
        program_name: Some("mysql".into()),
        thread_id: THREAD_ID,
        server_version: "10.11.19-MariaDB-0+deb12u1".into(),
        tls: false,
    };
    assert_eq!(link.heard[0], Heard::Told(Event::Login(login)));
}

#[test]
fn statements_of_a_terminal_are_told_with_their_figures() {
    let link = play("cli", || usize::MAX);
    let sql: Vec<_> = link.asked().into_iter().map(|asked| asked.sql).collect();
    assert!(sql.contains(&"select id,name from t".to_owned()), "{sql:?}");
    let figures: Vec<_> = ends(&link)
        .into_iter()
        .map(|ends| (ends.rows, ends.affected, ends.error, ends.in_transaction))
        .collect();
    let select = sql.iter().position(|sql| sql == "select id,name from t").unwrap();
    assert_eq!(
        figures[select..],
        [
            (3, 0, None, false),
            (1, 0, None, false),
            (0, 0, None, true),
            (0, 2, None, true),
            (0, 0, None, false),
            (0, 0, Some(1146), false)
        ]
    );
}

#[test]
fn bytes_of_statements_are_all_bytes_of_the_session_but_its_frame() {
    for (name, _) in SESSIONS {
        let link = play(name, || usize::MAX);
        let (asked, told) = (link.asked().len(), ends(&link));
        assert_eq!(asked, told.len(), "{name}: each statement ends");
        assert!(told.iter().all(|ends| ends.complete));
        let bytes: u64 = told.iter().map(|ends| ends.response_bytes).sum();
        assert!(bytes < u64::try_from(said(name, Side::Server).len()).unwrap());
    }
}

#[test]
fn a_file_is_part_of_its_statement() {
    let link = play("infile", || usize::MAX);
    let load = link.asked().iter().position(|asked| asked.sql.starts_with("load")).unwrap();
    let ends = ends(&link)[load];
    assert_eq!((ends.affected, ends.error), (2, None));
    assert!(ends.request_bytes > 80);
}

#[test]
fn a_driver_that_changes_everything_is_followed() {
    let told = play("connector", || usize::MAX).told();
    let reset = told.iter().position(|event| *event == Event::SessionReset).unwrap();
    let changed = told.iter().position(|event| matches!(event, Event::UserChanged(_))).unwrap();
    assert!(reset < changed);
    let Event::UserChanged(login) = &told[changed] else { unreachable!() };
    assert_eq!((login.user.as_str(), login.database.as_deref()), ("bob", Some("other")));
    let told = play("pymysql", || usize::MAX).told();
    assert!(told.contains(&Event::DatabaseChanged { database: "other".into() }), "{told:?}");
}

#[test]
fn statements_sent_ahead_are_known_by_what_was_prepared() {
    for name in ["commands_old", "commands_new", "commands_cached"] {
        let link = play(name, || usize::MAX);
        let asked = link.asked();
        let commands: Vec<_> = asked.iter().map(|asked| asked.command).collect();
        assert_eq!(commands[..3], [Command::Prepare, Command::Execute, Command::Query], "{name}");
        let ends = ends(&link);
        assert_eq!((asked[1].template, ends[1].rows), (Some(1), 3), "{name}");
        // Again, by its id; then with a cursor, from which two rows and one are fetched.
        let again: Vec<_> = asked[3..8].iter().map(|asked| (asked.command, asked.template)).collect();
        let (execute, fetch) = ((Command::Execute, Some(1)), (Command::Fetch, Some(1)));
        assert_eq!(again, [execute, execute, execute, fetch, fetch], "{name}");
        let rows: Vec<_> = ends[3..8].iter().map(|ends| ends.rows).collect();
        assert_eq!(rows, [3, 3, 0, 2, 1], "{name}");
        let bulk = asked.iter().position(|asked| asked.command == Command::BulkExecute).unwrap();
        assert_eq!((asked[bulk].template, ends[bulk].affected), (Some(9), 2), "{name}");
        let several = asked.iter().position(|asked| asked.sql.starts_with("select 1; select 2")).unwrap();
        assert_eq!((ends[several].rows, ends[several].in_transaction), (2, true), "{name}");
        let call = asked.iter().position(|asked| asked.sql == "call p()").unwrap();
        assert_eq!(ends[call].rows, 2, "{name}");
        let unknown = asked.iter().position(|asked| asked.command == Command::Unknown(0x70)).unwrap();
        assert_eq!(ends[unknown].error, Some(1047), "{name}");
        assert_eq!(link.told().last(), Some(&Event::SessionReset));
    }
}
