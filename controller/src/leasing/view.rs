//! Reading: nodes and leases.
//!
//! Long reads copy under the lock and format outside of it.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_core::group::{ClientId, Fallback, GroupId};
use tidegate_core::quota::QuotaView;
use tidegate_core::units::{Rate, Ru, Span, Time};
use tidegate_core::view::{GroupView, LeaseView};
use tidegate_core::waited::Waited;
use tidegate_core::warmth::WarmthView;

use super::LeasingCalls;
use super::clients::{Incarnation, NodeStats};
use super::waits::{Waiting, Waits};
use crate::answers::{cut_rows, one_group};
use crate::definitions::catalog::Catalog;
use crate::error::{AdminError, InField};
use crate::identity::Sight;
use crate::leasing::Leasing;
use crate::limits::MAX_ROWS;
use crate::name::GroupName;
use crate::service::State;

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRow {
    /// Its identity.
    pub name: String,
    /// The number of its start.
    pub incarnation: u64,
    /// Software and version.
    pub agent: String,
    /// Whether a stream is open.
    pub connected: bool,
    /// Time since its last message.
    pub silent: Span,
    /// Groups of which it holds leases.
    pub leases: u32,
    /// Messages since the controller started.
    pub messages: u64,
    /// Totals of its process.
    pub node: NodeStats,
}

/// A lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRow {
    /// The group.
    pub group: GroupName,
    /// The node and its incarnation.
    pub client: (String, u64),
    /// The engine's view.
    pub lease: LeaseView,
    /// Time left.
    pub expires_in: Span,
}

/// A group's state in the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRow {
    /// The group.
    pub group: GroupName,
    /// The engine's view.
    pub view: GroupView,
    /// What waits for it, by the words of its nodes.
    pub(crate) waiting: Waiting,
    /// Most RU/s that its nodes may use if all are cut off at once; `None` when nothing bounds it.
    pub bound: Option<Rate>,
    /// Its quota in the present window.
    pub quota: Option<QuotaView>,
    /// Waits that ended within the last minute; boxed, since a row without any would be three times as large.
    pub waits: Option<Box<Waited>>,
    /// How warm it is, if its rate warms up.
    pub warmth: Option<WarmthView>,
}

/// Leases, and the groups they belong to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseTable {
    /// In order of groups and nodes.
    pub leases: Vec<LeaseRow>,
    /// Groups with leases, or waits within the last minute, or the one asked for.
    pub groups: Vec<GroupRow>,
    /// Whether rows are missing.
    pub truncated: bool,
}

impl LeasingCalls<'_> {
    /// Time until a group has recovered from an unclean stop; zero when it does not recover.
    pub fn recovery_of(&self, group: &str) -> Result<Span, AdminError> {
        let name = GroupName::parse(group).in_field("group")?;
        let state = self.service.lock();
        let id = state.definitions.catalog().require(&name)?;
        Ok(state.leasing.engine.group_recovering_until(id).since(self.service.clock().now()))
    }

    /// The nodes whose consumption is not folded, newest incarnations first; and whether some are missing.
    pub fn clients(&self) -> (Vec<ClientRow>, bool) {
        let (now, unix_ms) = (self.service.clock().now(), self.service.clock().unix_ms());
        let state = self.service.lock();
        let mut held: BTreeMap<ClientId, u32> = BTreeMap::new();
        for id in &state.leasing.active {
            state.leasing.engine.leases(*id).for_each(|lease| *held.entry(lease.client).or_default() += 1);
        }
        let row = |(id, client): (ClientId, &Incarnation)| ClientRow {
            name: client.name.clone(),
            incarnation: client.number,
            agent: client.agent.clone(),
            connected: client.connected,
            silent: client.heard.map_or_else(
                || Span(unix_ms.saturating_sub(client.heard_unix_ms).saturating_mul(1_000)),
                |heard| now.since(heard),
            ),
            leases: held.get(&id).copied().unwrap_or_default(),
            messages: client.messages,
            node: client.node,
        };
        let mut rows: Vec<ClientRow> =
            state.leasing.clients.iter().rev().take(MAX_ROWS + 1).map(row).collect();
        let truncated = cut_rows(&mut rows);
        (rows, truncated)
    }

    /// Leases of one group or of all.
    pub fn leases(&self, group: &str) -> Result<LeaseTable, AdminError> {
        let one = one_group(group)?;
        let now = self.service.clock().now();
        let state = self.service.lock();
        let mut table = LeaseTable::default();
        // A group whose nodes are gone, or got nothing, is the one whose waits are asked for.
        let waited: BTreeSet<GroupId> = state.accounts.with_waits().collect();
        let chosen = state.definitions.chosen(self.sight, one.as_ref(), &state.leasing.active, &waited)?;
        for (id, name) in chosen {
            if table.leases.len() > MAX_ROWS || table.groups.len() > MAX_ROWS {
                break;
            }
            let before = table.leases.len();
            let rows = state.leasing.engine.leases(id).filter_map(|lease| {
                let client = state.leasing.clients.identity(lease.client)?;
                Some(LeaseRow { group: name.clone(), client, expires_in: lease.expires.since(now), lease })
            });
            table.leases.extend(rows);
            let is_wanted = one.is_some() || table.leases.len() > before;
            table
                .groups
                .extend(state.group_row((id, name), now).filter(|row| is_wanted || row.waits.is_some()));
        }
        table.truncated = cut_rows(&mut table.leases) | cut_rows(&mut table.groups);
        Ok(table)
    }
}

