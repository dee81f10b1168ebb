//! The parts of a fallback that is divided among nodes: who counts, and which parts are on disk. One rule a test. Times
//! are in milliseconds, rates and amounts in whole RU.

#![expect(clippy::panic, reason = "a test stops at the first surprise")]

mod common;

use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::exchange::{Ask, Grant};
use tidegate_core::group::{ClientId, GroupId, GroupSpec};
use tidegate_core::units::{Rate, Ru, Span};

use common::{at, leased};

const GROUP: GroupId = GroupId(2);
const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);
const C: ClientId = ClientId(3);

type Rows = Vec<(ClientId, GroupId, Rate)>;

/// A group whose nodes together may admit 100 RU/s without leases.
struct Divided {
    engine: Engine,
    seq: u64,
}

impl Divided {
    fn new(ttl: Span) -> Self {
        let mut engine = Engine::new(at(0), EngineConfig::default());
        let total = Some(Rate::whole(100));
        let spec = GroupSpec { ttl, fallback_total: total, ..GroupSpec::capped(Rate::whole(1_000)) };
        assert_eq!(engine.put_group(at(0), GROUP, spec), Ok(()));
        Self { engine, seq: 0 }
    }

    /// The part in the answer to a client that has applied the answer to `acked`, and the number of this renewal.
    fn told(&mut self, ms: u64, client: ClientId, acked: u64) -> (i64, u64) {
        self.seq += 1;
        let (demand, backlog) = (Rate::whole(10), Ru::whole(10));
        let ask = Ask { acked_seq: acked, demand, backlog, ..Ask::default() };
        let fallback = leased(self.engine.renew(at(ms), client, GROUP, self.seq, &ask, None)).fallback;
        (fallback.rate().unwrap_or_default().0 / 1_000_000, self.seq)
    }

    fn take(&mut self, ms: u64) -> Rows {
        self.engine.take_parts(at(ms))
    }

    fn store(&mut self, ms: u64) -> Rows {
        let rows = self.take(ms);
        self.engine.parts_taken(&rows, true);
        rows
    }
}

fn row(client: ClientId, ru: i64) -> (ClientId, GroupId, Rate) {
    (client, GROUP, Rate::whole(ru))
}

const TTL: Span = Span::secs(5);

/// A was told all of the fallback, and then B came: A is told a half and has not said that it applied that.
fn all_and_nothing(ttl: Span) -> (Divided, u64) {
    let mut group = Divided::new(ttl);
    group.told(0, A, 0);
    assert_eq!(group.store(0), [row(A, 100)]);
    let (all, seq) = group.told(10, A, 1);
    assert_eq!((all, group.told(20, B, 0).0, group.told(30, A, seq).0), (100, 0, 50));
    (group, seq)
}

#[test]
fn a_part_of_before_a_restart_counts_until_a_smaller_one_is_acknowledged() {
    // The node may not have heard anything since the restart: it acknowledges nothing, or an answer of before.
    for acked in [0, 9] {
        let mut group = Divided::new(TTL);
        group.engine.load_part(at(0), GROUP, A, Rate::whole(70));
        group.told(0, B, 0);
        group.told(10, A, acked);
        group.told(20, B, 0);
        group.store(30);
        assert_eq!((group.told(40, B, 0).0, group.engine.parts_out(GROUP)), (30, Rate::whole(100)));
    }
}

#[test]
fn a_part_that_is_loaded_lasts_from_the_start_of_the_controller_on() {
    let hours = 3_600_000;
    let mut group = Divided::new(TTL);
    group.engine.load_part(at(13 * hours), GROUP, A, Rate::whole(70));
    assert_eq!(group.take(14 * hours), []);
    assert_eq!(group.engine.parts_out(GROUP), Rate::whole(70));
}

#[test]
fn nodes_divide_what_those_that_are_away_leave() {
    let mut group = Divided::new(TTL);
    group.engine.load_part(at(0), GROUP, A, Rate::whole(70));
    group.told(0, B, 0);
    group.store(0);
    let (alone, seq) = group.told(10, B, 0);
    group.told(20, C, 0);
    let (half, seq) = group.told(30, B, seq);
    assert_eq!((alone, half), (30, 15));
    group.told(40, B, seq);
    group.told(50, C, 0);
    group.store(60);
    assert_eq!(group.told(70, C, 0).0, 15);
}

#[test]
fn a_node_without_a_lease_is_away_after_ten_seconds_of_silence() {
    let (mut group, seq) = all_and_nothing(TTL);
    // B's lease ends after 5 s.
    group.take(9_000);
    assert_eq!(group.told(9_000, A, seq).0, 50);
    group.take(10_030);
    assert_eq!(group.told(10_030, A, seq).0, 100);
}

#[test]
fn a_node_that_gave_its_lease_up_a_moment_ago_is_not_away() {
    let (mut group, seq) = all_and_nothing(TTL);
    let idle = Ask { acked_seq: 3, ..Ask::default() };
    assert!(idle.gives_up());
    assert!(matches!(group.engine.renew(at(40), B, GROUP, 50, &idle, None), Some(Grant::Leased(_))));
    group.seq = 50;
    group.take(1_000);
    assert_eq!(group.told(1_000, A, seq).0, 50);
}

#[test]
fn a_node_with_a_lease_is_not_away_however_long_it_was_silent() {
    let (mut group, seq) = all_and_nothing(Span::secs(60));
    group.take(30_000);
    assert_eq!(group.told(30_000, A, seq).0, 50);
}

#[test]
fn what_could_not_be_stored_is_stored_the_next_time() {
    let mut group = Divided::new(TTL);
    group.told(0, A, 0);
    let rows = group.take(0);
    assert_eq!(rows, [row(A, 100)]);
    group.engine.parts_taken(&rows, false);
    assert_eq!(group.store(10), [row(A, 100)]);
    // The same for a row that is to be deleted.
    group.engine.release(at(20), A);
    let rows = group.take(20);
    assert_eq!(rows, [row(A, 0)]);
    group.engine.parts_taken(&rows, false);
    assert_eq!(group.store(30), [row(A, 0)]);
    assert_eq!(group.store(40), []);
}

#[test]
fn a_part_that_nothing_changed_lately_is_freed_by_a_goodbye() {
    let mut group = Divided::new(TTL);
    group.told(0, A, 0);
    group.store(0);
    assert_eq!(group.store(10), []);
    group.engine.release(at(20), A);
    assert_eq!((group.engine.parts_out(GROUP), group.store(30)), (Rate::ZERO, vec![row(A, 0)]));
}

#[test]
fn a_part_that_became_smaller_while_it_was_stored_is_stored_again() {
    let (mut group, seq) = all_and_nothing(TTL);
    let (_, smaller) = group.told(40, A, seq);
    let (_, smaller) = group.told(50, A, smaller);
    assert_eq!(group.store(60), [row(A, 50)]);
    // B leaves and comes back while the larger part of A is on its way to the disk.
    group.engine.release(at(70), B);
    let (_, seq) = group.told(80, A, smaller);
    let rows = group.take(90);
    assert!(rows.contains(&row(A, 100)), "{rows:?}");
    group.told(100, B, 0);
    group.told(110, A, seq);
    group.engine.parts_taken(&rows, true);
    assert!(group.take(120).contains(&row(A, 50)));
}
