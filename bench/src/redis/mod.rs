//! A limit that processes share through Redis, beside a client with a lease: decisions a second, how long one takes, and
//! how many are wrong when connections ask at once. What a kill leaves has no time: it is a test (`tests/redis.rs`).
//!
//! The server is Debian's, with its defaults, on loopback. Each connection has a thread. Ours is one client of as many
//! threads, whose controller runs in this process.

pub mod limiter;

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use redis::Connection;
use tidegate_client::{Group, Ru, RuParts};
use tidegate_test_servers::Redis;

use super::admission::{WARM, admit};
use super::clock::Stopwatch;
use super::error::{BenchError, failed};
use super::row::{Kind, PER_S, Row, US, Unit};
use super::samples::Samples;
use super::setting::Setting;
use super::site::{Site, capped};
use limiter::{Limiter, Way};

/// Connections that ask at the same time.
pub const CONNECTIONS: usize = 8;
/// The limit for wrong decisions, and how many calls each connection makes: together four times as many.
const LIMIT: u32 = 1_000;
const EACH: u64 = 500;
/// A window longer than the test: what is admitted beyond the limit is wrong. The bucket earns a token in 3.6 s.
const WINDOW: Duration = Duration::from_secs(3_600);
/// Calls of one connection in a round.
const ROUND: u64 = 5_000;
/// So many times more of ours, whose round would be over before all threads have begun.
const LOCAL: u64 = 40;
/// A limit that no round reaches.
const HIGH: u32 = 1_000_000_000;

const LIMITS: Unit = Unit("of the limit");

/// A connection to a server.
///
/// # Errors
/// It does not answer.
pub fn connect(server: &Redis) -> Result<Connection, BenchError> {
    let client = redis::Client::open(("127.0.0.1", server.port())).map_err(failed("name a server"))?;
    client.get_connection().map_err(failed("connect to Redis"))
}

/// How many calls each of `CONNECTIONS` that ask at once are admitted, of `each`.
///
/// # Errors
/// The server does not answer.
pub fn admitted(server: &Redis, limiter: &Limiter, each: u64) -> Result<u64, BenchError> {
    let calls = calls(server, limiter, each)?;
    Ok(calls.iter().map(|(admitted, _)| admitted).sum())
}

/// The calls of one connection.
struct Timed {
    /// From when to when, by one clock for all connections.
    begin: Duration,
    end: Duration,
    /// How long each took, in nanoseconds.
    times: Vec<u64>,
}

/// Admitted calls of each connection, and how long they took.
fn calls(server: &Redis, limiter: &Limiter, each: u64) -> Result<Vec<(u64, Timed)>, BenchError> {
    let since = Stopwatch::start();
    let connections = (0..CONNECTIONS).map(|_| connect(server)).collect::<Result<Vec<_>, _>>()?;
    at_once(connections, |number, redis| {
        let mut admitted = 0;
        let times = timed(&since, each, |call| {
            let id = number as u64 * each + call;
            let yes = limiter.decide(redis, id, since.elapsed()).map_err(failed("ask Redis"))?;
            admitted += u64::from(yes);
            Ok(())
        })?;
        Ok((admitted, times))
    })
}

/// Each on its thread, from the moment on at which all are ready.
fn at_once<T: Send, R: Send>(
    parts: Vec<T>,
    work: impl Fn(usize, &mut T) -> Result<R, BenchError> + Sync,
) -> Result<Vec<R>, BenchError> {
    let barrier = Barrier::new(parts.len());
    thread::scope(|scope| {
        let run = |(number, mut part): (usize, T)| {
            let (barrier, work) = (&barrier, &work);
            scope.spawn(move || {
                barrier.wait();
                work(number, &mut part)
            })
        };
        let running: Vec<_> = parts.into_iter().enumerate().map(run).collect();
        let joined = running
            .into_iter()
            .map(|thread| thread.join().map_err(|_| BenchError::Wrong("a thread panicked".to_owned()))?);
        joined.collect()
    })
}

