//! A standby: it follows the log, watches who leads, and takes the log over when nobody does any more.

use std::sync::Arc;
use std::thread::park_timeout;

use tidegate_consensus::Consensus;
use tidegate_core::engine::EngineConfig;
use tidegate_core::units::{Span, Time};
use tokio::sync::watch as flag;

use super::held::Held;
use super::observer::{Observer, Sign, Verdict};
use super::roster::Roster;
use super::waiting::View;
use crate::clock::duration;
use crate::definitions::load::Kept;
use crate::store::records::{META_FENCE, number};
use crate::store::replicated::{Follower, Owner, Place, ReplicatedStore, Seen, Settings};
use crate::store::{StoreError, Table};

/// Looks at the leader within its fence. With half as many it would be found dead a fifth of the fence later, and twice
/// as many would only load etcd.
const LOOKS: u64 = 10;
/// Between two looks at a leader with a long fence: a stop is noticed soon.
const LONGEST_LOOK: Span = Span::millis(500);
/// Between two looks at a leader that is about to leave, or after another one was faster: nothing is granted from its end
/// until the next look. For a second at most, a hundred reads a second.
const SOON: Span = Span::millis(10);
/// Between two applications of the log: what is left to apply at a takeover takes no time.
const FOLLOW_EVERY: Span = Span::millis(500);
/// From when it begins to follow until it reads what it holds ready of its file: then the leader has loaded, which may run
/// on the same machine, and was this controller's successor a moment ago. A takeover before that reads the same itself.
const DRAWN_AFTER: Span = Span::secs(1);
/// A controller that was drained leaves a free log to others for so many of its fences. They look ten times a fence, so
/// one is short on a busy machine; with three, nodes would be close to the end of their leases where all were drained.
const YIELDS: u64 = 2;
/// The longest fence of a record that is believed, which settings can have.
const LONGEST_FENCE: Span = Span::secs(60);
/// A file that another part of this process has just closed is free within this time.
const CLOSED_WITHIN: Span = Span::secs(5);

/// What a standby needs.
pub(crate) struct Standby {
    pub(crate) consensus: Arc<dyn Consensus>,
    pub(crate) prefix: String,
    pub(crate) place: Arc<dyn Place>,
    pub(crate) seed: bool,
    /// Those of the log, and the clock by which owners are judged.
    pub(crate) settings: Settings,
    pub(crate) clocks: EngineConfig,
    /// This controller, as it would own the log.
    pub(crate) me: Owner,
    /// The last leadership of this process.
    pub(crate) before: Option<Before>,
    pub(crate) view: flag::Sender<View>,
    /// The controllers of the cluster, if they are known.
    pub(crate) roster: Option<Arc<Roster>>,
}

/// A leadership of this process that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    /// Its start.
    pub(crate) instance: u64,
    /// Whether the owner before it was silent when it began: if not, that one may still speak.
    pub(crate) silent: bool,
}

/// A log that was taken over.
pub(crate) struct Taken {
    pub(crate) store: ReplicatedStore,
    /// Its definitions, if they were held ready.
    pub(crate) kept: Option<Kept>,
    /// Whether the owner before is silent by now.
    pub(crate) silent: bool,
}

/// What a standby knows from one step to the next.
#[derive(Default)]
pub(crate) struct Watching {
    follower: Option<Follower>,
    held: Arc<Held>,
    /// When it is to begin to hold something ready; `None`: it does.
    draw_at: Option<Time>,
    observer: Observer,
    /// When the log is to be applied next.
    follow_at: Time,
    /// When the first step was.
    begun: Option<Time>,
    /// Since when the log can be taken over, and nobody has.
    free: Option<Time>,
    /// The owner was about to leave at the last look.
    leaves: bool,
}

/// What a step came to.
pub(crate) enum Step {
    /// The next one is due after this time.
    Wait(Span),
    /// The log is taken over.
    Taken(Box<Taken>),
}

