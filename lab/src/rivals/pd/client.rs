//! A client of the resource manager: reserves tokens for operations, averages what they consume, asks for more.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_core::units::{Span, Time};

use super::PERIOD;
use super::bucket::Granted;
use super::limiter::Limiter;
use crate::rivals::number::{between, seconds};
use crate::rivals::{Acts, Operation};

/// The main loop looks at all groups this often.
const TICK: Span = Span::secs(1);
/// Weight of the newest tick in the average.
const NEWEST: f64 = 0.5;
/// A client asks for this much more than it expects to need.
const AMPLIFIED: f64 = 1.1;
/// Notice is given below this part of what is at hand or needed for a period, and at first below this part of the start.
const LOW: f64 = 0.1;
const LOW_AT_START: f64 = 0.8;
/// RU worth a report, and after how long any consumption is reported.
const REPORT: f64 = 100.0;
const REPORT_AFTER: Span = Span::millis(4_500);
const REPORT_ANYHOW: Span = Span::secs(20);
/// A client looks for more this long before a trickle ends.
const BEFORE_END: Span = Span::millis(1_250);
/// A failed reservation is tried again after this, and so many times in all.
const RETRY: Span = Span::millis(50);
const TRIES: u32 = 20;
/// Failed reservations may give notice again after this.
const NOTICES_AFTER: Span = Span::secs(5);
/// A call to a server that is away takes this long to fail.
const CALL_FAILS: Span = Span::secs(3);

#[derive(Clone, Copy, Debug)]
struct Trying {
    operation: Operation,
    tries: u32,
    again_at: Time,
}

/// The counter of one group on one client.
#[derive(Clone, Debug)]
pub struct Client {
    fill: f64,
    /// When the main loop looks first; clients do not start together.
    tick: Span,
    limiter: Option<Limiter>,
    tick_at: Option<Time>,
    notices_at: Time,
    threshold_at: Option<Time>,
    fails_at: Option<Time>,
    /// Consumed by operations that are admitted or still trying.
    consumed: f64,
    averaged: (f64, Time),
    average: f64,
    reported: (f64, Time),
    answered_once: bool,
    unanswered: bool,
    in_flight: bool,
    trickle: (f64, Time),
    trying: BTreeMap<u64, Trying>,
    again: BTreeSet<(Time, u64)>,
    reserved: BTreeSet<(Time, u64)>,
    failed: Vec<u64>,
}

impl Client {
    /// A client of a group with this fill rate in RU/s, whose main loop first looks after `tick`.
    pub fn new(fill: f64, tick: Span) -> Self {
        Self {
            fill,
            tick,
            limiter: None,
            tick_at: None,
            notices_at: Time(0),
            threshold_at: None,
            fails_at: None,
            consumed: 0.0,
            averaged: (0.0, Time(0)),
            average: 0.0,
            reported: (0.0, Time(0)),
            answered_once: false,
            unanswered: false,
            in_flight: false,
            trickle: (0.0, Time(0)),
            trying: BTreeMap::new(),
            again: BTreeSet::new(),
            reserved: BTreeSet::new(),
            failed: Vec::new(),
        }
    }

    /// An operation arrives.
    pub fn submit(&mut self, now: Time, operation: Operation) {
        if self.limiter.is_none() {
            // A new client holds one second of the whole group's rate before it has asked.
            let threshold = (LOW_AT_START * self.fill).max(1.0);
            self.limiter = Some(Limiter::new(now, 0.0, 0.0, self.fill, threshold));
            let ticks = (now.since(Time(0)).0 / TICK.0).max(1);
            self.tick_at = Some(Time(ticks * TICK.0).after(self.tick));
            self.notices_at = now.after(NOTICES_AFTER);
            self.averaged = (0.0, now);
            self.reported = (0.0, now);
        }
        self.consumed += operation.cost;
        self.attempt(now, Trying { operation, tries: 0, again_at: now });
    }

    fn attempt(&mut self, now: Time, mut trying: Trying) {
        let Operation { id, cost, deadline } = trying.operation;
        let Some(limiter) = &mut self.limiter else {
            return;
        };
        if deadline > now
            && let Some(wait) = limiter.reserve(now, cost, deadline.since(now))
        {
            self.reserved.insert((now.after(wait), id));
            return;
        }
        trying.tries += 1;
        if trying.tries >= TRIES || deadline <= now {
            self.consumed -= cost;
            self.failed.push(id);
            return;
        }
        trying.again_at = now.after(RETRY).min(deadline);
        self.again.insert((trying.again_at, id));
        self.trying.insert(id, trying);
    }

