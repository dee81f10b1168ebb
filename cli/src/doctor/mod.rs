//! What a machine lacks for tidegate: facts are gathered, and then judged by functions that see nothing else.

pub(crate) mod clock;
pub(crate) mod limits;
pub(crate) mod metering;
pub(crate) mod ports;
pub(crate) mod reach;
pub(crate) mod settings;
pub(crate) mod store;

use serde::Serialize;

/// How well something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// As it should be.
    Ok,
    /// It works, and something is worse than it could be.
    Warning,
    /// It does not work.
    Failed,
}

impl Verdict {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failed => "failed",
        }
    }
}

/// What was found about one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) verdict: Verdict,
    /// The area of the check, such as "clock".
    pub(crate) area: &'static str,
    pub(crate) found: String,
    /// What to do; empty when there is nothing to do.
    pub(crate) remedy: String,
}

impl Finding {
    pub(crate) fn ok(area: &'static str, found: impl Into<String>) -> Self {
        Self { verdict: Verdict::Ok, area, found: found.into(), remedy: String::new() }
    }

    pub(crate) fn warning(area: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { verdict: Verdict::Warning, area, found: found.into(), remedy: remedy.into() }
    }

    pub(crate) fn failed(area: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { verdict: Verdict::Failed, area, found: found.into(), remedy: remedy.into() }
    }
}
