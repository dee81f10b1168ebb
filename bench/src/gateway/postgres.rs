//! `pgbench` through the gateway, with admission, metering by the kernel's counters, fingerprints and statistics, beside
//! pgbouncer in session mode and proxies that only copy bytes, which do none of it, and the server alone.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use super::copy::CopyProxy;
use super::load::{at, latencies, number, pgbench, psql, said};
use super::stage::{Stage, plenty};
use crate::error::{BenchError, failed};
use crate::row::{Kind, Mark, PER_S, Row, US};
use crate::samples::Samples;
use crate::setting::Setting;
use tidegate_test_servers::{Postgres, ROOT, free_port};

/// Measures the family.
pub fn run(setting: &Setting) -> Result<Vec<Row>, BenchError> {
    let server = Postgres::start(&["shared_buffers=512MB", "max_connections=200"]);
    let server = server.map_err(failed("start PostgreSQL"))?;
    let mut stage = Stage::start(vec![plenty("bench")])?;
    said(psql(&server, server.port(), "postgres").args(["-c", "create database bench"]))?;
    let scale = setting.size("20", "1");
    said(pgbench(&server, server.port(), "bench").args(["-q", "-i", "-s", scale]))?;
    let gateway = stage.gateway(&server.upstream())?;
    let bouncer = bouncer(&mut stage, server.port())?;
    let copy = CopyProxy::start(server.port())?;
    let metering = CopyProxy::metering(server.port(), server.pid())?;
    let ports = [gateway, bouncer, copy.port, metering.port, server.port()];
    let setting = setting.with_rounds(9);
    let seconds = setting.size("3", "1");
    let mut rows = Vec::new();
    let eight = ["-c", "8", "-j", "2", "-T", seconds];
    for (case, options) in [
        ("point selects (-S)", &["-S"][..]),
        ("point selects, prepared", &["-S", "-M", "prepared"]),
        ("TPC-B", &[]),
    ] {
        let figures = turns(&setting, ports, |port| {
            number(&said(pgbench(&server, port, "bench").args(eight).args(options))?, "tps =")
        })?;
        rows.push(beside(format!("gateway/PostgreSQL, {case}, 8 clients"), figures));
    }
    let folder = stage.folder.path().to_owned();
    let log = format!("--log-prefix={}", folder.join("latency").display());
    let [ours, bouncer, copied, metered, alone] = turns(&setting, ports, |port| {
        let mut one = pgbench(&server, port, "bench");
        said(one.args(["-S", "-c", "1", "-T", seconds, "-l", &log]))?;
        Ok(at(&latencies(&folder, "latency")?, 50))
    })?;
    let added = Row::new("gateway/PostgreSQL, added to the p50 of one client", US, ours.less(&alone))
        .mark(Mark::AtMost(40.0))
        .beside(Kind::Peer, "pgbouncer", bouncer.less(&alone), None)
        .beside(Kind::Floor, CopyProxy::NAME, copied.less(&alone), None)
        .beside(Kind::Floor, CopyProxy::METERING, metered.less(&alone), None);
    rows.push(added);
    Ok(rows)
}

/// A figure of each port, in turns.
fn turns(
    setting: &Setting,
    ports: [u16; 5],
    mut figure: impl FnMut(u16) -> Result<f64, BenchError>,
) -> Result<[Samples; 5], BenchError> {
    let mut figures = [const { Vec::new() }; 5];
    for _ in 0..setting.rounds {
        for (port, figures) in ports.iter().zip(&mut figures) {
            figures.push(figure(*port)?);
        }
    }
    Ok(figures.map(Samples::new))
}

fn beside(case: String, [ours, bouncer, copied, metered, alone]: [Samples; 5]) -> Row {
    Row::new(case, PER_S, ours)
        .beside(Kind::Peer, "pgbouncer, session mode", bouncer, Some(Mark::AtLeast(1.0)))
        .beside(Kind::Floor, CopyProxy::NAME, copied, None)
        .beside(Kind::Floor, CopyProxy::METERING, metered, None)
        .beside(Kind::Floor, "no proxy", alone, None)
}

/// pgbouncer in session mode, in front of the server at this port.
fn bouncer(stage: &mut Stage, server: u16) -> Result<u16, BenchError> {
    let (port, folder) = (free_port().map_err(failed("find a free port"))?, stage.folder.path().to_owned());
    let write = |name: &str, text: String| {
        fs::write(folder.join(name), text).map_err(failed("write pgbouncer's settings"))?;
        Ok(folder.join(name))
    };
    let (user, password) = ROOT;
    let users = write("users", format!("\"{user}\" \"{password}\"\n"))?;
    let settings = write(
        "pgbouncer.ini",
        format!(
            "[databases]\n* = host=127.0.0.1 port={server}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = scram-sha-256\nauth_file = {}\n\
             pool_mode = session\ndefault_pool_size = 100\n",
            users.display()
        ),
    )?;
    open(&folder)?;
    let mut command = Command::new("pgbouncer");
    // It refuses to be root.
    if rustix::process::geteuid().is_root() {
        command.uid(65_534).gid(65_534);
    }
    command.arg(settings);
    stage.run(command, "pgbouncer", port)
}

/// Lets another user in.
fn open(folder: &Path) -> Result<(), BenchError> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).map_err(failed("open a directory"))
}