/// What to do about the owner.
enum Next {
    /// Look again after this time.
    Wait(Span),
    /// Take the log over from the one that was seen.
    Take { seen: Seen, silent: bool },
}

impl Standby {
    /// Stands by until the log is taken over, or until `stopped`: then there is nothing. Blocks.
    ///
    /// # Errors
    /// Waiting does not help: the shared store is of another version, or does not fit the local one.
    pub(crate) fn run(&self, stopped: &flag::Receiver<bool>) -> Result<Option<Taken>, StoreError> {
        let mut watching = Watching::default();
        while !*stopped.borrow() {
            match self.step(&mut watching)? {
                Step::Wait(pause) => park_timeout(duration(pause)),
                Step::Taken(taken) => return Ok(Some(*taken)),
            }
        }
        Ok(None)
    }

    /// Looks once, and does what is to be done about what it saw.
    ///
    /// # Errors
    /// As those of [`Self::run`].
    pub(crate) fn step(&self, watching: &mut Watching) -> Result<Step, StoreError> {
        let begun = *watching.begun.get_or_insert(self.settings.clock.now());
        let mut follower = match watching.follower.take().map_or_else(|| self.begin(watching), Ok) {
            Ok(follower) => follower,
            Err(error) => return self.endure(&error, begun),
        };
        let step = match self.look(&mut follower, watching) {
            Ok(Next::Wait(pause)) => {
                self.recovered();
                Ok(Step::Wait(pause))
            }
            Ok(Next::Take { seen, silent }) => {
                let me = self.as_owner(&follower, silent)?;
                match follower.take(&seen, &me) {
                    Ok(store) => {
                        self.recovered();
                        let kept = watching.held.take();
                        return Ok(Step::Taken(Box::new(Taken { store, kept, silent })));
                    }
                    Err(not) => {
                        follower = not.follower;
                        self.endure(&not.error, begun)
                    }
                }
            }
            Err(error) => {
                watching.observer.failed();
                // Others could not take it either.
                watching.free = None;
                self.endure(&error, begun)
            }
        };
        watching.follower = Some(follower);
        step
    }

    /// Goes on after an error that may pass.
    fn endure(&self, error: &StoreError, begun: Time) -> Result<Step, StoreError> {
        if let StoreError::NotTaken { .. } = error {
            // Another one was faster, or the owner lives: the next look shows which.
            tracing::info!("{error}");
            return Ok(Step::Wait(SOON));
        }
        let since = self.settings.clock.now().since(begun);
        let is_closing = matches!(error, StoreError::Locked { .. }) && since < CLOSED_WITHIN;
        if !is_closing && !matches!(error, StoreError::Shared { .. }) {
            return Err(error.clone());
        }
        let trouble = error.to_string();
        self.view.send_if_modified(|view| {
            let is_news = view.trouble.as_ref() != Some(&trouble);
            if is_news {
                tracing::warn!("{trouble}");
                (view.trouble, view.is_open) = (Some(trouble), false);
            }
            is_news
        });
        Ok(Step::Wait(LONGEST_LOOK))
    }

    /// Shows that nothing is in the way any more.
    fn recovered(&self) {
        self.view.send_if_modified(|view| {
            let was_in_trouble = view.trouble.take().is_some();
            if was_in_trouble {
                tracing::info!("the cluster is followed again");
            }
            was_in_trouble
        });
    }

    /// Begins to follow, and to hold nothing ready yet.
    fn begin(&self, watching: &mut Watching) -> Result<Follower, StoreError> {
        let follower = self.follow()?;
        watching.draw_at = Some(self.settings.clock.now().after(DRAWN_AFTER));
        Ok(follower)
    }

