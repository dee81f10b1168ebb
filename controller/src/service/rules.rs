//! Telling gateways the rules against runaways and the watch list: all of them, again after every change.
//!
//! A change only moves a number; each stream takes the present state when it is ready for it, so that a storm of changes
//! is told in a few lists.

use std::sync::Arc;

use tokio::sync::watch as flag;

use super::{Service, WatchError};
use crate::limits::MAX_WATCHERS;
use crate::name::GroupName;
use crate::query_limit::QueryLimit;
use crate::watches::Watch;

/// What gateways go by.
#[derive(Clone, Debug, Default)]
pub struct RulesView {
    /// Groups with a rule.
    pub groups: Vec<(GroupName, Arc<QueryLimit>)>,
    /// Statements that are convicted before they run.
    pub watches: Vec<Arc<Watch>>,
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
            let group = state.catalog.get(id)?;
            Some((group.name.clone(), Arc::clone(group.query_limit.as_ref()?)))
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
