//! Reads what pages show. What many viewers see at once is read once a second for all of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_console::audit::Entry;
use tidegate_console::groups::Held;
use tidegate_console::history::Bucket;
use tidegate_console::present::{Charged, Present, Tree};
use tidegate_console::samples::Seconds;
use tidegate_core::units::{Rate, Ru};
use tidegate_core::view::GroupView;
use tidegate_core::waited::Waited;
use tidegate_proto::v1;

use super::visitor::Visitor;
use super::{Web, typed};
use crate::accounts::live::second;
use crate::error::AdminError;
use crate::grpc::statement_row;
use crate::identity::Sight;
use crate::message;
use crate::name::GroupName;

/// Changes of a group that its page shows; the log has pages of the others.
const CHANGES: u32 = 10;
/// Bindings that the page of a group shows.
const BINDINGS: u32 = 200;
/// Leases of a group of which the list of groups says which nodes hold them: who reads shares of more of them looks at the
/// group's page, and a page of groups is read under the lock.
const MOST_SPLIT: usize = 100;
/// Statements that are listed beside other things.
const DEAREST: u32 = 5;

/// Whose groups: of a tenant, or all.
type Whose = Option<String>;

/// What was read for one viewer and serves others.
#[derive(Default)]
pub(super) struct Shared {
    of: Mutex<BTreeMap<Whose, Read>>,
}

/// What was read last of some groups.
#[derive(Clone)]
struct Read {
    /// The second in which it was.
    second: u64,
    present: Arc<Present>,
    seconds: Arc<Seconds>,
    /// Definitions, and the revision at which they were read.
    revision: u64,
    tree: Arc<Tree>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Whose, Read>> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Web {
    /// All groups that this viewer sees, as they are in this second, and what they used in the last ones.
    pub(super) fn now(&self, visitor: &Visitor) -> Result<(Arc<Present>, Arc<Seconds>), AdminError> {
        let whose: Whose = visitor.tenant().map(str::to_owned);
        let second = second(self.service.clock().now());
        // The lock is held while they are read: who comes meanwhile would read the same.
        let mut shared = self.shared.lock();
        let known = shared.get(&whose).cloned();
        if let Some(known) = known.as_ref().filter(|known| known.second == second) {
            return Ok((Arc::clone(&known.present), Arc::clone(&known.seconds)));
        }
        shared.retain(|_, read| second.saturating_sub(read.second) < 60);
        let read = self.read(visitor, second, known)?;
        let now = (Arc::clone(&read.present), Arc::clone(&read.seconds));
        shared.insert(whose, read);
        Ok(now)
    }

    fn read(&self, visitor: &Visitor, second: u64, known: Option<Read>) -> Result<Read, AdminError> {
        let revision = self.service.lock().definitions.revision();
        let known = known.filter(|known| known.revision == revision);
        let tree = match &known {
            Some(known) => Arc::clone(&known.tree),
            None => Arc::new(Tree::of(self.definitions(visitor)?)),
        };
        let mut present = Present::idle(self.service.clock().unix_ms(), Arc::clone(&tree));
        let (usage, usage_is_cut) = self.service.accounts().seen_by(visitor.identity()).usage("", false)?;
        for row in usage {
            let Some(group) = present.group_mut(row.group.as_str()) else { continue };
            group.own = row.live;
            group.total = Charged { operations: row.total.operations, micro_ru: row.total.ru().0 };
            group.throttled = row.total.throttled;
        }
        let sight = Sight::of(visitor.identity());
        let (rows, rows_are_cut) = self.service.lock().group_rows(sight, self.service.clock().now())?;
        for row in rows {
            let Some(group) = present.group_mut(row.group.as_str()) else { continue };
            (group.leased, group.demand) = (row.view.committed, row.view.demand);
            group.leases = row.view.leases;
            (group.waiting, group.backlog) = (row.waiting.waiting, row.waiting.backlog);
            group.debt = row.waiting.debt;
            group.quota = row.quota.map(message::quota_state).map(Box::new);
            group.warmth = row.warmth.map(message::warmth).map(Box::new);
            group.waits = row.waits.as_deref().map(Waited::summary);
        }
        present.is_partial = usage_is_cut || rows_are_cut;
        let present = Arc::new(present.summed());
        let seconds = match visitor.tenant() {
            None => self.recent().seconds(),
            Some(_) => {
                let before = known.as_ref().map(|known| &*known.seconds);
                self.recent().seconds_of(before, |name| present.get(name).is_some())
            }
        };
        Ok(Read { second, present, seconds: Arc::new(seconds), revision, tree })
    }

    /// What is left of the burst of groups that the viewer sees, and which nodes hold their leases.
    pub(super) fn held(&self, groups: &[&str]) -> BTreeMap<String, Held> {
        let state = self.service.lock();
        let of = |name: &&str| {
            let (view, rates) = state.held(&GroupName::parse(name).ok()?, MOST_SPLIT)?;
            Some(((*name).to_owned(), Held { burst_left: burst_left(&view), rates }))
        };
        groups.iter().filter_map(of).collect()
    }

    fn definitions(&self, visitor: &Visitor) -> Result<Vec<Arc<v1::Group>>, AdminError> {
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let page = self.service.definitions().seen_by(visitor.identity()).groups(&after, 0)?;
            all.extend(page.groups.into_iter().map(Arc::new));
            if page.next_after.is_empty() {
                return Ok(all);
            }
            after = page.next_after;
        }
    }

