//! The promise at the edges of its ranges: rates from a millionth of a RU/s to 10^9, the shortest and the longest
//! leases, fallbacks of nothing and of the largest amount, round trips that change tenfold from one message to the
//! next, and the largest possible reports.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::exchange::{Ask, Grant};
use tidegate_core::group::{ClientId, Fallback, GroupId, GroupSpec};
use tidegate_core::ledger::Ledger;
use tidegate_core::node::{Acquired, NodeConfig, NodeGroup, WaiterId};
use tidegate_core::units::{MICRO, Rate, Ru, RuTotal, Span, Time};
use tidegate_core::usage::{Consumption, RuParts, Total};

const GROUP: GroupId = GroupId(2);
const NODES: usize = 3;

/// Any number up to `most`: every order of magnitude is equally likely, the ends are more so.
fn magnitude(most: i64) -> impl Strategy<Value = i64> {
    let digits = most.ilog10();
    let some = (0..=digits, 1_i64..=9, 0_i64..=9).prop_map(move |(zeros, first, next)| {
        ((first * 10 + next).saturating_mul(10_i64.pow(zeros)) / 10).clamp(1, most)
    });
    prop_oneof![8 => some, 1 => Just(1), 1 => Just(most)]
}

fn fallback() -> impl Strategy<Value = Fallback> {
    let rate = magnitude(Rate::MAX.0).prop_map(|rate| Fallback::Rate(Rate(rate)));
    prop_oneof![2 => Just(Fallback::Stop), 2 => rate]
}

fn spec() -> impl Strategy<Value = GroupSpec> {
    let (shortest, longest) = GroupSpec::TTL_RANGE;
    let ttl = prop_oneof![Just(shortest), Just(longest), (shortest.0..=longest.0).prop_map(Span)];
    let burst = prop::option::of(magnitude(Ru::MAX.0).prop_map(Ru));
    let total = prop::option::of(magnitude(Rate::MAX.0).prop_map(Rate));
    (magnitude(Rate::MAX.0), burst, ttl, fallback(), total, 100_u64..30_000).prop_map(
        |(rate, burst, ttl, fallback, fallback_total, renew)| GroupSpec {
            burst,
            ttl,
            fallback,
            fallback_total,
            renew_every: Span::millis(renew).min(Span(ttl.0 / 2)),
            ..GroupSpec::capped(Rate(rate))
        },
    )
}

#[derive(Clone, Copy, Debug)]
enum Op {
    /// This time passes, in microseconds.
    Pass(u64),
    /// An operation asks for `part` thousandths of the room there is and costs `costs` thousandths of that.
    Acquire { node: usize, part: i64, costs: i64 },
    /// Messages take this long from now on.
    RoundTrip(u64),
    /// A node is cut off from now on, or connected again.
    Cut(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0_u32..8, 1_u64..10).prop_map(|(zeros, first)| Op::Pass(first * 10_u64.pow(zeros))),
        12 => (0..NODES, 0_i64..1_500, 0_i64..1_500)
            .prop_map(|(node, part, costs)| Op::Acquire { node, part, costs }),
        3 => (2_u32..8).prop_map(|zeros| Op::RoundTrip(10_u64.pow(zeros))),
        1 => (0..NODES).prop_map(Op::Cut),
    ]
}

#[derive(Debug)]
enum Message {
    Ask { node: usize, seq: u64, ask: Ask },
    Answer { node: usize, seq: u64, grant: Grant },
    Lower { node: usize, rate: Rate },
    Wake { node: usize },
}

struct Node {
    group: NodeGroup,
    seq: u64,
    cut: bool,
    waiting: BTreeMap<WaiterId, (Ru, Ru)>,
}

struct System {
    now: Time,
    spec: GroupSpec,
    engine: Engine,
    nodes: Vec<Node>,
    network: BTreeMap<(Time, u64), Message>,
    next: u64,
    round_trip: Span,
    /// RU admitted and settled, and how far that rose above the yield of the cap, in millionths of a micro-RU.
    net: i128,
    lowest: i128,
    worst: i128,
}

