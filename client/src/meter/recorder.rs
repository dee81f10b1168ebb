//! A usage vector that code deep inside an operation adds to, while someone above holds the permit.

use std::sync::{Arc, Mutex, PoisonError};

use tidegate_core::usage::Usage;

/// Adds up what is recorded from any thread. Clones share the sum.
///
/// The tower layer puts one into the request's extensions, so that a handler can say what it read and wrote.
#[derive(Clone, Debug, Default)]
pub struct UsageRecorder(Arc<Mutex<Usage>>);

impl UsageRecorder {
    /// Adds `usage`.
    pub fn add(&self, usage: &Usage) {
        // A sum of counters is whole after every statement, so a panic elsewhere leaves nothing half done.
        let mut sum = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *sum = sum.plus(usage);
    }

    /// The sum so far.
    pub fn sum(&self) -> Usage {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_the_sum() {
        let recorder = UsageRecorder::default();
        recorder.clone().add(&Usage { read_bytes: 3, ..Usage::default() });
        recorder.add(&Usage { read_bytes: 4, cpu_ns: 1, ..Usage::default() });
        assert_eq!(recorder.sum(), Usage { read_bytes: 7, cpu_ns: 1, ..Usage::default() });
    }
}
