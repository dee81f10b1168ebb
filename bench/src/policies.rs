//! A decision of each limiter policy beside one of the token bucket: of the policy itself, by a virtual clock, and of a
//! client whose group has it.
//!
//! An operation of 1 RU comes at half of the limit, so that all are admitted, and at twice of it, so that half of them
//! are refused or wait. A rate that warms up is between cold and warm at half of its limit, where the curve is reckoned
//! for each operation. On a client, all lend to threads, as far as their buckets and shares go.

use std::hint::black_box;
use std::time::Duration;

use tidegate_client::Group;
use tidegate_core::policy::demotion::Demotion;
use tidegate_core::policy::fixed_window::FixedWindow;
use tidegate_core::policy::gcra::Gcra;
use tidegate_core::policy::paced::{Delay, Grain, Paced, PacedSettings};
use tidegate_core::policy::setting::SettingError;
use tidegate_core::policy::sliding_log::SlidingLog;
use tidegate_core::policy::sub_windows::SubWindows;
use tidegate_core::policy::token_bucket::TokenBucket;
use tidegate_core::policy::two_windows::TwoWindows;
use tidegate_core::policy::warm_up::WarmUp;
use tidegate_core::policy::{Limiter, Policy};
use tidegate_core::units::{Rate, Ru, Span, Time};
use tidegate_proto::v1;

use super::admission::{COST, WARM, admit};
use super::clock::Stopwatch;
use super::contest::{Work, contest};
use super::error::{BenchError, failed};
use super::row::{Kind, Mark, NS, Row};
use super::setting::Setting;
use super::site::{PATIENCE, Site, capped};

/// The limit of all, and what a bucket and a queue hold.
const RATE: i64 = 1_000;
const BURST: Ru = Ru::whole(50);
const WINDOW: Span = Span::secs(1);
/// At most this many times what a token bucket takes.
const MOST: f64 = 2.0;

/// Measures the family.
pub fn run(setting: &Setting) -> Result<Vec<Row>, BenchError> {
    let mut rows = Vec::new();
    for (case, micros) in [("half of the limit", 2_000), ("twice the limit", 500)] {
        let named = policies(Span(micros)).map_err(failed("set a policy"))?;
        rows.extend(beside_first(setting, case, named)?);
    }
    rows.extend(clients(setting)?);
    Ok(rows)
}

/// A contender and what the table calls it.
type Named<'a> = (&'a str, Work<'a>);

fn policies(step: Span) -> Result<Vec<Named<'static>>, SettingError> {
    let (rate, limit) = (Rate::whole(RATE), Ru::whole(RATE));
    let bucket = || TokenBucket::new(rate, BURST);
    let queue = |grain| Paced::new(PacedSettings { rate, burst: BURST, delay: Delay::All, grain });
    Ok(vec![
        ("token bucket", decisions(bucket()?, step)),
        ("GCRA", decisions(Gcra::new(rate, BURST)?, step)),
        ("fixed window", decisions(FixedWindow::new(limit, WINDOW)?, step)),
        ("two windows", decisions(TwoWindows::new(limit, WINDOW)?, step)),
        ("ten sub-windows", decisions(SubWindows::new(limit, WINDOW, 10)?, step)),
        ("ten sub-windows, by their part", decisions(SubWindows::weighted(limit, WINDOW, 10)?, step)),
        ("sliding log", decisions(SlidingLog::new(limit, WINDOW, 1_000)?, step)),
        ("paced", decisions(queue(Grain::Exact)?, step)),
        ("paced as nginx", decisions(queue(Grain::Milli)?, step)),
        ("warm-up", decisions(WarmUp::new(rate, Span::secs(10), 3)?, step)),
        ("demotion", decisions(Demotion::new(bucket()?, bucket()?), step)),
    ])
}

/// Decisions on operations of 1 RU, one each `step`.
fn decisions<P: Policy + 'static>(policy: P, step: Span) -> Work<'static> {
    let (mut limiter, mut now) = (Limiter::new(policy), Time(0));
    Box::new(move |count| {
        let watch = Stopwatch::start();
        for _ in 0..count {
            now = now.after(step);
            black_box(limiter.try_acquire(black_box(now), black_box(Ru::whole(1))));
        }
        Ok(watch.elapsed())
    })
}

/// The first contender is what the others are measured by.
fn beside_first(setting: &Setting, case: &str, named: Vec<Named<'_>>) -> Result<Vec<Row>, BenchError> {
    let (names, mut contenders): (Vec<_>, Vec<_>) = named.into_iter().unzip();
    let samples = contest(setting, &mut contenders)?;
    let Some(first) = samples.first() else { return Ok(Vec::new()) };
    let row = |(name, own): (&&str, _)| Row::new(format!("policies/{case}, {name}"), NS, own);
    let rows = names.iter().zip(samples.iter().cloned()).map(row).enumerate();
    let beside = |(at, row): (usize, Row)| {
        let name = names.first().copied().unwrap_or_default();
        if at == 0 { row } else { row.beside(Kind::Peer, name, first.clone(), Some(Mark::AtMost(MOST))) }
    };
    Ok(rows.map(beside).collect())
}

/// An operation admitted and settled by a client, in a group of each policy and under quotas.
fn clients(setting: &Setting) -> Result<Vec<Row>, BenchError> {
    let site = Site::start()?;
    let client = site.client("bench-policies")?;
    let plain = |name: &str| capped(name, "10000000");
    let of_policy = |name: &str, policy: &str| v1::Group { policy: policy.to_owned(), ..plain(name) };
    let of_quota = |name: &str, quota: &str| v1::Group { quota: quota.to_owned(), ..plain(name) };
    let texts = [
        plain("token-bucket"),
        of_quota("quota", "1000000000000 per month"),
        of_quota("requests", "1000000000000 requests per month"),
        of_policy("paced", "paced"),
        of_policy("warm-up", "warm_up(10s, 3)"),
    ];
    let mut groups = Vec::new();
    for text in &texts {
        site.define(text)?;
        groups.push(site.group(&client, &text.name)?);
    }
    site.keep_warm(&groups, WARM)?;
    let named = texts.iter().zip(&groups).map(|(text, group)| -> Named<'_> {
        let site = &site;
        (&text.name, Box::new(move |count| admitted(site, group, count)))
    });
    beside_first(setting, "a client", named.collect())
}

/// Time of operations that a client admits, without the waits for a share of a quota: the first comes with a commit after
/// the definition, and shares of requests follow the load, which here begins with a million a second.
fn admitted(site: &Site, group: &Group, count: u64) -> Result<Duration, BenchError> {
    let (mut took, mut left) = (Duration::ZERO, count);
    loop {
        let watch = Stopwatch::start();
        while left > 0 && admit(group).is_ok() {
            left -= 1;
        }
        took += watch.elapsed();
        if left == 0 {
            return Ok(took);
        }
        let permit = site.runtime.block_on(group.acquire(COST, PATIENCE));
        permit.map_err(failed("be admitted"))?.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also of quotas, of which nodes have no share at first.
    #[test]
    fn every_policy_and_both_quotas_are_measured_on_a_client() {
        let rows = clients(&Setting::QUICK).unwrap();
        let names: Vec<_> = rows.iter().map(|row| row.case.as_str()).collect();
        let all = ["token-bucket", "quota", "requests", "paced", "warm-up"];
        assert_eq!(names, all.map(|name| format!("policies/a client, {name}")));
    }
}
