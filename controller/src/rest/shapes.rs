//! JSON shapes of answers. Rates are decimal text in RU/s, amounts decimal text in RU; names carry all other units.

use serde::Serialize;
use tidegate_core::usage::{Resources, Total};
use utoipa::ToSchema;

use crate::group_text::GroupText;
use crate::quantity::{Count, amount_text, rate_text, total_text};
use crate::service::{ClientRow, GroupRow, LeaseRow, Status, UsageRow};

/// A group and what an operator should know about it.
#[derive(Serialize, ToSchema)]
pub(super) struct GroupAnswer {
    /// The definition.
    pub(super) group: GroupText,
    /// What is allowed but doubtful.
    pub(super) warnings: Vec<String>,
    /// The request changed something.
    pub(super) changed: bool,
}

/// A part of the list of groups.
#[derive(Serialize, ToSchema)]
pub(super) struct GroupsAnswer {
    /// In order of their names.
    pub(super) groups: Vec<GroupText>,
    /// Pass as `after` for the next page; empty at the end.
    pub(super) next_after: String,
    /// Of the groups on this page.
    pub(super) warnings: Vec<String>,
}

/// What a deletion did.
#[derive(Serialize, ToSchema)]
pub(super) struct DeletedAnswer {
    /// There was such a group.
    pub(super) deleted: bool,
    /// Bindings, children, rules and watches that were moved; the first 20, then "and N more".
    pub(super) moved: Vec<String>,
    /// How many were moved.
    pub(super) moved_count: usize,
    /// What became more generous by the move.
    pub(super) warnings: Vec<String>,
}

/// Cumulative consumption.
#[derive(Serialize, ToSchema)]
#[schema(as = Consumption)]
pub(super) struct ConsumptionShape {
    /// RU charged: the sum of the parts.
    ru: String,
    cpu_ru: String,
    read_ru: String,
    write_ru: String,
    network_ru: String,
    flat_ru: String,
    /// What the shadow cost table would have charged.
    shadow_ru: String,
    operations: Count,
    throttled: Count,
    waited_us: Count,
    usage: UsageShape,
}

/// Resources used.
#[derive(Serialize, ToSchema)]
#[schema(as = Usage)]
pub(super) struct UsageShape {
    cpu_ns: Count,
    read_requests: Count,
    read_batches: Count,
    read_bytes: Count,
    write_requests: Count,
    write_batches: Count,
    write_bytes: Count,
    net_in_bytes: Count,
    net_out_bytes: Count,
    cross_zone_bytes: Count,
}

impl From<&Total> for ConsumptionShape {
    fn from(total: &Total) -> Self {
        let Total { charged, shadow, operations, throttled, waited_us, usage } = total;
        Self {
            ru: total_text(total.ru()),
            cpu_ru: total_text(charged.cpu),
            read_ru: total_text(charged.read),
            write_ru: total_text(charged.write),
            network_ru: total_text(charged.network),
            flat_ru: total_text(charged.flat),
            shadow_ru: total_text(*shadow),
            operations: Count(*operations),
            throttled: Count(*throttled),
            waited_us: Count(*waited_us),
            usage: UsageShape::from(usage),
        }
    }
}

impl<N: Copy + Into<u128>> From<&Resources<N>> for UsageShape {
    fn from(usage: &Resources<N>) -> Self {
        let usage = Resources::from_array(usage.to_array().map(|number| Count(number.into())));
        Self {
            cpu_ns: usage.cpu_ns,
            read_requests: usage.read_requests,
            read_batches: usage.read_batches,
            read_bytes: usage.read_bytes,
            write_requests: usage.write_requests,
            write_batches: usage.write_batches,
            write_bytes: usage.write_bytes,
            net_in_bytes: usage.net_in_bytes,
            net_out_bytes: usage.net_out_bytes,
            cross_zone_bytes: usage.cross_zone_bytes,
        }
    }
}

