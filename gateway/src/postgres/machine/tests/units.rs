//! Which statements are judged, what they are counted with, and what ends them.

use super::line::{Line, bound, done, sync, whole};
use super::*;

fn row() -> Vec<u8> {
    message(b'D', b"\0\0")
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap()
}

/// The units that have ended.
fn units(line: &mut Line) -> Vec<Unit<u32>> {
    let ended = line.events.drain(..).map(|event| match event {
        Event::Ended(unit) => unit,
        event => panic!("{event:?}"),
    });
    ended.collect()
}

#[test]
fn each_unit_is_judged_and_counted_with_its_own_bytes_and_rows() {
    let mut line = Line::new();
    let sent = [
        [whole("select a"), sync()].concat(),
        message(b'Q', b"select b\0"),
        message(b'F', &[0; 12]),
        [whole("select c"), sync()].concat(),
    ];
    assert_eq!(line.client(&sent.concat()), sent.concat());
    assert_eq!(line.decider.asked, ["SELECT a", "select b", "", "SELECT c"]);
    let said = [
        [bound(), row().repeat(3), done("SELECT 3"), ready(b'I')].concat(),
        [message(b'T', b"\0\0"), row(), done("SELECT 1"), ready(b'I')].concat(),
        [message(b'V', &[0; 8]), ready(b'I')].concat(),
        [bound(), row().repeat(2), done("SELECT 2"), ready(b'I')].concat(),
    ];
    for said in &said {
        line.server(said);
    }
    let units = units(&mut line);
    assert_eq!(units.iter().map(|unit| unit.running).collect::<Vec<_>>(), [1, 2, 3, 4].map(Some));
    let rows: Vec<u64> = units.iter().map(|unit| unit.progress.sent_rows).collect();
    assert_eq!(rows, [3, 1, 0, 2]);
    // The `ReadyForQuery` of a unit, and of the login, is counted with the next one, and the login with none.
    for ((unit, sent), said) in units.iter().zip(&sent).zip(&said) {
        assert_eq!((unit.progress.bytes_in, unit.progress.bytes_out), (length(sent), length(said)));
    }
}

/// Bytes and rows of what was not admitted are the next statement's, once.
#[test]
fn what_belongs_to_no_statement_is_counted_with_the_next() {
    let mut line = Line::new();
    let alone = [parse("s", "select a"), sync()].concat();
    line.client(&alone);
    assert!(!line.machine.is_quiet(), "its `Sync` is not answered");
    let (parsed, run) = ([message(b'1', &[]), ready(b'I')].concat(), [bind("", "s"), execute(""), sync()]);
    line.server(&parsed);
    assert!(line.machine.is_quiet());
    let ran = [message(b'2', &[]), done("SELECT 0"), ready(b'I')].concat();
    for _ in 0..2 {
        line.client(&run.concat());
        line.server(&ran);
    }
    let run = length(&run.concat());
    let counted: Vec<(u64, u64)> = units(&mut line)
        .iter()
        .skip(1)
        .map(|unit| (unit.progress.bytes_in, unit.progress.bytes_out))
        .collect();
    let carried = (length(&alone), length(&parsed));
    assert_eq!(counted, [(run + carried.0, length(&ran) + carried.1), (run, length(&ran))]);
}

/// As when a driver prepares a text with an error in it, which the server has read and answered all the same.
#[test]
fn what_failed_before_a_statement_ran_is_counted_with_the_next() {
    let mut line = Line::new();
    let (failing, run) = ([parse("s", "selec a"), sync()].concat(), [whole("select a"), sync()].concat());
    let refused = [message(b'E', b"SERROR\0C42601\0Msyntax error\0\0"), ready(b'I')].concat();
    let ran = [bound(), done("SELECT 0"), ready(b'I')].concat();
    // Twice, for more than one may fail before the next runs.
    for (said, answered) in [(&failing, &refused), (&failing, &refused), (&run, &ran), (&run, &ran)] {
        line.client(said);
        line.server(answered);
    }
    let units = units(&mut line);
    let how: Vec<_> = units.iter().map(|unit| (unit.running, unit.failed)).collect();
    assert_eq!(how, [(None, true), (None, true), (Some(1), false), (Some(2), false)]);
    let counted: Vec<_> =
        units.iter().skip(2).map(|unit| (unit.progress.bytes_in, unit.progress.bytes_out)).collect();
    let own = (length(&run), length(&ran));
    let carried = (2 * length(&failing), 2 * length(&refused));
    assert_eq!(counted, [(own.0 + carried.0, own.1 + carried.1), own]);
}

