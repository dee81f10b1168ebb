//! A neighbour beside a capped group that does all its work inside one open transaction, which must not leave the cap.

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

const RATE: f64 = 200.0;
/// About one RU, for what is sent; the server's CPU is not to be what is short.
const STATEMENT: &str = "select repeat('x', 60000);\n";

/// Measures the family.
pub fn run(setting: &Setting) -> Result<Vec<Row>, BenchError> {
    let server = Postgres::start(&["shared_buffers=256MB"]).map_err(failed("start PostgreSQL"))?;
    let mut stage = Stage::start(vec![capped("heavy", "200"), plenty("light")])?;
    for database in ["heavy", "light"] {
        let create = format!("create database {database}");
        said(psql(&server, server.port(), "postgres").args(["-c", &create]))?;
        said(pgbench(&server, server.port(), database).args(["-q", "-i", "-s", "1"]))?;
    }
    let gateway = stage.gateway(&server.upstream())?;
    let seconds = setting.size("20", "5");
    let neighbour = |stage: &Stage| {
        let folder = stage.folder.path();
        let log = format!("--log-prefix={}", folder.join("light").display());
        let mut light = pgbench(&server, gateway, "light");
        said(light.args(["-S", "-c", "2", "-R", "200", "-T", seconds, "-l", &log]))?;
        Ok::<f64, BenchError>(at(&latencies(folder, "light")?, 99))
    };
    let script = stage.folder.path().join("heavy.sql");
    let transaction = format!("begin;\n{}commit;\n", STATEMENT.repeat(100));
    fs::write(&script, transaction).map_err(failed("write a script"))?;
    let script = script.display().to_string();
    let (mut alone, mut beside) = (vec![neighbour(&stage)?], Vec::new());
    let (mut used, mut transactions) = (Vec::new(), 0.0);
    for _ in 0..setting.size(3, 1) {
        let (before, watch) = (stage.consumed("heavy")?.0, Stopwatch::start());
        let mut heavy = pgbench(&server, gateway, "heavy");
        let heavy = started(heavy.args(["-f", &script, "-c", "4", "-j", "1", "-T", seconds]))?;
        beside.push(neighbour(&stage)?);
        transactions += number(&finished(heavy)?, "transactions actually processed:")?;
        let took = watch.elapsed().as_secs_f64();
        let charged = (stage.consumed("heavy")?.0 - before) as f64 / 1e6;
        // A burst, and a second of debt; each connection may be on its way beyond that with one statement.
        used.push(charged / (RATE * took + 2.0 * RATE) * 100.0);
        alone.push(neighbour(&stage)?);
    }
    Ok(vec![
        Row::new("gateway/200 RU/s, all inside transactions, used", PERCENT, Samples::new(used))
            .mark(Mark::AtMost(105.0))
            .note(format!("100 % is rate x time + burst + a second of debt; {transactions} transactions")),
        Row::new("gateway/a neighbour's p99 beside them", US, Samples::new(beside)).beside(
            Kind::Floor,
            "alone",
            Samples::new(alone),
            Some(Mark::AtMost(1.3)),
        ),
    ])
}
