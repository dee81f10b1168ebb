//! Reading: consumption, history, nodes, leases, status, audit log and the metrics page.
//!
//! Reads that may be long take a copy under the lock and shape it outside. History and audit come from the store.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use tidegate_core::group::{ClientId, Fallback, GroupId};
use tidegate_core::units::{Rate, Ru, Span};
use tidegate_core::usage::Total;
use tidegate_core::view::{GroupView, LeaseView};

use crate::accounts::history::Resolution;
use crate::definitions::groups::page_limit;
use crate::error::{AdminError, InField};
use crate::leasing::clients::{Incarnation, NodeStats};
use crate::limits::{MAX_AUDIT_PAGE, MAX_GROUP_SERIES, MAX_ROWS};
use crate::metrics::GroupSample;
use crate::name::GroupName;
use crate::service::{Service, State};
use crate::store::Table;
use crate::store::records::{consumption, json, pair_key, u64_key};
use tidegate_proto::v1::AuditEntry;

/// Entries of the audit log in an answer that names no limit.
const AUDIT_PAGE: u32 = 100;
/// Groups with claims counted apart that the status names. One liar may name all groups; with none nobody looks.
const MOST_WARNED: usize = 20;

/// Consumption of a group, or of one node in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageRow {
    /// The group.
    pub group: GroupName,
    /// The node and its incarnation; `None` is the whole group.
    pub client: Option<(String, u64)>,
    /// RU/s of the last seconds.
    pub live: Rate,
    /// Since the group was created.
    pub total: Total,
    /// Reported since then, and more than any process can have used: not in `total`.
    pub apart: Total,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRow {
    /// Its identity.
    pub name: String,
    /// Which start of it.
    pub incarnation: u64,
    /// Software and version.
    pub agent: String,
    /// A stream is open.
    pub connected: bool,
    /// Since its last message.
    pub silent: Span,
    /// Groups it holds leases of.
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
    /// As the engine has it.
    pub lease: LeaseView,
    /// Time left.
    pub expires_in: Span,
}

/// A group's state in the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRow {
    /// The group.
    pub group: GroupName,
    /// As the engine has it.
    pub view: GroupView,
    /// Most RU/s its nodes may use if all are cut off at once; `None` when nothing bounds it.
    pub bound: Option<Rate>,
}

/// Leases and the groups they are on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseTable {
    /// In order of groups and nodes.
    pub leases: Vec<LeaseRow>,
    /// Groups with leases, or the one asked for.
    pub groups: Vec<GroupRow>,
    /// Rows were left out.
    pub truncated: bool,
}

/// The controller at a glance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Leadership epoch.
    pub epoch: u64,
    /// Revision of the definitions.
    pub revision: u64,
    /// Time since start.
    pub uptime: Span,
    /// Time until all groups have recovered.
    pub recovery: Span,
    /// RU/s of the server.
    pub capacity: Option<Rate>,
    /// Groups defined.
    pub groups: usize,
    /// Bindings defined.
    pub bindings: usize,
    /// Nodes connected.
    pub clients: usize,
    /// What an operator should look at.
    pub warnings: Vec<String>,
}

impl Service {
    /// Time until a group has recovered from an unclean stop; zero when it does not recover.
    pub fn recovery_of(&self, group: &str) -> Result<Span, AdminError> {
        let name = GroupName::parse(group).in_field("group")?;
        let state = self.lock();
        let id = state.catalog.require(&name)?;
        Ok(state.engine.group_recovering_until(id).since(self.clock.now()))
    }

    /// Consumption of one group, or of all that consumed anything; and whether rows were left out.
    pub fn usage(&self, group: &str, per_client: bool) -> Result<(Vec<UsageRow>, bool), AdminError> {
        let one = parse_group(group)?;
        let now = self.clock.now();
        let state = self.lock();
        let mut rows = Vec::new();
        for (id, name) in state.chosen(one.as_ref(), &state.charged)? {
            if rows.len() > MAX_ROWS {
                break;
            }
            let (total, apart) = (state.ledger.total(id), state.ledger.apart(id));
            if one.is_none() && (total, apart) == Default::default() {
                continue;
            }
            let live = state.live.get(&id).map_or(Rate::ZERO, |(live, _)| live.rate(now));
            rows.push(UsageRow { group: name.clone(), client: None, live, total, apart });
            if per_client {
                let by_client = state.ledger.accounts(id).filter_map(|(client, total, apart)| {
                    let live =
                        state.live_clients.get(&(id, client)).map_or(Rate::ZERO, |live| live.rate(now));
                    Some(UsageRow {
                        group: name.clone(),
                        client: Some(state.identity(client)?),
                        live,
                        total,
                        apart,
                    })
                });
                rows.extend(by_client);
            }
        }
        let truncated = cut_rows(&mut rows);
        Ok((rows, truncated))
    }

