//! The rules of groups and the watch list for gateways: all of them, again after every change.
//!
//! A change only moves a number; each stream takes the present state when it is ready for it, so that a storm of
//! changes takes few lists.

use std::sync::Arc;

use tidegate_core::group::GroupId;
use tidegate_core::units::Span;
use tokio::sync::watch as flag;

use crate::limits::MAX_WATCHERS;
use crate::name::GroupName;
use crate::service::WatchError;
use crate::statements::StatementCalls;
use crate::statements::query_limit::QueryLimit;
use crate::statements::watches::Watch;

/// The rules and watches that gateways follow.
#[derive(Clone, Debug, Default)]
pub struct RulesView {
    /// Groups with a rule or a longest wait.
    pub groups: Vec<GroupRule>,
    /// Statements to convict before they run.
    pub watches: Vec<Arc<Watch>>,
}

/// How far a list of rules was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// The last group sent.
    pub group: Option<GroupId>,
    /// The id of the last watch sent; 0 is none.
    pub watch: u64,
}

impl Told {
    /// The place after these as well.
    #[must_use]
    pub fn and(self, view: &RulesView) -> Self {
        Self {
            group: view.groups.last().map(|rule| rule.id).or(self.group),
            watch: view.watches.last().map_or(self.watch, |watch| watch.id),
        }
    }
}

/// The rules of one group for gateways.
#[derive(Clone, Debug)]
pub struct GroupRule {
    /// Its id.
    pub id: GroupId,
    /// The group.
    pub group: GroupName,
    /// Its rule against runaways.
    pub limit: Option<Arc<QueryLimit>>,
    /// Longest wait of a statement for admission; `None` is the gateway's own.
    pub max_wait: Option<Span>,
}

impl StatementCalls<'_> {
    /// Follows the rules: the number changes when they do.
    pub fn follow_rules(&self) -> Result<flag::Receiver<u64>, WatchError> {
        if self.service.rules_flag().receiver_count() >= MAX_WATCHERS {
            return Err(WatchError::TooMany);
        }
        Ok(self.service.rules_flag().subscribe())
    }

    /// At most `most` rules and watches after a place, as they are now; the groups first. Parts of one list may be of
    /// different moments: what changed between them is sent again.
    pub fn rules(&self, from: Told, most: usize) -> RulesView {
        let unix_ms = self.service.clock().unix_ms();
        let state = self.service.lock();
        let rule = |id| {
            let definition = state.definitions.catalog().get(id)?;
            Some(GroupRule {
                id,
                group: definition.name.clone(),
                limit: definition.query_limit.clone(),
                max_wait: definition.max_wait,
            })
        };
        let groups = state.definitions.catalog().limited().groups_after(from.group).filter_map(rule);
        let groups: Vec<GroupRule> = groups.take(most).collect();
        let lasting = |watch: &&Arc<Watch>| watch.end_unix_ms == 0 || unix_ms < watch.end_unix_ms;
        let room = most - groups.len();
        let watches =
            state.convictions.watches.after(from.watch).filter(lasting).take(room).cloned().collect();
        RulesView { groups, watches }
    }

    /// Notifies the streams of a change.
    pub(crate) fn rules_changed(&self) {
        self.service.rules_flag().send_modify(|number| *number = number.wrapping_add(1));
    }
}

#[cfg(test)]
mod tests;
