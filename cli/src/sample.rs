//! One look at all groups of a controller, for `top` and for the demo's progress: definitions, leases and usage in
//! three calls. A parent's figures include the groups below it, as its cap does.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use tidegate_controller::quantity::{Count, parse_rate};
use tidegate_core::units::Rate;
use tidegate_core::waited::{Summary, Waited};
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
    /// Waits that ended within the last minute; absent when none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waits: Option<WaitsView>,
    /// RU/s that its nodes together may use now; absent unless its rate warms up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) warms_up_at: Option<String>,
    /// The waits by length, to be added up.
    #[serde(skip)]
    pub(crate) waited: Option<Box<Waited>>,
    /// Its leases, by node.
    #[serde(skip)]
    pub(crate) nodes: Vec<NodeShare>,
    /// Itself and all below it.
    pub(crate) with_children: Sums,
}

/// What a node holds of a group, and what its operations ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeShare {
    pub(crate) client: String,
    /// "unlimited" where nothing limits it.
    pub(crate) rate: String,
    pub(crate) demand: String,
    pub(crate) waiting: u64,
}

/// Waits for admission, however they ended. Percentiles are at most a quarter above the true ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct WaitsView {
    pub(crate) ended: u64,
    /// Refused or timed out while waiting, or given up.
    pub(crate) in_vain: u64,
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
    pub(crate) max_us: u64,
}

impl From<&Waited> for WaitsView {
    fn from(waited: &Waited) -> Self {
        let Summary { ended, in_vain, p50_us, p99_us, max_us } = waited.summary();
        Self { ended, in_vain, p50_us, p99_us, max_us }
    }
}

/// Micro-RU by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Causes {
    pub(crate) cpu_micro_ru: Count,
    pub(crate) read_micro_ru: Count,
    pub(crate) write_micro_ru: Count,
    pub(crate) network_micro_ru: Count,
    pub(crate) flat_micro_ru: Count,
}

impl Causes {
    /// Each cause, as people call it, in the order in which a console shows them.
    pub(crate) fn named(self) -> [(&'static str, u128); 5] {
        [
            ("CPU", self.cpu_micro_ru.0),
            ("read", self.read_micro_ru.0),
            ("write", self.write_micro_ru.0),
            ("network", self.network_micro_ru.0),
            ("flat", self.flat_micro_ru.0),
        ]
    }

    /// Each cause of both.
    fn with(self, other: Self, each: impl Fn(u128, u128) -> u128) -> Self {
        let each = |one: Count, other: Count| Count(each(one.0, other.0));
        Self {
            cpu_micro_ru: each(self.cpu_micro_ru, other.cpu_micro_ru),
            read_micro_ru: each(self.read_micro_ru, other.read_micro_ru),
            write_micro_ru: each(self.write_micro_ru, other.write_micro_ru),
            network_micro_ru: each(self.network_micro_ru, other.network_micro_ru),
            flat_micro_ru: each(self.flat_micro_ru, other.flat_micro_ru),
        }
    }

    /// What was added since then.
    pub(crate) fn since(self, then: Self) -> Self {
        self.with(then, u128::saturating_sub)
    }
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
    #[serde(flatten)]
    pub(crate) causes: Causes,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waits: Option<WaitsView>,
}

fn decimal<S: Serializer>(rate: &Rate, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&rate.number())
}

/// Reads all groups.
pub(crate) async fn sample(admin: &Admin) -> Result<Vec<GroupSample>, CliError> {
    let (groups, _) = group::all(admin).await?;
    let request = v1::ListLeasesRequest { group: String::new() };
    let leases = admin.calls().list_leases(request).await.map_err(admin.failed())?.into_inner();
    let request = v1::UsageRequest { group: String::new(), per_client: false };
    let usage = admin.calls().usage(request).await.map_err(admin.failed())?.into_inner();
    Ok(joined(groups, leases, usage))
}

