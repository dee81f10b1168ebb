//! Finding out that this controller is behind what nodes have seen, because its store is a copy.
//!
//! In `Hello`, nodes send the epoch they saw last and the standing of the controller that led it. A start that is not
//! in this store's lineage happened on a copy of it, or on the store of which this one is a copy: its leases may be in
//! use. Then this controller raises its epoch above that one's, stores that together with what it heard, and recovers
//! for the longest lease that the other may have given: pools are empty, and nodes keep what they hold or prove.
//!
//! A false report cannot invent a start, since standings are signed. What is not signed with this store's key is
//! believed as far as it can do no harm: the epoch is raised above it, up to [`FARTHEST_EPOCH`], so that the node
//! accepts this controller; and in the first minute of a new store, which may replace a lost one, the controller
//! recovers.

use tidegate_core::group::{GroupId, GroupSpec};
use tidegate_core::units::{Span, Time};

use crate::leasing::LeasingCalls;
use crate::leasing::lineage::Lineage;
use crate::leasing::rivals::{Rivals, Twin};
use crate::leasing::standing::{Standing, Told};
use crate::service::{SessionError, State};
use crate::store::records::{META_EPOCH, META_LINEAGE, META_LONGEST_TTL, group_row, put_json, put_number};
use crate::store::{Batch, StoreError, Table};

/// Epochs above this are not believed without a signature. An epoch grows by one with each unclean start: at one start
/// a second this takes 34,000 years. A claim of the highest leaves 2^62 for all later ones.
pub const FARTHEST_EPOCH: u64 = 1 << 40;
/// For this long, a new store takes unsigned standings for leases of a store that it may replace: when it has passed,
/// these have ended.
const NEWBORN: Span = LONGEST_TTL;
const LONGEST_TTL: Span = GroupSpec::TTL_RANGE.1;

/// A node's knowledge of controllers it spoke to before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The newest epoch; 0 for none.
    pub epoch: u64,
    /// The standing of the controller that led it, as that controller wrote it.
    pub standing: Vec<u8>,
}

/// The identity of this controller, and what it knows of those before and beside it.
pub(crate) struct Lead {
    /// The start of this controller: random, and new with every start.
    pub(super) instance: u64,
    /// Leadership epoch. It is raised when a node has seen an epoch as high, of a controller on a copy of the store.
    pub(super) epoch: u64,
    pub(super) lineage: Lineage,
    pub(super) rivals: Rivals,
    /// Whether no controller had used the store before this one.
    pub(super) is_new: bool,
    /// Whether the controller before this stopped cleanly, and its leases were resumed.
    pub(super) began_clean: bool,
    /// The epoch to which this one was raised because its store is a copy, or was set back.
    pub(super) set_back: Option<u64>,
}

impl Lead {
    /// Leadership epoch.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The start of this controller.
    pub(crate) fn instance(&self) -> u64 {
        self.instance
    }

    /// The epoch to which this one was raised because its store is a copy, or was set back.
    pub(crate) fn set_back(&self) -> Option<u64> {
        self.set_back
    }

    /// Another controller that runs at the same time.
    pub(crate) fn twin(&self, now: Time) -> Option<Twin> {
        self.rivals.twin(now)
    }

    /// Whether the definitions of revision `have`, sent by `instance`, are those of `now`.
    pub(crate) fn knows(&self, instance: u64, have: u64, now: u64) -> bool {
        self.lineage.is_current(instance, have, now)
    }
}

/// What a node's knowledge changes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct News {
    /// The epoch to lead from now on.
    epoch: u64,
    /// The lease length to recover for, from now on or from the start.
    recover: Option<(Span, From)>,
    /// A start on a copy to remember.
    other: Option<(u64, u64)>,
    /// What is known of other running controllers, with what the node brings.
    rivals: Option<Rivals>,
}

