//! Service values as messages of the admin API.

use tidegate_core::units::Ru;
use tidegate_proto::v1;

use super::convert::consumption;
use super::statement_shapes::{limit, limit_in};
use crate::audit::AuditEntry;
use crate::bindings::Principal;
use crate::cost_tables::{CostTables, TableShape, shape};
use crate::group_text::GroupText;
use crate::name::GroupName;
use crate::quantity::{amount_text, rate_text, total_text};
use crate::service::{ClientRow, GroupReply, GroupRow, LeaseRow, Status, UsageRow};

pub(super) fn group_in(group: v1::Group) -> GroupText {
    GroupText {
        name: group.name,
        parent: group.parent,
        ru_per_sec: group.ru_per_sec,
        burst: group.burst,
        burstable: group.burstable,
        burst_ru_per_sec: group.burst_ru_per_sec,
        priority: group.priority,
        weight: group.weight,
        ttl_us: group.ttl_us,
        renew_us: group.renew_us,
        fallback: group.fallback,
        fallback_total: group.fallback_total,
        max_debt: group.max_debt,
        comment: group.comment,
        revision: group.revision,
        query_limit: group.query_limit.map(limit_in),
        max_wait_us: group.max_wait_us,
    }
}

pub(super) fn group(group: GroupText) -> v1::Group {
    v1::Group {
        name: group.name,
        parent: group.parent,
        ru_per_sec: group.ru_per_sec,
        burst: group.burst,
        burstable: group.burstable,
        burst_ru_per_sec: group.burst_ru_per_sec,
        priority: group.priority,
        weight: group.weight,
        ttl_us: group.ttl_us,
        renew_us: group.renew_us,
        fallback: group.fallback,
        fallback_total: group.fallback_total,
        max_debt: group.max_debt,
        comment: group.comment,
        revision: group.revision,
        query_limit: group.query_limit.map(limit),
        max_wait_us: group.max_wait_us,
    }
}

pub(super) fn group_reply(reply: GroupReply) -> v1::GroupReply {
    v1::GroupReply { group: Some(group(reply.group)), warnings: reply.warnings, changed: reply.changed }
}

pub(super) fn binding(principal: &Principal, group: &GroupName) -> v1::Binding {
    v1::Binding {
        tenant: principal.tenant().to_owned(),
        user: principal.user().to_owned(),
        group: group.to_string(),
    }
}

pub(super) fn table_in(table: v1::CostTable) -> TableShape {
    TableShape {
        name: table.name,
        version: table.version,
        ru_per_unit: table.ru_per_unit.into_iter().collect(),
        replicas: table.replicas,
    }
}

pub(super) fn table(table: TableShape) -> v1::CostTable {
    v1::CostTable {
        name: table.name,
        version: table.version,
        ru_per_unit: table.ru_per_unit.into_iter().collect(),
        replicas: table.replicas,
    }
}

pub(super) fn cost_tables(costs: &CostTables) -> v1::CostTables {
    let message = |found| table(shape(found));
    v1::CostTables { active: costs.active().map(message), shadow: costs.shadow().map(message) }
}

pub(super) fn usage_row(row: UsageRow) -> v1::UsageRow {
    let (client, incarnation) = row.client.unwrap_or_default();
    v1::UsageRow {
        group: row.group.to_string(),
        client,
        incarnation,
        live_ru_per_sec: rate_text(row.live),
        total: Some(consumption(&row.total)),
        apart_ru: total_text(row.apart.ru()),
    }
}

pub(super) fn client(row: ClientRow) -> v1::ClientInfo {
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

pub(super) fn lease(row: LeaseRow) -> v1::LeaseInfo {
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

pub(super) fn group_state(row: GroupRow) -> v1::GroupState {
    v1::GroupState {
        group: row.group.to_string(),
        committed: rate_text(row.view.committed),
        pool: amount_text(row.view.pool.max(Ru::ZERO)),
        demand: rate_text(row.view.demand),
        leases: u32::try_from(row.view.leases).unwrap_or(u32::MAX),
        bound_rate: row.bound.map(rate_text).unwrap_or_default(),
    }
}

pub(super) fn status(status: Status) -> v1::StatusReply {
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

pub(super) fn audit_entry(entry: AuditEntry) -> v1::AuditEntry {
    v1::AuditEntry {
        id: entry.id,
        unix_ms: entry.unix_ms,
        actor: entry.actor,
        action: entry.action,
        subject: entry.subject,
        before: entry.before,
        after: entry.after,
        change: entry.change,
    }
}
