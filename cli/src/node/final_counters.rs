//! What a node says of itself at its end, in a file: charges per group, exact, and what statements its templates are.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tidegate_controller::quantity::Count;

use crate::error::CliError;

/// A node's last word.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FinalCounters {
    /// Identity of the node.
    pub(crate) client: String,
    /// Number of this start.
    pub(crate) incarnation: u64,
    /// The counters by group.
    pub(crate) groups: BTreeMap<String, CountersOf>,
    /// Statement text by fingerprint, in hexadecimal.
    pub(crate) templates: BTreeMap<String, String>,
    /// Reports that the controller did not confirm.
    pub(crate) unconfirmed: Vec<String>,
    /// CPU of the process and the metered part of it, in nanoseconds.
    pub(crate) process_cpu_ns: u64,
    pub(crate) metered_cpu_ns: u64,
    /// Statements that failed.
    pub(crate) failed: u64,
    /// Why the admission log is not complete; empty when it is.
    pub(crate) log_failure: String,
}

/// Charges in one group, in micro-RU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CountersOf {
    pub(crate) charged_micro_ru: Count,
    pub(crate) operations: Count,
}

impl FinalCounters {
    /// Writes the file; a reader never sees half of it.
    pub(crate) fn write(&self, path: &Path) -> Result<(), CliError> {
        let text = serde_json::to_vec_pretty(self).map_err(|error| CliError::Output(error.into()))?;
        let draft = path.with_extension("draft");
        std::fs::write(&draft, text).map_err(CliError::file("write", &draft))?;
        std::fs::rename(&draft, path).map_err(CliError::file("write", path))
    }

    /// Reads the file.
    pub(crate) fn read(path: &Path) -> Result<Self, CliError> {
        let text = std::fs::read(path).map_err(CliError::file("read the final counters", path))?;
        serde_json::from_slice(&text)
            .map_err(|error| CliError::Content { path: path.into(), message: error.to_string() })
    }
}
