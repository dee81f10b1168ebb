//! Fact 5: how often the two-window counter decides otherwise than a count of the last minute would.
//!
//! Of every request it is asked whether the counter and a log of the key's last minute agree, in two ways. *Counting
//! all*: a request counts whether or not it is refused, as at Cloudflare, whose figures are beside ours; one pass judges
//! several limits. *Counting what it admits*: the policy as a group would have it, beside a log of what it admitted.

use std::collections::VecDeque;

use tidegate_core::policy::Policy;
use tidegate_core::policy::two_windows::TwoWindows;
use tidegate_core::units::{MICRO, Ru, Span, Time};

use super::table::{Table, thousands};
use super::traffic::Traffic;
use super::{LabError, Section};

const MINUTE: Span = Span::secs(60);
/// Requests a minute, judged beside the one that is asked for.
const LIMITS: [u32; 4] = [100, 1_000, 10_000, 100_000];
/// Requests between two words about progress.
const STEP: u64 = 20_000_000;
/// In microseconds.
const HOUR: u64 = 3_600_000_000;
/// With more keys there are phases without end; with more requests an hour, too many in a microsecond.
const MOST_KEYS: u64 = 10_000_000;
const MOST_HOURS: u64 = 8_784;
const MOST_REQUESTS: u64 = 1_000_000_000;

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// What comes.
    pub traffic: Traffic,
    /// Requests a minute that a key may have.
    pub limit: u32,
}

/// What came out for a limit.
#[derive(Clone, Copy, Debug, Default)]
struct Decisions {
    /// Requests that a log would have refused, in all.
    over: u64,
    wrongly_admitted: u64,
    wrongly_refused: u64,
}

impl Decisions {
    fn count(&mut self, admits: bool, log_admits: bool) {
        self.over += u64::from(!log_admits);
        self.wrongly_admitted += u64::from(admits && !log_admits);
        self.wrongly_refused += u64::from(!admits && log_admits);
    }
}

/// How far the counter was from the log, relative to the log.
#[derive(Clone, Copy, Debug, Default)]
struct Errors {
    sum: f64,
    count: u64,
}

impl Errors {
    #[expect(clippy::cast_precision_loss, reason = "four digits are shown")]
    fn add(&mut self, used: Ru, truth: u64) {
        if truth > 0 {
            let truth = truth as f64;
            self.sum += (used.0 as f64 / 1e6 - truth).abs() / truth;
            self.count += 1;
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "four digits are shown")]
    fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / self.count as f64 }
    }
}

/// All that is counted.
#[derive(Debug, Default)]
struct Tally {
    requests: u64,
    keys: u64,
    counting_all: Vec<Decisions>,
    by_request: Errors,
    by_key: Errors,
    admitting: Decisions,
    admitted: u64,
    /// What a log admits that refuses by itself.
    log_admitted: u64,
    /// The most that a key's last minute had, of what was admitted.
    most: u64,
}

/// The moments of the last minute.
#[derive(Debug, Default)]
struct Log(VecDeque<u64>);

impl Log {
    /// How many there are at a moment.
    fn at(&mut self, now: u64) -> u64 {
        while self.0.front().is_some_and(|first| first + MINUTE.0 <= now) {
            self.0.pop_front();
        }
        self.0.len() as u64
    }
}

impl Tally {
    /// One key's requests through counters and logs.
    fn key(
        &mut self,
        arrivals: impl Iterator<Item = u64>,
        limits: &[u32],
        [all, limited]: [&TwoWindows; 2],
        progress: &mut dyn FnMut(u64),
    ) {
        let Some(limit) = limits.first().copied().map(u64::from) else { return };
        let (mut counted, mut admitted) = (all.fresh(), limited.fresh());
        let (mut log, mut admitted_log, mut own_log) = (Log::default(), Log::default(), Log::default());
        let mut errors = Errors::default();
        for at in arrivals {
            let now = Time(at);
            let (used, truth) = (all.used(&mut counted, now), log.at(at));
            for (decisions, limit) in self.counting_all.iter_mut().zip(limits) {
                let fits = used.0 + MICRO <= i64::from(*limit) * MICRO;
                decisions.count(fits, truth < u64::from(*limit));
            }
            errors.add(used, truth);
            all.charge(&mut counted, now, Ru::whole(1));
            log.0.push_back(at);

            let truth = admitted_log.at(at);
            let admits = limited.try_acquire(&mut admitted, now, Ru::whole(1)).is_admitted();
            self.admitting.count(admits, truth < limit);
            if own_log.at(at) < limit {
                own_log.0.push_back(at);
                self.log_admitted += 1;
            }
            if admits {
                self.admitted += 1;
                admitted_log.0.push_back(at);
                self.most = self.most.max(truth + 1);
            }
            self.requests += 1;
            if self.requests.is_multiple_of(STEP) {
                progress(self.requests);
            }
        }
        self.by_request.sum += errors.sum;
        self.by_request.count += errors.count;
        if errors.count > 0 {
            self.by_key.sum += errors.mean();
            self.by_key.count += 1;
        }
        self.keys += u64::from(errors.count > 0);
    }
}

