//! Load from `pgbench` and `sysbench`, and their reports.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::error::{BenchError, failed};
use tidegate_test_servers::{MySql, Postgres, ROOT};

/// `pgbench` against a database at this port, with options to come.
pub(super) fn pgbench(server: &Postgres, port: u16, database: &str) -> Command {
    let mut pgbench = server.program("pgbench");
    // Its option for a database is another in every other version.
    pgbench.env("PGDATABASE", database).env("PGPASSWORD", ROOT.1);
    pgbench.args(["-n", "-h", "127.0.0.1", "-U", ROOT.0, "-p", &port.to_string()]);
    pgbench
}

/// `psql` against a database at this port, with commands to come; it stops at the first that fails.
pub(super) fn psql(server: &Postgres, port: u16, database: &str) -> Command {
    let mut psql = server.program("psql");
    psql.env("PGPASSWORD", ROOT.1).args(["-qXAt", "-h", "127.0.0.1", "-U", ROOT.0, "-p", &port.to_string()]);
    psql.args(["-v", "ON_ERROR_STOP=1", database]);
    psql
}

/// `mariadb` against a server at this port as a user with a password, with options to come; it prints rows alone.
pub(super) fn mariadb(port: u16, who: (&str, &str), database: &str) -> Command {
    let mut mariadb = Command::new("mariadb");
    mariadb.arg("--no-defaults");
    printing_rows(mariadb, port, who, database)
}

/// The newest `mysql` against a server at this port, the same.
pub(super) fn mysql(port: u16, who: (&str, &str), database: &str) -> Result<Command, BenchError> {
    Ok(printing_rows(MySql::client().map_err(failed("find MySQL's client"))?, port, who, database))
}

/// A client of either kind that prints rows alone.
fn printing_rows(mut client: Command, port: u16, (user, password): (&str, &str), database: &str) -> Command {
    client.args(["-N", "-h127.0.0.1", &format!("-P{port}"), &format!("-u{user}"), &format!("-p{password}")]);
    client.arg(database);
    client
}

/// `sysbench` against a MariaDB server at this port.
pub(super) fn sysbench(port: u16, database: &str, rows: u32) -> Command {
    let mut sysbench = Command::new("sysbench");
    sysbench.args(["oltp_point_select", "--db-driver=mysql", "--mysql-host=127.0.0.1", "--tables=1"]);
    sysbench.arg(format!("--mysql-user={}", ROOT.0)).arg(format!("--mysql-password={}", ROOT.1));
    sysbench.arg(format!("--mysql-port={port}")).arg(format!("--mysql-db={database}"));
    sysbench.arg(format!("--table-size={rows}"));
    sysbench
}

/// The output of a program that has to succeed.
pub(super) fn said(command: &mut Command) -> Result<String, BenchError> {
    finished(started(command)?)
}

/// Starts a program that prints its results.
pub(super) fn started(command: &mut Command) -> Result<Child, BenchError> {
    let what = command.get_program().to_string_lossy().into_owned();
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    child.map_err(failed(format!("run {what}; is its Debian package installed?")))
}

/// Waits for a program and takes what it printed.
pub(super) fn finished(child: Child) -> Result<String, BenchError> {
    let output = child.wait_with_output().map_err(failed("wait for a program"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(BenchError::Wrong(format!("a load generator failed: {text}{error}")))
}

/// The number behind `words` in a report.
pub(super) fn number(report: &str, words: &str) -> Result<f64, BenchError> {
    let found = report.split_once(words).and_then(|(_, rest)| {
        let rest = rest.trim_start();
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        rest.get(..end)?.parse().ok()
    });
    found.ok_or_else(|| BenchError::Wrong(format!("there is no `{words}` in {report}")))
}

/// The latencies in microseconds that `pgbench -l` wrote, sorted. With a schedule the wait for its turn is taken off,
/// which is the generator's own.
pub(super) fn latencies(folder: &Path, prefix: &str) -> Result<Vec<f64>, BenchError> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed("list a directory"))?.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(prefix) {
            continue;
        }
        let text = fs::read_to_string(entry.path()).map_err(failed("read a log"))?;
        for line in text.lines() {
            let fields: Vec<f64> = line.split(' ').filter_map(|field| field.parse().ok()).collect();
            let took = fields.get(2).copied().unwrap_or(f64::NAN);
            all.push(took - fields.get(6).copied().unwrap_or(0.0));
        }
        fs::remove_file(entry.path()).map_err(failed("remove a log"))?;
    }
    all.sort_by(f64::total_cmp);
    Ok(all)
}

/// The value that this many hundredths of the sorted ones do not exceed.
pub(super) fn at(sorted: &[f64], hundredths: usize) -> f64 {
    let place = sorted.len().saturating_sub(1) * hundredths / 100;
    sorted.get(place).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_read() {
        let pgbench = "latency average = 0.198 ms\ntps = 40476.163420 (without initial connection time)\n";
        assert_eq!(number(pgbench, "tps =").unwrap(), 40_476.163_420);
        assert_eq!(
            number("    transactions:     74938  (14985.30 per sec.)\n", "transactions:").unwrap(),
            74_938.0
        );
        assert!(number("nothing", "tps =").unwrap_err().to_string().contains("tps ="));
    }

    #[test]
    fn latencies_are_those_of_the_server() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("log.1"), "0 1 300 0 1 2\n0 2 900 0 1 3 500\n").unwrap();
        fs::write(folder.path().join("other.1"), "0 1 7 0 1 2\n").unwrap();
        let sorted = latencies(folder.path(), "log").unwrap();
        assert_eq!((sorted.len(), at(&sorted, 0), at(&sorted, 100)), (2, 300.0, 400.0));
    }
}