/// What three answers say of each group.
fn joined(groups: Vec<v1::Group>, leases: v1::ListLeasesReply, usage: v1::UsageReply) -> Vec<GroupSample> {
    let mut samples: BTreeMap<String, GroupSample> = groups.into_iter().map(defined).collect();
    for state in leases.groups {
        if let Some(sample) = samples.get_mut(&state.group) {
            (sample.leased, sample.demand) = (state.committed, state.demand);
            (sample.pool, sample.leases) = (state.pool, state.leases);
            sample.warms_up_at = state.warmth.map(|warmth| warmth.rate);
            sample.waited = state.waits.as_ref().map(|waits| Box::new(waited(waits)));
            sample.waits = sample.waited.as_deref().map(WaitsView::from);
        }
    }
    for lease in leases.leases {
        if let Some(sample) = samples.get_mut(&lease.group) {
            sample.waiting = sample.waiting.saturating_add(lease.waiting);
            let v1::LeaseInfo { client, rate, demand, waiting, .. } = lease;
            sample.nodes.push(NodeShare { client, rate, demand, waiting });
        }
    }
    for row in usage.rows.into_iter().filter(|row| row.client.is_empty()) {
        if let Some(sample) = samples.get_mut(&row.group) {
            sample.live_ru_per_sec = row.live_ru_per_sec;
            sample.total = row.total.into();
        }
    }
    let mut samples: Vec<GroupSample> = samples.into_values().collect();
    sum_up(&mut samples);
    samples
}

/// The waits of an answer. Lengths that this build does not know are left out.
fn waited(waits: &v1::GroupWaits) -> Waited {
    let mut waited = Waited::default();
    let number = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    for bucket in &waits.buckets {
        waited.put(usize::try_from(bucket.length).unwrap_or(usize::MAX), number(bucket.waits));
    }
    waited.put_in_vain(number(waits.in_vain));
    waited
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
    let mut waited: Vec<Option<Box<Waited>>> = samples.iter().map(|sample| sample.waited.clone()).collect();
    for (_, at) in deepest {
        let below = waited.get(at).cloned().flatten();
        if let Some(sample) = samples.get_mut(at) {
            sample.with_children.waits = below.as_deref().map(WaitsView::from);
        }
        if let (Some(below), Some(Some(above))) = (below, parents.get(at))
            && let Some(sum) = waited.get_mut(*above)
        {
            sum.get_or_insert_default().add(&below);
        }
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
            causes: Causes {
                cpu_micro_ru: self.total.cpu_micro_ru,
                read_micro_ru: self.total.read_micro_ru,
                write_micro_ru: self.total.write_micro_ru,
                network_micro_ru: self.total.network_micro_ru,
                flat_micro_ru: self.total.flat_micro_ru,
            },
            waits: None,
        }
    }

    /// Whether it, or a group below it, was ever asked for anything, or holds a lease.
    pub(crate) fn is_used(&self) -> bool {
        let sums = self.with_children;
        sums.operations.0 > 0 || sums.throttled.0 > 0 || sums.waiting > 0 || sums.leases > 0
    }
}

impl Sums {
    /// Both together; waits of two groups add up by their lengths alone, and stay as they are.
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
            causes: self.causes.with(other.causes, u128::saturating_add),
            waits: self.waits,
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

    /// A lease of `client`, whose figures are counted from `first`.
    fn lease(group: &str, client: &str, first: u64) -> v1::LeaseInfo {
        let text = |number: u64| (first + number).to_string();
        v1::LeaseInfo {
            group: group.to_owned(),
            client: client.to_owned(),
            rate: text(1),
            committed: text(2),
            demand: text(3),
            waiting: first,
            ..v1::LeaseInfo::default()
        }
    }

