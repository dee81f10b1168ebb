//! CockroachDB's tenant cost control: one bucket per tenant that lends against a smoothed level, and nodes that ask
//! once per target period.
//!
//! The bucket lends what it lacks within the refill of one period, less the debt that the smoothed level shows. All
//! nodes see the same debt, so equal nodes come to equal shares without the bucket knowing how many there are. A grant
//! does not expire. A node without an answer goes on at the fallback rate that it received last.

use tidegate_core::units::{Span, Time};

use super::number::{between, seconds, span};
use super::queue::Queue;
use super::{Acts, Operation, Rival};
use tidegate_sim::random::Random;

/// How long a grant is meant to last.
const PERIOD: Span = Span::secs(10);
/// A node looks at its load this often.
const TICK: Span = Span::secs(1);
/// A node asks this long before its trickle ends, and waits this long for the answer.
const ANTICIPATION: Span = Span::secs(1);
/// Up to this much earlier still, at random, and the first time at any moment of the trickle. The description has no such
/// thing; but nodes that all start in one instant would ask in one instant for ever, and who asks last gets nothing.
const SPREAD: Span = Span::secs(1);
/// Weight of the newest second in a node's average, and of the present level in the bucket's.
const NODE_WEIGHT: f64 = 0.5;
const BUCKET_WEIGHT: f64 = 0.25;
/// RU of the first request, RU kept in hand, and RU worth a report.
const FIRST_ASK: f64 = 1_000.0;
const BUFFER: f64 = 5_000.0;
const REPORT: f64 = 100.0;
/// Consumption is reported after this many periods whatever it is.
const QUIET_PERIODS: u64 = 4;

/// What the centre answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Granted {
    /// RU.
    tokens: f64,
    /// Over this time; zero is at once.
    trickle: Span,
    /// RU/s to go on with when no answer comes.
    fallback: f64,
}

/// The tenant's bucket.
#[derive(Clone, Debug)]
struct Bucket {
    rate: f64,
    burst: f64,
    tokens: f64,
    average: f64,
    since: Time,
}

impl Bucket {
    fn refill(&mut self, now: Time) {
        self.tokens = (self.tokens + self.rate * between(self.since, now)).min(self.burst);
        self.since = now;
    }

    fn grant(&mut self, now: Time, needed: f64) -> Granted {
        self.refill(now);
        self.average += BUCKET_WEIGHT * (self.tokens - self.average);
        let fallback = self.rate + self.tokens.max(0.0) / 3_600.0;
        if self.tokens >= needed {
            self.tokens -= needed;
            return Granted { tokens: needed, trickle: Span(0), fallback };
        }
        let in_hand = self.tokens.max(0.0);
        let debt = (-self.tokens).max(0.0);
        let refill = self.rate * seconds(PERIOD);
        let mut can_lend = refill - (-self.average).max(0.0);
        if debt > 0.0 {
            can_lend = can_lend.min(1.5 * refill - debt);
        }
        let tokens = in_hand + (needed - in_hand).min(can_lend.max(0.0));
        self.tokens -= tokens;
        Granted { tokens, trickle: PERIOD, fallback }
    }
}

#[derive(Clone, Debug, Default)]
struct Node {
    queue: Queue,
    tokens: f64,
    rate: f64,
    since: Time,
    /// No bucket but the fallback's has a depth.
    depth: Option<f64>,
    average: f64,
    consumed: f64,
    /// Consumed at the last tick, and at the last request.
    at_tick: f64,
    at_ask: f64,
    tick_at: Option<Time>,
    asked_at: Option<Time>,
    in_flight: bool,
    /// Below this many RU a request is due; none while the bucket cannot give more.
    low: Option<f64>,
    trickle_until: Option<Time>,
    anticipation: Span,
    may_ask_at: Time,
    fallback: Option<f64>,
    /// Whether its requests are not spread over time yet.
    in_phase: bool,
    random: Option<Random>,
}

impl Node {
    fn refill(&mut self, now: Time) {
        self.tokens += self.rate * between(self.since, now);
        if let Some(depth) = self.depth {
            self.tokens = self.tokens.min(depth.max(0.0));
        }
        self.since = now;
    }

