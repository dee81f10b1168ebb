//! JSON shapes of answers. Rates are decimal text in RU/s, amounts decimal text in RU; names carry all other units.

use serde::Serialize;
use tidegate_core::usage::{Resources, Total};
use utoipa::ToSchema;

use crate::quantity::{Count, rate_text, total_text};
use crate::service::UsageRow;

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