/// Percent.
#[expect(clippy::cast_precision_loss, reason = "four digits are shown")]
fn ratio(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part as f64 / all as f64 * 100.0 }
}

fn share(part: u64, all: u64) -> String {
    format!("{:.4} %", ratio(part, all))
}

/// Runs all keys; `progress` hears how many requests are done.
///
/// # Errors
/// Nothing to run, or no limit.
pub fn run(settings: &Settings, progress: &mut dyn FnMut(u64)) -> Result<Section, LabError> {
    let Settings { traffic, limit } = *settings;
    let bad = |option, value, remedy| Err(LabError::Option { option, value, remedy });
    let hours = traffic.length / HOUR;
    if hours == 0 || hours > MOST_HOURS {
        return bad("hours", hours, "1 to 8784, a year");
    }
    if traffic.requests == 0 || traffic.requests > MOST_REQUESTS * hours {
        return bad("requests", traffic.requests, "1 to 1000000000 for each of --hours");
    }
    if traffic.keys == 0 || traffic.keys > MOST_KEYS {
        return bad("keys", traffic.keys, "1 to 10000000");
    }
    let mut limits = vec![limit];
    limits.extend(LIMITS.into_iter().filter(|other| *other != limit));
    let all = TwoWindows::new(Ru::MAX, MINUTE)?;
    let limited = TwoWindows::new(Ru::whole(limit.into()), MINUTE)?;
    let mut tally = Tally { counting_all: vec![Decisions::default(); limits.len()], ..Tally::default() };
    for arrivals in traffic.by_key() {
        tally.key(arrivals, &limits, [&all, &limited], progress);
    }
    Ok(section(settings, &limits, &tally))
}

fn section(settings: &Settings, limits: &[u32], tally: &Tally) -> Section {
    let mut table =
        Table::new(["limit a minute", "over it", "wrongly admitted", "wrongly refused", "wrong, in all"]);
    let mut row = |name: String, of: &Decisions| {
        let parts =
            [of.over, of.wrongly_admitted, of.wrongly_refused, of.wrongly_admitted + of.wrongly_refused];
        table.row(std::iter::once(name).chain(parts.map(|part| share(part, tally.requests))));
    };
    let mut sorted: Vec<_> = limits.iter().zip(&tally.counting_all).collect();
    sorted.sort_by_key(|(limit, _)| **limit);
    for (limit, decisions) in sorted {
        row(format!("counting all, {}", thousands((*limit).into())), decisions);
    }
    row(format!("counting what it admits, {}", thousands(settings.limit.into())), &tally.admitting);
    let mut errors = Table::new(["relative error of the rate", "mean"]);
    for (name, of) in [("over requests", tally.by_request), ("over keys", tally.by_key)] {
        errors.row([name.to_owned(), format!("{:.2} %", of.mean() * 100.0)]);
    }
    errors.row(["published by Cloudflare".to_owned(), "6 %".to_owned()]);
    let most = tally.most.saturating_sub(settings.limit.into());
    let Traffic { keys, length, seed, .. } = settings.traffic;
    Section {
        name: "accuracy",
        title: "Fact 5: wrong decisions of the two-window counter".to_owned(),
        text: vec![
            format!(
                "{} requests of {} keys that asked more than once, of {}, in {} hours of virtual time; windows of a \
                 minute. Keys follow Zipf's law with exponent 1, requests come at random, in phases of five minutes on \
                 average at 0.25 to 2 times a key's mean (seed {seed}).",
                thousands(tally.requests),
                thousands(tally.keys),
                thousands(keys),
                length / HOUR
            ),
            "Published by Cloudflare of 400 million requests of 270,000 sources: 0.003 % wrong, where all requests \
             count."
                .to_owned(),
            format!(
                "Counting what it admits, a key over the limit stays beside it, so that each of its requests is a close \
                 call. In all it admitted {}, and a log by itself {}: {:.2} % of it. The most that any minute had was \
                 {most} over the limit of {}.",
                thousands(tally.admitted),
                thousands(tally.log_admitted),
                ratio(tally.admitted, tally.log_admitted),
                thousands(settings.limit.into())
            ),
        ],
        tables: vec![table, errors],
        pictures: Vec::new(),
    }
}