    /// Begins to follow. The file may have to be built first, so who leads is shown before.
    fn follow(&self) -> Result<Follower, StoreError> {
        let seen = Follower::look_once(Arc::clone(&self.consensus), &self.prefix, self.settings.clone())?;
        let speaks = seen.owner.filter(|owner| self.left(owner).is_none());
        if let Some(owner) = speaks.as_ref().filter(|owner| owner.controller == self.me.controller) {
            self.warn_of_namesake(owner);
        }
        self.show(speaks.as_ref(), false);
        let (consensus, place) = (Arc::clone(&self.consensus), Arc::clone(&self.place));
        Follower::follow(consensus, &self.prefix, place, self.settings.clone(), self.seed)
    }

    /// Looks at the owner, and applies what it logged.
    fn look(&self, follower: &mut Follower, watching: &mut Watching) -> Result<Next, StoreError> {
        let is_near = watching.leaves;
        if is_near {
            // Before the look that may find the log left: then there is nothing else to wait for.
            follower.catch_up()?;
        }
        let seen = follower.look()?;
        watching.leaves = seen.leaves;
        // Not before the read has ended: the wait for the owner's fence begins here.
        let now = self.settings.clock.now();
        let next = self.judge(seen, &mut watching.observer, now);
        let next = self.yields(next, &mut watching.free, now);
        let is_calm = matches!(next, Next::Wait(_)) && !watching.leaves;
        if is_calm && watching.draw_at.is_some_and(|at| at <= now) {
            follower.draw(Arc::<Held>::clone(&watching.held));
            watching.draw_at = None;
        }
        if !is_near && (now >= watching.follow_at || matches!(next, Next::Take { .. })) {
            follower.catch_up()?;
            watching.follow_at = self.settings.clock.now().after(FOLLOW_EVERY);
        }
        Ok(next)
    }

    /// A controller that was drained leaves a free log to others, but to somebody: they may be drained, too.
    fn yields(&self, next: Next, free: &mut Option<Time>, now: Time) -> Next {
        if !matches!(next, Next::Take { .. }) {
            *free = None;
            return next;
        }
        let since = *free.get_or_insert(now);
        let own = fence(&self.me);
        if !self.rests() || now.since(since) >= Span(own.0.saturating_mul(YIELDS)) {
            return next;
        }
        Next::Wait(look_every(own))
    }

    /// Of an owner that stopped in order, or was this process: whether all those before it are silent, too. `None`: it may
    /// speak.
    fn left(&self, owner: &Owner) -> Option<bool> {
        let before = self.before.filter(|before| before.instance == owner.instance);
        // While one before it could speak, it left no log in order.
        if owner.clean { Some(true) } else { before.map(|before| before.silent) }
    }

    fn rests(&self) -> bool {
        self.roster.as_ref().is_some_and(|roster| roster.rests())
    }

    /// This controller as the owner. After one that may still speak, its record asks for the stored fence, too: who
    /// follows this one waits for both of them.
    fn as_owner(&self, follower: &Follower, silent: bool) -> Result<Owner, StoreError> {
        let mut me = self.me.clone();
        if !silent {
            let stored = follower.local().get(Table::Meta, &[META_FENCE.to_vec()])?;
            let stored = stored.into_iter().flatten().next().map_or(Ok(0), |value| number(&value))?;
            me.fence_ms = me.fence_ms.max(stored.div_ceil(1_000));
        }
        Ok(me)
    }

    fn judge(&self, seen: Seen, observer: &mut Observer, now: Time) -> Next {
        let may_take = !self.rests();
        let Some(owner) = &seen.owner else {
            self.show(None, may_take);
            return Next::Take { seen, silent: false };
        };
        if let Some(silent) = self.left(owner) {
            self.show(None, may_take);
            return Next::Take { seen, silent };
        }
        let sign = Sign { own: seen.own, beat: seen.beat };
        let verdict = observer.saw(sign, now, fence(owner), self.clocks);
        if verdict == Verdict::Alive && owner.controller == self.me.controller {
            self.warn_of_namesake(owner);
        }
        self.show(Some(owner), may_take && (verdict != Verdict::Alive || seen.leaves));
        let pause = if seen.leaves { SOON } else { look_every(fence(owner)) };
        if verdict == Verdict::Dead { Next::Take { seen, silent: true } } else { Next::Wait(pause) }
    }