    #[test]
    fn each_figure_of_three_answers_is_shown_as_what_it_is_and_waiting_is_that_of_all_nodes() {
        let state = v1::GroupState {
            group: "shop".to_owned(),
            committed: "11".to_owned(),
            pool: "12".to_owned(),
            demand: "13.5".to_owned(),
            leases: 2,
            bound_rate: "14".to_owned(),
            waits: Some(v1::GroupWaits {
                in_vain: 1,
                buckets: vec![v1::WaitBucket { length: 10, waits: 3, ..v1::WaitBucket::default() }],
                ..v1::GroupWaits::default()
            }),
            warmth: Some(v1::Warmth { rate: "15".to_owned(), warm_ppm: 16 }),
            ..v1::GroupState::default()
        };
        let unknown = v1::GroupState { group: "gone".to_owned(), ..state.clone() };
        let leases = v1::ListLeasesReply {
            leases: vec![
                lease("shop", "till-1", 20),
                lease("shop", "till-2", 30),
                lease("other", "till-1", 40),
                lease("gone", "till-1", 50),
            ],
            groups: vec![state, unknown],
            ..v1::ListLeasesReply::default()
        };
        let total = |first: i64| v1::Consumption {
            cpu_micro_ru: first,
            read_micro_ru: first + 1,
            write_micro_ru: first + 2,
            network_micro_ru: first + 3,
            flat_micro_ru: first + 4,
            operations: 61,
            throttled: 62,
            ..v1::Consumption::default()
        };
        let row = |client: &str, live: &str, first: i64| v1::UsageRow {
            group: "shop".to_owned(),
            client: client.to_owned(),
            live_ru_per_sec: live.to_owned(),
            total: Some(total(first)),
            ..v1::UsageRow::default()
        };
        // A row of one node is none of the group.
        let usage = v1::UsageReply {
            rows: vec![row("", "16.25", 100), row("till-1", "9", 900)],
            ..v1::UsageReply::default()
        };
        let group = |name: &str| v1::Group {
            name: name.to_owned(),
            ru_per_sec: "500".to_owned(),
            ..v1::Group::default()
        };
        let samples = joined(vec![group("shop"), group("other"), group("idle")], leases, usage);
        let names: Vec<&str> = samples.iter().map(|sample| sample.group.as_str()).collect();
        assert_eq!(names, ["idle", "other", "shop"]);
        let json = serde_json::to_value(&samples[2]).unwrap();
        let waits = serde_json::json!({
            "ended": 3, "in_vain": 1, "p50_us": json["waits"]["p50_us"], "p99_us": json["waits"]["p99_us"],
            "max_us": json["waits"]["max_us"],
        });
        let own = serde_json::to_value(samples[2].total).unwrap();
        assert_eq!((&own["total_micro_ru"], &own["operations"]), (&510.into(), &61.into()));
        let expected = serde_json::json!({
            "group": "shop", "parent": "", "cap": "500", "live_ru_per_sec": "16.25", "leased": "11",
            "demand": "13.5", "pool": "12", "leases": 2, "waiting": 50, "total": own, "waits": waits,
            "warms_up_at": "15",
            "with_children": {
                "live_ru_per_sec": "16.25", "leased": "11", "demand": "13.5", "leases": 2, "waiting": 50,
                "total_micro_ru": 510, "operations": 61, "throttled": 62, "cpu_micro_ru": 100,
                "read_micro_ru": 101, "write_micro_ru": 102, "network_micro_ru": 103, "flat_micro_ru": 104,
                "waits": waits,
            },
        });
        assert_eq!(json, expected);
        let share = |client: &str, rate: &str, demand: &str, waiting| NodeShare {
            client: client.to_owned(),
            rate: rate.to_owned(),
            demand: demand.to_owned(),
            waiting,
        };
        assert_eq!(samples[2].nodes, [share("till-1", "21", "23", 20), share("till-2", "31", "33", 30)]);
        assert_eq!(samples[1].nodes, [share("till-1", "41", "43", 40)]);
        assert_eq!((samples[0].waiting, samples[1].waiting, samples[0].nodes.len()), (0, 40, 0));
    }

    #[test]
    fn the_cap_is_that_of_bursts_where_there_is_one() {
        for (burstable, burst, rate, cap) in [
            ("off", "", "5", "5"),
            ("off", "", "", "unlimited"),
            ("off", "", "unlimited", "unlimited"),
            ("off", "9", "5", "5"),
            ("moderated", "9", "5", "9"),
            ("moderated", "", "5", "5"),
            ("unlimited", "9", "5", "unlimited"),
        ] {
            let group = v1::Group {
                burstable: burstable.to_owned(),
                burst_ru_per_sec: burst.to_owned(),
                ru_per_sec: rate.to_owned(),
                ..v1::Group::default()
            };
            assert_eq!(defined(group).1.cap, cap, "{burstable} {burst} {rate}");
        }
    }

