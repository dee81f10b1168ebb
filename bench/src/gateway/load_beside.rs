//! Inserts of one group beside a bulk load of another, whose log their commits write out: paced, with the load past the
//! gateway and the inserts, too, and then all of it through the gateway.

use std::fs;

use super::load::{at, finished, latencies, number, pgbench, psql, said, started};
use super::stage::{Stage, plenty};
use crate::error::{BenchError, failed};
use crate::row::{Kind, MS, Mark, PER_S, Row};
use crate::samples::Samples;
use crate::setting::Setting;
use crate::site::capped;
use tidegate_test_servers::Postgres;

/// Inserts a second that the load offers: half of what the group's rate allows without other load.
const PACE: &str = "93";
const RATE: &str = "6000";
const INSERT: &str = "insert into small (t) values ('hello world');\n";
const LOAD: &str = "truncate big; insert into big select n, md5(n::text) from generate_series(1, 8000000) n";

/// Measures the family.
pub fn run(setting: &Setting) -> Result<Vec<Row>, BenchError> {
    let server = Postgres::start(&["shared_buffers=256MB", "max_wal_size=16GB"]);
    let server = server.map_err(failed("start PostgreSQL"))?;
    let mut stage = Stage::start(vec![capped("small", RATE), plenty("bulk")])?;
    for (database, table) in
        [("small", "small (id serial primary key, t text)"), ("bulk", "big (n bigint primary key, t text)")]
    {
        said(psql(&server, server.port(), "postgres").args(["-c", &format!("create database {database}")]))?;
        said(psql(&server, server.port(), database).args(["-c", &format!("create table {table}")]))?;
    }
    let gateway = stage.gateway(&server.upstream())?;
    let script = stage.folder.path().join("insert.sql");
    fs::write(&script, INSERT).map_err(failed("write a script"))?;
    let (script, seconds) = (script.display().to_string(), setting.size("20", "5"));
    let beside = |port: u16| {
        let load = started(psql(&server, port, "bulk").args(["-c", LOAD]))?;
        let folder = stage.folder.path();
        let log = format!("--log-prefix={}", folder.join("small").display());
        let mut small = pgbench(&server, port, "small");
        small.args(["-f", &script, "-c", "4", "-R", PACE, "-T", seconds, "-l", &log]);
        let rate = number(&said(&mut small)?, "tps =")?;
        let worst = at(&latencies(folder, "small")?, 100) / 1e3;
        finished(load)?;
        Ok::<_, BenchError>((rate, worst))
    };
    let (mut ours, mut direct) = (Vec::new(), Vec::new());
    for _ in 0..setting.size(3, 1) {
        direct.push(beside(server.port())?);
        ours.push(beside(gateway)?);
    }
    let rates = |runs: &[(f64, f64)]| Samples::new(runs.iter().map(|run| run.0).collect());
    let worsts = |runs: &[(f64, f64)]| Samples::new(runs.iter().map(|run| run.1).collect());
    Ok(vec![
        Row::new("gateway/inserts beside a bulk load of another group", PER_S, rates(&ours)).beside(
            Kind::Floor,
            "both without a gateway",
            rates(&direct),
            Some(Mark::AtLeast(0.95)),
        ),
        Row::new("gateway/their worst wait", MS, worsts(&ours)).beside(
            Kind::Floor,
            "both without a gateway",
            worsts(&direct),
            Some(Mark::AtMost(1.2)),
        ),
    ])
}
