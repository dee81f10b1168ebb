//! The work of a demo's node, as a file: which user runs which job how often, and what statements cost.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::database::Scale;
use super::job::Job;
use crate::error::CliError;

/// The work of one node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Workload {
    pub(crate) scale: Scale,
    /// Seed of the operations, different from node to node.
    pub(crate) seed: u64,
    pub(crate) users: Vec<UserLoad>,
    /// Costs measured before, to estimate the first runs by: statement and micro-RU.
    pub(crate) costs: Vec<(String, i64)>,
}

/// The work of one user on one node: `workers` threads, each beginning an operation every `pause` or as soon as the
/// last one ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct UserLoad {
    pub(crate) tenant: String,
    pub(crate) user: String,
    pub(crate) job: Job,
    pub(crate) workers: u32,
    /// Between operations of one worker in the busy half of a wave, and in the quiet half.
    pub(crate) busy_pause_us: u64,
    pub(crate) quiet_pause_us: u64,
    /// Length of a wave, the same for all nodes: its first half is busy.
    pub(crate) wave_us: u64,
    pub(crate) max_wait_us: u64,
}

impl UserLoad {
    /// How long to rest at `now_us` before looking again, when the last operation began at `began_us`; `None` when the
    /// next one is due. Both are on the machine's clock. A rest never reaches into the next half of a wave, whose
    /// pause is another.
    pub(crate) fn rest(&self, began_us: u64, now_us: u64) -> Option<Duration> {
        let half = (self.wave_us / 2).max(1);
        let (halves, into) = (now_us / half, now_us % half);
        let pause = if halves.is_multiple_of(2) { self.busy_pause_us } else { self.quiet_pause_us };
        let due = began_us.saturating_add(pause);
        let rest = due.saturating_sub(now_us).min(half - into);
        (due > now_us).then(|| Duration::from_micros(rest))
    }
}

impl Workload {
    /// Writes the file.
    pub(crate) fn write(&self, path: &Path) -> Result<(), CliError> {
        let text = serde_json::to_vec(self).map_err(|error| CliError::Output(error.into()))?;
        std::fs::write(path, text).map_err(CliError::file("write the workload", path))
    }

    /// Reads the file.
    pub(crate) fn read(path: &Path) -> Result<Self, CliError> {
        let text = std::fs::read(path).map_err(CliError::file("read the workload", path))?;
        serde_json::from_slice(&text)
            .map_err(|error| CliError::Content { path: path.into(), message: error.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_ends_with_the_half_of_the_wave() {
        let load = UserLoad {
            tenant: String::new(),
            user: String::new(),
            job: Job::Report,
            workers: 1,
            busy_pause_us: 10,
            quiet_pause_us: 1_000,
            wave_us: 200,
            max_wait_us: 0,
        };
        for (began, now, rest) in [
            (0, 0, Some(10)),
            (0, 10, None),
            (95, 96, Some(4)),
            (95, 100, Some(100)),
            (150, 190, Some(10)),
            (150, 200, None),
        ] {
            assert_eq!(load.rest(began, now), rest.map(Duration::from_micros), "{began} {now}");
        }
    }
}
