//! A controller with a million idle groups, beside one with a single group: time from its start to the first grant,
//! memory a group, and CPU while idle. Each figure comes from a process of its own.

use super::child::{ask, figure};
use super::error::{BenchError, failed};
use super::messages;
use super::row::{BYTES, Kind, Mark, Row, S, Unit};
use super::samples::Samples;
use super::setting::Setting;
use super::site::capped;
use super::stock::Stock;

/// Groups in the store.
const GROUPS: usize = 1_000_000;
/// How long a controller is left alone, in milliseconds.
const IDLE_MS: u64 = 5_000;

/// Measures the family.
pub fn run(setting: &Setting) -> Result<Vec<Row>, BenchError> {
    let setting = setting.with_rounds(3);
    let folder = tempfile::tempdir().map_err(failed("make a directory"))?;
    let groups = setting.size(GROUPS, GROUPS / 50);
    let idle = setting.size(IDLE_MS, IDLE_MS / 5).to_string();
    let (many, one) = (folder.path().join("many.redb"), folder.path().join("one.redb"));
    for (path, count) in [(&many, groups), (&one, 1)] {
        eprintln!("bench: groups: filling a store with {count}");
        let groups = (0..count).map(|number| capped(messages::group_name(number), "1000"));
        Stock { groups, tenants: Vec::new() }.fill(path)?;
    }
    let (mut with, mut without, mut engine, mut store) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..setting.rounds {
        eprintln!("bench: groups: start {} of {}", round + 1, setting.rounds);
        with.push(ask(&["controller", &many.to_string_lossy(), &idle])?);
        without.push(ask(&["controller", &one.to_string_lossy(), &idle])?);
        engine.push(ask(&["engine", &groups.to_string()])?);
        store.push(ask(&["store", &many.to_string_lossy()])?);
    }
    let of = |answers: &[serde_json::Value], name| {
        let figures: Result<_, _> = answers.iter().map(|answer| figure(answer, name)).collect();
        figures.map(Samples::new)
    };
    let start = Row::new(format!("groups/{groups}, start to first grant"), S, of(&with, "granted_s")?);
    let memory = of(&with, "resident")?.less(&of(&without, "resident")?);
    let idle = Row::new(format!("groups/{groups} idle, CPU"), Unit("ms/s"), of(&with, "idle_cpu_ms_per_s")?);
    let grown = |answers: &[serde_json::Value]| {
        let grown = of(answers, "after")?.less(&of(answers, "before")?);
        Ok::<_, BenchError>(grown.map(|bytes| bytes / groups as f64))
    };
    let others = groups.saturating_sub(1).max(1) as f64;
    Ok(vec![
        start.mark(Mark::AtMost(3.0)).beside(Kind::Floor, "one group", of(&without, "granted_s")?, None),
        Row::new(
            format!("groups/{groups} idle, memory of each in the controller"),
            BYTES,
            memory.map(|bytes| bytes / others),
        )
        .mark(Mark::AtMost(512.0))
        .note("resident memory above that of a controller with one group, the store's cache included"),
        Row::new(format!("groups/{groups} idle, of that the grant engine alone"), BYTES, grown(&engine)?),
        Row::new(format!("groups/{groups} idle, of that the store's cache alone"), BYTES, grown(&store)?),
        idle.beside(Kind::Floor, "one group", of(&without, "idle_cpu_ms_per_s")?, None),
    ])
}
