//! Which ids incarnations get, which are folded or forgotten, and what must be stored of them.

use std::collections::BTreeSet;

use tidegate_core::group::ClientId;

use crate::leasing::clients::{ClientError, Clients, StoredClient, Tombstone};
use crate::limits::{FOLD_AFTER_MS, FOLD_BATCH, MAX_CLIENTS, MAX_FOLDED_AHEAD, MAX_INCARNATIONS};

/// A moment in 2026, and a start then.
const NOW_MS: u64 = 1_795_000_000_000;
const START: u64 = NOW_MS * 1_000;
const DAY: u64 = 86_400_000_000;

fn row(name: &str, incarnation: u64, heard_unix_ms: u64) -> StoredClient {
    StoredClient { name: name.to_owned(), incarnation, heard_unix_ms, replaced: false }
}

fn leaving(clients: &Clients) -> Vec<(ClientId, StoredClient)> {
    clients.leaving().map(|(id, stored)| (id, stored.clone())).collect()
}

/// Consumption is kept by id: one that another incarnation had would mix what two nodes used.
#[test]
fn no_incarnation_gets_the_id_of_another_or_that_of_nobody() {
    let mut clients = Clients::new(0);
    assert_eq!(clients.identify("a", 1, 0), Ok(ClientId(1)), "0 is nobody's");
    for (stored_next, expected) in [(1, 8), (7, 8), (20, 20)] {
        let mut clients = Clients::new(stored_next);
        clients.load(ClientId(7), row("a", 1, 0));
        clients.load(ClientId(3), row("b", 1, 0));
        assert_eq!(clients.next_id(), expected);
        assert_eq!(clients.identify("a", 2, 0), Ok(ClientId(expected)));
        assert_eq!(clients.identify("a", 1, 0), Ok(ClientId(7)), "what is stored is known");
    }
}

#[test]
fn a_stored_tombstone_refuses_all_starts_below_it_and_no_other() {
    let mut clients = Clients::new(1);
    clients.load_tombstone("a".to_owned(), Tombstone::Below(START), NOW_MS);
    for late in [1, START - 2, START - 1] {
        let refused = clients.identify("a", late, NOW_MS);
        assert!(matches!(refused, Err(ClientError::Folded { oldest: START, .. })), "{late}: {refused:?}");
    }
    assert!(clients.identify("a", START, NOW_MS).is_ok());
}

/// What was folded alone would be counted twice, also where it is the oldest that may report otherwise.
#[test]
fn a_stored_tombstone_of_one_start_refuses_that_one_whatever_else_is_refused() {
    for (only, refused) in [(START - 1, START - 1), (START, START), (START + 5, START + 5)] {
        let tombstones = [Tombstone::Below(START), Tombstone::Only(only)];
        for order in [[0, 1], [1, 0]] {
            let mut clients = Clients::new(1);
            for at in order {
                clients.load_tombstone("a".to_owned(), tombstones[at], NOW_MS);
            }
            let reports = clients.identify("a", refused, NOW_MS);
            assert!(matches!(reports, Err(ClientError::Folded { .. })), "{only}, {order:?}: {reports:?}");
            assert!(clients.identify("a", START + 1, NOW_MS).is_ok());
        }
    }
}

#[test]
fn only_incarnations_with_a_stream_count_as_connected() {
    let mut clients = Clients::new(1);
    let first = clients.hello("a", 1, "x", 0).unwrap();
    clients.identify("a", 2, 0).unwrap();
    let third = clients.hello("a", 3, "x", 0).unwrap();
    assert_eq!(clients.connected_siblings(third), [first]);
    clients.disconnect(first);
    assert_eq!(clients.connected_siblings(third), []);
    // Forgetting ends streams that are open.
    assert_eq!(clients.connected(), 1);
    clients.forget("a", NOW_MS).unwrap();
    assert_eq!(clients.connected(), 0);
}

#[test]
fn of_too_many_incarnations_those_that_were_silent_longest_are_folded_and_no_others() {
    let mut clients = Clients::new(1);
    let most = MAX_INCARNATIONS as u64;
    // In no order: the one with number 7 k was heard at the moment k, modulo a prime above the number of them.
    for number in 0..most {
        clients.identify("a", START + number, number * 7 % 100_003 + 10).unwrap();
    }
    assert_eq!(clients.foldable(FOLD_AFTER_MS), [], "as many as there may be");
    let silent: Vec<_> = [3, 1, 2].map(|heard| clients.identify("b", START + heard, heard).unwrap()).into();
    assert_eq!(clients.foldable(FOLD_AFTER_MS), [silent[1], silent[2], silent[0]]);
    clients.hello("b", START + 3, "x", NOW_MS).unwrap();
    let folded = clients.foldable(FOLD_AFTER_MS);
    assert!(folded.len() == 3 && !folded.contains(&silent[0]), "one with a stream is not silent");
}