/// Consumption of a group, or of one node in it.
#[derive(Serialize, ToSchema)]
pub(super) struct UsageRowShape {
    group: String,
    /// Empty in a row for the whole group.
    client: String,
    incarnation: u64,
    /// Over the last seconds.
    live_ru_per_sec: String,
    /// Since the group was created.
    total: ConsumptionShape,
    /// Reported since then, and more than any process can have used in the time; not in `total`.
    apart_ru: String,
}

impl From<UsageRow> for UsageRowShape {
    fn from(row: UsageRow) -> Self {
        let (client, incarnation) = row.client.unwrap_or_default();
        Self {
            group: row.group.to_string(),
            client,
            incarnation,
            live_ru_per_sec: rate_text(row.live),
            total: ConsumptionShape::from(&row.total),
            apart_ru: total_text(row.apart.ru()),
        }
    }
}

/// A node.
#[derive(Serialize, ToSchema)]
pub(super) struct ClientShape {
    client: String,
    incarnation: u64,
    agent: String,
    connected: bool,
    /// Since its last message.
    silent_us: u64,
    leases: u32,
    messages: u64,
    /// CPU time of its process, and the part of it that was metered.
    process_cpu_ns: u64,
    metered_cpu_ns: u64,
    resident_bytes: u64,
}

impl From<ClientRow> for ClientShape {
    fn from(row: ClientRow) -> Self {
        Self {
            client: row.name,
            incarnation: row.incarnation,
            agent: row.agent,
            connected: row.connected,
            silent_us: row.silent.0,
            leases: row.leases,
            messages: row.messages,
            process_cpu_ns: row.node.process_cpu_ns,
            metered_cpu_ns: row.node.metered_cpu_ns,
            resident_bytes: row.node.resident_bytes,
        }
    }
}

/// A lease.
#[derive(Serialize, ToSchema)]
pub(super) struct LeaseShape {
    group: String,
    client: String,
    incarnation: u64,
    /// RU/s granted, or "unlimited".
    rate: String,
    /// RU/s the node may be using until it acknowledges.
    committed: String,
    cap: String,
    lump: String,
    demand: String,
    backlog: String,
    debt: String,
    waiting: u64,
    expires_in_us: u64,
}

impl From<LeaseRow> for LeaseShape {
    fn from(row: LeaseRow) -> Self {
        let limit = |rate| {
            if row.lease.unlimited { "unlimited".to_owned() } else { rate_text(rate) }
        };
        Self {
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
}

/// A group's state in the grant engine.
#[derive(Serialize, ToSchema)]
pub(super) struct GroupStateShape {
    group: String,
    /// RU/s leased out.
    committed: String,
    /// RU accrued and not given out.
    pool: String,
    /// RU/s asked for.
    demand: String,
    leases: usize,
    /// Most RU/s its nodes may use if all are cut off at once; empty when nothing bounds it.
    bound_rate: String,
}

impl From<GroupRow> for GroupStateShape {
    fn from(row: GroupRow) -> Self {
        Self {
            group: row.group.to_string(),
            committed: rate_text(row.view.committed),
            pool: amount_text(row.view.pool.or_zero()),
            demand: rate_text(row.view.demand),
            leases: row.view.leases,
            bound_rate: row.bound.map(rate_text).unwrap_or_default(),
        }
    }
}

/// The controller at a glance.
#[derive(Serialize, ToSchema)]
pub(super) struct StatusAnswer {
    version: &'static str,
    epoch: u64,
    revision: u64,
    uptime_us: u64,
    /// 0 when not recovering.
    recovery_us: u64,
    /// RU/s; empty for none.
    capacity: String,
    groups: usize,
    bindings: usize,
    clients: usize,
    warnings: Vec<String>,
}

impl From<Status> for StatusAnswer {
    fn from(status: Status) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            epoch: status.epoch,
            revision: status.revision,
            uptime_us: status.uptime.0,
            recovery_us: status.recovery.0,
            capacity: status.capacity.map(rate_text).unwrap_or_default(),
            groups: status.groups,
            bindings: status.bindings,
            clients: status.clients,
            warnings: status.warnings,
        }
    }
}
