//! Who leads, by what all controllers say at all times: never two, since who spoke under an older leadership is
//! silent once another one has spoken.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_proto::v1::StatusRequest;
use tidegate_proto::v1::admin_client::AdminClient;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};

use crate::process::chaos::outcome::Leadership;
use crate::process::controllers::SILENT;
use crate::process::log::{Life, machine_micros};

/// Between two looks at one controller.
const LOOK: Duration = Duration::from_millis(20);
/// An answer comes at once, or not at all: from a process that stands still.
const ANSWER: Duration = Duration::from_millis(500);

/// One start of a controller under one epoch, as far as it was seen to speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tenure {
    /// The controller.
    pub controller: usize,
    /// Its number of starts.
    pub start: u64,
    /// The epoch.
    pub epoch: u64,
    /// The first answer was there by then.
    pub first_us: u64,
    /// Just before the newest question that was answered.
    pub asked_us: u64,
}

impl Tenure {
    /// Whether both are of one start of a controller.
    pub fn is_of(self, other: Self) -> bool {
        (self.controller, self.start) == (other.controller, other.start)
    }
}

/// Looks at all controllers until this is dropped.
#[derive(Debug)]
pub struct Looks {
    tenures: Arc<Mutex<Vec<Tenure>>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Looks {
    /// Begins. `starts` are the starts of each controller, counted before it is started.
    ///
    /// # Errors
    /// An endpoint is no address.
    pub fn begin(endpoints: &[String], starts: &[Arc<AtomicU64>]) -> Result<Self, tonic::transport::Error> {
        let tenures: Arc<Mutex<Vec<Tenure>>> = Arc::default();
        let mut tasks = Vec::new();
        for (controller, (endpoint, starts)) in endpoints.iter().zip(starts).enumerate() {
            let channel = Endpoint::from_shared(endpoint.clone())?.connect_timeout(ANSWER).connect_lazy();
            let (tenures, starts) = (Arc::clone(&tenures), Arc::clone(starts));
            tasks.push(tokio::spawn(async move {
                loop {
                    if let Some(tenure) = look(controller, &channel, &starts).await {
                        note(&mut tenures.lock().unwrap_or_else(PoisonError::into_inner), tenure);
                    }
                    tokio::time::sleep(LOOK).await;
                }
            }));
        }
        Ok(Self { tenures, tasks })
    }

    /// When a question was asked after `since_us` that a controller answered which speaks: the newest such one, and it.
    pub fn speaks(&self, since_us: u64) -> Option<Tenure> {
        let tenures = self.tenures();
        tenures.into_iter().filter(|tenure| tenure.asked_us > since_us).max_by_key(|tenure| tenure.asked_us)
    }

    /// All tenures, in the order in which they were first seen.
    pub fn tenures(&self) -> Vec<Tenure> {
        self.tenures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Looks {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn look(controller: usize, channel: &Channel, starts: &AtomicU64) -> Option<Tenure> {
    let (start, asked_us) = (starts.load(Ordering::SeqCst), machine_micros());
    let mut admin = AdminClient::new(channel.clone());
    let said = tokio::time::timeout(ANSWER, admin.status(StatusRequest {})).await.ok()?.ok()?.into_inner();
    let is_same = starts.load(Ordering::SeqCst) == start;
    let speaks = !said.warnings.iter().any(|warning| warning.starts_with(SILENT));
    let first_us = machine_micros();
    (is_same && speaks).then_some(Tenure { controller, start, epoch: said.epoch, first_us, asked_us })
}

fn note(tenures: &mut Vec<Tenure>, seen: Tenure) {
    let is_same = |known: &&mut Tenure| {
        (known.controller, known.start, known.epoch) == (seen.controller, seen.start, seen.epoch)
    };
    match tenures.iter_mut().find(is_same) {
        Some(known) => known.asked_us = known.asked_us.max(seen.asked_us),
        None => tenures.push(seen),
    }
}

/// Nobody speaks any more once another one has spoken under a higher epoch, or under the same one later: neither by what
/// controllers say, nor by the epochs that nodes saw.
pub fn judge(
    tenures: &[Tenure],
    logs: &[Vec<Life>],
    silent: Vec<tidegate_core::units::Span>,
    violations: &mut Vec<String>,
) -> Leadership {
    let is_later = |one: &Tenure, other: &Tenure| (one.epoch, one.first_us) > (other.epoch, other.first_us);
    for old in tenures {
        for new in tenures.iter().filter(|new| is_later(new, old)) {
            if old.asked_us > new.first_us {
                violations.push(format!("two lead: {old:?} speaks after {new:?} has spoken"));
            }
        }
        let lives = logs.iter().flatten();
        let later = lives.flat_map(|life| &life.epochs).filter(|(epoch, _)| *epoch > old.epoch);
        for (epoch, at_us) in later.filter(|(_, at_us)| old.asked_us > *at_us) {
            violations
                .push(format!("two lead: {old:?} speaks after a node has seen epoch {epoch} by {at_us}"));
        }
    }
    for life in logs.iter().flatten().filter(|life| !life.epochs.is_sorted()) {
        violations.push(format!("a node followed an older leadership: {:?}", life.epochs));
    }
    let epoch = tenures.iter().map(|tenure| tenure.epoch).max().unwrap_or_default();
    let mut silent = silent;
    silent.sort_unstable();
    Leadership { changes: tenures.len().saturating_sub(1), epoch, silent }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenure(controller: usize, epoch: u64, first_us: u64, asked_us: u64) -> Tenure {
        Tenure { controller, start: 1, epoch, first_us, asked_us }
    }

    fn broken(tenures: &[Tenure], epochs: &[(u64, u64)]) -> usize {
        let life = Life { epochs: epochs.to_vec(), ..Life::default() };
        let mut violations = Vec::new();
        judge(tenures, &[vec![life]], Vec::new(), &mut violations);
        violations.len()
    }

    #[test]
    fn nobody_speaks_once_a_later_one_has() {
        let first = tenure(0, 4, 100, 200);
        assert_eq!(broken(&[first, tenure(1, 5, 201, 300)], &[(4, 150), (5, 250)]), 0);
        assert_eq!(broken(&[first, tenure(1, 5, 199, 300)], &[]), 1, "under a higher epoch");
        assert_eq!(broken(&[first, tenure(1, 4, 199, 300)], &[]), 1, "under the same one, later");
        assert_eq!(broken(&[first, tenure(1, 4, 250, 300)], &[]), 0, "handed over");
        assert_eq!(broken(&[first], &[(5, 199)]), 1, "by what a node saw");
        assert_eq!(broken(&[first], &[(4, 150), (3, 160)]), 1, "a node went back");
    }

    #[test]
    fn a_tenure_is_one_start_of_a_controller_under_one_epoch() {
        let mut tenures = Vec::new();
        for seen in [tenure(0, 4, 10, 9), tenure(0, 4, 20, 19), tenure(0, 5, 30, 29), tenure(1, 5, 40, 39)] {
            note(&mut tenures, seen);
        }
        assert_eq!(tenures, [tenure(0, 4, 10, 19), tenure(0, 5, 30, 29), tenure(1, 5, 40, 39)]);
    }
}