/// Beyond, a node could fill the disk with the starts of a wrong clock.
#[test]
fn a_node_keeps_a_start_ahead_of_the_clock_for_which_there_is_no_tombstone_left() {
    let mut clients = Clients::new(1);
    for folded in 1..=MAX_FOLDED_AHEAD as u64 {
        let wrong = clients.identify("a", START + 30 * DAY + folded, NOW_MS).unwrap();
        let (_, tombstone, ids) = clients.fold(wrong, NOW_MS).unwrap();
        assert_eq!((tombstone, ids), (Tombstone::Only(START + 30 * DAY + folded), vec![wrong]));
        assert_eq!((clients.get(wrong), clients.iter().count()), (None, 0), "it is forgotten");
    }
    let wrong = clients.identify("a", START + 99 * DAY, NOW_MS).unwrap();
    assert_eq!(clients.fold(wrong, NOW_MS), None);
    assert!(clients.get(wrong).is_some() && clients.identify("a", START + 99 * DAY, NOW_MS) == Ok(wrong));
    assert!(!clients.has_room_to_forget("a", NOW_MS));
    // However many starts were not ahead of the clock, they take one tombstone.
    let mut clients = Clients::new(1);
    for number in 0..=MAX_FOLDED_AHEAD as u64 {
        clients.identify("a", START - number, NOW_MS).unwrap();
    }
    assert!(clients.has_room_to_forget("a", NOW_MS));
}

#[test]
fn a_forgotten_node_leaves_only_the_tombstones_that_it_needs() {
    let mut clients = Clients::new(1);
    clients.identify("a", START, NOW_MS).unwrap();
    let (tombstones, _) = clients.forget("a", NOW_MS).unwrap();
    assert_eq!(tombstones, [Tombstone::Below(START + 1)], "the clock shows its number: it is not ahead");
    clients.identify("b", START + 1_000, NOW_MS).unwrap();
    let (tombstones, _) = clients.forget("b", NOW_MS).unwrap();
    assert_eq!(tombstones, [Tombstone::Only(START + 1_000)]);
}

/// Rows of an incarnation that is not on disk would be another's after a crash.
#[test]
fn what_is_forgotten_before_it_was_stored_is_stored_until_its_rows_are_folded() {
    let mut clients = Clients::new(1);
    clients.load(ClientId(5), row("stored", 1, 9));
    assert_eq!(clients.unstored(ClientId(5)), None, "it is on disk");
    assert_eq!(clients.get(ClientId(5)).unwrap().stored_unix_ms, Some(9));
    let fresh = ["one", "two", "three"].map(|name| clients.identify(name, 1, 9).unwrap());
    assert_eq!(clients.unstored(fresh[0]), Some(row("one", 1, 9)));
    clients.forget("stored", NOW_MS).unwrap();
    assert_eq!((leaving(&clients), clients.unstored(ClientId(5))), (Vec::new(), None));
    for name in ["one", "two", "three"] {
        clients.forget(name, NOW_MS).unwrap();
    }
    let rows = [(fresh[0], row("one", 1, 9)), (fresh[1], row("two", 1, 9)), (fresh[2], row("three", 1, 9))];
    assert_eq!(leaving(&clients), rows);
    assert_eq!(clients.unstored(fresh[1]), Some(row("two", 1, 9)), "it is known still");
    clients.left(&BTreeSet::from([fresh[1]]));
    assert_eq!(leaving(&clients), [rows[0].clone(), rows[2].clone()]);
    clients.stored_leaving(fresh[2]);
    assert_eq!(leaving(&clients), [rows[0].clone()]);
    assert_eq!(clients.unstored(fresh[1]), None);
}

/// The node runs on under the lower number, and must be let in again and not be folded with the other.
#[test]
fn a_start_that_was_replaced_stays_so_when_time_has_reached_its_number() {
    let wrong_number = START + 3 * DAY;
    let mut clients = Clients::new(1);
    let wrong = clients.hello("a", wrong_number, "x", NOW_MS).unwrap();
    let right = clients.hello("a", START, "x", NOW_MS).unwrap();
    assert_eq!(clients.older_siblings(right), [wrong], "it follows that one");
    clients.disconnect(wrong);
    let (row, kept) = (clients.unstored(wrong).unwrap(), clients.unstored(right).unwrap());
    assert!(row.replaced && !kept.replaced);
    let mut loaded = Clients::new(9);
    for (id, stored) in [(wrong, row), (right, kept)] {
        let stored = serde_json::from_slice(&serde_json::to_vec(&stored).unwrap()).unwrap();
        loaded.load(id, stored);
    }
    // A day before the number it does not count as ahead any more.
    let later_ms = NOW_MS + 5 * DAY / 2_000;
    for mut clients in [clients, loaded] {
        assert_eq!(clients.hello("a", START, "x", later_ms), Ok(right));
        let refused = clients.hello("a", wrong_number, "x", later_ms);
        assert!(matches!(refused, Err(ClientError::Older { newest: START, .. })), "{refused:?}");
        let silent_ms = NOW_MS + FOLD_AFTER_MS + 1;
        assert_eq!(clients.foldable(silent_ms), [wrong]);
        let folded = clients.fold(wrong, silent_ms);
        assert_eq!(folded, Some(("a".to_owned(), Tombstone::Only(wrong_number), vec![wrong])));
        assert_eq!(clients.hello("a", START, "x", silent_ms), Ok(right));
        assert!(clients.hello("a", START + DAY, "x", silent_ms).is_ok(), "nor is the next one shut out");
    }
}