impl News {
    /// Whether a later start must know it.
    fn is_kept(&self, epoch: u64) -> bool {
        epoch != self.epoch || self.recover.is_some() || self.other.is_some()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Start,
    Now,
}

impl LeasingCalls<'_> {
    /// Takes in what a node has seen, before the node is accepted. Blocks on the disk when that is news.
    ///
    /// # Errors
    /// Raising the epoch cannot be stored.
    pub fn heed(&self, node: &str, seen: &Seen) -> Result<(), SessionError> {
        if self.news(&self.service.lock(), seen).is_none() {
            return Ok(());
        }
        // One at a time, so that the second call finds the first one's work done.
        let _in_order = self.service.in_order();
        let (news, lineage, longest_ttl, rows) = {
            let mut state = self.service.lock();
            let Some(news) = self.news(&state, seen) else { return Ok(()) };
            if !news.is_kept(state.leasing.lead.epoch) {
                self.meet(&mut state, node, news.rivals);
                return Ok(());
            }
            let mut lineage = state.leasing.lead.lineage.clone();
            if let Some((instance, epoch)) = news.other {
                lineage.hear(instance, epoch);
            }
            let longest_ttl = news.recover.map_or(Span(0), |(ttl, _)| ttl).max(state.leasing.longest_ttl);
            // The next start must wait for these leases in every group.
            let groups = state.definitions.catalog().iter().filter(|_| news.recover.is_some());
            let rows = groups.map(|(id, definition)| group_row(id, definition, longest_ttl));
            let rows: Result<Batch, StoreError> = rows.collect();
            (news, lineage, longest_ttl, rows)
        };
        let row = put_json(Table::Meta, META_LINEAGE.to_vec(), &lineage);
        let stored = row.and_then(|row| {
            let mut batch = rows?;
            batch.push(row);
            batch.push(put_number(META_EPOCH, news.epoch));
            batch.push(put_number(META_LONGEST_TTL, longest_ttl.0));
            self.service.commit(&batch)
        });
        stored.map_err(|error| behind(seen, &error))?;
        let now = self.service.clock().now();
        let mut state = self.service.lock();
        self.meet(&mut state, node, news.rivals);
        let before = std::mem::replace(&mut state.leasing.lead.epoch, news.epoch);
        (state.leasing.lead.lineage, state.leasing.longest_ttl) = (lineage, longest_ttl);
        if let Some((ttl, from)) = news.recover {
            let from = if from == From::Now { now } else { Time(0) };
            let until = from.after(self.longest_use(&state, ttl));
            state.leasing.engine.recover_until(until);
            let groups: Vec<GroupId> = state.definitions.catalog().iter().map(|(id, _)| id).collect();
            for id in groups.into_iter().chain([GroupId::ROOT]) {
                state.leasing.longest.remember(id, longest_ttl, until.max(now));
            }
        }
        state.leasing.lead.set_back = state.leasing.lead.set_back.or(news.recover.map(|_| news.epoch));
        self.service.metrics.epoch.set(i64::try_from(news.epoch).unwrap_or(i64::MAX));
        self.service.metrics.set_back.inc();
        let recovery = state.leasing.recovery(self.service.clock().now());
        tracing::warn!(
            client = node, epoch = news.epoch, before, %recovery,
            "a node has seen a controller that this store does not know: the store is a copy or was set back"
        );
        Ok(())
    }

    /// Whether what a node has seen changes anything.
    pub fn is_news(&self, seen: &Seen) -> bool {
        self.news(&self.service.lock(), seen).is_some()
    }

