//! Data that is copied in: which `Sync` the server reads over, and what is judged by itself behind it.

use super::line::{Line, bound, done, sync, whole};
use super::*;

fn wants_data() -> Vec<u8> {
    message(b'G', b"\0\0\0")
}

fn data() -> Vec<u8> {
    message(b'd', b"1\n")
}

/// A unit behind the copied data, sent ahead of the server's answer, is one of its own: it is judged, and ends by itself.
#[test]
fn what_follows_copied_data_is_judged_by_itself() {
    let copy = message(b'Q', b"copy t from stdin\0");
    let extended = whole("copy t from stdin");
    for (begins, says, ends) in [
        (copy.clone(), wants_data(), Vec::new()),
        ([&extended[..], &sync()].concat(), [bound(), wants_data()].concat(), sync()),
        (extended.clone(), [bound(), wants_data()].concat(), sync()),
    ] {
        for end in [message(b'c', &[]), message(b'f', b"no\0")] {
            let mut line = Line::new();
            line.client(&begins);
            line.server(&says);
            // While data is on its way the server reads over this.
            line.client(&[sync(), data(), end.clone(), ends.clone()].concat());
            for text in ["select a", "select b"] {
                line.client(&[whole(text), sync()].concat());
            }
            assert_eq!(line.decider.asked.len(), 3, "{:?}", line.decider.asked);
            line.server(&[done("COPY 1"), ready(b'I')].concat());
            assert_eq!(line.ended(), [(Some(1), 0)]);
            for number in [2, 3] {
                assert!(!line.machine.is_quiet());
                line.server(&[bound(), message(b'D', b"\0\0"), done("SELECT 1"), ready(b'I')].concat());
                assert_eq!(line.ended().pop().map(|(_, rows)| rows), Some(1), "{number}");
            }
            assert!(line.machine.is_quiet());
            // Nothing else is awaited: an answer of the gateway is due at once.
            line.told.clear();
            line.client(&message(b'Q', b"own\0"));
            line.server(b"");
            assert_eq!(line.told, [message(b'E', b"no\0"), ready(b'I')].concat());
        }
    }
}

/// The server is not at the data any more, and the next `Sync` is one that it answers.
#[test]
fn a_sync_behind_a_copy_that_failed_is_answered() {
    fails_and_goes_on(&[data(), message(b'c', &[]), sync()].concat());
    fails_and_goes_on(&sync());
}

fn fails_and_goes_on(behind: &[u8]) {
    let mut line = Line::new();
    line.client(&whole("copy t from stdin"));
    line.server(&[bound(), wants_data()].concat());
    line.client(&data());
    line.server(&message(b'E', b"C22P04\0\0"));
    line.client(behind);
    for text in ["select a", "select b"] {
        line.client(&[whole(text), sync()].concat());
    }
    assert_eq!(line.decider.asked.len(), 3, "{:?}", line.decider.asked);
    line.server(&ready(b'I'));
    for _ in 0..2 {
        line.server(&[bound(), done("SELECT 0"), ready(b'I')].concat());
    }
    assert_eq!(line.ended(), [(Some(1), 0), (Some(2), 0), (Some(3), 0)]);
    assert!(line.machine.is_quiet());
}

/// All of the data may be on its way before the server asks for it. It then asks for nothing more, and however long the
/// rest of the text takes, units behind it are judged and counted one by one.
#[test]
fn data_sent_ahead_leaves_no_unit_unjudged() {
    let end = message(b'c', &[]);
    for (begins, says) in [
        (message(b'Q', b"copy t from stdin; select pg_sleep(60)\0"), Vec::new()),
        (whole("copy t from stdin"), bound()),
    ] {
        let mut line = Line::new();
        line.client(&[begins, data(), end.clone()].concat());
        if !says.is_empty() {
            line.client(&sync());
        }
        line.server(&[says, wants_data(), done("COPY 1")].concat());
        for text in ["select a", "select b", "select c"] {
            line.client(&[whole(text), sync()].concat());
        }
        assert_eq!(line.decider.asked.len(), 4, "{:?}", line.decider.asked);
        line.server(&ready(b'I'));
        for _ in 0..3 {
            line.server(&[bound(), done("SELECT 0"), ready(b'I')].concat());
        }
        assert_eq!(line.ended(), [(Some(1), 0), (Some(2), 0), (Some(3), 0), (Some(4), 0)]);
        assert!(line.machine.is_quiet());
    }
}

/// Of two copies in one text the second may be fed later.
#[test]
fn data_sent_ahead_is_for_one_copy() {
    let mut line = Line::new();
    let (copies, end) = (message(b'Q', b"copy t from stdin; copy u from stdin\0"), message(b'c', &[]));
    line.client(&[copies, data(), end.clone()].concat());
    line.server(&[wants_data(), done("COPY 1"), wants_data()].concat());
    // The server reads over this, so that the statement behind it is not one of another unit.
    line.client(&[sync(), data(), end].concat());
    line.client(&[whole("select a"), sync()].concat());
    line.server(&[done("COPY 1"), ready(b'I')].concat());
    line.server(&[bound(), done("SELECT 0"), ready(b'I')].concat());
    assert_eq!(line.ended(), [(Some(1), 0), (Some(2), 0)]);
    assert!(line.machine.is_quiet());
}

/// The server reads over the `Sync` and takes what is behind it for data, until that fails or ends: the next
/// `ReadyForQuery` ends all that was sent up to it.
#[test]
fn what_is_sent_behind_a_copy_instead_of_data_ends_with_it() {
    let copy = [whole("copy t from stdin"), sync()].concat();
    let fails = [message(b'E', b"C08P01\0\0"), ready(b'I')].concat();
    let copied = [done("COPY 1"), ready(b'I')].concat();
    for (behind, says, ended) in [
        (whole("select a"), &fails, vec![(Some(1), 0), (Some(2), 0)]),
        (message(b'Q', b"select a\0"), &fails, vec![(Some(1), 0), (Some(2), 0), (None, 0)]),
        ([data(), message(b'c', &[])].concat(), &copied, vec![(Some(1), 0), (None, 0)]),
    ] {
        let mut line = Line::new();
        line.client(&[copy.clone(), behind, sync()].concat());
        line.server(&[bound(), wants_data()].concat());
        for text in ["select b", "select c"] {
            line.client(&[whole(text), sync()].concat());
        }
        let before = u32::try_from(ended.iter().flat_map(|(running, _)| running).count()).unwrap();
        assert_eq!(line.decider.next, before + 2, "each is judged by itself");
        line.server(says);
        assert_eq!(line.ended(), ended);
        for number in [before + 1, before + 2] {
            line.server(&[bound(), message(b'D', b"\0\0"), done("SELECT 1"), ready(b'I')].concat());
            assert_eq!(line.ended(), [(Some(number), 1)]);
        }
        assert!(line.machine.is_quiet());
    }
}
