//! What the jobs cost on this machine: each is run a few times, ungoverned, before anything else.
//!
//! The demo's rates are set from this, so that caps bind and the CPU does not saturate on any machine. The costs also
//! teach the nodes' estimators, whose first forecasts would be guesses otherwise.

use std::collections::BTreeMap;
use std::path::Path;

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use tidegate_core::units::Ru;
use tidegate_core::usage::Usage;
use tidegate_cost_model::CostTable;

use super::database::{self, Scale};
use super::job::Job;
use crate::error::CliError;
use crate::sql::run;

/// Runs of each job that are measured.
const RUNS: u32 = 16;
/// Runs before that, which fill caches and prepare statements.
const WARM_UP: u32 = 4;

/// What one operation of a job costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobCost {
    pub(crate) mean: Ru,
    pub(crate) largest: Ru,
    pub(crate) cpu_ns: u64,
}

/// Costs of all jobs, and of each statement that was run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calibration {
    pub(crate) jobs: BTreeMap<Job, JobCost>,
    /// Statement and micro-RU.
    pub(crate) statements: Vec<(String, i64)>,
}

impl Calibration {
    /// Measures on the database at `path`, which is changed by it.
    pub(crate) fn measure(path: &Path, scale: Scale) -> Result<Self, CliError> {
        let connection = database::open(path)?;
        let table = CostTable::tidb_v1();
        let mut random = StdRng::seed_from_u64(1);
        let mut measured = Self::default();
        for job in Job::ALL {
            let (mut total, mut largest, mut cpu_ns) = (Ru::ZERO, Ru::ZERO, 0_u64);
            for round in 0..WARM_UP.saturating_add(RUNS) {
                let mut usage = Usage::default();
                for statement in job.operation(scale, &mut random) {
                    let (done, of) = run(&connection, &statement);
                    done?;
                    usage = usage.plus(&of.usage);
                    if round >= WARM_UP {
                        measured.statements.push((statement.sql, table.price(&of.usage).total().0));
                    }
                }
                if round >= WARM_UP {
                    let ru = table.price(&usage).total();
                    (total, largest) = (total + ru, largest.max(ru));
                    cpu_ns = cpu_ns.saturating_add(usage.cpu_ns);
                }
            }
            let cost =
                JobCost { mean: total.scale(1, i64::from(RUNS)), largest, cpu_ns: cpu_ns / u64::from(RUNS) };
            measured.jobs.insert(job, cost);
        }
        database::checkpoint(&connection)?;
        Ok(measured)
    }

    /// The cost of `job`.
    pub(crate) fn of(&self, job: Job) -> JobCost {
        self.jobs.get(&job).copied().unwrap_or_default()
    }
}
