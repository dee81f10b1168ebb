//! Telling gateways the rules of groups and the watch list: all of them, again after every change.
//!
//! A change only moves a number; each stream takes the present state when it is ready for it, so that a storm of changes
//! is told in a few lists.

use std::sync::Arc;

use tidegate_core::units::Span;
use tokio::sync::watch as flag;

use super::{Service, WatchError};
use crate::limits::MAX_WATCHERS;
use crate::name::GroupName;
use crate::query_limit::QueryLimit;
use crate::watches::Watch;

/// What gateways go by.
#[derive(Clone, Debug, Default)]
pub struct RulesView {
    /// Groups with something to go by.
    pub groups: Vec<GroupRule>,
    /// Statements that are convicted before they run.
    pub watches: Vec<Arc<Watch>>,
}

/// What gateways go by in one group.
#[derive(Clone, Debug)]
pub struct GroupRule {
    /// The group.
    pub group: GroupName,
    /// Its rule against runaways.
    pub limit: Option<Arc<QueryLimit>>,
    /// Longest wait of a statement for admission; `None` is the gateway's own.
    pub max_wait: Option<Span>,
}

impl Service {
    /// Follows the rules: the number changes when they do.
    pub fn follow_rules(&self) -> Result<flag::Receiver<u64>, WatchError> {
        if self.rules.receiver_count() >= MAX_WATCHERS {
            return Err(WatchError::TooMany);
        }
        Ok(self.rules.subscribe())
    }

    /// The rules and the watch list as they are now.
    pub fn rules(&self) -> RulesView {
        let unix_ms = self.clock.unix_ms();
        let state = self.lock();
        let rule = |id| {
            let definition = state.catalog.get(id)?;
            Some(GroupRule {
                group: definition.name.clone(),
                limit: definition.query_limit.clone(),
                max_wait: definition.max_wait,
            })
        };
        let lasting = |watch: &&Arc<Watch>| watch.end_unix_ms == 0 || unix_ms < watch.end_unix_ms;
        RulesView {
            groups: state.catalog.limited().groups().filter_map(rule).collect(),
            watches: state.watches.iter().filter(lasting).cloned().collect(),
        }
    }

    /// Lets the streams know.
    pub(super) fn rules_changed(&self) {
        self.rules.send_modify(|number| *number = number.wrapping_add(1));
    }
}
