//! What a statement goes by from its admission to its end: the rules of groups, the policy of the gateway, and which
//! groups there are.

use std::sync::Arc;
use std::time::Duration;

use tidegate_client::{Client, Group, GroupName};

use super::policy::{InTransaction, Policy};
use super::rules::{Limit, Rules};

/// Rules and policy, for all statements of a gateway.
pub(super) struct RuleBook {
    pub(super) client: Client,
    pub(super) policy: Policy,
    pub(super) rules: Rules,
}

impl RuleBook {
    /// A handle of a group that probably exists.
    pub(super) fn group(&self, name: &str) -> Option<Group> {
        self.client.group_now(name).ok()
    }

    /// Whether statements inside a transaction run on debt of this group now.
    pub(super) fn lets_owe(&self, payer: &Group) -> bool {
        match self.policy.in_transaction {
            InTransaction::Owe => true,
            InTransaction::OweSome => {
                payer.debt_within().is_some_and(|within| within <= self.policy.max_debt)
            }
            InTransaction::Wait => false,
        }
    }

    /// The rule of a group.
    pub(super) fn limit(&self, group: &GroupName) -> Option<Arc<Limit>> {
        self.rules.book().limit(group)
    }

    /// Longest wait of a group's statement.
    pub(super) fn max_wait(&self, group: &GroupName) -> Duration {
        self.rules.book().max_wait(group).unwrap_or(self.policy.max_wait)
    }
}
