//! Answers of the service as messages of `tidegate.v1`, for both adapters: gRPC sends them as they are, REST as JSON.

use tidegate_core::quota::QuotaView;
use tidegate_core::units::Ru;
use tidegate_core::waited::{Summary, Waited, at_most};
use tidegate_core::warmth::WarmthView;
use tidegate_proto::v1;

use crate::definitions::bindings::Principal;
use crate::definitions::cost_tables::{CostTables, shape};
use crate::name::GroupName;
use crate::quantity::{amount_text, rate_text};
use crate::service::{
    Applied, Bound, ClientRow, Deleted, GroupReply, GroupRow, LeaseRow, LeaseTable, Page, Resolved, Status,
};

pub(crate) fn group_reply(reply: GroupReply) -> v1::GroupReply {
    v1::GroupReply { group: Some(reply.group), warnings: reply.warnings, changed: reply.changed }
}

pub(crate) fn bindings_reply(bound: &[Bound], more: bool) -> v1::ListBindingsReply {
    let bindings = bound.iter().map(|Bound { principal, group }| binding(principal, group));
    v1::ListBindingsReply { bindings: bindings.collect(), more }
}

pub(crate) fn binding(principal: &Principal, group: &GroupName) -> v1::Binding {
    v1::Binding {
        tenant: principal.tenant().to_owned(),
        user: principal.user().to_owned(),
        group: group.to_string(),
    }
}

pub(crate) fn bind_reply((previous, changed): (Option<GroupName>, bool)) -> v1::BindReply {
    v1::BindReply { previous: previous.map(|name| name.to_string()).unwrap_or_default(), changed }
}

pub(crate) fn resolve_reply(resolved: Resolved) -> v1::ResolveReply {
    v1::ResolveReply { group: resolved.group.to_string(), matched: resolved.matched.as_str().to_owned() }
}

pub(crate) fn cost_tables(costs: &CostTables) -> v1::CostTables {
    v1::CostTables { active: costs.active().map(shape), shadow: costs.shadow().map(shape) }
}

pub(crate) fn cost_tables_reply(costs: &CostTables) -> v1::CostTablesReply {
    v1::CostTablesReply { tables: Some(cost_tables(costs)), all: costs.all().map(shape).collect() }
}

pub(crate) fn clients_reply((rows, truncated): (Vec<ClientRow>, bool)) -> v1::ListClientsReply {
    v1::ListClientsReply { clients: rows.into_iter().map(client).collect(), truncated }
}

pub(crate) fn forget_reply(counts: &[usize]) -> v1::ForgetClientReply {
    let of_each: Vec<u32> = counts.iter().map(|count| u32::try_from(*count).unwrap_or(u32::MAX)).collect();
    let incarnations = of_each.iter().fold(0, |sum: u32, count| sum.saturating_add(*count));
    v1::ForgetClientReply { incarnations, of_each }
}

fn client(row: ClientRow) -> v1::ClientInfo {
    v1::ClientInfo {
        client: row.name,
        incarnation: row.incarnation,
        agent: row.agent,
        connected: row.connected,
        silent_us: row.silent.0,
        leases: row.leases,
        messages: row.messages,
        node: Some(v1::NodeStats {
            process_cpu_ns: row.node.process_cpu_ns,
            metered_cpu_ns: row.node.metered_cpu_ns,
            resident_bytes: row.node.resident_bytes,
        }),
    }
}

fn lease(row: LeaseRow) -> v1::LeaseInfo {
    let limit = |rate| {
        if row.lease.unlimited { "unlimited".to_owned() } else { rate_text(rate) }
    };
    v1::LeaseInfo {
        group: row.group.to_string(),
        client: row.client.0,
        incarnation: row.client.1,
        rate: limit(row.lease.rate),
        committed: limit(row.lease.committed),
        cap: amount_text(row.lease.cap),
        lump: amount_text(row.lease.lump),
        demand: rate_text(row.lease.demand),
        backlog: amount_text(row.lease.backlog),
        debt: amount_text(row.lease.debt),
        waiting: row.lease.waiting,
        expires_in_us: row.expires_in.0,
    }
}