impl State {
    /// Groups with leases, or waits within the last minute, of those that somebody sees; and whether some are missing.
    pub(crate) fn group_rows(
        &self,
        sight: Sight<'_>,
        now: Time,
    ) -> Result<(Vec<GroupRow>, bool), AdminError> {
        let waited: BTreeSet<GroupId> = self.accounts.with_waits().collect();
        let chosen = self.definitions.chosen(sight, None, &self.leasing.active, &waited)?;
        let rows = chosen.filter_map(|group| self.group_row(group, now));
        let rows = rows.filter(|row| row.view.leases > 0 || row.waits.is_some());
        let mut rows: Vec<_> = rows.take(MAX_ROWS + 1).collect();
        let truncated = cut_rows(&mut rows);
        Ok((rows, truncated))
    }

    /// A group, and the nodes that hold its leases, each with its rate, the largest first; none if they are more than
    /// this.
    pub(crate) fn held(&self, group: &GroupName, most: usize) -> Option<(GroupView, Vec<(String, Rate)>)> {
        let engine = &self.leasing.engine;
        let id = self.definitions.catalog().id(group)?;
        let view = engine.group_view(id)?;
        let rate = |lease: LeaseView| Some((self.leasing.clients.identity(lease.client)?.0, lease.rate));
        let leases = (view.leases <= most).then(|| engine.leases(id));
        let mut rates: Vec<_> = leases.into_iter().flatten().filter_map(rate).collect();
        rates.sort_by(|(one, less), (other, more)| more.cmp(less).then_with(|| one.cmp(other)));
        Some((view, rates))
    }

    fn group_row(&self, (id, name): (GroupId, &GroupName), now: Time) -> Option<GroupRow> {
        let view = self.leasing.engine.group_view(id)?;
        Some(GroupRow {
            group: name.clone(),
            view,
            waiting: Waits(&self.leasing).of(id),
            bound: self.leasing.bound(self.definitions.catalog(), id, view.leases),
            quota: self.leasing.engine.quota_view(id, now),
            waits: self.accounts.waits(id, now).map(Box::new),
            warmth: self.leasing.engine.warmth(id, now),
        })
    }
}

impl Leasing {
    /// The limit, plus what cut-off nodes may use; `None` when nothing bounds it.
    fn bound(&self, catalog: &Catalog, id: GroupId, nodes: usize) -> Option<Rate> {
        let definition = catalog.get(id)?;
        let limit = catalog.effective_limit(id)?;
        let nodes = i64::try_from(nodes).unwrap_or(i64::MAX);
        // Parts from before the total was lowered count.
        if let Some(total) = definition.fallback_total {
            return Some(limit + total.max(self.engine.parts_out(id)));
        }
        match definition.fallback {
            Fallback::Stop => Some(limit),
            Fallback::Rate(each) | Fallback::Part(each, _) => {
                Some(limit + Rate(Ru(each.0).scale(nodes, 1).0))
            }
            Fallback::Unlimited => None,
        }
    }
}
