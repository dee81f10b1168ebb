//! Point selects of `sysbench` through the gateway, beside proxies that only copy bytes, and the server alone.

use super::copy::CopyProxy;
use super::load::{number, said, sysbench};
use super::stage::{Stage, plenty};
use crate::error::{BenchError, failed};
use crate::row::{Kind, Mark, PER_S, Row};
use crate::samples::Samples;
use crate::setting::Setting;
use tidegate_test_servers::MariaDb;

/// Measures the family.
pub fn run(setting: &Setting) -> Result<Vec<Row>, BenchError> {
    let server = MariaDb::start(&["--innodb-buffer-pool-size=512M"]).map_err(failed("start MariaDB"))?;
    server.root("create database bench").map_err(failed("make a database"))?;
    let mut stage = Stage::start(vec![plenty("bench")])?;
    let rows = setting.size(100_000, 1_000);
    said(sysbench(server.port(), "bench", rows).arg("prepare"))?;
    let gateway = stage.gateway(&server.upstream())?;
    let copy = CopyProxy::start(server.port())?;
    let metering = CopyProxy::metering(server.port(), server.pid())?;
    let ports = [gateway, copy.port, metering.port, server.port()];
    let setting = setting.with_rounds(9);
    let seconds = setting.size(3.0, 1.0);
    let mut table = Vec::new();
    for (case, mode) in [("text", "--db-ps-mode=disable"), ("prepared", "--db-ps-mode=auto")] {
        let mut figures = [const { Vec::new() }; 4];
        for _ in 0..setting.rounds {
            for (port, figures) in ports.into_iter().zip(&mut figures) {
                let mut load = sysbench(port, "bench", rows);
                load.args(["--threads=8", mode, &format!("--time={seconds}"), "run"]);
                figures.push(number(&said(&mut load)?, "transactions:")? / seconds);
            }
        }
        let [ours, copied, metered, alone] = figures.map(Samples::new);
        table.push(
            Row::new(format!("gateway/MySQL, point selects, {case}, 8 clients"), PER_S, ours)
                .beside(Kind::Floor, CopyProxy::NAME, copied, Some(Mark::AtLeast(0.9)))
                .beside(Kind::Floor, CopyProxy::METERING, metered, None)
                .beside(Kind::Floor, "no proxy", alone, None),
        );
    }
    Ok(table)
}
