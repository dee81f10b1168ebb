//! Lists of rules in parts, and the bound of those who follow them.

use tidegate_proto::v1;

use super::*;
use crate::statements::testing::{Stage, similar};

#[test]
fn parts_of_any_size_are_together_the_whole_list_once() {
    let stage = Stage::new();
    let groups = ["a", "b", "c"];
    groups.iter().for_each(|name| stage.ruled(name, "", 0));
    (1..=4).for_each(|id| stage.put(id, similar("a", id)));
    for most in 1..=8 {
        let (mut from, mut all) = (Told::default(), RulesView::default());
        // One more part than the smallest take, which is empty.
        for _ in 0..8 {
            let part = stage.calls().rules(from, most);
            let size = part.groups.len() + part.watches.len();
            assert!(size <= most, "{size} in a part of {most}");
            from = from.and(&part);
            all.groups.extend(part.groups);
            all.watches.extend(part.watches);
        }
        let names: Vec<&str> = all.groups.iter().map(|rule| rule.group.as_str()).collect();
        let ids: Vec<u64> = all.watches.iter().map(|watch| watch.id).collect();
        assert_eq!((names, ids), (groups.to_vec(), vec![1, 2, 3, 4]), "parts of {most}");
    }
}

#[test]
fn those_who_follow_are_bounded_and_one_that_ends_makes_room() {
    let stage = Stage::new();
    let mut all: Vec<_> = (0..MAX_WATCHERS).map(|_| stage.calls().follow_rules().unwrap()).collect();
    assert!(matches!(stage.calls().follow_rules(), Err(WatchError::TooMany)));
    all.pop();
    assert!(stage.calls().follow_rules().is_ok());
}

#[test]
fn a_watch_is_told_until_it_ends() {
    let stage = Stage::new();
    let now = stage.service.clock().unix_ms();
    stage.put(1, v1::Watch { end_unix_ms: now + 5_000, ..similar("default", 1) });
    stage.put(2, similar("default", 2));
    stage.put(3, v1::Watch { end_unix_ms: now + 9_000, ..similar("default", 3) });
    let told = || -> Vec<u64> {
        stage.calls().rules(Told::default(), 8).watches.iter().map(|watch| watch.id).collect()
    };
    stage.pass_ms(4_999);
    assert_eq!(told(), [1, 2, 3]);
    // Before anything has looked for those that are over.
    stage.pass_ms(1);
    assert_eq!(told(), [2, 3]);
    stage.pass_ms(4_000);
    assert_eq!(told(), [2]);
}
