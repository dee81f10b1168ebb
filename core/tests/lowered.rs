//! A change that lowers what a group may use holds everywhere within one lease, whatever message is lost and whichever
//! node falls silent: random runs of the engine. Nodes here hold only what their last grant gave, for as long as it
//! lasts.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::exchange::{Ask, Grant, Held, LeaseTerms};
use tidegate_core::group::{ClientId, GroupId, GroupSpec};
use tidegate_core::units::{Rate, Ru, Span, Time};

const GROUP: GroupId = GroupId(2);
const ABOVE: GroupId = GroupId(3);
const CHANGED: Time = Time(6_000_000);
const END: Time = Time(16_000_000);
const BEFORE: i64 = 100;

/// The setting that becomes smaller.
#[derive(Clone, Copy, Debug)]
enum Lowered {
    Rate,
    Burst,
    /// The group moves under a tighter parent.
    Parent,
    /// How long leases last.
    Lease,
}

/// What a node holds, and until when.
#[derive(Clone, Copy, Debug, Default)]
struct Node {
    seq: u64,
    acked: u64,
    held: Held,
    until: Time,
    next_ask: Time,
    silent_from: Option<Time>,
}

struct Run {
    random: u64,
    engine: Engine,
    nodes: Vec<Node>,
    to: i64,
    lowered: Lowered,
}

impl Run {
    fn new(seed: u64, lowered: Lowered) -> Self {
        let mut engine = Engine::new(Time(0), EngineConfig { drift_ppm: 0, margin: Span(0) });
        engine.put_group(Time(0), GROUP, spec(BEFORE)).unwrap();
        let mut run = Self {
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            engine,
            nodes: Vec::new(),
            to: 0,
            lowered,
        };
        run.to = i64::try_from(run.below(60)).unwrap() + 20;
        for _ in 0..2 + run.below(3) {
            let silent_from = (run.below(2) == 0).then(|| CHANGED.after(Span::millis(run.below(3_000))));
            let next_ask = Time(1 + run.below(1_000_000));
            run.nodes.push(Node { silent_from, next_ask, ..Node::default() });
        }
        run
    }

    /// A number below `most`.
    fn below(&mut self, most: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % most
    }

    fn change(&mut self) {
        let change = |engine: &mut Engine, id, spec| engine.put_group(CHANGED, id, spec).unwrap();
        match self.lowered {
            Lowered::Rate => change(&mut self.engine, GROUP, spec(self.to)),
            Lowered::Burst => {
                change(
                    &mut self.engine,
                    GROUP,
                    GroupSpec { burst: Some(Ru::whole(self.to)), ..spec(BEFORE) },
                );
            }
            Lowered::Parent => {
                change(&mut self.engine, ABOVE, spec(self.to));
                change(&mut self.engine, GROUP, GroupSpec { parent: Some(ABOVE), ..spec(BEFORE) });
            }
            Lowered::Lease => {
                self.to = BEFORE;
                change(&mut self.engine, GROUP, GroupSpec { ttl: Span::secs(1), ..spec(BEFORE) });
            }
        }
    }

    /// One node asks; an eighth of the answers is lost, and no order to lower a lease ever arrives.
    fn ask(&mut self, index: usize, now: Time) {
        let (backlog, spent) = (self.below(2) * self.below(80), self.below(3));
        let demand = 1 << self.below(7);
        let lost = self.below(8) == 0;
        let pause = Span::millis(150 + self.below(1_300));
        let node = &mut self.nodes[index];
        if node.until <= now {
            node.held = Held::default();
        }
        node.held.lump = node.held.lump.scale(i64::try_from(spent).unwrap(), 2);
        node.seq += 1;
        node.next_ask = now.after(pause);
        let backlog = Ru::whole(i64::try_from(backlog).unwrap());
        let ask = Ask {
            acked_seq: node.acked,
            held: node.held,
            demand: Rate::whole(demand),
            backlog,
            head: backlog.min(Ru::whole(1)),
            ..Ask::default()
        };
        let client = ClientId(index as u64 + 1);
        let grant = self.engine.renew(now, client, GROUP, node.seq, &ask, None);
        self.engine.check().unwrap();
        self.engine.take_lowers();
        let Some(Grant::Leased(terms)) = grant else { panic!("no lease: {grant:?}") };
        if !lost {
            node.apply(now, &terms);
        }
    }

    /// The sum that nodes may use at a moment: their rates, or what they may hold.
    fn in_use(&self, now: Time) -> i64 {
        let held = self.nodes.iter().filter(|node| node.until > now).map(|node| node.held);
        match self.lowered {
            Lowered::Burst => held.map(|held| (held.cap + held.lump).0).sum(),
            _ => held.map(|held| held.rate.0).sum(),
        }
    }

    /// # Errors
    /// Nodes use more than the definition before the change allows or, once all earlier leases have ended, the changed
    /// one.
    fn check(&self, now: Time) -> Result<(), String> {
        let settled = CHANGED.after(GroupSpec::capped(Rate::whole(1)).ttl);
        let (most, in_use) = (if now < settled { BEFORE } else { self.to }, self.in_use(now));
        match in_use <= Ru::whole(most).0 {
            true => Ok(()),
            false => Err(format!("at {} us: {in_use} of {most}: {:?}", now.0, self.nodes)),
        }
    }

    /// Runs to the end, or until a check fails.
    fn run(mut self) -> Result<(), String> {
        let mut changed = false;
        loop {
            let nodes = self.nodes.iter().copied().enumerate();
            let (index, node) = nodes.min_by_key(|(_, node)| node.next_ask).unwrap();
            let now = node.next_ask;
            // Nothing is added between two renewals, and the limit may fall at the end.
            self.check(Time(now.0 - 1))?;
            if now >= END {
                return Ok(());
            }
            if now >= CHANGED && !changed {
                self.change();
                changed = true;
            }
            if node.silent_from.is_some_and(|from| from <= now) {
                self.nodes[index].next_ask = END;
                continue;
            }
            self.ask(index, now);
            self.check(now)?;
        }
    }
}

impl Node {
    fn apply(&mut self, now: Time, terms: &LeaseTerms) {
        self.acked = self.seq;
        self.until = now.after(terms.ttl);
        let lump = self.held.lump + terms.lump;
        self.held = Held { rate: terms.rate, cap: terms.cap, lump };
    }
}

fn spec(rate: i64) -> GroupSpec {
    GroupSpec::capped(Rate::whole(rate))
}

fn holds_within_one_lease(lowered: Lowered) {
    let broken: Vec<_> =
        (1..=3_000).filter_map(|seed| Some((seed, Run::new(seed, lowered).run().err()?))).collect();
    assert!(broken.is_empty(), "{lowered:?}: {} of 3000 runs, first {:?}", broken.len(), broken[0]);
}

#[test]
fn a_lowered_rate_holds_everywhere_within_one_lease() {
    holds_within_one_lease(Lowered::Rate);
}

#[test]
fn a_lowered_burst_holds_everywhere_within_one_lease() {
    holds_within_one_lease(Lowered::Burst);
}

#[test]
fn what_moves_under_a_tighter_parent_keeps_within_it_after_one_lease() {
    holds_within_one_lease(Lowered::Parent);
}

#[test]
fn a_lease_of_before_is_not_forgotten_when_leases_become_shorter() {
    holds_within_one_lease(Lowered::Lease);
}
