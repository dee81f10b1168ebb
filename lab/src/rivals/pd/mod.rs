//! PD's resource manager: a token bucket per group with a slot per client, and the token counter of its clients.
//!
//! The server splits the fill rate by smoothed demand, grants what a slot has, lends up to some periods of its rate, and
//! spreads what it lent over a trickle time. The client turns a trickle into a rate, and asks when tokens run low.

pub mod bucket;
pub mod client;
pub mod limiter;
mod slots;
pub mod tracker;

use std::collections::BTreeMap;

use tidegate_core::units::{Span, Time};

use self::bucket::{Bucket, Granted};
use self::client::Client;
use self::tracker::Tracker;
use super::{Acts, Operation, Rival};

/// How long a client asks for, and how long a grant is meant to last.
pub const PERIOD: Span = Span::secs(5);

/// The state of the last checkpoint, which is all that a restart finds.
#[derive(Clone, Debug)]
struct Stored {
    tokens: f64,
    since: Time,
    new: bool,
}

/// The server of one group, and its clients.
#[derive(Clone, Debug)]
pub struct Pd {
    bucket: Bucket,
    trackers: BTreeMap<u64, Tracker>,
    clients: Vec<Client>,
    stored: Stored,
}

impl Pd {
    /// A group with this fill rate, and a burst limit that is the same, as TiDB sets it. A `new` group was never asked
    /// for tokens, and gets its first 100,000 RU; otherwise the bucket is full.
    pub fn new(rate: f64, new: bool, ticks: &[Span]) -> Self {
        let mut bucket = Bucket::new(rate, rate);
        if !new {
            bucket.fill_up(Time(0), rate);
        }
        let stored = Stored { tokens: bucket.tokens, since: Time(0), new };
        let clients = ticks.iter().map(|tick| Client::new(rate, *tick)).collect();
        Self { bucket, trackers: BTreeMap::new(), clients, stored }
    }
}

impl Rival for Pd {
    /// RU that are required.
    type Ask = f64;
    type Answer = Granted;

    fn submit(&mut self, now: Time, node: usize, operation: Operation) {
        if let Some(client) = self.clients.get_mut(node) {
            client.submit(now, operation);
        }
    }

    fn act(&mut self, now: Time, node: usize, acts: &mut Acts<f64>) {
        if let Some(client) = self.clients.get_mut(node) {
            client.act(now, acts);
        }
    }

    fn wake_at(&self, _now: Time, node: usize) -> Option<Time> {
        self.clients.get(node)?.wake_at()
    }

    fn at_centre(&mut self, now: Time, node: usize, required: f64) -> Granted {
        let client = node as u64;
        self.trackers.entry(client).or_default().sample(now, required);
        self.bucket.request(now, client, required, PERIOD, &self.trackers)
    }

    fn at_node(&mut self, now: Time, node: usize, granted: Granted) {
        if let Some(client) = self.clients.get_mut(node) {
            client.granted(now, granted);
        }
    }

    fn set_cap(&mut self, _now: Time, rate: f64) {
        self.bucket.modify(rate, rate, 0.0);
    }

    /// Slots and demand are gone; tokens are those of the last checkpoint. That is taken to be the start of the run:
    /// checkpoints are a minute apart.
    fn restart(&mut self, _now: Time) {
        self.trackers.clear();
        let mut bucket = Bucket::new(self.bucket.fill, self.bucket.burst);
        if !self.stored.new {
            bucket.fill_up(self.stored.since, self.stored.tokens);
        }
        self.bucket = bucket;
    }
}