impl System {
    fn new(spec: GroupSpec) -> Self {
        let mut engine = Engine::new(Time(0), EngineConfig::default());
        engine.put_group(Time(0), GROUP, spec.clone()).unwrap();
        let node = |_| Node {
            group: NodeGroup::new(Time(0), NodeConfig::default()),
            seq: 0,
            cut: false,
            waiting: BTreeMap::new(),
        };
        Self {
            now: Time(0),
            spec,
            engine,
            nodes: (0..NODES).map(node).collect(),
            network: BTreeMap::new(),
            next: 0,
            round_trip: Span::millis(1),
            net: 0,
            lowest: 0,
            worst: 0,
        }
    }

    /// The rate of the group, and the most that nodes without leases may add.
    fn cap(&self) -> (i128, i128) {
        let each = self.spec.fallback.rate().unwrap_or_default();
        let without = match self.spec.fallback_total {
            Some(total) => i128::from(total.0),
            None => i128::from(each.0) * NODES as i128,
        };
        (i128::from(self.spec.limit().unwrap().0), without)
    }

    fn count(&mut self, amount: Ru) {
        let (rate, without) = self.cap();
        let yielded = (rate + without) * i128::from(self.now.0);
        self.lowest = self.lowest.min(self.net - yielded);
        self.net += i128::from(amount.0) * i128::from(MICRO);
        self.worst = self.worst.max(self.net - yielded - self.lowest);
    }

    fn send(&mut self, after: Span, message: Message) {
        self.network.insert((self.now.after(after), self.next), message);
        self.next += 1;
    }

    fn act(&mut self, op: Op) {
        match op {
            Op::Pass(span) => {
                let until = self.now.after(Span(span));
                // The test leaves out what a node does by itself within a microsecond of a day.
                for _ in 0..2_000 {
                    let Some((&(at, _), _)) =
                        self.network.first_key_value().filter(|((at, _), _)| *at <= until)
                    else {
                        break;
                    };
                    let (_, message) = self.network.pop_first().unwrap();
                    self.now = at.max(self.now);
                    self.hear(message);
                }
                self.now = until;
                (0..NODES).for_each(|node| self.step(node));
            }
            Op::Acquire { node, part, costs } => {
                let depth = self.nodes[node].group.look().max_fit().min(self.spec.depth().unwrap());
                let (cost, actual) = (depth.scale(part, 1_000), depth.scale(costs, 1_000));
                let deadline = self.now.after(Span::secs(5));
                match self.nodes[node].group.acquire(self.now, cost, deadline) {
                    Ok(Acquired::Now(_)) => self.admitted(node, cost, actual),
                    Ok(Acquired::Queued(id)) => {
                        self.nodes[node].waiting.insert(id, (cost, actual));
                    }
                    Err(_) => {}
                }
                self.step(node);
            }
            Op::RoundTrip(micros) => self.round_trip = Span(micros),
            Op::Cut(node) => self.nodes[node].cut ^= true,
        }
    }

    fn admitted(&mut self, node: usize, cost: Ru, actual: Ru) {
        self.count(cost);
        let used = Consumption { charged: RuParts::flat(actual), operations: 1, ..Consumption::default() };
        self.nodes[node].group.settle(self.now, cost, &used);
        self.count(actual - cost);
    }

    fn hear(&mut self, message: Message) {
        let half = Span(self.round_trip.0 / 2);
        match message {
            Message::Ask { node, seq, ask } => {
                let client = ClientId(node as u64 + 1);
                if let Some(grant) = self.engine.renew(self.now, client, GROUP, seq, &ask, None) {
                    self.send(half, Message::Answer { node, seq, grant });
                }
                // Parts are stored at once here.
                let parts = self.engine.take_parts(self.now);
                self.engine.parts_taken(&parts, true);
                for lower in self.engine.take_lowers() {
                    let node = usize::try_from(lower.client.0).unwrap() - 1;
                    self.send(half, Message::Lower { node, rate: lower.rate_at_most });
                }
            }
            Message::Answer { node, seq, grant } if !self.nodes[node].cut => {
                self.nodes[node].group.on_grant(self.now, seq, &grant);
                self.step(node);
            }
            Message::Lower { node, rate } if !self.nodes[node].cut => {
                self.nodes[node].group.on_lower(self.now, rate);
                self.step(node);
            }
            Message::Answer { .. } | Message::Lower { .. } => {}
            Message::Wake { node } => self.step(node),
        }
    }