    /// Stored buckets of a group that start in `from_unix_s..to_unix_s`; a `to_unix_s` of 0 is now.
    pub fn usage_history(
        &self,
        group: &str,
        resolution: &str,
        from_unix_s: u64,
        to_unix_s: u64,
    ) -> Result<Vec<(u64, Total)>, AdminError> {
        let resolution = match resolution {
            "" | "minute" => Resolution::Minute,
            "hour" => Resolution::Hour,
            _ => return Err(AdminError::invalid("resolution", "write \"minute\" or \"hour\"")),
        };
        let name = GroupName::parse(group).in_field("group")?;
        let id = self.lock().catalog.require(&name)?;
        // What was counted a moment ago belongs to the answer.
        // Should the disk fail, that is counted and logged, and what is stored is the answer.
        let _ = self.flush();
        let now = self.clock.unix_ms() / 1_000;
        let to = if to_unix_s == 0 { now.saturating_add(1) } else { to_unix_s.min(now.saturating_add(1)) };
        let from = from_unix_s.max(now.saturating_sub(resolution.kept_s()));
        let step = usize::try_from(resolution.seconds()).unwrap_or(60);
        let starts: Vec<u64> =
            (resolution.start(from)..to).step_by(step).filter(|start| *start >= from_unix_s).collect();
        let keys: Vec<_> = starts.iter().map(|start| pair_key(*start, id)).collect();
        let values = self.store.get(resolution.table(), &keys)?;
        let stored = starts.into_iter().zip(values).filter_map(|(start, value)| Some((start, value?)));
        let points = stored.map(|(start, value)| Ok((start, consumption(resolution.table(), &value)?)));
        points.collect()
    }