    /// A group whose figures are all different, counted from `first`.
    fn numbered(name: &str, parent: &str, first: u32) -> GroupSample {
        let count = |number: u32| Count((first + number).into());
        let text = |number: u32| (first + number).to_string();
        GroupSample {
            group: name.to_owned(),
            parent: parent.to_owned(),
            live_ru_per_sec: text(1),
            demand: text(3),
            leases: first + 4,
            waiting: (first + 5).into(),
            total: ConsumptionView {
                total_micro_ru: count(6),
                operations: count(7),
                throttled: count(8),
                cpu_micro_ru: count(9),
                read_micro_ru: count(10),
                write_micro_ru: count(11),
                network_micro_ru: count(12),
                flat_micro_ru: count(13),
                ..ConsumptionView::default()
            },
            ..GroupSample::default()
        }
    }

    #[test]
    fn every_sum_has_the_figures_of_both() {
        let mut samples = [numbered("a", "", 100), numbered("b", "a", 1_000)];
        samples[1].leased = "1002".to_owned();
        sum_up(&mut samples);
        let sums = serde_json::to_value(samples[0].with_children).unwrap();
        let expected = serde_json::json!({
            "live_ru_per_sec": "1102", "leased": "1002", "demand": "1106", "leases": 1_108, "waiting": 1_110,
            "total_micro_ru": 1_112, "operations": 1_114, "throttled": 1_116, "cpu_micro_ru": 1_118,
            "read_micro_ru": 1_120, "write_micro_ru": 1_122, "network_micro_ru": 1_124, "flat_micro_ru": 1_126,
        });
        assert_eq!(sums, expected);
        // What the controller says of a group with leases has those of the groups below it in it.
        samples[0].leased = "2000".to_owned();
        sum_up(&mut samples);
        let sums = serde_json::to_value(samples[0].with_children).unwrap();
        assert_eq!((&sums["leased"], &sums["demand"]), (&"2000".into(), &"103".into()));
        assert_eq!(sums["live_ru_per_sec"], "1102");
    }

    #[test]
    fn any_sign_of_use_is_use() {
        let is_used = |sums: Sums| GroupSample { with_children: sums, ..GroupSample::default() }.is_used();
        assert!(!is_used(Sums { live: Rate::whole(1), ..Sums::default() }));
        for sums in [
            Sums { operations: Count(1), ..Sums::default() },
            Sums { throttled: Count(1), ..Sums::default() },
            Sums { waiting: 1, ..Sums::default() },
            Sums { leases: 1, ..Sums::default() },
        ] {
            assert!(is_used(sums), "{sums:?}");
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
    fn waits_of_groups_below_are_those_of_the_parent_too() {
        let waits = |lengths: &[(usize, u64)], in_vain| v1::GroupWaits {
            in_vain,
            buckets: lengths
                .iter()
                .map(|(length, waits)| v1::WaitBucket {
                    length: u32::try_from(*length).unwrap(),
                    waits: *waits,
                    ..v1::WaitBucket::default()
                })
                .collect(),
            ..v1::GroupWaits::default()
        };
        let mut samples = [
            group("a", "", "1", 1),
            group("b", "a", "1", 1),
            group("c", "b", "1", 1),
            group("d", "", "1", 1),
        ];
        samples[0].waited = Some(Box::new(waited(&waits(&[(10, 2)], 1))));
        samples[2].waited = Some(Box::new(waited(&waits(&[(20, 97), (30, 1), (900, 5)], 7))));
        sum_up(&mut samples);
        let of = |at: usize| samples[at].with_children.waits;
        assert_eq!(of(1), of(2), "b has those of c");
        assert_eq!(of(0).map(|waits| (waits.ended, waits.in_vain)), Some((100, 8)));
        assert_eq!(of(0).map(|waits| (waits.p50_us, waits.p99_us)), Some((2_048, 2_048)));
        assert_eq!(of(2).map(|waits| (waits.p99_us, waits.max_us)), Some((12_288, 12_288)));
        assert_eq!(of(3), None);
    }

    #[test]
    fn groups_in_a_ring_hold_nobody_up() {
        let mut samples = [group("a", "b", "1", 1), group("b", "a", "1", 1), group("c", "c", "1", 1)];
        sum_up(&mut samples);
        assert!(samples.iter().all(|sample| sample.with_children.waiting >= 1));
    }
}
