//! A controller, and gateways of the shipped binary in processes of their own.

use std::process::Command;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::error::{BenchError, failed};
use crate::shipped;
use crate::site::Site;
use tidegate_proto::v1;
use tidegate_test_servers::free_port;
use tidegate_tests::process::child::Process;

/// The processes of a benchmark.
pub(super) struct Stage {
    pub(super) site: Site,
    processes: Vec<Process>,
    pub(super) folder: TempDir,
}

impl Stage {
    /// A controller with these groups, each bound to the tenant of its name.
    pub(super) fn start(groups: Vec<v1::Group>) -> Result<Self, BenchError> {
        let tenants = groups.iter().map(|group| (group.name.clone(), group.name.clone())).collect();
        let site = Site::with(groups.into_iter(), tenants)?;
        let folder = tempfile::tempdir().map_err(failed("make a directory"))?;
        Ok(Self { site, processes: Vec::new(), folder })
    }

    /// Runs a gateway in front of this database; returns where it listens.
    pub(super) fn gateway(&mut self, upstream: &str) -> Result<u16, BenchError> {
        let (port, name) =
            (free_port().map_err(failed("find a free port"))?, format!("gateway-{}", self.processes.len()));
        let mut command = Command::new(shipped::tidegate()?);
        command.args(["gateway", "--identity", &name, "--controller", &self.site.endpoint()?]);
        command.args(["--listen", &format!("127.0.0.1:{port}"), "--upstream", upstream]);
        self.run(command, &name, port)
    }

    /// Runs a program that serves this port, until the stage ends.
    pub(super) fn run(&mut self, command: Command, name: &str, port: u16) -> Result<u16, BenchError> {
        self.processes.push(shipped::serving(command, name, self.folder.path(), port)?);
        Ok(port)
    }

    /// A group's charges so far, in micro-RU, and the CPU time in nanoseconds that it used, once all of it is reported.
    pub(super) fn consumed(&self, group: &str) -> Result<(i64, u64), BenchError> {
        let mut last = None;
        loop {
            let (rows, _) = self
                .site
                .controller()?
                .service()
                .accounts()
                .usage(group, false)
                .map_err(failed("read usage"))?;
            let total = rows.first().map(|row| {
                (row.total.ru().clamped().0, u64::try_from(row.total.usage.cpu_ns).unwrap_or(u64::MAX))
            });
            if total.is_some() && total == last {
                return Ok(total.unwrap_or_default());
            }
            last = total;
            // Nodes report every second.
            thread::park_timeout(Duration::from_secs(3));
        }
    }
}

/// A group that no load could empty.
pub(super) fn plenty(name: &str) -> v1::Group {
    v1::Group { burst: "1000000000".to_owned(), ..crate::site::capped(name, "1000000000") }
}
