//! How long a runaway runs past the limit of its group, beside the server's own limit on the same statement.

use std::process::Command;

use super::load::{mariadb as client, psql, said};
use super::stage::{Stage, plenty};
use crate::error::{BenchError, failed};
use crate::row::{Kind, MS, Mark, Row};
use crate::samples::Samples;
use crate::setting::Setting;
use tidegate_proto::v1;
use tidegate_test_servers::{MariaDb, Postgres, ROOT};

const LIMIT_MS: u32 = 500;
/// Database, tenant and group.
const STRICT: &str = "strict";

/// Measures the family.
pub fn run(setting: &Setting) -> Result<Vec<Row>, BenchError> {
    let mut rows = postgres(setting)?;
    rows.extend(mariadb(setting)?);
    Ok(rows)
}

fn postgres(setting: &Setting) -> Result<Vec<Row>, BenchError> {
    let server = Postgres::start(&[]).map_err(failed("start PostgreSQL"))?;
    said(psql(&server, server.port(), "postgres").args(["-c", &format!("create database {STRICT}")]))?;
    let mut stage = Stage::start(vec![strict()])?;
    let gateway = stage.gateway(&server.upstream())?;
    let clock = "select extract(epoch from clock_timestamp()) * 1000";
    let took = |port: u16, before: &str, runaway: &str| {
        let mut session = psql(&server, port, STRICT);
        session.args(["-v", "ON_ERROR_STOP=0", "-c", before, "-c", clock, "-c", runaway, "-c", clock]);
        between(session)
    };
    compare(
        setting,
        "PostgreSQL",
        "statement_timeout",
        [
            ("that sleeps", "select pg_sleep(10)"),
            ("that computes", "select count(*) from (select generate_series(1, 1000000000)) as g"),
        ],
        |runaway| took(gateway, "", runaway),
        |runaway| took(server.port(), &format!("set statement_timeout = {LIMIT_MS}"), runaway),
    )
}

fn mariadb(setting: &Setting) -> Result<Vec<Row>, BenchError> {
    let server = MariaDb::start(&[]).map_err(failed("start MariaDB"))?;
    server.root(&format!("create database {STRICT}")).map_err(failed("make a database"))?;
    let mut stage = Stage::start(vec![strict()])?;
    let gateway = stage.gateway(&server.upstream())?;
    let clock = "select unix_timestamp(sysdate(6)) * 1000";
    let took = |port: u16, before: &str, runaway: &str| {
        let mut session = client(port, ROOT, STRICT);
        // An interrupted sleep does not return a time.
        session.args(["--force", "-e", &format!("{before}; {clock}; do ({runaway}); {clock}")]);
        between(session)
    };
    compare(
        setting,
        "MariaDB",
        "max_statement_time",
        [
            ("that sleeps", "select sleep(10)"),
            ("that computes", "select count(*) from seq_1_to_10000000000 where seq % 2 = 0"),
        ],
        |runaway| took(gateway, "do 1", runaway),
        |runaway| took(server.port(), &format!("set max_statement_time = {LIMIT_MS} / 1000"), runaway),
    )
}

/// A group whose statements are killed after [`LIMIT_MS`].
fn strict() -> v1::Group {
    let query_limit = v1::QueryLimit {
        exec_elapsed_us: u64::from(LIMIT_MS) * 1_000,
        action: "kill".to_owned(),
        ..v1::QueryLimit::default()
    };
    v1::Group { query_limit: Some(query_limit), ..plenty(STRICT) }
}

/// Both, turn by turn, for each kind of runaway.
fn compare(
    setting: &Setting,
    server: &str,
    own_limit: &str,
    runaways: [(&str, &str); 2],
    ours: impl Fn(&str) -> Result<f64, BenchError>,
    theirs: impl Fn(&str) -> Result<f64, BenchError>,
) -> Result<Vec<Row>, BenchError> {
    let row = |(kind, runaway): (&str, &str)| {
        let (mut killed, mut limited) = (Vec::new(), Vec::new());
        for _ in 0..setting.with_rounds(15).rounds {
            killed.push(ours(runaway)? - f64::from(LIMIT_MS));
            limited.push(theirs(runaway)? - f64::from(LIMIT_MS));
        }
        let (killed, limited) = (Samples::new(killed), Samples::new(limited));
        let note = format!("at worst {:.0} ms past the limit of {LIMIT_MS}; at most 200", killed.range().1);
        let case = format!("gateway/{server}: a statement {kind}, past its limit when it ends");
        let row = Row::new(case, MS, killed).mark(Mark::AtMost(200.0)).note(note);
        Ok(row.beside(Kind::Peer, own_limit, limited, None))
    };
    runaways.into_iter().map(row).collect()
}

/// Milliseconds between the two times that a session prints, whatever fails between them.
fn between(mut session: Command) -> Result<f64, BenchError> {
    let output = session.output().map_err(failed("run a client; is its Debian package installed?"))?;
    let (told, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let times: Vec<f64> = told.lines().filter_map(|line| line.trim().parse().ok()).collect();
    match times[..] {
        [before, after] => Ok(after - before),
        _ => Err(BenchError::Wrong(format!("two times were expected: {told}{errors}"))),
    }
}
