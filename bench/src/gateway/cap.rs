//! A group at 500 RU/s that two gateways and 32 connections would overrun, and a neighbour without a limit.

use std::fs;

use super::load::{at, finished, latencies, number, pgbench, psql, said, started};
use super::stage::{Stage, plenty};
use crate::clock::Stopwatch;
use crate::error::{BenchError, failed};
use crate::row::{Kind, Mark, PERCENT, Row, US};
use crate::samples::Samples;
use crate::setting::Setting;
use crate::site::capped;
use tidegate_test_servers::Postgres;

const RATE: f64 = 500.0;
/// About one RU, for what is sent; the server's CPU is not to be what is short.
const STATEMENT: &str = "select repeat('x', 60000);\n";

/// Measures the family.
pub fn run(setting: &Setting) -> Result<Vec<Row>, BenchError> {
    let server = Postgres::start(&["shared_buffers=256MB", "max_connections=100"]);
    let server = server.map_err(failed("start PostgreSQL"))?;
    let mut stage = Stage::start(vec![capped("heavy", "500"), plenty("light")])?;
    for database in ["heavy", "light"] {
        let create = format!("create database {database}");
        said(psql(&server, server.port(), "postgres").args(["-c", &create]))?;
        said(pgbench(&server, server.port(), database).args(["-q", "-i", "-s", "1"]))?;
    }
    let gateways = [stage.gateway(&server.upstream())?, stage.gateway(&server.upstream())?];
    let seconds = setting.size("60", "5");
    let [first, _] = gateways;
    let neighbour = |stage: &Stage| {
        let folder = stage.folder.path();
        let log = format!("--log-prefix={}", folder.join("light").display());
        let mut light = pgbench(&server, first, "light");
        said(light.args(["-S", "-c", "2", "-R", "200", "-T", seconds, "-l", &log]))?;
        Ok::<f64, BenchError>(at(&latencies(folder, "light")?, 99))
    };
    let mut alone = vec![neighbour(&stage)?];
    let before = stage.consumed("heavy")?.0;
    let watch = Stopwatch::start();
    let script = stage.folder.path().join("heavy.sql");
    fs::write(&script, STATEMENT).map_err(failed("write a script"))?;
    let script = script.display().to_string();
    let heavy = |port: u16, pace: &[&str]| {
        let mut load = pgbench(&server, port, "heavy");
        started(load.args(["-f", &script, "-c", "16", "-j", "1", "-T", seconds]).args(pace))
    };
    let capped = gateways.map(|gateway| heavy(gateway, &[]));
    let beside = vec![neighbour(&stage)?];
    let mut statements = 0.0;
    for load in capped {
        statements += number(&finished(load?)?, "transactions actually processed:")?;
    }
    let took = watch.elapsed().as_secs_f64();
    let admitted = (stage.consumed("heavy")?.0 - before) as f64 / 1e6;
    // As many statements at random moments, which the server gets without a gateway.
    let pace = format!("--rate={}", statements / took / 2.0);
    let paced = [server.port(); 2].map(|port| heavy(port, &[&pace]));
    let paced_beside = vec![neighbour(&stage)?];
    for load in paced {
        finished(load?)?;
    }
    alone.push(neighbour(&stage)?);
    // The default burst is a second's worth.
    let bound = RATE * took + RATE;
    if admitted > bound {
        return Err(BenchError::Wrong(format!(
            "{admitted} RU were admitted in {took} s, the bound is {bound}"
        )));
    }
    let used = Samples::new(vec![admitted / bound * 100.0]);
    let alone = Samples::new(vec![Samples::new(alone).median()]);
    Ok(vec![
        Row::new("gateway/500 RU/s over 2 gateways and 32 connections, used", PERCENT, used)
            .mark(Mark::AtLeast(98.0))
            .note(format!("{admitted:.0} RU in {took:.1} s; 100 % is rate x time + burst, never exceeded")),
        Row::new("gateway/a neighbour's p99 beside it", US, Samples::new(beside))
            .beside(Kind::Floor, "alone", alone, Some(Mark::AtMost(1.1)))
            .beside(
                Kind::Floor,
                "beside as many statements at random moments, without a gateway",
                Samples::new(paced_beside),
                None,
            ),
    ])
}