    /// A process that was killed leaves a record with its name behind, but no beats.
    fn warn_of_namesake(&self, owner: &Owner) {
        let shown = self.view.borrow().leader.clone();
        if shown.is_none_or(|leader| leader != shown_as(owner)) {
            tracing::warn!(
                instance = format!("{:016x}", owner.instance),
                "a controller with the name of this one ({}) owns the log; if it is not this one's predecessor, give \
                 each its own cluster_name",
                owner.controller
            );
        }
    }

    /// Shows who leads. Trouble stays: it is over when a whole look succeeds, which reads more than that.
    fn show(&self, owner: Option<&Owner>, is_open: bool) {
        let leader = owner.map(shown_as);
        self.view.send_if_modified(|view| {
            let (name, trouble) = (view.name.clone(), view.trouble.clone());
            let next =
                View { leader, has_looked: true, is_open: is_open && trouble.is_none(), trouble, name };
            if view.leader != next.leader || !view.has_looked {
                match &next.leader {
                    Some(leader) => tracing::info!("standing by: {leader} leads"),
                    None => tracing::info!("no controller leads"),
                }
            }
            let is_news = *view != next;
            *view = next;
            is_news
        });
    }
}

pub(super) fn shown_as(owner: &Owner) -> String {
    match owner.addresses.as_slice() {
        [] => owner.controller.clone(),
        addresses => format!("{} at {}", owner.controller, addresses.join(", ")),
    }
}

pub(super) fn fence(owner: &Owner) -> Span {
    Span(owner.fence_ms.saturating_mul(1_000)).min(LONGEST_FENCE)
}

/// Between two looks at a leader with this fence.
pub(super) fn look_every(fence: Span) -> Span {
    Span(fence.0 / LOOKS).min(LONGEST_LOOK)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tidegate_consensus::model::Model;

    use super::*;
    use crate::clock::Clock;
    use crate::store::replicated::tests::memory::Memory;
    use crate::store::replicated::tests::owner;

    #[test]
    fn nothing_is_held_ready_until_the_leader_has_had_time_to_load_and_while_none_is_about_to_leave() {
        let (model, now) = (Arc::<Model>::default(), Arc::<AtomicU64>::default());
        let settings = Settings::new(Clock::driven(Arc::clone(&now)), Span::secs(1));
        let consensus = || Arc::<Model>::clone(&model);
        let first = Follower::follow(consensus(), "t/", Memory::new(), settings.clone(), false).unwrap();
        let seen = first.look().unwrap();
        let leader = first.take(&seen, &owner("a")).unwrap();
        let standby = Standby {
            consensus: consensus(),
            prefix: "t/".to_owned(),
            place: Memory::new(),
            seed: false,
            settings,
            clocks: EngineConfig::default(),
            me: owner("b"),
            before: None,
            view: flag::Sender::new(View::default()),
            roster: None,
        };
        let mut watching = Watching::default();
        let holds = |at_ms: u64, watching: &mut Watching| {
            now.store(at_ms * 1_000, Ordering::Relaxed);
            assert!(matches!(standby.step(watching).unwrap(), Step::Wait(_)));
            watching.held.take().is_some()
        };
        for at_ms in (0..1_000).step_by(100) {
            leader.beat().unwrap();
            assert!(!holds(at_ms, &mut watching), "after {at_ms} ms");
        }
        leader.announce().unwrap();
        assert!(!holds(1_000, &mut watching), "it is about to take the log");
        let next =
            Follower::follow(consensus(), "t/", Memory::new(), standby.settings.clone(), false).unwrap();
        leader.leave().unwrap();
        let seen = next.look().unwrap();
        let leader = next.take(&seen, &owner("c")).unwrap();
        leader.beat().unwrap();
        assert!(holds(1_100, &mut watching));
    }
}
