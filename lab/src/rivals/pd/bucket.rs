//! One group on the server: refill, split, grant, loan and trickle.

use std::collections::BTreeMap;

use tidegate_core::units::{Span, Time};

use super::slots::{Slot, Slots, Whole};
use super::tracker::Tracker;
use crate::rivals::number::{between, seconds, span};

/// RU of a new group with a burst limit.
const FIRST_TOKENS: f64 = 100_000.0;
/// The rate that a moderated group may use above its fill rate, in RU/s.
const MODERATED: f64 = 10_000.0;
/// The largest rate there is.
const UNLIMITED_RATE: f64 = 2_147_483_647.0;
/// At least this part of a period's refill is granted to every request.
const RESERVE: f64 = 0.5;

/// What a burst limit means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Above zero: the depth of the bucket.
    Limited,
    /// 0: nothing is stored, all is lent.
    RateControlled,
    /// -1: all that is asked for is granted.
    Unlimited,
    /// -2: more than the fill rate, by a fixed amount.
    Moderated,
}

/// A grant to a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Granted {
    /// RU.
    pub tokens: f64,
    /// Over this time; zero is at once.
    pub trickle: Span,
    /// The burst limit of the client's slot.
    pub burst: f64,
}

/// A group's bucket.
#[derive(Clone, Debug)]
pub struct Bucket {
    /// RU/s.
    pub fill: f64,
    /// RU, or a mode.
    pub burst: f64,
    /// RU not granted.
    pub tokens: f64,
    since: Time,
    used_before: bool,
    /// Full slots gave this back; it comes in with the next refill.
    reserved: f64,
    changed: bool,
    /// Fill rate and burst limit that a limit of the service puts in place of the group's own.
    overridden: Option<(f64, f64)>,
    slots: Slots,
}

impl Bucket {
    /// A group that was never asked for tokens.
    pub fn new(fill: f64, burst: f64) -> Self {
        Self {
            fill,
            burst,
            tokens: 0.0,
            since: Time(0),
            used_before: false,
            reserved: 0.0,
            changed: false,
            overridden: None,
            slots: Slots::default(),
        }
    }

    /// A group that is in use, with so many tokens.
    pub fn fill_up(&mut self, now: Time, tokens: f64) {
        self.tokens = tokens;
        self.since = now;
        self.used_before = true;
    }

    /// Other settings; `tokens` are added to what is there.
    pub fn modify(&mut self, fill: f64, burst: f64, tokens: f64) {
        self.fill = fill;
        self.burst = burst;
        self.tokens += tokens;
        self.changed = true;
    }

    /// A client's slot.
    pub fn slot(&self, client: u64) -> Option<&Slot> {
        self.slots.0.get(&client)
    }

    /// A client asks for `required` RU, to last for `period`. A group that must not give anything grants zero.
    pub fn request(
        &mut self,
        now: Time,
        client: u64,
        required: f64,
        period: Span,
        trackers: &BTreeMap<u64, Tracker>,
    ) -> Granted {
        let income = self.refill(now);
        self.slots.touch(now, client, required);
        let (fill, burst) = self.effective();
        let mode = self.mode();
        let whole = match mode {
            Mode::Moderated => {
                let moderated = (fill + MODERATED).min(UNLIMITED_RATE);
                Whole { mode, fill: moderated, burst: moderated, income }
            }
            _ => Whole { mode, fill: fill.trunc(), burst, income },
        };
        if !self.slots.0.is_empty() {
            self.reserved += self.slots.balance(whole, &mut self.tokens, trackers);
        }
        let Some(slot) = self.slots.0.get_mut(&client) else {
            return Granted { tokens: 0.0, trickle: Span(0), burst };
        };
        let granted = grant(slot, required, seconds(period));
        self.tokens -= slot.settled - slot.tokens;
        slot.settled = slot.tokens;
        granted
    }

    fn effective(&self) -> (f64, f64) {
        self.overridden.unwrap_or((self.fill, self.burst))
    }

    fn mode(&self) -> Mode {
        let (_, burst) = self.effective();
        match () {
            () if self.overridden.is_some() || burst > 0.0 => Mode::Limited,
            () if burst == 0.0 => Mode::RateControlled,
            () if burst > -1.5 => Mode::Unlimited,
            () if burst > -2.5 => Mode::Moderated,
            () => Mode::Limited,
        }
    }

    /// Adds what comes in, and returns what fits. Only a bucket with a depth refills.
    fn refill(&mut self, now: Time) -> f64 {
        let (fill, burst) = self.effective();
        let mut income = 0.0;
        if !self.used_before {
            self.used_before = true;
            self.since = now;
            if burst > 0.0 {
                self.tokens = self.tokens.max(FIRST_TOKENS);
            }
        } else if burst > 0.0 {
            income = fill * between(self.since, now) + std::mem::take(&mut self.reserved);
            self.since = now;
            self.tokens += income;
            if self.tokens > burst {
                income -= self.tokens - burst;
                self.tokens = burst;
            }
        }
        if self.changed && self.tokens <= 0.0 {
            self.tokens = 0.0;
            self.slots.reset();
            self.changed = false;
        }
        income
    }
}

/// Grants from a slot: its tokens, then a loan that gets slower as it grows, then the reserve.
fn grant(slot: &mut Slot, required: f64, period: f64) -> Granted {
    let (fill, burst) = (slot.fill, slot.burst);
    let granted = |tokens: f64, trickle: f64| Granted { tokens, trickle: milliseconds(trickle), burst };
    if burst < 0.0 {
        return granted(required, 0.0);
    }
    if fill == 0.0 {
        slot.tokens = 0.0;
        slot.settled = 0.0;
        return granted(0.0, period);
    }
    if slot.tokens >= required {
        slot.tokens -= required;
        return granted(required, 0.0);
    }
    let in_hand = slot.tokens.max(0.0);
    slot.tokens -= in_hand;
    let (tokens, time) = lend(slot, in_hand, required - in_hand, period);
    granted(tokens, if in_hand > 0.0 { time.min(period) } else { period })
}

/// Lends in rounds, each slower than the one before. Returns all that is granted, `in_hand` included, and over what time.
fn lend(slot: &mut Slot, in_hand: f64, mut required: f64, period: f64) -> (f64, f64) {
    let rounds = if slot.burst > 0.0 && slot.burst <= slot.fill { 1 } else { 2 };
    let refill = slot.fill * period;
    let (mut tokens, mut time, mut most) = (in_hand, 0.0, 0.0);
    for round in 0..rounds {
        let pace = f64::from(rounds - round);
        most += pace * refill;
        let debt = -slot.tokens;
        if required <= 0.0 || time >= period || debt >= most {
            continue;
        }
        let (room, rate) = (most - debt, pace * slot.fill);
        let lent = if room > required {
            // The whole grant so far counts, not only this round's part of it.
            time += (tokens + required) / rate;
            required
        } else if time + room / rate >= period {
            let rest = (period - time) * rate;
            time = period;
            rest
        } else {
            time += room / rate;
            room
        };
        required -= lent;
        slot.tokens -= lent;
        tokens += lent;
    }
    let reserve = RESERVE * refill;
    if required > 0.0 && tokens < reserve {
        let more = (required + tokens).min(reserve) - tokens;
        slot.tokens -= more;
        tokens += more;
    }
    (tokens, time)
}

/// Whole milliseconds, cut.
fn milliseconds(seconds: f64) -> Span {
    span((seconds * 1e3 + 1e-6).floor() / 1e3)
}

#[cfg(test)]
mod tests;
