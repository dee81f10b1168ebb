//! A limit that processes share through Redis, beside a client with a lease: decisions a second, how long one takes,
//! how many are wrong when connections ask at once, and what is left after the server was killed.
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
/// A limit that no round reaches.
const HIGH: u32 = 1_000_000_000;

const CALLS: Unit = Unit("calls");

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

/// Admitted calls of each connection, and the times of all its calls in nanoseconds.
fn calls(server: &Redis, limiter: &Limiter, each: u64) -> Result<Vec<(u64, Vec<u64>)>, BenchError> {
    let since = Stopwatch::start();
    let connections = (0..CONNECTIONS).map(|_| connect(server)).collect::<Result<Vec<_>, _>>()?;
    at_once(connections, |number, redis| {
        let mut admitted = 0;
        let times = timed(each, |call| {
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

fn timed(count: u64, mut call: impl FnMut(u64) -> Result<(), BenchError>) -> Result<Vec<u64>, BenchError> {
    let mut times = Vec::new();
    for number in 0..count {
        let watch = Stopwatch::start();
        call(number)?;
        times.push(u64::try_from(watch.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    Ok(times)
}

/// Decisions per second of all together, and microseconds that 99 of 100 do not exceed.
fn figures(by_connection: Vec<Vec<u64>>) -> (f64, f64) {
    let nanos = |times: &Vec<u64>| times.iter().sum::<u64>() as f64;
    let rate = by_connection.iter().map(|times| times.len() as f64 * 1e9 / nanos(times).max(1.0)).sum();
    let mut all: Vec<u64> = by_connection.into_iter().flatten().collect();
    all.sort_unstable();
    let p99 = all.get(all.len() * 99 / 100).copied().unwrap_or_default();
    (rate, p99 as f64 / 1e3)
}

/// Measures the family.
pub fn run(setting: &Setting) -> Result<Vec<Row>, BenchError> {
    let mut server = Redis::start(&[]).map_err(failed("start Redis"))?;
    let site = Site::start()?;
    site.define(&capped("busy", "100000000"))?;
    let client = site.client("bench-redis")?;
    let group = site.group(&client, "busy")?;
    site.keep_warm(std::slice::from_ref(&group), WARM)?;

    let mut rows = speed(setting, &server, &group)?;
    let mut beyond = Vec::new();
    let mut again = Vec::new();
    for way in Way::ALL {
        let limiter = Limiter::new(way, format!("wrong {}", way.name()), LIMIT, WINDOW);
        let first = admitted(&server, &limiter, EACH)?;
        beyond.push((way, first.saturating_sub(LIMIT.into())));
        server.restart().map_err(failed("kill and start Redis"))?;
        again.push((way, admitted(&server, &limiter, EACH)?.min(LIMIT.into())));
    }
    let ours = beyond_lease(&site)?;
    let note = format!(
        "{CONNECTIONS} connections, {EACH} calls each, limit {LIMIT}; ours: beyond rate * time + burst"
    );
    rows.push(counted("redis/admitted beyond the limit", ours, &beyond).note(note));
    let note = "calls of the same window admitted after kill -9 and a start with the default configuration; a \
                restarted controller gives what leases have proven";
    rows.push(counted("redis/admitted again after a kill", 0, &again).note(note));
    Ok(rows)
}

fn counted(case: &str, ours: u64, others: &[(Way, u64)]) -> Row {
    let samples = |count: u64| Samples::new(vec![count as f64]);
    others.iter().fold(Row::new(case, CALLS, samples(ours)), |row, (way, count)| {
        row.beside(Kind::Peer, way.name(), samples(*count), None)
    })
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
        let own = at_once(handles, |_, group| timed(round, |_| admit(group)))?;
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
    Ok(vec![rate.note("ours: try_acquire and settle_ru on a lease, as many threads"), p99])
}

/// Calls of one RU that a lease admits, to as many threads that ask without pause, beyond what rate and burst yield in
/// the time.
fn beyond_lease(site: &Site) -> Result<u64, BenchError> {
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
    let micros = u64::try_from(watch.elapsed().as_micros()).unwrap_or(u64::MAX);
    let admitted: u64 = each.iter().sum();
    if admitted == 0 {
        return Err(BenchError::Wrong("a lease of 1000 RU/s admitted nothing in 2 s".to_owned()));
    }
    let allowed = u64::from(LIMIT) * (micros + 1_000_000) / 1_000_000;
    Ok(admitted.saturating_sub(allowed))
}