fn group_state(row: GroupRow) -> v1::GroupState {
    v1::GroupState {
        group: row.group.to_string(),
        committed: rate_text(row.view.committed),
        pool: amount_text(row.view.pool.max(Ru::ZERO)),
        demand: rate_text(row.view.demand),
        leases: u32::try_from(row.view.leases).unwrap_or(u32::MAX),
        bound_rate: row.bound.map(rate_text).unwrap_or_default(),
        quota: row.quota.map(quota_state),
        waits: row.waits.as_deref().map(group_waits),
        warmth: row.warmth.map(warmth),
    }
}

pub(crate) fn warmth(view: WarmthView) -> v1::Warmth {
    v1::Warmth { rate: rate_text(view.rate), warm_ppm: view.warmth * 1_000 }
}

pub(crate) fn group_waits(waited: &Waited) -> v1::GroupWaits {
    let Summary { ended, in_vain, p50_us, p99_us, max_us } = waited.summary();
    let bucket = |(length, waits): (usize, u32)| v1::WaitBucket {
        length: u32::try_from(length).unwrap_or(u32::MAX),
        at_most_us: at_most(length).0,
        waits: waits.into(),
    };
    let buckets = waited.counts().map(bucket).collect();
    v1::GroupWaits { ended, in_vain, p50_us, p99_us, max_us, buckets }
}

pub(crate) fn quota_state(quota: QuotaView) -> v1::QuotaState {
    v1::QuotaState {
        amount: amount_text(quota.amount),
        used: amount_text(quota.used),
        unused: amount_text(quota.unused),
        lost: amount_text(quota.lost),
        left: amount_text(quota.left),
        resets_in_us: quota.resets_in.0,
        unit: quota.unit.as_str().to_owned(),
        rolls: quota.rolls,
    }
}

pub(crate) fn status(status: Status) -> v1::StatusReply {
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    v1::StatusReply {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        epoch: status.epoch,
        revision: status.revision,
        uptime_us: status.uptime.0,
        recovery_us: status.recovery.0,
        capacity: status.capacity.map(rate_text).unwrap_or_default(),
        groups: count(status.groups),
        bindings: count(status.bindings),
        clients: count(status.clients),
        warnings: status.warnings,
    }
}

pub(crate) fn groups_reply(page: Page) -> v1::ListGroupsReply {
    v1::ListGroupsReply { groups: page.groups, next_after: page.next_after, warnings: page.warnings }
}

pub(crate) fn deleted(deleted: Deleted) -> v1::DeleteGroupReply {
    v1::DeleteGroupReply {
        moved: deleted.moved,
        warnings: deleted.warnings,
        deleted: deleted.existed,
        moved_count: u64::try_from(deleted.moved_count).unwrap_or(u64::MAX),
    }
}

pub(crate) fn leases_reply(table: LeaseTable) -> v1::ListLeasesReply {
    v1::ListLeasesReply {
        leases: table.leases.into_iter().map(lease).collect(),
        groups: table.groups.into_iter().map(group_state).collect(),
        truncated: table.truncated,
    }
}

pub(crate) fn apply_reply(applied: Applied) -> v1::ApplyReply {
    let outcomes = applied.outcomes.into_iter().map(|outcome| v1::Outcome {
        kind: outcome.kind.to_owned(),
        outcome: outcome.done.as_str().to_owned(),
        before: outcome.before().to_owned(),
        after: outcome.after().to_owned(),
        name: outcome.name,
    });
    let faults = applied.faults.into_iter().map(|fault| v1::StepFault {
        field: fault.field,
        code: fault.kind.code().to_owned(),
        message: fault.message,
    });
    v1::ApplyReply {
        outcomes: outcomes.collect(),
        revision: applied.revision,
        warnings: applied.warnings,
        faults: faults.collect(),
        fault_count: u32::try_from(applied.fault_count).unwrap_or(u32::MAX),
    }
}