    /// Outcomes, and what to ask.
    pub fn act(&mut self, now: Time, acts: &mut Acts<f64>) {
        while let Some((at, id)) = self.again.first().copied()
            && at <= now
        {
            self.again.remove(&(at, id));
            if let Some(trying) = self.trying.remove(&id) {
                self.attempt(now, trying);
            }
        }
        while let Some((at, id)) = self.reserved.first().copied()
            && at <= now
        {
            self.reserved.remove(&(at, id));
            acts.done.push((id, true));
        }
        acts.done.extend(self.failed.drain(..).map(|id| (id, false)));
        if self.fails_at.is_some_and(|at| at <= now) {
            self.fails_at = None;
            self.in_flight = false;
        }
        self.timers(now);
        if self.limiter.as_mut().is_some_and(Limiter::take_notice) {
            self.snapshot(now);
            acts.asks.extend(self.collect(now, true));
        }
        if let Some(at) = self.tick_at
            && at <= now
        {
            self.tick_at = Some(at.after(TICK));
            self.snapshot(now);
            if !self.in_flight {
                acts.asks.extend(self.collect(now, false));
            }
        }
    }

    fn timers(&mut self, now: Time) {
        let Some(limiter) = &mut self.limiter else {
            return;
        };
        if self.threshold_at.is_some_and(|at| at <= now) {
            self.threshold_at = None;
            limiter.set_threshold(1.0);
        }
        if self.notices_at <= now {
            self.notices_at = now.after(NOTICES_AFTER);
            limiter.renew_notices();
        }
    }

    /// Takes what was consumed since the last time into the average.
    fn snapshot(&mut self, now: Time) {
        let (before, since) = self.averaged;
        let step = between(since, now);
        if step > 0.0 {
            // Operations that fail together would make it negative within a millisecond. The client would ask for
            // nothing, lose its slot, and ask again with every answer: more than the description's figures show.
            let newest = (self.consumed - before).max(0.0) / step;
            self.average = (1.0 - NEWEST) * self.average + NEWEST * newest;
            self.averaged = (self.consumed, now);
        }
    }

    /// The RU to ask for, when there is a reason to ask.
    fn collect(&mut self, now: Time, low_only: bool) -> Option<f64> {
        let limiter = self.limiter.as_ref()?;
        let since = now.since(self.reported.1);
        let worth = since >= REPORT_ANYHOW || self.consumed - self.reported.0 >= REPORT;
        let periodic = !low_only && (!self.answered_once || (since >= REPORT_AFTER && worth));
        if !self.unanswered && !limiter.is_low() && !periodic {
            return None;
        }
        self.reported = (self.consumed, now);
        self.in_flight = true;
        self.unanswered = true;
        self.fails_at = Some(now.after(CALL_FAILS));
        let needed = self.average * seconds(PERIOD) * AMPLIFIED;
        Some((needed - limiter.available(now)).max(0.0))
    }

    /// The server's answer.
    pub fn granted(&mut self, now: Time, granted: Granted) {
        let Some(limiter) = &mut self.limiter else {
            return;
        };
        self.in_flight = false;
        self.unanswered = false;
        self.answered_once = true;
        self.fails_at = None;
        let (rate, until) = self.trickle;
        let tokens = granted.tokens + rate * between(now, until);
        if granted.trickle == Span(0) {
            let need = self.average * seconds(PERIOD);
            let threshold = LOW * (tokens + limiter.available(now)).min(need);
            limiter.reconfigure(now, tokens, 0.0, granted.burst, threshold);
            self.trickle = (0.0, now);
            self.threshold_at = None;
        } else {
            // The rate stays after the trickle has ended, until the next answer.
            let rate = tokens / seconds(granted.trickle);
            limiter.reconfigure(now, 0.0, rate, granted.burst, 0.0);
            self.trickle = (rate, now.after(granted.trickle));
            let early = granted.trickle.0.saturating_sub(BEFORE_END.0);
            let early = if early > 0 { early } else { u64::midpoint(granted.trickle.0, BEFORE_END.0) };
            self.threshold_at = Some(now.after(Span(early)));
        }
        // All who failed try again at once.
        self.again.clear();
        for (_, trying) in std::mem::take(&mut self.trying) {
            self.attempt(now, trying);
        }
    }