    fn step(&mut self, node: usize) {
        while let Some((id, outcome)) = self.nodes[node].group.poll(self.now) {
            let (cost, actual) = self.nodes[node].waiting.remove(&id).unwrap();
            if outcome.is_ok() {
                self.admitted(node, cost, actual);
            }
        }
        let state = &mut self.nodes[node];
        if state.group.due(self.now).is_some_and(|due| due <= self.now) {
            state.seq += 1;
            let (seq, ask, cut) = (state.seq, state.group.ask(self.now, state.seq), state.cut);
            if !cut {
                self.send(Span(self.round_trip.0 / 2), Message::Ask { node, seq, ask });
            }
        }
        let next = self.nodes[node].group.look().next_deadline(self.now);
        if let Some(next) = next.filter(|next| *next < self.now.after(Span::secs(600))) {
            let wait = next.since(self.now).max(Span(1_000));
            self.send(wait, Message::Wake { node });
        }
    }

    fn judge(&self) -> Result<(), TestCaseError> {
        let (_, without) = self.cap();
        let overrun: i128 = self.nodes.iter().map(|node| i128::from(node.group.look().worst_debt().0)).sum();
        let burst = i128::from(self.spec.depth().unwrap().0) + without;
        let tick = i128::from(self.spec.limit().unwrap().0) + without;
        let allowed = (burst + overrun + NODES as i128) * i128::from(MICRO) + tick;
        prop_assert!(self.worst <= allowed, "{} above {allowed}: {:?}", self.worst, self.spec);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_window_is_over_the_bound_at_any_rate_lease_fallback_and_round_trip(
        spec in spec(),
        ops in prop::collection::vec(op(), 20..160),
    ) {
        let mut system = System::new(spec);
        for op in ops {
            system.act(op);
            system.engine.check().map_err(TestCaseError::fail)?;
        }
        system.judge()?;
    }

    /// The ledger counts the reports of honest clients to the micro-RU, whatever others claim.
    #[test]
    fn totals_of_the_far_future_take_nothing_from_anyone(
        claims in prop::collection::vec((magnitude(i64::MAX), 0_u64..1_000_000_000, prop::bool::ANY), 1..20),
        told in prop::collection::vec(magnitude(1_000_000_000_000), 1..20),
    ) {
        let (mut ledger, mut honest, mut now) = (Ledger::default(), Total::default(), Time(0));
        let (liar, client) = (ClientId(u64::MAX), ClientId(1));
        for (place, micros) in told.iter().enumerate() {
            if let Some((claim, wait, doubled)) = claims.get(place) {
                now = now.after(Span(*wait));
                let mut total = Total::from(flat(*claim));
                if *doubled {
                    (0..40).for_each(|_| total = total.plus(&total));
                }
                let _ = ledger.report(now, liar, GROUP, &total);
            }
            honest = honest.plus(&Total::from(flat(*micros)));
            prop_assert!(ledger.report(now, client, GROUP, &honest).is_ok());
        }
        let of = |of: ClientId| ledger.accounts(GROUP).find(|(id, ..)| *id == of).map(|(_, total, _)| total.ru());
        prop_assert_eq!(of(client), Some(honest.ru()));
        let sum: RuTotal = [client, liar].into_iter().filter_map(of).sum();
        prop_assert_eq!(ledger.total(GROUP).ru(), sum);
    }
}

fn flat(micros: i64) -> Consumption {
    Consumption { charged: RuParts::flat(Ru(micros)), operations: 1, ..Consumption::default() }
}
