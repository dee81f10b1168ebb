//! Nodes of earlier builds, which do not know what some quotas count.

use tidegate_core::engine::Engine;
use tidegate_core::group::GroupId;
use tidegate_core::quota::Unit;
use tidegate_core::units::Time;

use crate::service::{Service, State};

/// What a node counts, beside RU in windows of a calendar.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Requests.
    pub(super) requests: bool,
    /// In windows that roll.
    pub(super) rolling: bool,
}

/// What a node does not know of a quota.
enum Unknown {
    Requests,
    Rolling,
}

impl Unknown {
    /// Why a renewal is refused, in metrics.
    fn reason(&self) -> &'static str {
        match self {
            Self::Requests => "counts_no_requests",
            Self::Rolling => "counts_no_rolling",
        }
    }

    fn quota(&self) -> &'static str {
        match self {
            Self::Requests => "quota of requests",
            Self::Rolling => "quota with a rolling window",
        }
    }

    fn counted(&self) -> &'static str {
        match self {
            Self::Requests => "count them",
            Self::Rolling => "count in one",
        }
    }
}

impl Counts {
    /// What of a group's quota this node does not know.
    fn lacks(self, engine: &Engine, id: GroupId) -> Option<Unknown> {
        if !self.requests && engine.quota_unit(id) == Some(Unit::Requests) {
            return Some(Unknown::Requests);
        }
        (!self.rolling && engine.quota_rolls(id)).then_some(Unknown::Rolling)
    }

    /// Why a node gets nothing of a group whose quota counts what the node does not know of. A lease would let it use the
    /// rate, and the quota would not hold.
    pub(super) fn too_little(
        self,
        service: &Service,
        state: &mut State,
        client: &str,
        (group, id): (&str, GroupId),
        now: Time,
    ) -> Option<String> {
        let unknown = self.lacks(&state.leasing.engine, id)?;
        let (quota, counted) = (unknown.quota(), unknown.counted());
        service.metrics.refuse(unknown.reason());
        service.metrics.granted("refused");
        if let Some(renewals) = state.leasing.uncounted.add(now, 1) {
            tracing::warn!(
                client, %group, renewals, quota,
                "a node of a build before quotas of this kind gets nothing of a group with one: upgrade the node"
            );
        }
        Some(format!(
            "group {group} counts in a {quota}, and node {client} is of a build that cannot {counted}: upgrade the node, or \
             take the quota away"
        ))
    }
}