    fn available(&self) -> f64 {
        self.tokens - self.queue.ru()
    }

    fn tick(&mut self, now: Time) {
        let used = (self.consumed - self.at_tick) / seconds(TICK);
        self.average = NODE_WEIGHT * used + (1.0 - NODE_WEIGHT) * self.average;
        self.at_tick = self.consumed;
        self.tick_at = Some(now.after(TICK));
        if self.asked_at.is_some_and(|asked| self.in_flight && now >= asked.after(ANTICIPATION)) {
            // The call failed; the next one is due at once.
            self.in_flight = false;
            self.may_ask_at = now;
            self.low = Some(f64::INFINITY);
        }
    }

    fn unanswered(&mut self, now: Time) {
        let Some(fallback) = self.fallback else {
            return;
        };
        let overdue = self.asked_at.is_some_and(|asked| self.in_flight && now >= asked.after(ANTICIPATION));
        let dry = self.trickle_until.is_none_or(|until| now >= until);
        if overdue && dry && self.depth.is_none() {
            self.rate = fallback;
            self.depth = Some(BUFFER + fallback * seconds(PERIOD));
        }
    }

    fn wants_to_ask(&self, now: Time) -> bool {
        if self.in_flight || now < self.may_ask_at {
            return false;
        }
        let Some(asked) = self.asked_at else {
            return true;
        };
        let low = self.low.is_some_and(|low| self.available() < low);
        let anticipates = self.trickle_until.is_some_and(|until| now.after(self.anticipation) >= until);
        let since = now.since(asked);
        let worth = self.consumed - self.at_ask >= REPORT;
        low || anticipates || (since >= PERIOD && (worth || since.0 >= PERIOD.0 * QUIET_PERIODS))
    }

    fn spread(&mut self) -> Span {
        let most = if self.in_phase { PERIOD.0 - ANTICIPATION.0 } else { SPREAD.0 };
        self.in_phase = false;
        self.random.as_mut().map_or(Span(0), |random| Span(random.between(0, most)))
    }

    fn ask(&mut self, now: Time) -> f64 {
        let first = self.asked_at.is_none();
        self.in_flight = true;
        self.asked_at = Some(now);
        self.at_ask = self.consumed;
        if first {
            return FIRST_ASK;
        }
        (self.average * seconds(PERIOD) + BUFFER - self.available()).max(0.0)
    }

    fn granted(&mut self, now: Time, granted: Granted) {
        self.refill(now);
        self.in_flight = false;
        self.fallback = Some(granted.fallback);
        self.depth = None;
        // Tokens that a trickle has not delivered yet belong to the node.
        let left = self.trickle_until.take().map_or(0.0, |until| self.rate * between(now, until));
        let tokens = granted.tokens + left;
        if granted.trickle == Span(0) {
            self.rate = 0.0;
            self.tokens += tokens;
            self.low = Some((0.1 * tokens).max(BUFFER));
            self.may_ask_at = now;
        } else {
            self.rate = tokens / seconds(granted.trickle);
            self.trickle_until = Some(now.after(granted.trickle));
            self.low = None;
            self.anticipation = ANTICIPATION + self.spread();
            self.may_ask_at = Time(now.after(granted.trickle).0.saturating_sub(self.anticipation.0));
        }
    }
}

/// A bucket and its nodes.
#[derive(Clone, Debug)]
pub struct Cockroach {
    bucket: Bucket,
    nodes: Vec<Node>,
}

impl Cockroach {
    /// A full bucket of one second of `rate` RU/s, and nodes that hold nothing.
    /// With a seed, nodes do not stay in step.
    pub fn new(rate: f64, nodes: usize, seed: Option<u64>) -> Self {
        let bucket = Bucket { rate, burst: rate, tokens: rate, average: rate, since: Time(0) };
        let random = |node| seed.map(|seed| Random::new(seed, 3_000 + node));
        let node = |node| Node { in_phase: true, random: random(node), ..Node::default() };
        Self { bucket, nodes: (0..nodes as u64).map(node).collect() }
    }
}

