//! The model keeps the rules of the store that it stands for.

mod contract;

use std::time::Duration;

use tidegate_consensus::model::Model;
use tidegate_consensus::{Consensus as _, Step, Transaction};

#[test]
fn the_model_keeps_every_rule() {
    for (rule, holds) in contract::RULES {
        println!("{rule}");
        holds(&Model::new());
    }
}

/// As a backup has it: what was made at its revision is in it.
#[test]
fn a_model_that_is_set_back_has_what_was_there_at_that_revision_and_nothing_later() {
    let model = Model::new();
    let put = |value: &str| {
        let then = vec![Step::Put(b"k".to_vec(), value.as_bytes().to_vec())];
        let put = Transaction { then, ..Transaction::default() };
        model.transact(&put, Duration::from_secs(1)).unwrap().revision
    };
    let (first, second) = (put("a"), put("b"));
    put("c");
    for (revision, value) in [(second, &b"b"[..]), (first, b"a")] {
        model.set_back(revision);
        assert_eq!(model.rows().iter().map(|row| row.value.clone()).collect::<Vec<_>>(), [value]);
        assert_eq!(model.revision(), revision);
        assert_eq!(model.changes().last().map(|change| change.revision), Some(revision));
    }
    assert_eq!(put("d"), first + 1, "revisions are used again");
}