pub(crate) fn remove_watch_reply(removed: usize) -> v1::RemoveWatchReply {
    v1::RemoveWatchReply { removed: u64::try_from(removed).unwrap_or(u64::MAX) }
}

pub(crate) fn reset_statements_reply(removed: usize) -> v1::ResetStatementsReply {
    v1::ResetStatementsReply { removed: u64::try_from(removed).unwrap_or(u64::MAX) }
}

#[cfg(test)]
mod tests {
    use tidegate_core::group::ClientId;
    use tidegate_core::quota::Unit;
    use tidegate_core::units::{Rate, Span, Time};
    use tidegate_core::view::{GroupView, LeaseView};

    use super::*;
    use crate::error::{ErrorKind, Fault};
    use crate::leasing::clients::NodeStats;

    /// What nodes owe is not what is left.
    #[test]
    fn a_group_whose_pool_is_overdrawn_has_nothing_left_in_it() {
        for (pool, said) in [(-5, "0"), (0, "0"), (7, "7")] {
            let state = group_state(GroupRow {
                group: GroupName::default_group(),
                view: GroupView { pool: Ru::whole(pool), ..GroupView::default() },
                waiting: Default::default(),
                bound: None,
                quota: None,
                waits: None,
                warmth: None,
            });
            assert_eq!(state.pool, said);
        }
    }

    /// Each figure is another one, so that none can stand for another.
    #[test]
    fn nodes_and_leases_are_told_with_all_their_figures() {
        let node = NodeStats { process_cpu_ns: 4, metered_cpu_ns: 5, resident_bytes: 6 };
        let row = ClientRow {
            name: "node".to_owned(),
            incarnation: 1,
            agent: "agent/1".to_owned(),
            connected: true,
            silent: Span(2),
            leases: 3,
            messages: 7,
            node,
        };
        let told = v1::ClientInfo {
            client: "node".to_owned(),
            incarnation: 1,
            agent: "agent/1".to_owned(),
            connected: true,
            silent_us: 2,
            leases: 3,
            messages: 7,
            node: Some(v1::NodeStats { process_cpu_ns: 4, metered_cpu_ns: 5, resident_bytes: 6 }),
        };
        for truncated in [false, true] {
            let reply = clients_reply((vec![row.clone()], truncated));
            assert_eq!(reply, v1::ListClientsReply { clients: vec![told.clone()], truncated });
        }
        let lease = LeaseView {
            client: ClientId(9),
            rate: Rate::whole(1),
            committed: Rate::whole(2),
            cap: Ru::whole(3),
            lump: Ru::whole(4),
            demand: Rate::whole(5),
            backlog: Ru::whole(6),
            debt: Ru::whole(7),
            waiting: 8,
            unlimited: false,
            expires: Time(99),
        };
        let (group, client) = (GroupName::default_group(), ("node".to_owned(), 1));
        let row = LeaseRow { group, client, lease, expires_in: Span(10) };
        let text = |number: i64| rate_text(Rate::whole(number));
        let told = v1::LeaseInfo {
            group: "default".to_owned(),
            client: "node".to_owned(),
            incarnation: 1,
            rate: text(1),
            committed: text(2),
            cap: "3".to_owned(),
            lump: "4".to_owned(),
            demand: text(5),
            backlog: "6".to_owned(),
            debt: "7".to_owned(),
            waiting: 8,
            expires_in_us: 10,
        };
        assert_eq!(super::lease(row.clone()), told);
        let (rate, committed) = ("unlimited".to_owned(), "unlimited".to_owned());
        let unlimited = LeaseRow { lease: LeaseView { unlimited: true, ..row.lease }, ..row };
        assert_eq!(super::lease(unlimited), v1::LeaseInfo { rate, committed, ..told });
    }