fn timed(
    since: &Stopwatch,
    count: u64,
    mut call: impl FnMut(u64) -> Result<(), BenchError>,
) -> Result<Timed, BenchError> {
    let mut times = Vec::new();
    let begin = since.elapsed();
    for number in 0..count {
        let watch = Stopwatch::start();
        call(number)?;
        times.push(u64::try_from(watch.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    Ok(Timed { begin, end: since.elapsed(), times })
}

/// Decisions per second of all together, from the first begin to the last end, and microseconds that 99 of 100 do not
/// exceed.
fn figures(all: Vec<Timed>) -> (f64, f64) {
    let begin = all.iter().map(|timed| timed.begin).min().unwrap_or_default();
    let end = all.iter().map(|timed| timed.end).max().unwrap_or_default();
    let mut times: Vec<u64> = all.into_iter().flat_map(|timed| timed.times).collect();
    let rate = times.len() as f64 / end.saturating_sub(begin).as_secs_f64();
    times.sort_unstable();
    let p99 = times.get(times.len() * 99 / 100).copied().unwrap_or_default();
    (rate, p99 as f64 / 1e3)
}

/// Measures the family.
pub fn run(setting: &Setting) -> Result<Vec<Row>, BenchError> {
    let server = Redis::start(&[]).map_err(failed("start Redis"))?;
    let site = Site::start()?;
    site.define(&capped("busy", "100000000"))?;
    let client = site.client("bench-redis")?;
    let group = site.group(&client, "busy")?;
    site.keep_warm(std::slice::from_ref(&group), WARM)?;

    let mut rows = speed(setting, &server, &group)?;
    let mut row = Row::new("redis/most admitted", LIMITS, Samples::new(vec![admitted_by_lease(&site)?]));
    for way in Way::ALL {
        let limiter = Limiter::new(way, format!("wrong {}", way.name()), LIMIT, WINDOW);
        let share = admitted(&server, &limiter, EACH)? as f64 / f64::from(LIMIT);
        row = row.beside(Kind::Peer, way.name(), Samples::new(vec![share]), None);
    }
    let note =
        format!("{CONNECTIONS} connections, {EACH} calls each, limit {LIMIT}; ours: of rate * time + burst");
    rows.push(row.note(note));
    Ok(rows)
}

/// Decisions a second and the slowest hundredth, in turns.
fn speed(setting: &Setting, server: &Redis, group: &Group) -> Result<Vec<Row>, BenchError> {
    let round = setting.size(ROUND, 200);
    let mut ours = (Vec::new(), Vec::new());
    let mut theirs = Way::ALL.map(|way| (way, Vec::new(), Vec::new()));
    let log = |to: (&mut Vec<f64>, &mut Vec<f64>), (rate, p99): (f64, f64)| {
        to.0.push(rate);
        to.1.push(p99);
    };
    for number in 0..setting.rounds {
        let handles = vec![group.clone(); CONNECTIONS];
        let since = Stopwatch::start();
        let own = at_once(handles, |_, group| timed(&since, round * LOCAL, |_| admit(group)))?;
        log((&mut ours.0, &mut ours.1), figures(own));
        for (way, rates, slowest) in &mut theirs {
            let limiter = Limiter::new(*way, format!("speed {number} {}", way.name()), HIGH, WINDOW);
            let times = calls(server, &limiter, round)?.into_iter().map(|(_, times)| times);
            log((rates, slowest), figures(times.collect()));
        }
    }
    let case = |what: &str| format!("redis/{what}, {CONNECTIONS} connections");
    let mut rate = Row::new(case("decisions"), PER_S, Samples::new(ours.0));
    let mut p99 = Row::new(case("p99 of a decision"), US, Samples::new(ours.1));
    for (way, rates, slowest) in theirs {
        rate = rate.beside(Kind::Peer, way.name(), Samples::new(rates), None);
        p99 = p99.beside(Kind::Peer, way.name(), Samples::new(slowest), None);
    }
    Ok(vec![
        rate.note("ours: try_acquire and settle_ru on a lease, as many threads; each decision is timed"),
        p99,
    ])
}

/// Calls of one RU that a lease admits to as many threads that ask without pause, of what rate and burst yield in the
/// time.
fn admitted_by_lease(site: &Site) -> Result<f64, BenchError> {
    site.define(&capped("capped", &LIMIT.to_string()))?;
    let client = site.client("bench-redis-wrong")?;
    let group = site.group(&client, "capped")?;
    let watch = Stopwatch::start();
    let each = at_once(vec![group; CONNECTIONS], |_, group| {
        let mut admitted = 0_u64;
        while watch.elapsed() < Duration::from_secs(2) {
            if let Ok(permit) = group.try_acquire(Ru::whole(1)) {
                permit.settle_ru(RuParts::flat(Ru::whole(1)));
                admitted += 1;
            }
        }
        Ok(admitted)
    })?;
    let seconds = watch.elapsed().as_secs_f64();
    let admitted: u64 = each.iter().sum();
    if admitted == 0 {
        return Err(BenchError::Wrong("a lease of 1000 RU/s admitted nothing in 2 s".to_owned()));
    }
    Ok(admitted as f64 / (f64::from(LIMIT) * (seconds + 1.0)))
}