    /// When to act next.
    pub fn wake_at(&self) -> Option<Time> {
        let first = |set: &BTreeSet<(Time, u64)>| set.first().map(|(at, _)| *at);
        let failed = (!self.failed.is_empty()).then_some(Time(0));
        let low = self.limiter.is_some().then_some(self.notices_at);
        [
            self.tick_at,
            low,
            self.threshold_at,
            self.fails_at,
            first(&self.again),
            first(&self.reserved),
            failed,
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(milliseconds: u64) -> Time {
        Time(milliseconds * 1_000)
    }

    fn operation(id: u64, cost: f64, patience_ms: u64) -> Operation {
        Operation { id, cost, deadline: at_ms(patience_ms) }
    }

    type Outcome = (u64, bool, Time);

    /// Runs a client to a moment; returns outcomes and asks, with their times.
    fn run(client: &mut Client, until: Time) -> (Vec<Outcome>, Vec<(f64, Time)>) {
        let (mut done, mut asks, mut now) = (Vec::new(), Vec::new(), Time(0));
        while let Some(at) = client.wake_at().filter(|at| *at <= until) {
            now = now.max(at);
            let mut acts = Acts::default();
            client.act(now, &mut acts);
            done.extend(acts.done.into_iter().map(|(id, admitted)| (id, admitted, now)));
            asks.extend(acts.asks.into_iter().map(|ask| (ask, now)));
        }
        (done, asks)
    }

    fn answered(fill: f64) -> Client {
        let mut client = Client::new(fill, Span(0));
        client.submit(Time(0), operation(0, 0.0, 1));
        client.granted(Time(0), Granted { tokens: 0.0, trickle: Span(0), burst: fill });
        client
    }

    #[test]
    fn g1_little_is_not_reported_every_period() {
        let mut client = answered(1_000.0);
        client.submit(Time(0), operation(1, 1.0, 1_000));
        let (_, asks) = run(&mut client, at_ms(5_500));
        assert!(asks.is_empty(), "{asks:?}");
        client.submit(at_ms(5_500), operation(2, 100.0, 6_000));
        let (_, asks) = run(&mut client, at_ms(7_000));
        assert_eq!(asks.len(), 1);
    }

    #[test]
    fn g6_without_a_rate_operations_fail_after_their_tries() {
        let mut client = answered(10.0);
        client.submit(Time(0), operation(1, 11.0, 60_000));
        let (done, _) = run(&mut client, at_ms(2_000));
        let failed = done.iter().find(|(id, ..)| *id == 1);
        let last = at_ms(50 * u64::from(TRIES - 1));
        assert!(matches!(failed, Some((_, false, at)) if *at >= last && *at < last.after(RETRY)), "{done:?}");
    }

    #[test]
    fn c9_an_answer_wakes_all_who_failed() {
        let mut client = answered(10.0);
        for id in 1..=5 {
            client.submit(Time(0), operation(id, 11.0, 60_000));
        }
        run(&mut client, at_ms(120));
        client.granted(at_ms(120), Granted { tokens: 100.0, trickle: Span(0), burst: 1_000.0 });
        let (done, _) = run(&mut client, at_ms(121));
        assert_eq!(done.iter().filter(|(_, admitted, _)| *admitted).count(), 5, "{done:?}");
    }

    #[test]
    fn a_trickle_becomes_a_rate_and_stays_one() {
        let mut client = answered(10.0);
        client.granted(Time(0), Granted { tokens: 50.0, trickle: Span::secs(5), burst: 0.0 });
        let available = |client: &Client, ms| client.limiter.as_ref().unwrap().available(at_ms(ms));
        assert_eq!(available(&client, 5_000), 60.0);
        assert_eq!(available(&client, 9_000), 100.0, "nobody stops it");
        client.granted(at_ms(4_000), Granted { tokens: 40.0, trickle: Span::secs(5), burst: 0.0 });
        assert_eq!(available(&client, 9_000), 10.0 + 40.0 + 50.0, "what is left of the first comes on top");
    }

    #[test]
    fn a_client_that_gets_no_answer_asks_again() {
        let mut client = Client::new(100.0, Span(0));
        client.submit(Time(0), operation(1, 50.0, 1_000));
        let (_, asks) = run(&mut client, at_ms(9_500));
        assert!(asks.len() >= 2 && asks.len() <= 4, "{asks:?}");
    }
}
