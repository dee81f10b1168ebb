//! One look at all groups of a controller, for `top` and for the demo's progress: definitions, leases and usage in
//! three calls.

use std::collections::BTreeMap;

use serde::Serialize;
use tidegate_proto::v1;

use crate::admin::Admin;
use crate::command::group;
use crate::error::CliError;
use crate::table::Table;
use crate::view::ConsumptionView;

/// A group as it is now. Rates are RU/s and amounts RU, as decimal text.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct GroupSample {
    pub(crate) group: String,
    pub(crate) parent: String,
    /// "unlimited" for none.
    pub(crate) cap: String,
    /// Charged over the last seconds.
    pub(crate) live_ru_per_sec: String,
    pub(crate) leased: String,
    pub(crate) demand: String,
    pub(crate) pool: String,
    pub(crate) leases: u32,
    /// Operations waiting now.
    pub(crate) waiting: u64,
    pub(crate) total: ConsumptionView,
}

/// Reads all groups.
pub(crate) async fn sample(admin: &Admin) -> Result<Vec<GroupSample>, CliError> {
    let (groups, _) = group::all(admin).await?;
    let mut samples: BTreeMap<String, GroupSample> = groups.into_iter().map(defined).collect();
    let request = v1::ListLeasesRequest { group: String::new() };
    let leases = admin.calls().list_leases(request).await.map_err(admin.failed())?.into_inner();
    for state in leases.groups {
        if let Some(sample) = samples.get_mut(&state.group) {
            (sample.leased, sample.demand) = (state.committed, state.demand);
            (sample.pool, sample.leases) = (state.pool, state.leases);
        }
    }
    for lease in leases.leases {
        if let Some(sample) = samples.get_mut(&lease.group) {
            sample.waiting = sample.waiting.saturating_add(lease.waiting);
        }
    }
    let request = v1::UsageRequest { group: String::new(), per_client: false };
    let usage = admin.calls().usage(request).await.map_err(admin.failed())?.into_inner();
    for row in usage.rows.into_iter().filter(|row| row.client.is_empty()) {
        if let Some(sample) = samples.get_mut(&row.group) {
            sample.live_ru_per_sec = row.live_ru_per_sec;
            sample.total = row.total.into();
        }
    }
    Ok(samples.into_values().collect())
}

fn defined(group: v1::Group) -> (String, GroupSample) {
    let cap = match (group.burstable.as_str(), group.burst_ru_per_sec.as_str(), group.ru_per_sec.as_str()) {
        ("unlimited", _, _) | (_, _, "" | "unlimited") => "unlimited".to_owned(),
        ("moderated", cap, _) if !cap.is_empty() => cap.to_owned(),
        (_, _, rate) => rate.to_owned(),
    };
    let sample =
        GroupSample { group: group.name.clone(), parent: group.parent, cap, ..GroupSample::default() };
    (group.name, sample)
}

/// The samples as a table for people.
pub(crate) fn table(samples: &[GroupSample]) -> String {
    let mut table = Table::new(&[
        "GROUP",
        ">CAP (RU/s)",
        ">ADMITTED (RU/s)",
        ">LEASED (RU/s)",
        ">DEMAND (RU/s)",
        ">POOL (RU)",
        ">WAITING",
        ">LEASES",
        ">TOTAL (RU)",
        ">REFUSED",
    ]);
    for sample in samples {
        table.row([
            sample.group.clone(),
            whole(&sample.cap),
            whole(&sample.live_ru_per_sec),
            whole(&sample.leased),
            whole(&sample.demand),
            whole(&sample.pool),
            sample.waiting.to_string(),
            sample.leases.to_string(),
            (sample.total.total_micro_ru.0 / 1_000_000).to_string(),
            sample.total.throttled.to_string(),
        ]);
    }
    table.text()
}

/// A decimal cut to one digit after the point: a table that moves each second is for reading at a glance.
pub(crate) fn whole(decimal: &str) -> String {
    match decimal.split_once('.') {
        Some((whole, part)) if whole.len() < 3 => format!("{whole}.{}", part.get(..1).unwrap_or("0")),
        Some((whole, _)) => whole.to_owned(),
        None => decimal.to_owned(),
    }
}
