//! One look at all groups of a controller, for `top` and for the demo's progress: definitions, leases and usage in
//! three calls. A parent's figures include the groups below it, as its cap does.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use tidegate_controller::quantity::{Count, parse_rate};
use tidegate_core::units::Rate;
use tidegate_proto::v1;

use crate::admin::Admin;
use crate::command::group;
use crate::error::CliError;
use crate::view::ConsumptionView;

/// A group as it is now. Rates are RU/s and amounts RU, as decimal text; its own, without the groups below it.
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
    /// Itself and all below it.
    pub(crate) with_children: Sums,
}

/// Sums over a group and all below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Sums {
    #[serde(rename = "live_ru_per_sec", serialize_with = "decimal")]
    pub(crate) live: Rate,
    #[serde(serialize_with = "decimal")]
    pub(crate) leased: Rate,
    #[serde(serialize_with = "decimal")]
    pub(crate) demand: Rate,
    pub(crate) leases: u64,
    pub(crate) waiting: u64,
    pub(crate) total_micro_ru: Count,
    pub(crate) operations: Count,
    pub(crate) throttled: Count,
}

fn decimal<S: Serializer>(rate: &Rate, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&rate.number())
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
    let mut samples: Vec<GroupSample> = samples.into_values().collect();
    sum_up(&mut samples);
    Ok(samples)
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

/// Fills what each group has with all below it.
pub(crate) fn sum_up(samples: &mut [GroupSample]) {
    let places: BTreeMap<String, usize> =
        samples.iter().map(|sample| sample.group.clone()).zip(0..).collect();
    let parents: Vec<Option<usize>> =
        samples.iter().map(|sample| places.get(&sample.parent).copied()).collect();
    let depth = |mut at: usize| {
        // Groups never form a ring; an answer that says so must not hold anyone up.
        let mut depth = 0_usize;
        while let Some(Some(above)) = parents.get(at)
            && depth < parents.len()
        {
            (at, depth) = (*above, depth.saturating_add(1));
        }
        depth
    };
    let mut deepest: Vec<(usize, usize)> = (0..samples.len()).map(|at| (depth(at), at)).collect();
    deepest.sort_by_key(|(depth, at)| (std::cmp::Reverse(*depth), *at));
    for sample in samples.iter_mut() {
        sample.with_children = sample.own();
    }
    for (_, at) in deepest {
        let (Some(below), Some(Some(above))) = (samples.get(at).cloned(), parents.get(at)) else {
            continue;
        };
        if let Some(parent) = samples.get_mut(*above) {
            let mut sums = parent.with_children.plus(&below.with_children);
            // The controller's figures of a group with leases include the groups below it already.
            if !parent.leased.is_empty() {
                (sums.leased, sums.demand) = (parent.with_children.leased, parent.with_children.demand);
            }
            parent.with_children = sums;
        }
    }
}

impl GroupSample {
    fn own(&self) -> Sums {
        let rate = |text: &str| parse_rate(text).unwrap_or(Rate::ZERO);
        Sums {
            live: rate(&self.live_ru_per_sec),
            leased: rate(&self.leased),
            demand: rate(&self.demand),
            leases: self.leases.into(),
            waiting: self.waiting,
            total_micro_ru: self.total.total_micro_ru,
            operations: self.total.operations,
            throttled: self.total.throttled,
        }
    }

    /// Whether it, or a group below it, was ever asked for anything, or holds a lease.
    pub(crate) fn is_used(&self) -> bool {
        let sums = self.with_children;
        sums.operations.0 > 0 || sums.throttled.0 > 0 || sums.waiting > 0 || sums.leases > 0
    }
}

impl Sums {
    /// Both together.
    pub(crate) fn plus(self, other: &Self) -> Self {
        let sum = |one: Count, other: Count| Count(one.0.saturating_add(other.0));
        Self {
            live: self.live + other.live,
            leased: self.leased + other.leased,
            demand: self.demand + other.demand,
            leases: self.leases.saturating_add(other.leases),
            waiting: self.waiting.saturating_add(other.waiting),
            total_micro_ru: sum(self.total_micro_ru, other.total_micro_ru),
            operations: sum(self.operations, other.operations),
            throttled: sum(self.throttled, other.throttled),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str, parent: &str, live: &str, micro_ru: u128) -> GroupSample {
        GroupSample {
            group: name.to_owned(),
            parent: parent.to_owned(),
            live_ru_per_sec: live.to_owned(),
            waiting: 1,
            total: ConsumptionView { total_micro_ru: Count(micro_ru), ..ConsumptionView::default() },
            ..GroupSample::default()
        }
    }

    #[test]
    fn a_parent_has_all_below_it() {
        let mut samples = [
            group("a", "", "1", 1),
            group("b", "a", "2.5", 10),
            group("c", "b", "3", 100),
            group("d", "", "9", 9),
        ];
        samples[0].leased = "50".to_owned();
        samples[2].leased = "20".to_owned();
        sum_up(&mut samples);
        let of = |name: &str| samples.iter().find(|sample| sample.group == name).unwrap().with_children;
        assert_eq!((of("a").live, of("a").total_micro_ru, of("a").waiting), (Rate(6_500_000), Count(111), 3));
        assert_eq!((of("b").live, of("b").total_micro_ru), (Rate(5_500_000), Count(110)));
        assert_eq!(
            (of("a").leased, of("b").leased),
            (Rate::whole(50), Rate::whole(20)),
            "told, or from below"
        );
        assert_eq!(of("d").total_micro_ru, Count(9));
        assert!(samples[0].is_used() && !GroupSample::default().is_used());
    }

    #[test]
    fn groups_in_a_ring_hold_nobody_up() {
        let mut samples = [group("a", "b", "1", 1), group("b", "a", "1", 1), group("c", "c", "1", 1)];
        sum_up(&mut samples);
        assert!(samples.iter().all(|sample| sample.with_children.waiting >= 1));
    }
}
