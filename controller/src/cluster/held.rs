//! What a standby holds in memory of its local store: groups, and which entries of the audit log are of which. They are
//! read once, and kept as the log goes on, so that a takeover does not read them.
//!
//! Rows that no controller stores end that: the start after the takeover reads all, and says what is wrong with them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::definitions::load::Kept;
use crate::store::replicated::Picture;
use crate::store::{Store, StoreError, Write};

/// Definitions, while they are held.
#[derive(Default)]
pub(super) struct Held(Mutex<Option<Kept>>);

impl Held {
    /// Gives them up to a start.
    pub(super) fn take(&self) -> Option<Kept> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn told(error: &StoreError) {
    tracing::warn!(%error, "the groups are not held ready: a takeover reads all of them");
}

impl Picture for Held {
    fn read(&self, local: &dyn Store) {
        let read = Kept::read(local).inspect_err(told).ok();
        if let Some(kept) = &read {
            tracing::debug!(groups = kept.count(), "the groups are held ready");
        }
        *self.lock() = read;
    }

    fn changed(&self, batch: &[Write]) {
        let mut held = self.lock();
        let Some(kept) = held.as_mut() else { return };
        if let Err(error) = kept.change(batch) {
            told(&error);
            *held = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use serde_json::json;
    use tidegate_consensus::model::Model;
    use tidegate_core::group::GroupId;
    use tidegate_core::units::Span;
    use tidegate_proto::v1;

    use super::*;
    use crate::clock::Clock;
    use crate::definitions::definition::Definition;
    use crate::store::Table;
    use crate::store::records::{group_key, group_row, u64_key};
    use crate::store::replicated::tests::memory::Memory;
    use crate::store::replicated::tests::owner;
    use crate::store::replicated::{Follower, ReplicatedStore, Settings};

    fn group(id: u32) -> Write {
        let group = v1::Group { name: format!("g{id}"), ru_per_sec: "9".to_owned(), ..v1::Group::default() };
        group_row(GroupId(id), &Definition::parse(&group).unwrap(), Span::secs(5)).unwrap()
    }

    fn follow(model: &Arc<Model>) -> Follower {
        let clock = Clock::driven(Arc::new(AtomicU64::new(0)));
        let settings =
            Settings { segment: 600, checkpoint_after: 2_000, ..Settings::new(clock, Span::secs(1)) };
        Follower::follow(Arc::<Model>::clone(model), "t/", Memory::new(), settings, false).unwrap()
    }

    fn holding(model: &Arc<Model>, held: &Arc<Held>) -> Follower {
        let mut follower = follow(model);
        follower.draw(Arc::<Held>::clone(held));
        follower
    }

    fn take(follower: Follower) -> ReplicatedStore {
        let seen = follower.look().unwrap();
        follower.take(&seen, &owner("a")).unwrap()
    }

    #[test]
    fn the_groups_are_those_of_the_log_also_of_its_rest_and_after_a_checkpoint() {
        let model = Arc::<Model>::default();
        let owner = take(follow(&model));
        owner.commit(&[group(2)]).unwrap();
        let held = Arc::new(Held::default());
        let mut standby = holding(&model, &held);
        let holds = |follower: &Follower, count| {
            let held = held.lock();
            let kept = held.as_ref().unwrap();
            assert_eq!((kept.count(), kept), (count, &Kept::read(follower.local()).unwrap()));
        };
        holds(&standby, 1);
        owner.commit(&[group(3)]).unwrap();
        standby.catch_up().unwrap();
        holds(&standby, 2);
        // The segments behind it go with the second of these.
        let (mut next, mut checkpoints) = (4, 0);
        while checkpoints < 2 {
            owner.commit(&[group(next)]).unwrap();
            next += 1;
            checkpoints += u32::from(owner.checkpoint_if_due().unwrap());
        }
        standby.catch_up().unwrap();
        holds(&standby, next as usize - 2);
        owner.commit(&[group(9_999)]).unwrap();
        let store = take(standby);
        assert_eq!(held.take().unwrap(), Kept::read(&store).unwrap());
        assert!(held.take().is_none(), "they are the start's");
    }

    #[test]
    fn with_rows_that_no_controller_stores_none_are_held_until_all_are_read_again() {
        let (model, held) = (Arc::<Model>::default(), Arc::new(Held::default()));
        let mut standby = holding(&model, &held);
        let owner = take(follow(&model));
        owner.commit(&[Write::Put(Table::Groups, group_key(GroupId(2)), b"?".to_vec())]).unwrap();
        standby.catch_up().unwrap();
        assert!(held.lock().is_none());
        owner.commit(&[group(2)]).unwrap();
        standby.catch_up().unwrap();
        assert!(held.lock().is_none(), "what came before is not known");
        standby.draw(Arc::<Held>::clone(&held));
        assert_eq!(held.take().unwrap().count(), 1);
    }

    #[test]
    fn the_audit_log_is_that_of_the_log_also_when_its_oldest_entries_go() {
        let (model, held) = (Arc::<Model>::default(), Arc::new(Held::default()));
        let (mut standby, owner) = (holding(&model, &held), take(follow(&model)));
        let entry = |id: u64, action: &str, subject: &str| {
            let entry = json!({"action": action, "subject": subject}).to_string();
            Write::Put(Table::Audit, u64_key(id), entry.into_bytes())
        };
        let batches = [
            vec![entry(1, "create group", "a"), entry(2, "bind", "a"), entry(3, "alter group", "a")],
            vec![entry(4, "create group", "b"), Write::DeleteBelow(Table::Audit, u64_key(2))],
            vec![entry(5, "delete group", "a"), Write::DeleteBelow(Table::Audit, u64_key(4))],
        ];
        for batch in &batches {
            owner.commit(batch).unwrap();
            standby.catch_up().unwrap();
            assert_eq!(*held.lock(), Some(Kept::read(standby.local()).unwrap()));
        }
        owner.commit(&[entry(5, "create group", "c")]).unwrap();
        standby.catch_up().unwrap();
        assert!(held.lock().is_none(), "no controller stores an entry twice");
    }
}
