//! Limiter policies at work: what the field's articles say of them, as our numbers, tables and pictures.
//!
//! Every figure comes from the policies of `tidegate_core::policy`, asked one operation at a time by a virtual clock.
//! A [`Section`] is one fact: what is said, what came out, and how it was made.

pub mod accuracy;
pub mod boundary;
pub mod buckets;
pub mod chart;
pub mod estimates;
pub mod random;
pub mod report;
pub mod sending;
pub mod table;
pub mod trace;
pub mod traffic;
pub mod warm_up;

use std::io;
use std::path::PathBuf;

use tidegate_core::policy::setting::SettingError;
use tidegate_core::replay::{RecordError, ReplayError};

use table::Table;

/// One fact, or what was measured of one question.
#[derive(Clone, Debug)]
pub struct Section {
    /// A word for it, in JSON.
    pub name: &'static str,
    /// Above it.
    pub title: String,
    /// Paragraphs: what is said of it, how it was made, what differs.
    pub text: Vec<String>,
    /// Its numbers.
    pub tables: Vec<Table>,
    /// Its pictures, as SVG.
    pub pictures: Vec<String>,
}

/// Why the lab has no answer.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A policy cannot be set so.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// What was recorded makes no replay.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The replay has no answer.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// A count that makes no run.
    #[error("--{option} {value}: give {remedy}")]
    Option {
        /// The option.
        option: &'static str,
        /// What it was.
        value: u64,
        /// What it may be.
        remedy: &'static str,
    },
    /// The simulated world does not begin.
    #[error("the simulated world: {0}")]
    World(String),
    /// The report cannot be written.
    #[error("{}: {error}; give another directory with --out", path.display())]
    Write {
        /// Where.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
}

impl LabError {
    /// Whether other options would do.
    pub fn is_mistake(&self) -> bool {
        matches!(self, Self::Setting(_) | Self::Option { .. } | Self::Record(_) | Self::Replay(_))
    }
}

/// Facts 1 to 4, 6 and 7, in the order of the articles.
///
/// # Errors
/// A policy cannot be set as a fact has it.
pub fn facts(seed: u64) -> Result<Vec<Section>, LabError> {
    Ok(vec![
        boundary::fixed_window()?,
        boundary::sub_windows()?,
        estimates::random_traffic(seed)?,
        estimates::weights()?,
        buckets::release()?,
        sending::stalls()?,
    ])
}