    /// The nodes whose consumption is kept apart, newest incarnations first; and whether some were left out.
    pub fn clients(&self) -> (Vec<ClientRow>, bool) {
        let (now, unix_ms) = (self.clock.now(), self.clock.unix_ms());
        let state = self.lock();
        let mut held: BTreeMap<ClientId, u32> = BTreeMap::new();
        for id in &state.active {
            state.engine.leases(*id).for_each(|lease| *held.entry(lease.client).or_default() += 1);
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
        let mut rows: Vec<ClientRow> = state.clients.iter().rev().take(MAX_ROWS + 1).map(row).collect();
        let truncated = cut_rows(&mut rows);
        (rows, truncated)
    }

    /// Leases of one group or of all.
    pub fn leases(&self, group: &str) -> Result<LeaseTable, AdminError> {
        let one = parse_group(group)?;
        let now = self.clock.now();
        let state = self.lock();
        let mut table = LeaseTable::default();
        for (id, name) in state.chosen(one.as_ref(), &state.active)? {
            if table.leases.len() > MAX_ROWS || table.groups.len() > MAX_ROWS {
                break;
            }
            let before = table.leases.len();
            let rows = state.engine.leases(id).filter_map(|lease| {
                let client = state.identity(lease.client)?;
                Some(LeaseRow { group: name.clone(), client, expires_in: lease.expires.since(now), lease })
            });
            table.leases.extend(rows);
            if let Some(view) = state.engine.group_view(id)
                && (one.is_some() || table.leases.len() > before)
            {
                table.groups.push(GroupRow {
                    group: name.clone(),
                    view,
                    bound: state.bound(id, view.leases),
                });
            }
        }
        table.truncated = cut_rows(&mut table.leases) | cut_rows(&mut table.groups);
        Ok(table)
    }

    /// The controller at a glance.
    pub fn status(&self) -> Status {
        let state = self.lock();
        let recovery = state.recovery(&self.clock);
        let mut warnings = Vec::new();
        if recovery.0 > 0 {
            warnings.push(format!(
                "recovering from an unclean stop for up to {recovery}: nodes keep what they prove to hold, or their \
                 fallback"
            ));
        }
        warnings.extend(state.set_back.map(|epoch| {
            format!(
                "this store is a copy or was set back: nodes have seen a controller that it does not know; the epoch \
                 was raised to {epoch}, and definitions changed since the copy are lost"
            )
        }));
        warnings.extend(state.rivals.twin(self.clock.now()).filter(|twin| !twin.leads).map(|twin| {
            format!(
                "another controller (instance {:016x}) runs on a copy of this store and began later: it falls silent \
                 when nodes tell it; stop it, or this one if the other shall lead",
                twin.instance
            )
        }));
        warnings.extend(state.fence.silence(self.clock.now()).map(|silence| format!("no grants: {silence}")));
        let apart =
            state.ledger.groups_apart().filter_map(|(id, apart)| Some((state.catalog.name(id)?, apart)));
        warnings.extend(apart.take(MOST_WARNED).map(|(group, apart)| {
            format!(
                "group {group}: {} were reported beyond what any process can have used, and are counted apart; see \
                 `tidegate usage --group {group} --per-client` for the node that claims them",
                apart.ru()
            )
        }));
        let failures = self.metrics.commit_failures.get();
        if failures > 0 {
            warnings.push(format!(
                "{failures} store commits failed since start; check the disk and its free space"
            ));
        }
        Status {
            epoch: state.epoch,
            revision: state.revision,
            uptime: self.clock.uptime(),
            recovery,
            capacity: state.catalog.capacity(),
            groups: state.catalog.len(),
            bindings: state.bindings.len(),
            clients: state.clients.connected(),
            warnings,
        }
    }

    /// Entries of the audit log before `before_id` (0: the newest), newest first.
    pub fn audit_log(&self, before_id: u64, limit: u32) -> Result<Vec<AuditEntry>, AdminError> {
        let limit = page_limit(limit, AUDIT_PAGE, MAX_AUDIT_PAGE)?;
        let next = self.lock().audit.next_id();
        let before = if before_id == 0 { next } else { before_id.min(next) };
        let first = before.saturating_sub(u64::try_from(limit).unwrap_or(u64::MAX));
        let mut entries: Vec<AuditEntry> = Vec::new();
        self.store.scan(Table::Audit, &u64_key(first), &mut |_, value| {
            let entry: AuditEntry = json(Table::Audit, value)?;
            if entry.id >= before {
                return Ok(ControlFlow::Break(()));
            }
            entries.push(entry);
            Ok(ControlFlow::Continue(()))
        })?;
        entries.reverse();
        Ok(entries)
    }

    /// The metrics page.
    pub fn metrics_page(&self) -> Result<String, std::fmt::Error> {
        self.metrics.watchers.set(i64::try_from(self.events.receiver_count()).unwrap_or(i64::MAX));
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.metrics.statements.set(count(self.statements().len()));
        let samples: Vec<GroupSample> = {
            let state = self.lock();
            self.metrics.watches.set(count(state.watches.len()));
            let views = state.active.iter().filter_map(|id| {
                let view = state.engine.group_view(*id).filter(|view| view.leases > 0)?;
                let (committed, pool, demand) = (view.committed, view.pool, view.demand);
                let (name, limit) =
                    (state.catalog.name(*id)?.to_string(), state.catalog.effective_limit(*id));
                Some(GroupSample { name, committed, pool, demand, limit })
            });
            views.take(MAX_GROUP_SERIES).collect()
        };
        self.metrics.page(&samples)
    }
}

/// Bounds an answer; whether something was cut off.
fn cut_rows<T>(rows: &mut Vec<T>) -> bool {
    let truncated = rows.len() > MAX_ROWS;
    rows.truncate(MAX_ROWS);
    truncated
}

fn parse_group(group: &str) -> Result<Option<GroupName>, AdminError> {
    (!group.is_empty()).then(|| GroupName::parse(group).in_field("group")).transpose()
}

impl State {
    /// One group, or all of `these`.
    fn chosen<'a>(
        &'a self,
        one: Option<&GroupName>,
        these: &'a BTreeSet<GroupId>,
    ) -> Result<impl Iterator<Item = (GroupId, &'a GroupName)>, AdminError> {
        let one = one.map(|name| self.catalog.require(name)).transpose()?;
        let all = one.is_none().then_some(these).into_iter().flatten().copied();
        Ok(one.into_iter().chain(all).filter_map(|id| Some((id, self.catalog.name(id)?))))
    }

    fn identity(&self, client: ClientId) -> Option<(String, u64)> {
        self.clients.get(client).map(|known| (known.name.clone(), known.number))
    }

    /// Limit plus what cut-off nodes may use; `None` when nothing bounds it.
    fn bound(&self, id: GroupId, nodes: usize) -> Option<Rate> {
        let definition = self.catalog.get(id)?;
        let limit = self.catalog.effective_limit(id)?;
        let nodes = i64::try_from(nodes).unwrap_or(i64::MAX);
        // Parts that were told before the total was lowered count.
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