    fn news(&self, state: &State, seen: &Seen) -> Option<News> {
        let told = Told::read(&state.leasing.prover, &seen.standing);
        let (mut epoch, mut recover, mut other) = (state.leasing.lead.epoch, None, None);
        let rivals = match &told {
            Some(Told::Signed(standing)) => {
                let is_before = state.leasing.lead.lineage.is_own(standing.instance);
                state.leasing.lead.rivals.after(standing, is_before, self.service.clock().now())
            }
            Some(Told::Foreign(_)) | None => None,
        };
        match told {
            Some(Told::Signed(standing)) if standing.instance == state.leasing.lead.instance => {}
            Some(Told::Signed(standing)) if state.leasing.lead.lineage.is_own(standing.instance) => {
                // The start before this one, or one before a copy was taken: it may have given longer leases since.
                recover = self.longer_than_known(state, &standing).map(|ttl| (ttl, From::Start));
            }
            Some(Told::Signed(standing)) => {
                if standing.epoch >= epoch {
                    epoch = standing.epoch.saturating_add(1);
                }
                if !state.leasing.lead.lineage.has_heard(standing.instance, standing.epoch) {
                    recover = Some((longest(&standing).max(state.leasing.longest_ttl), From::Now));
                    other = Some((standing.instance, standing.epoch));
                }
            }
            Some(Told::Foreign(standing))
                if state.leasing.lead.is_new && self.service.clock().now() < Time(0).after(NEWBORN) =>
            {
                let until = self.service.clock().now().after(self.longest_use(state, longest(&standing)));
                let longer = until > state.leasing.engine.recovering_until().after(Span::secs(1));
                recover = longer.then(|| (longest(&standing), From::Now));
            }
            Some(Told::Foreign(_)) | None => {}
        }
        if seen.epoch > epoch && seen.epoch <= FARTHEST_EPOCH {
            epoch = seen.epoch.saturating_add(1);
        }
        let news = News { epoch, recover, other, rivals };
        (news.is_kept(state.leasing.lead.epoch) || news.rivals.is_some()).then_some(news)
    }

    /// Takes in which controllers run at the same time, and yields if one of them leads.
    fn meet(&self, state: &mut State, node: &str, rivals: Option<Rivals>) {
        let Some(rivals) = rivals else { return };
        let now = self.service.clock().now();
        let before = std::mem::replace(&mut state.leasing.lead.rivals, rivals).twin(now);
        let Some(twin) = state.leasing.lead.rivals.twin(now) else { return };
        if before.is_none_or(|before| before.instance != twin.instance) {
            self.service.metrics.twins.inc();
            let (instance, leads) = (format!("{:016x}", twin.instance), twin.leads);
            tracing::error!(
                client = node,
                instance,
                leads,
                "another controller runs on a copy of this store; of the two the one that began later falls silent: \
                 stop one of them"
            );
        }
        if twin.leads {
            state.leasing.fence.yield_until(twin.until());
            // A controller that speaks again does not know what the other leased meanwhile.
            let ttl = state.leasing.longest_ttl.max(twin.longest_ttl.min(LONGEST_TTL));
            let until = twin.until().after(self.longest_use(state, ttl));
            state.leasing.engine.recover_until(until);
        }
    }

    /// The longest lease of an earlier start on this store, if this one does not recover for as long.
    fn longer_than_known(&self, state: &State, standing: &Standing) -> Option<Span> {
        let ttl = longest(standing);
        let until = Time(0).after(self.longest_use(state, ttl));
        let open = !state.leasing.lead.began_clean && ttl > state.leasing.longest_ttl;
        (open && until > self.service.clock().now()).then_some(ttl)
    }

    /// How long a lease of an earlier controller may be in use.
    fn longest_use(&self, state: &State, ttl: Span) -> Span {
        state.leasing.engine.config().longest_use(ttl)
    }

    /// This controller's standing, for nodes to keep.
    pub(crate) fn standing(&self, state: &State) -> Standing {
        let (began_unix_ms, rivals) = state.leasing.lead.rivals.said();
        Standing {
            instance: state.leasing.lead.instance,
            epoch: state.leasing.lead.epoch,
            longest_ttl: state.leasing.longest_ttl,
            began_unix_ms,
            at_us: self.service.clock().now().0,
            rivals,
        }
    }
}

/// The longest lease of a standing, which cannot exceed the longest possible one, whatever it says.
fn longest(standing: &Standing) -> Span {
    standing.longest_ttl.min(LONGEST_TTL)
}

fn behind(seen: &Seen, error: &StoreError) -> SessionError {
    SessionError::Behind { seen: seen.epoch, error: error.to_string() }
}
