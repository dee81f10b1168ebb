//! What is skipped up to a `Sync` after an error of the gateway or of the server, and what is judged behind that.

use super::line::{Line, bound, done, sync, whole};
use super::*;

fn query(text: &str) -> Vec<u8> {
    message(b'Q', format!("{text}\0").as_bytes())
}

/// As the server does after an error of its own, whatever ran before in the unit.
#[test]
fn behind_a_refusal_nothing_goes_on_before_the_sync() {
    for admitted in [whole("select a"), Vec::new()] {
        let mut line = Line::new();
        let explained = [parse("", "explain ru select b"), bind("", "")].concat();
        line.client(&[admitted.clone(), explained, execute_for(1)].concat());
        let asked = line.decider.asked.len();
        let own = [parse("o", "own"), bind("p", "o"), execute("p")].concat();
        let skipped = [whole("select c"), query("select d"), own, message(b'F', &[0; 10])].concat();
        assert_eq!((line.client(&skipped), line.decider.asked.len()), (Vec::new(), asked));
        assert_eq!(line.client(&sync()), sync());
        let next = [whole("select e"), sync()].concat();
        assert_eq!((line.client(&next), line.decider.asked.len()), (next, asked + 1));
    }
}

/// Both errors are of one unit, of which the client hears the first one, and both end with its `Sync`.
#[test]
fn a_unit_that_is_refused_and_fails_at_the_server_ends_with_its_sync() {
    let mut line = Line::new();
    line.decider.refuse = true;
    line.client(&whole("select a"));
    line.decider.refuse = false;
    let failed = [message(b'1', &[]), message(b'E', b"C22P02\0\0")].concat();
    line.server(&failed);
    assert_eq!(line.client(&[query("select b"), sync()].concat()), sync());
    let next = [whole("select c"), sync()].concat();
    assert_eq!(line.client(&next), next);
    line.server(&[ready(b'I'), bound(), done("SELECT 0"), ready(b'I')].concat());
    assert_eq!(line.told, [failed, ready(b'I'), bound(), done("SELECT 0"), ready(b'I')].concat());
    assert_eq!((line.decider.asked.len(), line.ended()), (2, vec![(None, 0), (Some(2), 0)]));
    assert!(line.machine.is_quiet());
}

/// The error ends all that the server took for data, and its `Sync` was sent.
#[test]
fn what_comes_while_a_copy_that_failed_ends_is_judged() {
    let mut line = Line::new();
    line.client(&[whole("copy t from stdin"), sync(), whole("select a"), sync()].concat());
    line.server(&[bound(), message(b'G', b"\0\0\0"), message(b'E', b"C08P01\0\0")].concat());
    line.client(&[whole("select b"), sync()].concat());
    assert_eq!(line.decider.asked.len(), 3);
    line.server(&ready(b'I'));
    assert_eq!(line.ended(), [(Some(1), 0), (Some(2), 0)]);
    line.server(&[bound(), done("SELECT 0"), ready(b'I')].concat());
    assert_eq!(line.ended(), [(Some(3), 0)]);
}

/// Nothing is awaited of the server any more.
#[test]
fn an_answer_of_the_gateway_behind_what_was_sent_in_place_of_copied_data_is_due_at_once() {
    let mut line = Line::new();
    line.client(&[whole("copy t from stdin"), sync(), whole("select a"), sync()].concat());
    line.server(&[bound(), message(b'G', b"\0\0\0"), done("COPY 0"), ready(b'I')].concat());
    assert!(line.machine.is_quiet());
    line.told.clear();
    line.client(&query("own"));
    line.server(b"");
    assert_eq!(line.told, [message(b'E', b"no\0"), ready(b'I')].concat());
}
