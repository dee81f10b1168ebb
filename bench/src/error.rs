//! Why a case gives no figure.

/// A case that cannot be measured, or whose result is wrong.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Something around the measurement failed.
    #[error("cannot {what}: {reason}")]
    Failed {
        /// What was tried.
        what: String,
        /// Why not.
        reason: String,
    },
    /// The measured code did something it must not; its time means nothing.
    #[error("{0}")]
    Wrong(String),
}

/// Attaches what was tried; costs nothing as long as nothing fails.
pub(super) fn failed<E: std::fmt::Display>(what: impl Into<String>) -> impl FnOnce(E) -> BenchError {
    move |error| BenchError::Failed { what: what.into(), reason: error.to_string() }
}
