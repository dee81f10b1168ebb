//! The way from one process to the shared store: calls take time, in which all others go on, and may fail.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_consensus::{Consensus, ConsensusError, Outcome, Page, Step, Transaction};

use super::world::World;

/// A process is dead once its flag is false: its requests may still arrive, and no answer reaches it.
pub(super) type Life = Arc<AtomicBool>;

/// What befalls a call.
pub(super) enum Fault {
    /// Nobody is there.
    Away,
    /// It happens, and the answer is lost.
    Lost,
    /// The caller gives up, and it may happen much later.
    Late,
}

pub(super) struct Link {
    pub(super) world: Arc<World>,
    pub(super) machine: usize,
    pub(super) life: Life,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("machine", &self.machine).finish()
    }
}

fn unknown<T>(reason: &str) -> Result<T, ConsensusError> {
    Err(ConsensusError::Unknown { member: "the model".to_owned(), reason: reason.to_owned() })
}

impl Link {
    fn is_alive(&self) -> bool {
        self.life.load(Ordering::Relaxed)
    }

    /// The answer, and when the call was sent.
    fn call<T>(
        &self,
        within: Duration,
        writes: Option<&Transaction>,
        run: impl Fn() -> Result<T, ConsensusError>,
    ) -> Result<(T, u64), ConsensusError> {
        let world = &self.world;
        let within = u64::try_from(within.as_micros()).unwrap();
        // A process that is stopped calls nobody.
        world.stumble(self.machine);
        world.wake(self.machine);
        if !self.is_alive() {
            return unknown("this process is dead");
        }
        let begun = world.now();
        let (to, back) = world.delays();
        let done = match world.fault(self.machine) {
            None => {
                world.pass(to);
                if !self.is_alive() && world.draws.below(2) == 0 {
                    return unknown("this process died before it had sent the request");
                }
                let done = run();
                world.pass(back);
                done
            }
            Some(Fault::Away) => {
                world.pass(world.draws.below(within));
                unknown("nobody is there")
            }
            Some(Fault::Lost) => {
                world.pass(to);
                // Whatever it answers.
                let _ = run();
                world.pass(within.saturating_sub(to));
                unknown("the answer was lost")
            }
            Some(Fault::Late) => {
                if let Some(transaction) = writes {
                    world.hold(transaction);
                }
                world.pass(within);
                unknown("the deadline has passed")
            }
        };
        let is_late = world.now() - begun > within;
        // An answer that is there waits for a process that is stopped.
        world.stumble(self.machine);
        world.wake(self.machine);
        if is_late || !self.is_alive() {
            return unknown("the answer came too late");
        }
        done.map(|done| (done, begun))
    }
}

impl Consensus for Link {
    fn transact(&self, transaction: &Transaction, within: Duration) -> Result<Outcome, ConsensusError> {
        let writes = transaction.then.iter().any(|step| !matches!(step, Step::Get(_)));
        let run = || self.world.model.transact(transaction, within);
        let (outcome, sent) = self.call(within, writes.then_some(transaction), run)?;
        if let [Step::Put(key, _)] = transaction.then.as_slice()
            && key.starts_with(b"t/beat/")
            && outcome.held
        {
            self.world.machines[self.machine].lock().beat_sent = Some(sent);
        }
        Ok(outcome)
    }

    fn range(
        &self,
        from: &[u8],
        to: &[u8],
        most: usize,
        at: Option<u64>,
        within: Duration,
    ) -> Result<Page, ConsensusError> {
        self.call(within, None, || self.world.model.range(from, to, most, at, within)).map(|(page, _)| page)
    }

    fn compact(&self, revision: u64, within: Duration) -> Result<(), ConsensusError> {
        self.call(within, None, || self.world.model.compact(revision, within)).map(drop)
    }
}
