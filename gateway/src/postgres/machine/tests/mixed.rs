//! Simple queries among messages of the extended protocol, without the `Sync` that would separate them, as pgjdbc sends
//! them (`preferQueryMode=extendedForPrepared`); and what follows an error before the `Sync`.

use super::line::{Line, done, whole};
use super::*;

fn query(text: &str) -> Vec<u8> {
    message(b'Q', format!("{text}\0").as_bytes())
}

/// Both are decided and counted by themselves, and nothing stays behind that would keep the session from being quiet: a
/// statement that has to wait is admitted to a quiet session only.
#[test]
fn a_query_in_place_of_a_sync_is_a_unit_of_its_own() {
    let call = message(b'F', &[0; 10]);
    for second in [query("select 1"), call] {
        let (mut line, flush) = (Line::new(), message(b'H', &[]));
        let begin = whole("begin");
        assert_eq!(line.client(&begin), begin);
        assert_eq!(line.client(&second), flush, "the server is asked for what it has");
        let (bound, row) = ([message(b'1', &[]), message(b'2', &[])].concat(), message(b'D', b"\0\0"));
        assert_eq!(line.server(&[&bound[..], &row].concat()), b"", "it is asked once");
        assert_eq!((line.decider.asked.len(), line.machine.in_transaction()), (1, false));
        assert_eq!(line.server(&done("BEGIN")), second);
        assert_eq!((line.decider.asked.len(), line.ended()), (2, vec![(Some(1), 1)]));
        assert!(line.machine.in_transaction(), "it may be: the server has not said yet");
        let reply = [row.repeat(2), done("SELECT 2"), ready(b'I')].concat();
        line.server(&reply);
        assert_eq!(line.ended(), [(Some(2), 2)]);
        assert!(line.machine.is_quiet() && !line.machine.in_transaction());
        assert_eq!(line.told, [&bound[..], &row, &done("BEGIN"), &reply].concat());
    }
}

/// Else the server keeps its replies, and both wait for ever.
#[test]
fn the_server_is_asked_for_what_it_has_each_time_that_a_query_waits() {
    let (mut line, flush) = (Line::new(), message(b'H', &[]));
    let bound = [message(b'1', &[]), message(b'2', &[])].concat();
    for number in 0..3 {
        line.client(&whole("select 1"));
        assert_eq!(line.client(&query("select 2")), flush, "{number}");
        assert_eq!(line.server(&[&bound[..], &done("SELECT 1")].concat()), query("select 2"));
        line.server(&[done("SELECT 1"), ready(b'I')].concat());
        assert_eq!(line.ended().len(), 2);
    }
}

/// Only the server knows the state of the transaction, so that the gateway's answer ends as the server says.
#[test]
fn an_answer_of_the_gateway_in_place_of_a_sync_ends_with_the_server_s_word() {
    let (mut line, close) = (Line::new(), message(b'C', b"Sx\0"));
    line.client(&[whole("begin"), close].concat());
    let (sync, flush) = (message(b'S', &[]), message(b'H', &[]));
    assert_eq!(line.client(&query("own")), flush);
    let begun = [message(b'1', &[]), message(b'2', &[]), done("BEGIN"), message(b'3', &[])].concat();
    assert_eq!(line.server(&begun), sync);
    let no = message(b'E', b"no\0");
    assert_eq!(line.told, [&begun[..], &no].concat());
    line.server(&ready(b'T'));
    assert_eq!(line.told, [&begun[..], &no, &ready(b'T')].concat());
    assert_eq!(line.ended(), [(Some(1), 0), (None, 0)]);
    assert!(line.machine.is_quiet() && line.machine.in_transaction());
    // From here on the state is known.
    assert_eq!(line.client(&query("own")), b"");
    line.server(b"");
    assert!(line.told.ends_with(&[no, ready(b'T')].concat()));
}

/// So does the server: neither a query nor a statement of the gateway's own runs, and no name is given.
#[test]
fn after_an_error_of_the_server_nothing_is_decided_before_the_sync() {
    let mut line = Line::new();
    let flush = message(b'H', &[]);
    line.client(&[parse("", "selec"), flush].concat());
    let failed = message(b'E', b"C42601\0\0");
    line.server(&failed);
    let own = [parse("o", "own"), bind("p", "o"), message(b'D', b"Pp\0"), execute("p")].concat();
    let closes = [message(b'C', b"So\0"), message(b'F', &[0; 10])].concat();
    let skipped = [own, query("select 1"), query("own"), whole("select 2"), closes].concat();
    assert_eq!(line.client(&skipped), skipped);
    assert_eq!((line.asks, line.told.clone()), (1, failed.clone()), "but for the first");
    let sync = message(b'S', &[]);
    assert_eq!(line.client(&sync), sync);
    line.server(&ready(b'I'));
    assert_eq!(line.ended(), [(None, 0)]);
    assert!(line.machine.is_quiet() && line.machine.wire.statements.get(b"o").is_none());
    assert_eq!(line.told, [failed, ready(b'I')].concat());
    line.client(&[whole("select 3"), sync].concat());
    assert_eq!(line.decider.asked, ["SELECT ?"], "what follows is judged again");
}