    /// The status, for those who may see it.
    pub(super) fn status(&self, visitor: &Visitor) -> Option<v1::StatusReply> {
        visitor.viewer.may_see_all.then(|| message::status(self.service.status()))
    }

    /// Whether nodes get no more than they prove to hold.
    pub(super) fn is_recovering(&self) -> bool {
        let now = self.service.clock().now();
        self.service.lock().leasing.recovery(now).0 > 0
    }

    /// What a group used in these minutes or hours.
    pub(super) fn buckets(
        &self,
        visitor: &Visitor,
        group: &str,
        (length, step): (u64, u64),
    ) -> Result<Vec<Bucket>, AdminError> {
        let resolution = if step == 60 { "minute" } else { "hour" };
        let now = self.service.clock().unix_ms() / 1_000;
        let accounts = self.service.accounts().seen_by(visitor.identity());
        let points = accounts.usage_history(group, resolution, now.saturating_sub(length), 0)?;
        let part = |amount: u128| i128::try_from(amount).unwrap_or(i128::MAX);
        let bucket = |(start_s, _, total): (u64, u64, tidegate_core::usage::Total)| {
            let of = total.charged;
            let parts = [of.cpu.0, of.read.0, of.write.0, of.network.0, of.flat.0].map(part);
            Bucket { start_s, parts }
        };
        Ok(points.into_iter().map(bucket).collect())
    }

    /// The statements that cost most, of one group or of all.
    pub(super) fn dearest(
        &self,
        visitor: &Visitor,
        group: &str,
    ) -> Result<Vec<v1::StatementRow>, AdminError> {
        let statements = self.service.statements().seen_by(visitor.identity());
        let wish = v1::ListStatementsRequest {
            group: group.to_owned(),
            limit: DEAREST,
            ..v1::ListStatementsRequest::default()
        };
        Ok(statements.list_statements(&wish)?.rows.iter().map(statement_row).collect())
    }

    /// Who is bound to a group.
    pub(super) fn bindings(&self, visitor: &Visitor, group: &str) -> Result<Vec<v1::Binding>, AdminError> {
        let definitions = self.service.definitions().seen_by(visitor.identity());
        let (bound, more) = definitions.bindings(group, None, BINDINGS)?;
        Ok(message::bindings_reply(&bound, more).bindings)
    }

    /// The newest changes of a group's definition, and whether there are older ones; for those who may see the log.
    pub(super) fn changes(&self, visitor: &Visitor, group: &str) -> Result<(Vec<Entry>, bool), AdminError> {
        if !visitor.viewer.may_see_all {
            return Ok(Default::default());
        }
        self.log(group, 0, CHANGES)
    }

    /// So many entries of the log before one, and whether there are older ones.
    pub(super) fn log(&self, group: &str, before: u64, most: u32) -> Result<(Vec<Entry>, bool), AdminError> {
        let mut entries = self.service.definitions().audit_log(group, before, most + 1)?;
        let shown = usize::try_from(most).unwrap_or(usize::MAX);
        let more = entries.len() > shown;
        entries.truncate(shown);
        Ok((entries.into_iter().map(typed::entry).collect(), more))
    }
}

/// Tokens of a group that no node holds. What fills up while nobody asks for any is counted when somebody does.
pub(super) fn burst_left(view: &GroupView) -> Option<Ru> {
    (view.committed > Rate::ZERO).then_some(view.pool)
}

#[cfg(test)]
mod tests;
