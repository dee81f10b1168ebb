//! What a controller believes of others: its lineage, running copies, standings, and the clocks of nodes.

use tidegate_core::units::{Span, Time};

use crate::leasing::lag::Lag;
use crate::leasing::lineage::Lineage;
use crate::leasing::proof::{KEY_BYTES, MAC_BYTES, Prover};
use crate::leasing::rivals::Rivals;
use crate::leasing::standing::{MAX_RIVALS, MAX_STANDING_BYTES, Rival, Standing, Told};

const OWN: u64 = 50;
const SECOND: u64 = 1_000_000;

fn at(seconds: u64) -> Time {
    Time(seconds * SECOND)
}

/// A standing of `instance` at a moment of its clock, that names another at a moment of that one's clock.
fn standing(instance: u64, began_unix_ms: u64, at_s: u64, named: Option<(u64, u64)>) -> Standing {
    let rivals = named.map(|(instance, at_s)| Rival { instance, at_us: at_s * SECOND });
    let (at_us, rivals) = (at_s * SECOND, rivals.into_iter().collect());
    Standing { instance, began_unix_ms, at_us, rivals, epoch: 1, longest_ttl: Span::secs(5) }
}

fn own() -> Rivals {
    Rivals::new(OWN, 1_000)
}

#[test]
fn only_starts_on_this_store_are_its_own_and_each_other_is_heard_of_by_itself() {
    let mut lineage = Lineage::default();
    lineage.begin(7, 1);
    assert!(lineage.is_own(7) && !lineage.is_own(8));
    lineage.hear(3, 5);
    assert!(!lineage.has_heard(4, 1) && lineage.has_heard(3, 5));
    // What is heard again and again takes the room of no other.
    for epoch in 6..200 {
        lineage.hear(4, epoch);
    }
    assert!(lineage.has_heard(3, 5) && lineage.has_heard(4, 199));
}

#[test]
fn a_start_before_this_one_counts_as_ended_unless_it_names_this_one() {
    let crowd = (1..=MAX_RIVALS as u64).fold(own(), |rivals, number| {
        rivals.after(&standing(200 + number, 1, 5, None), false, at(100)).unwrap()
    });
    let names_another = standing(7, 1, 5, Some((8, 90)));
    assert_eq!(crowd.after(&names_another, true, at(100)), None, "there is no room for it");
    let names_this = standing(7, 1, 5, Some((OWN, 90)));
    let said = crowd.after(&names_this, true, at(100)).unwrap().said().1;
    assert_eq!((said.len(), said.last().unwrap().instance), (MAX_RIVALS, 7), "it is forgotten last");
}

#[test]
fn a_rival_is_named_with_a_newer_moment_every_five_seconds() {
    let known = own().after(&standing(7, 1, 5, None), false, at(100)).unwrap();
    assert_eq!(known.after(&standing(7, 1, 9, None), false, at(104)), None);
    let later = known.after(&standing(7, 1, 10, None), false, at(105)).unwrap();
    assert_eq!(later.said().1, [Rival { instance: 7, at_us: 10 * SECOND }]);
}

#[test]
fn a_twin_lives_on_by_its_own_words_alone() {
    let twin = own().after(&standing(99, 2_000, 5, Some((OWN, 100))), false, at(110)).unwrap();
    assert_eq!(twin.twin(at(110)).unwrap().until(), at(160));
    let other = twin.after(&standing(98, 2_000, 45, None), false, at(120)).unwrap();
    assert_eq!((other.twin(at(120)).unwrap().instance, other.twin(at(160))), (99, None));
    // Just as much later as is news.
    let later = twin.after(&standing(99, 2_000, 10, None), false, at(115)).unwrap();
    assert_eq!(later.twin(at(115)).unwrap().until(), at(165));
    // What ends now, of one that is known already or of another, changes nothing.
    let known = own().after(&standing(7, 1, 5, None), false, at(100)).unwrap();
    assert_eq!(known.after(&standing(7, 1, 5, Some((OWN, 100))), false, at(160)), None);
    let both = later.after(&standing(98, 2_000, 5, None), false, at(115)).unwrap();
    assert_eq!(both.after(&standing(98, 2_000, 5, Some((OWN, 101))), false, at(161)), None);
}

#[test]
fn a_standing_that_no_controller_can_have_written_is_not_read() {
    let (prover, other) = (Prover::new(&[1; KEY_BYTES]), Prover::new(&[2; KEY_BYTES]));
    let written = standing(7, 1, 5, Some((OWN, 9))).sign(&other);
    let crowded = |rivals: usize| {
        let mut bytes = written.clone();
        bytes[1] = u8::try_from(rivals).unwrap();
        bytes.resize(2 + (5 + 2 * rivals) * 8 + MAC_BYTES, 0);
        Told::read(&prover, &bytes)
    };
    assert!(matches!(crowded(MAX_RIVALS), Some(Told::Foreign(_))));
    assert_eq!(crowded(MAX_RIVALS + 1), None);
    let long = |bytes: usize| {
        let mut long = written.clone();
        long.resize(bytes, 0);
        Told::read(&prover, &long)
    };
    assert!(matches!(long(MAX_STANDING_BYTES), Some(Told::Foreign(_))));
    assert_eq!(long(MAX_STANDING_BYTES + 1), None);
}

#[test]
fn a_message_after_one_that_waited_nowhere_is_measured_by_that_one() {
    let mut lag = Lag::default();
    assert_eq!(lag.waited(at(105), at(100)), Span(0));
    assert_eq!(lag.waited(at(106), at(106)), Span(0), "it waited for five seconds less than the first");
    let waited = lag.waited(at(112), at(107));
    assert!(waited > Span::millis(4_900) && waited <= Span::secs(5), "{waited}");
}