impl Rival for Cockroach {
    /// RU that are needed.
    type Ask = f64;
    type Answer = Granted;

    fn submit(&mut self, now: Time, node: usize, operation: Operation) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.tick_at.get_or_insert(now.after(TICK));
            node.queue.push(operation);
        }
    }

    fn act(&mut self, now: Time, node: usize, acts: &mut Acts<f64>) {
        let Some(node) = self.nodes.get_mut(node) else {
            return;
        };
        node.refill(now);
        while let Some(id) = node.queue.give_up(now) {
            acts.done.push((id, false));
        }
        while let Some(first) = node.queue.first()
            && first.cost <= node.tokens
        {
            node.tokens -= first.cost;
            node.consumed += first.cost;
            acts.done.extend(node.queue.pop().map(|operation| (operation.id, true)));
        }
        node.unanswered(now);
        if node.tick_at.is_some_and(|at| at <= now) {
            node.tick(now);
        }
        if node.tick_at.is_some() && node.wants_to_ask(now) {
            acts.asks.push(node.ask(now));
        }
    }

    fn wake_at(&self, now: Time, node: usize) -> Option<Time> {
        let node = self.nodes.get(node)?;
        let covered = node.queue.first().filter(|_| node.rate > 0.0).map(|first| {
            // Float dust must not wake the node for ever.
            now.after(span(((first.cost - node.tokens) / node.rate).max(1e-6)))
        });
        let may_ask = (node.may_ask_at > now).then_some(node.may_ask_at);
        [covered, node.queue.next_deadline(), node.tick_at, may_ask].into_iter().flatten().min()
    }

    fn at_centre(&mut self, now: Time, _node: usize, needed: f64) -> Granted {
        self.bucket.grant(now, needed)
    }

    fn at_node(&mut self, now: Time, node: usize, granted: Granted) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.granted(now, granted);
        }
    }

    fn set_cap(&mut self, now: Time, rate: f64) {
        self.bucket.refill(now);
        self.bucket.rate = rate;
        self.bucket.burst = rate;
    }

    /// The bucket is a row of a replicated database: it was out of reach, not lost.
    fn restart(&mut self, _now: Time) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(tokens: f64) -> Bucket {
        Bucket { rate: 1_000.0, burst: 5_000.0, tokens, average: tokens, since: Time(0) }
    }

    #[test]
    fn what_is_in_hand_is_granted_at_once() {
        let granted = bucket(5_000.0).grant(Time(0), 4_000.0);
        assert_eq!((granted.tokens, granted.trickle), (4_000.0, Span(0)));
    }

    #[test]
    fn what_is_lacking_is_lent_within_the_refill_of_a_period() {
        let mut bucket = bucket(500.0);
        let granted = bucket.grant(Time(0), 50_000.0);
        assert_eq!((granted.tokens, granted.trickle), (500.0 + 10_000.0, PERIOD));
        assert_eq!(bucket.tokens, -10_000.0);
    }

    #[test]
    fn debt_above_half_a_period_leaves_less_to_lend() {
        let mut bucket = bucket(-12_000.0);
        bucket.average = 0.0;
        // The level is smoothed to -3000, which leaves 7000; the present debt leaves 3000.
        assert_eq!(bucket.grant(Time(0), 50_000.0).tokens, 3_000.0);
    }

    #[test]
    fn equal_greedy_clients_come_to_equal_shares() {
        let mut bucket = bucket(0.0);
        let mut granted = [0.0; 4];
        for round in 0..60_u64 {
            for (client, sum) in granted.iter_mut().enumerate() {
                let at = Time::default().after(Span::millis(round * 10_000 + client as u64 * 2_500));
                let tokens = bucket.grant(at, 1e6).tokens;
                if round >= 20 {
                    *sum += tokens;
                }
            }
        }
        let total: f64 = granted.iter().sum();
        assert!((total / (40.0 * 10_000.0) - 1.0).abs() < 0.02, "{total}");
        assert!(granted.iter().all(|sum| (sum / total - 0.25).abs() < 0.01), "{granted:?}");
    }
}
