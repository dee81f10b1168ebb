//! The grant stream over loopback gRPC: groups renewed per second and the time to an answer, beside a bare tonic
//! server that answers messages of the same types and sizes without deciding anything.
//!
//! Each stream has a connection of its own, as each node has. Throughput is measured with several renewals of a
//! stream on their way, time with one. Server and nodes have a thread each.

pub(super) mod echo;
pub(super) mod node;

use std::cell::RefCell;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use super::contest::{Work, contest};
use super::error::{BenchError, failed};
use super::messages;
use super::row::{Kind, Mark, PER_S, Row, US};
use super::samples::Samples;
use super::setting::Setting;
use super::site::{Site, capped};
use echo::Echo;
use node::{Nodes, Talk, groups_per_second};

/// Streams and groups a message.
const SHAPES: [(usize, usize); 4] = [(1, 1), (1, 100), (64, 1), (64, 100)];
/// Renewals of one stream on their way when throughput is measured.
const WINDOW: usize = 16;
/// Renewals of one stream on their way when the time to an answer is.
const ONE: usize = 1;

/// Measures the family.
pub fn run(setting: &Setting) -> Result<Vec<Row>, BenchError> {
    let groups = (0..100).map(|number| capped(messages::group_name(number), "100000"));
    let site = Site::with(groups, Vec::new())?;
    let echo = Echo::start()?;
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(failed("start a runtime"))?;
    let mut rows = Vec::new();
    for (streams, groups) in SHAPES {
        let case =
            format!("stream/{streams} stream{}, {groups} a message", if streams == 1 { "" } else { "s" });
        let sides = [site.endpoint()?, echo.endpoint()];
        let mut nodes = Vec::new();
        for endpoint in &sides {
            nodes.push(runtime.block_on(Nodes::connect(endpoint, streams, groups))?);
        }
        let [ours, theirs] = nodes.as_mut_slice() else { continue };
        rows.push(throughput(setting, &runtime, &case, groups, ours, theirs)?);
        rows.extend(answers(setting, &runtime, &case, ours, theirs)?);
    }
    Ok(rows)
}

fn throughput(
    setting: &Setting,
    runtime: &Runtime,
    case: &str,
    groups: usize,
    ours: &mut Nodes,
    theirs: &mut Nodes,
) -> Result<Row, BenchError> {
    let mut contenders: [Work<'_>; 2] = [
        Box::new(|count| runtime.block_on(ours.renew(count, WINDOW)).map(|talk| talk.took)),
        Box::new(|count| runtime.block_on(theirs.renew(count, WINDOW)).map(|talk| talk.took)),
    ];
    let samples = contest(setting, &mut contenders)?;
    let per_second = |samples| groups_per_second(samples, groups);
    let row = Row::new(format!("{case}, groups"), PER_S, per_second(samples.first()));
    let mark = Some(Mark::AtLeast(0.5));
    Ok(row.beside(Kind::Floor, "tonic echo", per_second(samples.get(1)), mark))
}

/// The median and the 99th percentile of the time to an answer, round by round.
fn answers(
    setting: &Setting,
    runtime: &Runtime,
    case: &str,
    ours: &mut Nodes,
    theirs: &mut Nodes,
) -> Result<[Row; 2], BenchError> {
    let rounds = RefCell::new([Vec::new(), Vec::new()]);
    let keep = |side: usize, talk: Talk| -> Duration {
        if let Some(talks) = rounds.borrow_mut().get_mut(side) {
            talks.push((talk.quantile_us(1, 2), talk.quantile_us(99, 100)));
        }
        talk.took
    };
    let mut contenders: [Work<'_>; 2] = [
        Box::new(|count| runtime.block_on(ours.renew(count, ONE)).map(|talk| keep(0, talk))),
        Box::new(|count| runtime.block_on(theirs.renew(count, ONE)).map(|talk| keep(1, talk))),
    ];
    contest(setting, &mut contenders)?;
    drop(contenders);
    let [ours, theirs] = rounds.into_inner();
    // Those before the last were for finding the length of a round.
    let last = |talks: &[(f64, f64)], pick: fn(&(f64, f64)) -> f64| {
        let skipped = talks.len().saturating_sub(setting.rounds);
        Samples::new(talks.iter().skip(skipped).map(pick).collect())
    };
    let row = |name: &str, pick: fn(&(f64, f64)) -> f64| {
        let row = Row::new(format!("{case}, {name} of an answer"), US, last(&ours, pick));
        row.beside(Kind::Floor, "tonic echo", last(&theirs, pick), None)
    };
    Ok([row("p50", |talk| talk.0), row("p99", |talk| talk.1)])
}