/// A node that starts again and again under a wrong clock must not keep all others from being folded.
#[test]
fn starts_for_whose_tombstones_there_is_no_room_do_not_stand_before_others() {
    let mut clients = Clients::new(1);
    let fold = |clients: &mut Clients, number: u64| {
        let wrong = clients.identify("a", START + 999 * DAY + number, NOW_MS).unwrap();
        clients.fold(wrong, NOW_MS)
    };
    let starts = MAX_FOLDED_AHEAD + FOLD_BATCH;
    let folded = (0..starts as u64).filter(|number| fold(&mut clients, *number).is_some()).count();
    assert_eq!(folded, MAX_FOLDED_AHEAD);
    let silent = clients.identify("b", START, NOW_MS).unwrap();
    let folded = clients.foldable(NOW_MS + FOLD_AFTER_MS + 1);
    assert_eq!(folded, [silent]);
    // When time has reached their numbers, they need no tombstone each.
    let then_ms = NOW_MS + 1_000 * DAY / 1_000;
    assert_eq!(clients.foldable(then_ms).len(), FOLD_BATCH);
}

#[test]
fn a_start_that_is_refused_because_too_many_are_connected_replaces_none() {
    let mut clients = Clients::new(1);
    let wrong = clients.hello("a", START + 3 * DAY, "x", NOW_MS).unwrap();
    for node in 1..MAX_CLIENTS {
        clients.hello(&format!("n{node}"), START, "x", NOW_MS).unwrap();
    }
    assert_eq!(clients.hello("a", START, "x", NOW_MS), Err(ClientError::TooMany));
    assert_eq!(clients.hello("a", START + 3 * DAY, "x", NOW_MS), Ok(wrong));
}

/// A node that is scaled down and up again for years does not run out of room.
#[test]
fn starts_that_time_has_reached_take_no_room_of_those_that_are_shut_out_alone() {
    let mut clients = Clients::new(1);
    let (number, at_ms) = (|day: u64| START + day * DAY + 60_000_000, |day: u64| NOW_MS + day * DAY / 1_000);
    let days = 2 * MAX_FOLDED_AHEAD as u64;
    for day in 0..days {
        clients.identify("a", number(day), at_ms(day)).unwrap();
        let (tombstones, _) = clients.forget("a", at_ms(day)).unwrap();
        let below = day.checked_sub(1).map(|before| Tombstone::Below(number(before) + 1));
        assert_eq!(
            tombstones,
            [Some(Tombstone::Only(number(day))), below].into_iter().flatten().collect::<Vec<_>>()
        );
    }
    for day in [0, days / 2, days - 1] {
        assert!(clients.identify("a", number(day), at_ms(days)).is_err(), "day {day}");
    }
    // Nor do those that a store has from before.
    let mut loaded = Clients::new(9);
    loaded.load_tombstone("a".to_owned(), Tombstone::Below(number(days)), at_ms(days));
    (0..days)
        .for_each(|day| loaded.load_tombstone("a".to_owned(), Tombstone::Only(number(day)), at_ms(days)));
    for mut clients in [clients, loaded] {
        let wrong = clients.identify("a", u64::MAX, at_ms(days)).unwrap();
        assert!(clients.fold(wrong, at_ms(days)).is_some());
    }
}

#[test]
fn what_is_folded_before_it_was_stored_is_stored_until_its_rows_are_folded() {
    let mut clients = Clients::new(1);
    clients.load(ClientId(5), row("a", 1, 9));
    let fresh = clients.identify("a", 2, 9).unwrap();
    let (_, _, folded) = clients.fold(fresh, NOW_MS).unwrap();
    assert_eq!((folded, leaving(&clients)), (vec![ClientId(5), fresh], vec![(fresh, row("a", 2, 9))]));
    let wrong = clients.identify("a", u64::MAX, NOW_MS).unwrap();
    clients.fold(wrong, NOW_MS).unwrap();
    assert_eq!(leaving(&clients).len(), 2, "nor is one that was folded alone on disk");
}