    #[test]
    fn a_group_is_told_with_all_its_figures() {
        let quota = QuotaView {
            amount: Ru::whole(11),
            used: Ru::whole(12),
            unused: Ru::whole(13),
            lost: Ru::whole(14),
            left: Ru::whole(15),
            resets_in: Span(16),
            unit: Unit::Requests,
            rolls: true,
            ..QuotaView::default()
        };
        let row = GroupRow {
            group: GroupName::default_group(),
            view: GroupView {
                committed: Rate::whole(1),
                pool: Ru::whole(2),
                demand: Rate::whole(3),
                leases: 4,
                ..GroupView::default()
            },
            waiting: Default::default(),
            bound: Some(Rate::whole(5)),
            quota: Some(quota),
            waits: None,
            warmth: Some(WarmthView { rate: Rate::whole(6), warmth: 700 }),
        };
        let text = |number: i64| rate_text(Rate::whole(number));
        let told = v1::GroupState {
            group: "default".to_owned(),
            committed: text(1),
            pool: "2".to_owned(),
            demand: text(3),
            leases: 4,
            bound_rate: text(5),
            quota: Some(v1::QuotaState {
                amount: "11".to_owned(),
                used: "12".to_owned(),
                unused: "13".to_owned(),
                lost: "14".to_owned(),
                left: "15".to_owned(),
                resets_in_us: 16,
                unit: "requests".to_owned(),
                rolls: true,
            }),
            waits: None,
            warmth: Some(v1::Warmth { rate: text(6), warm_ppm: 700_000 }),
        };
        for truncated in [false, true] {
            let reply = leases_reply(LeaseTable { leases: vec![], groups: vec![row.clone()], truncated });
            let groups = vec![told.clone()];
            assert_eq!(reply, v1::ListLeasesReply { leases: vec![], groups, truncated });
        }
    }

    #[test]
    fn the_controller_and_what_was_deleted_are_told_whole() {
        let warnings = vec!["w".to_owned()];
        let status = Status {
            epoch: 1,
            revision: 2,
            uptime: Span(3),
            recovery: Span(4),
            capacity: Some(Rate::whole(5)),
            groups: 6,
            bindings: 7,
            clients: 8,
            warnings: warnings.clone(),
        };
        let told = v1::StatusReply {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            epoch: 1,
            revision: 2,
            uptime_us: 3,
            recovery_us: 4,
            capacity: rate_text(Rate::whole(5)),
            groups: 6,
            bindings: 7,
            clients: 8,
            warnings: warnings.clone(),
        };
        assert_eq!(super::status(status), told);
        let moved = vec!["m".to_owned()];
        for existed in [false, true] {
            let (moved, warnings) = (moved.clone(), warnings.clone());
            let gone = Deleted { moved: moved.clone(), moved_count: 9, warnings: warnings.clone(), existed };
            let told = v1::DeleteGroupReply { moved, moved_count: 9, warnings, deleted: existed };
            assert_eq!(deleted(gone), told);
        }
    }

    #[test]
    fn a_dry_run_says_how_many_faults_there_are_beyond_those_it_lists() {
        let (field, kind, message) = ("steps[0]".to_owned(), ErrorKind::Invalid, "m".to_owned());
        let faults = vec![Fault { field, kind, message }];
        let (outcomes, warnings) = (Vec::new(), vec!["w".to_owned()]);
        let reply = apply_reply(Applied { outcomes, revision: 7, warnings, faults, fault_count: 1_500 });
        assert_eq!((reply.faults.len(), reply.fault_count, reply.revision), (1, 1_500, 7));
        assert_eq!((reply.faults[0].code.as_str(), reply.warnings), ("invalid", vec!["w".to_owned()]));
    }
}
