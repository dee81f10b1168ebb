//! The parts of a fallback that is divided among nodes: who counts, and which parts are on disk. One rule a test. Times
//! are in milliseconds, rates and amounts in whole RU.

#![expect(clippy::panic, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

mod common;

use std::collections::BTreeMap;

use proptest::prelude::*;
use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::exchange::{Ask, Grant};
use tidegate_core::group::{ClientId, GroupId, GroupSpec};
use tidegate_core::units::{Rate, Ru, Span, Time};

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
fn the_part_of_a_silent_node_counts_for_as_long_as_the_slowest_clock_lets_it_be_used_and_no_longer() {
    // How long a node uses its part after the newest answer, by its own clock.
    let lasts = Span::secs(12 * 3_600);
    for (drift_ppm, margin) in [(0, Span(0)), (0, Span::millis(50)), (1_000, Span(0)), (100_000, Span(7))] {
        let config = EngineConfig { drift_ppm, margin };
        for loaded in [false, true] {
            let mut group = Divided { engine: Engine::new(at(0), config), ..Divided::new(TTL) };
            let spec = GroupSpec { fallback_total: Some(Rate::whole(100)), ..GroupSpec::unlimited() };
            assert_eq!(group.engine.put_group(at(0), GROUP, spec), Ok(()));
            let asks = Ask { demand: Rate::whole(10), ..Ask::default() };
            match loaded {
                true => group.engine.load_part(at(10), GROUP, A, Rate::whole(100)),
                false => drop(group.engine.renew(at(10), A, GROUP, 1, &asks, None)),
            }
            group.store(20);
            // The first moment at which the slowest clock shows that it is over, and the margin.
            let end = at(10).0 + (lasts.0 * 1_000_000).div_ceil(1_000_000 - u64::from(drift_ppm)) + margin.0;
            for (now, out) in [(end - 1, 100), (end, 0)] {
                let freed = group.engine.take_parts(Time(now));
                assert_eq!(group.engine.parts_out(GROUP), Rate::whole(out), "{drift_ppm} ppm, at {now} us");
                assert_eq!(freed.is_empty(), out > 0, "{freed:?}");
            }
        }
    }
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

/// What happens to a group with a divided fallback.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A node asks; it hears the answer, or that is lost.
    Ask {
        node: usize,
        heard: bool,
    },
    Goodbye(usize),
    Hours(u64),
    /// Rows are taken to be stored, while no others are.
    Take,
    /// The commit under way ends.
    Commit {
        succeeds: bool,
    },
    /// The controller starts again from its disk; a commit under way is on it, or is not.
    Crash {
        committed: bool,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let node = || 0_usize..3;
    let step = prop_oneof![
        8 => (node(), prop::bool::weighted(0.8)).prop_map(|(node, heard)| Step::Ask { node, heard }),
        1 => node().prop_map(Step::Goodbye),
        1 => (1_u64..8).prop_map(Step::Hours),
        4 => Just(Step::Take),
        4 => prop::bool::weighted(0.8).prop_map(|succeeds| Step::Commit { succeeds }),
        1 => any::<bool>().prop_map(|committed| Step::Crash { committed }),
    ];
    prop::collection::vec(step, 1..60)
}

/// The part that a node uses, the renewal whose answer it heard, and when.
#[derive(Clone, Copy, Debug, Default)]
struct Node {
    part: Rate,
    acked: u64,
    heard: u64,
}

/// The controller, its disk, and its nodes.
struct Story {
    group: Divided,
    ms: u64,
    nodes: [Node; 3],
    disk: BTreeMap<ClientId, Rate>,
    /// Rows that are on their way to the disk.
    writing: Option<Rows>,
}

impl Story {
    const HOUR: u64 = 3_600_000;

    fn client(node: usize) -> ClientId {
        ClientId(u64::try_from(node).unwrap_or_default() + 1)
    }

    fn ask(&mut self, node: usize, heard: bool) {
        self.group.seq += 1;
        let ask = Ask { acked_seq: self.nodes[node].acked, demand: Rate::whole(10), ..Ask::default() };
        let grant =
            self.group.engine.renew(at(self.ms), Self::client(node), GROUP, self.group.seq, &ask, None);
        let part = leased(grant).fallback.rate().unwrap_or_default();
        if heard {
            self.nodes[node] = Node { part, acked: self.group.seq, heard: self.ms };
        }
    }

    fn commit(&mut self, succeeds: bool) {
        let Some(rows) = self.writing.take() else { return };
        if succeeds {
            self.land(&rows);
        }
        self.group.engine.parts_taken(&rows, succeeds);
    }

    fn land(&mut self, rows: &Rows) {
        for (client, _, rate) in rows {
            self.disk.insert(*client, *rate);
        }
    }

    fn crash(&mut self, committed: bool) {
        if let Some(rows) = self.writing.take().filter(|_| committed) {
            self.land(&rows);
        }
        self.group = Divided { seq: self.group.seq, ..Divided::new(TTL) };
        for (client, rate) in self.disk.iter().filter(|(_, rate)| **rate > Rate::ZERO) {
            self.group.engine.load_part(at(self.ms), GROUP, *client, *rate);
        }
    }

    fn step(&mut self, step: Step) {
        self.ms += 10;
        match step {
            Step::Ask { node, heard } => self.ask(node, heard),
            Step::Goodbye(node) => {
                self.nodes[node].part = Rate::ZERO;
                self.group.engine.release(at(self.ms), Self::client(node));
            }
            Step::Hours(hours) => self.ms += hours * Self::HOUR,
            Step::Take => self.writing = self.writing.take().or_else(|| Some(self.group.take(self.ms))),
            Step::Commit { succeeds } => self.commit(succeeds),
            Step::Crash { committed } => self.crash(committed),
        }
        for node in &mut self.nodes {
            if self.ms > node.heard + 12 * Self::HOUR {
                node.part = Rate::ZERO;
            }
        }
    }

    /// The parts in use never add up to more than the whole, and none is larger than what a crash would leave of it.
    fn check(&self) {
        let used: Rate = self.nodes.iter().map(|node| node.part).sum();
        assert!(used <= Rate::whole(100), "{used} are used");
        for (node, used) in self.nodes.iter().enumerate() {
            let client = Self::client(node);
            let stored = self.disk.get(&client).copied().unwrap_or_default();
            let rows = self.writing.iter().flatten();
            let new = rows.filter(|(of, ..)| *of == client).map(|(.., rate)| *rate).next_back();
            let least = new.map_or(stored, |new| new.min(stored));
            assert!(used.part <= least, "{client:?} uses {}, a crash may leave {least}", used.part);
        }
    }
}

proptest! {
    #[test]
    fn no_part_in_use_is_larger_than_what_is_stored_whatever_happens_when(steps in steps()) {
        let mut story = Story {
            group: Divided::new(TTL),
            ms: 0,
            nodes: [Node::default(); 3],
            disk: BTreeMap::new(),
            writing: None,
        };
        for step in steps {
            story.step(step);
            story.check();
        }
        // When all goes well again, each has its share.
        for round in 0..8 {
            (0..3).for_each(|node| story.step(Step::Ask { node, heard: true }));
            story.step(Step::Commit { succeeds: true });
            story.step(Step::Take);
            story.step(Step::Commit { succeeds: true });
            story.check();
            prop_assert!(round < 7 || story.nodes.iter().all(|node| node.part.0 == 33_333_333), "{:?}", story.nodes);
        }
    }
}