/// As drivers send to see whether the connection lives.
#[test]
fn a_lone_sync_is_a_unit_and_ends_no_other() {
    let mut line = Line::new();
    line.client(&[sync(), message(b'Q', b"select a\0"), sync()].concat());
    line.server(&ready(b'I'));
    line.server(&[row(), done("SELECT 1"), ready(b'I')].concat());
    line.server(&ready(b'I'));
    assert_eq!(line.ended(), [(None, 0), (Some(1), 1), (None, 0)]);
    assert!(line.machine.is_quiet());
}

#[test]
fn a_session_is_quiet_when_nothing_awaits_the_server_s_word() {
    let mut line = Line::new();
    // Nothing that runs, and no `Sync` to answer.
    line.client(&parse("", "select a"));
    assert!(line.machine.is_quiet());
    line.decider.refuse = true;
    line.client(&[bind("", ""), execute(""), sync()].concat());
    assert!(!line.machine.is_quiet(), "the `Sync` of what was refused");
    line.server(&[bound(), ready(b'I')].concat());
    assert!(line.machine.is_quiet());
    // The next unit is not dropped with it.
    line.decider.refuse = false;
    let next = [whole("select b"), sync()].concat();
    assert_eq!(line.client(&next), next);
}

/// What the server skips is not judged, and what follows the `Sync` is.
#[test]
fn after_an_error_the_next_unit_is_judged_again() {
    for ends in [vec![sync()], vec![message(b'H', &[]), sync()]] {
        let mut line = Line::new();
        line.client(&[whole("select a"), message(b'H', &[])].concat());
        line.server(&[bound(), message(b'E', b"C22012\0\0")].concat());
        line.client(&[whole("select b"), ends.concat()].concat());
        assert_eq!(line.decider.asked, ["SELECT a"]);
        line.client(&[whole("select c"), sync()].concat());
        assert_eq!(line.decider.asked, ["SELECT a", "SELECT c"]);
        line.server(&ready(b'I'));
        line.server(&[bound(), row(), done("SELECT 1"), ready(b'I')].concat());
        assert_eq!(line.ended(), [(Some(1), 0), (Some(2), 1)]);
    }
}

/// `DISCARD ALL` beside others counts wherever it stands. Of `RESET` the text decides.
#[test]
fn what_resets_the_session_is_noted() {
    for (text, tags, reset, runs_reset) in [
        ("reset all", &["RESET"][..], Some(Reset::Some), true),
        ("reset work_mem", &["RESET"], Some(Reset::Some), false),
        ("discard all", &["DISCARD ALL"], Some(Reset::All), false),
        ("select 1", &["SELECT 1"], None, false),
        ("explain ru reset all", &["RESET"], Some(Reset::Some), false),
    ] {
        let mut line = Line::new();
        line.client(&[whole(text), sync()].concat());
        line.server(&[bound(), tags.iter().flat_map(|tag| done(tag)).collect(), ready(b'I')].concat());
        let unit = units(&mut line).pop().unwrap();
        assert_eq!((unit.reset, unit.runs_reset), (reset, runs_reset), "{text}");
    }
    for tags in [["RESET", "DISCARD ALL"], ["DISCARD ALL", "RESET"], ["DISCARD ALL", "SELECT 1"]] {
        let mut line = Line::new();
        line.client(&message(b'Q', b"two statements\0"));
        line.server(&[done(tags[0]), done(tags[1]), ready(b'I')].concat());
        assert_eq!(units(&mut line).pop().unwrap().reset, Some(Reset::All), "{tags:?}");
    }
}

/// The server resets all whatever else the unit does.
#[test]
fn a_prepared_reset_of_all_counts_wherever_it_stands() {
    for texts in [["reset all", "reset work_mem"], ["reset work_mem", "reset all"], ["reset all", "select 1"]]
    {
        let mut line = Line::new();
        line.client(&[whole(texts[0]), whole(texts[1]), sync()].concat());
        let ran = texts.iter().flat_map(|_| [bound(), done("RESET")].concat()).collect();
        line.server(&[ran, ready(b'I')].concat());
        assert!(units(&mut line).pop().unwrap().runs_reset, "{texts:?}");
    }
}

/// A statement that is to be ended may fail by itself first.
#[test]
fn another_error_of_a_killed_statement_is_the_server_s() {
    let mut line = Line::new();
    line.client(&message(b'Q', b"select 1\0"));
    line.machine.kill(b"ours".to_vec());
    let failed = [message(b'E', b"SERROR\0C22012\0\0"), ready(b'I')].concat();
    line.server(&failed);
    assert_eq!(line.told, failed);
}

/// As of a cursor: its unit begins with the `Execute`.
#[test]
fn a_portal_that_goes_on_in_another_unit_is_judged_again() {
    let mut line = Line::new();
    let goes_on = [execute(""), sync()].concat();
    line.client(&[whole("select a"), sync(), goes_on.clone(), goes_on].concat());
    assert_eq!(line.decider.asked, ["SELECT a", "SELECT a", "SELECT a"]);
}
