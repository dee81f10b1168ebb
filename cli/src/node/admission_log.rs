//! The log a node writes of its admissions and settlements, exact in order and in amount.
//!
//! The group's bucket and the log change under one lock, so that the log has the order in which tokens moved: an
//! admission that a refund made possible stands behind that refund. Each line is one `write` of its own, which the
//! page cache keeps when the process is killed.

use std::fs::File;
use std::future::{Future, poll_fn};
use std::io::{self, Write as _};
use std::path::Path;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::task::Poll;

use tidegate_client::{Group, Permit, Refused, Ru, RuParts, Usage};

use super::log_line::LogLine;
use crate::clock::monotonic_us;
use crate::error::CliError;

/// A log, or nothing in its place.
#[derive(Debug)]
pub(crate) struct AdmissionLog(Mutex<State>);

#[derive(Debug)]
struct State {
    file: Option<File>,
    /// The first line that could not be written; a log with a hole proves nothing.
    failure: Option<io::Error>,
}

impl AdmissionLog {
    /// A log in a new file.
    pub(crate) fn create(path: &Path) -> Result<Self, CliError> {
        let file = File::create_new(path).map_err(CliError::file("create the admission log", path))?;
        Ok(Self::new(Some(file)))
    }

    /// No log.
    pub(crate) fn none() -> Self {
        Self::new(None)
    }

    fn new(file: Option<File>) -> Self {
        Self(Mutex::new(State { file, failure: None }))
    }

    /// Why the log is not complete, if it is not.
    pub(crate) fn failure(&self) -> Option<String> {
        self.with(|state| state.failure.as_ref().map(ToString::to_string))
    }

    /// Admits an operation estimated at `cost` in `group`, and logs that or the refusal. Returns the wait in microseconds beside the answer.
    pub(crate) async fn admit(
        &self,
        group: &Group,
        cost: Ru,
        max_wait: std::time::Duration,
    ) -> (Result<Permit<'static>, Refused>, u64) {
        let began = monotonic_us();
        let mut admission = pin!(group.acquire_estimated(cost, max_wait));
        poll_fn(|context| {
            self.with(|state| {
                let Poll::Ready(answer) = admission.as_mut().poll(context) else {
                    return Poll::Pending;
                };
                let at_us = monotonic_us();
                let waited_us = at_us.saturating_sub(began);
                let line = match &answer {
                    Ok(permit) => LogLine::Admitted {
                        at_us,
                        group: permit.group().to_string(),
                        estimate: permit.estimate().0,
                        waited_us,
                    },
                    Err(_) => LogLine::Refused { at_us, group: group.name().to_string(), waited_us },
                };
                state.write(&line);
                Poll::Ready((answer.map(Permit::into_owned), waited_us))
            })
        })
        .await
    }

    /// Settles `permit` with `usage`, and logs that with what each statement's template was charged.
    pub(crate) fn settle(&self, permit: Permit<'_>, usage: &Usage, templates: Vec<(u64, i64)>) -> RuParts {
        self.with(|state| {
            let (group, estimate) = (permit.group().to_string(), permit.estimate());
            let charged = permit.settle(usage);
            state.write(&LogLine::Settled {
                at_us: monotonic_us(),
                group,
                correction: (charged.total() - estimate).0,
                charge: charged.total().0,
                templates,
            });
            charged
        })
    }

    fn with<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        // A line is whole or an error is kept; a panic elsewhere leaves nothing half done.
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    fn write(&mut self, line: &LogLine) {
        if let Some(file) = &mut self.file
            && let Err(error) = file.write_all(line.to_string().as_bytes())
        {
            self.failure.get_or_insert(error);
        }
    }
}
