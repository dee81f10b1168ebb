//! How much each user does, and under which caps, from what the jobs cost on this machine.
//!
//! Each group gets a share of one core; its operations per second follow from the CPU of one, its offered RU/s from
//! the RU of one, and its cap is set against that: `shop` is offered its cap on average and 1.5 times of it in the
//! busy half of each wave, `analytics` and `dashboards` together a little more than the cap above both, `bursty` up to
//! four times its guarantee in waves, `batch` four times its cap all the time, and `trial` six times its cap by callers
//! who do not wait long, so that most of them are refused.

use tidegate_core::units::{MICRO, Rate, Ru, Span};
use tidegate_proto::v1;

use super::calibrate::{Calibration, JobCost};
use super::job::Job;
use super::workload::UserLoad;

/// Nodes of the demo.
pub(crate) const NODES: u32 = 3;
/// Lease length: what a node that is cut off or killed holds back.
pub(crate) const TTL: Span = Span::secs(2);
/// The same with several controllers: longer than a takeover takes on a busy machine, so that nodes go on meanwhile.
pub(crate) const TTL_OF_SEVERAL: Span = Span::secs(5);
/// Time between renewals.
const RENEW: Span = Span::millis(500);
/// The longest a wave may last.
const MAX_WAVE: Span = Span::secs(6);
/// Longest wait of an operation: users give up, those on trial soon, and the batch is patient.
const MAX_WAIT: Span = Span::secs(3);
const MAX_WAIT_TRIAL: Span = Span::millis(200);
const MAX_WAIT_BATCH: Span = Span::secs(10);
/// The bucket holds at least this many of the dearest operations.
const BURST_OPERATIONS: i64 = 4;
/// A node may owe this many of the dearest operations seen when measuring.
const DEBT_OPERATIONS: i64 = 2;

/// A group of the demo and what is promised for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlannedGroup {
    pub(crate) name: &'static str,
    pub(crate) parent: &'static str,
    pub(crate) rate: Rate,
    /// The rate up to which it may borrow, if it may.
    pub(crate) borrow_to: Option<Rate>,
    pub(crate) burst: Ru,
    pub(crate) max_debt: Ru,
    pub(crate) priority: &'static str,
    pub(crate) comment: &'static str,
}

/// Everything that is set up.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) ttl: Span,
    pub(crate) capacity: Rate,
    pub(crate) groups: Vec<PlannedGroup>,
    /// The users and their load on each node, and the group of each.
    pub(crate) users: Vec<(UserLoad, &'static str)>,
}

/// How much of one job is offered.
struct Offer {
    cost: JobCost,
    /// Operations a second, in thousandths.
    milli_ops: u64,
}

impl Offer {
    /// Operations that use `permille` of a core, at most `most` a second.
    fn new(costs: &Calibration, job: Job, permille: u64, most: u64) -> Self {
        let cost = costs.of(job);
        let milli_ops = permille.saturating_mul(1_000_000_000) / cost.cpu_ns.max(1);
        Self { cost, milli_ops: milli_ops.clamp(1_000, most.saturating_mul(1_000)) }
    }

    fn rate(&self) -> Rate {
        Rate(self.cost.mean.scale(i64::try_from(self.milli_ops).unwrap_or(i64::MAX), 1_000).0)
    }

    /// Time between operations of one of `workers` threads on each node, at `percent` of the offer.
    fn pause_us(&self, workers: u32, percent: u64) -> u64 {
        let threads = u64::from(workers) * u64::from(NODES);
        let milli_ops = self.milli_ops.saturating_mul(percent) / 100;
        threads.saturating_mul(1_000_000_000) / milli_ops.max(1)
    }
}

impl PlannedGroup {
    fn new(name: &'static str, rate: Rate, dearest: Ru) -> Self {
        let rate = round_up(rate);
        let several = dearest.scale(BURST_OPERATIONS, 1);
        Self {
            name,
            parent: "",
            rate,
            borrow_to: None,
            burst: Ru(round_up(Rate(several.0.max(rate.0))).0),
            max_debt: Ru(round_up(Rate(dearest.scale(DEBT_OPERATIONS, 1).0)).0),
            priority: "medium",
            comment: "",
        }
    }

    /// The most this group and those below it may use.
    pub(crate) fn cap(&self) -> Rate {
        self.borrow_to.unwrap_or(self.rate)
    }

    /// As the admin service takes it.
    pub(crate) fn definition(&self, ttl: Span) -> v1::Group {
        let plain = |text: String| text.split(' ').next().unwrap_or_default().to_owned();
        v1::Group {
            name: self.name.to_owned(),
            parent: self.parent.to_owned(),
            ru_per_sec: plain(self.rate.to_string()),
            burst: plain(self.burst.to_string()),
            burstable: if self.borrow_to.is_some() { "moderated" } else { "off" }.to_owned(),
            burst_ru_per_sec: self.borrow_to.map(|rate| plain(rate.to_string())).unwrap_or_default(),
            priority: self.priority.to_owned(),
            weight: 1,
            ttl_us: ttl.0,
            renew_us: RENEW.0,
            fallback: "stop".to_owned(),
            max_debt: plain(self.max_debt.to_string()),
            comment: self.comment.to_owned(),
            ..v1::Group::default()
        }
    }
}

/// How much of each job is offered.
struct Offers {
    shop: Offer,
    reports: Offer,
    boards: Offer,
    campaign: Offer,
    reprice: Offer,
    trial: Offer,
}

impl Offers {
    fn new(costs: &Calibration) -> Self {
        Self {
            shop: Offer::new(costs, Job::OrderEntry, 70, 60),
            reports: Offer::new(costs, Job::Report, 120, 40),
            boards: Offer::new(costs, Job::Dashboard, 20, 40),
            campaign: Offer::new(costs, Job::Campaign, 40, 30),
            reprice: Offer::new(costs, Job::Reprice, 30, 15),
            trial: Offer::new(costs, Job::Dashboard, 4, 8),
        }
    }

    /// The groups, parents before children.
    fn groups(&self) -> Vec<PlannedGroup> {
        let (shop, reports, boards) = (&self.shop, &self.reports, &self.boards);
        let dearest_report = reports.cost.largest.max(boards.cost.largest);
        let above = (reports.rate() + boards.rate()).scale(9, 10);
        let (campaign, reprice, trial) = (&self.campaign, &self.reprice, &self.trial);
        let bursty = PlannedGroup::new("bursty", campaign.rate().scale(1, 2), campaign.cost.largest);
        let borrow_to = bursty.rate.scale(3, 1);
        vec![
            PlannedGroup {
                comment: "order entry; offered more than its cap in waves",
                priority: "high",
                ..PlannedGroup::new("shop", shop.rate(), shop.cost.largest)
            },
            PlannedGroup {
                comment: "reports; caps the dashboards below it, too",
                ..PlannedGroup::new("analytics", above, dearest_report)
            },
            PlannedGroup {
                parent: "analytics",
                comment: "nested in analytics",
                ..PlannedGroup::new("dashboards", boards.rate().scale(12, 10), boards.cost.largest)
            },
            PlannedGroup {
                comment: "borrows what is left, up to three times its guarantee",
                borrow_to: Some(borrow_to),
                burst: bursty.burst.max(Ru(borrow_to.0)),
                ..bursty
            },
            PlannedGroup {
                comment: "price changes; offered four times its cap",
                priority: "low",
                ..PlannedGroup::new("batch", reprice.rate(), reprice.cost.largest)
            },
            PlannedGroup {
                comment: "offered six times its cap by callers who wait 0.2 s at most",
                priority: "low",
                ..PlannedGroup::new("trial", trial.rate(), trial.cost.largest)
            },
        ]
    }

    /// The users, in waves of `wave`, and the group of each.
    fn users(&self, wave: Span) -> Vec<(UserLoad, &'static str)> {
        let load =
            |tenant: &str, user: &str, job, workers, offer: &Offer, (busy, quiet), wait: Span| UserLoad {
                tenant: tenant.to_owned(),
                user: user.to_owned(),
                job,
                workers,
                busy_pause_us: offer.pause_us(workers, busy),
                quiet_pause_us: offer.pause_us(workers, quiet),
                wave_us: wave.0,
                max_wait_us: wait.0,
            };
        let (shop, reports, boards) = (&self.shop, &self.reports, &self.boards);
        let (campaign, reprice, trial) = (&self.campaign, &self.reprice, &self.trial);
        let (steady, patient) = ((100, 100), MAX_WAIT_BATCH);
        vec![
            (load("storefront", "checkout", Job::OrderEntry, 4, shop, (150, 50), MAX_WAIT), "shop"),
            (load("insight", "analyst", Job::Report, 2, reports, steady, MAX_WAIT), "analytics"),
            (load("insight", "board", Job::Dashboard, 2, boards, steady, MAX_WAIT), "dashboards"),
            (load("marketing", "mailer", Job::Campaign, 4, campaign, (200, 10), MAX_WAIT), "bursty"),
            (load("backoffice", "nightly", Job::Reprice, 3, reprice, (400, 400), patient), "batch"),
            (load("newcomers", "guest", Job::Dashboard, 4, trial, (600, 600), MAX_WAIT_TRIAL), "trial"),
        ]
    }
}

impl Plan {
    /// A plan for a run of `seconds` with leases of this length.
    pub(crate) fn new(costs: &Calibration, seconds: u64, ttl: Span) -> Self {
        let offers = Offers::new(costs);
        let groups = offers.groups();
        // Every guarantee, and that of `bursty` once more for it to borrow.
        let guaranteed = groups.iter().filter(|group| group.parent.is_empty());
        let sum: Rate =
            guaranteed.map(|group| group.rate.scale(1 + i64::from(group.borrow_to.is_some()), 1)).sum();
        // The server's bucket is a second of its capacity and must hold the dearest operation several times.
        let dearest = Job::ALL.map(|job| costs.of(job).largest).into_iter().max().unwrap_or_default();
        let capacity = round_up(sum.max(Rate(dearest.scale(BURST_OPERATIONS, 1).0)));
        let wave = Span((Span::secs(seconds).0 / 5).clamp(1_000_000, MAX_WAVE.0));
        Self { ttl, capacity, groups, users: offers.users(wave) }
    }

    /// Definition of a group.
    pub(crate) fn group(&self, name: &str) -> Option<&PlannedGroup> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// Whether the usage of `group` counts for `above`, which is the group itself or its parent.
    pub(crate) fn counts_for(&self, group: &str, above: &str) -> bool {
        group == above || self.group(group).is_some_and(|group| group.parent == above)
    }
}

/// Up to two significant digits and at least one RU, so that the numbers are easy to follow.
pub(crate) fn round_up(rate: Rate) -> Rate {
    let mut step = MICRO;
    while rate.0 / step >= 100 {
        step = step.saturating_mul(10);
    }
    let steps = rate.0.max(1).saturating_add(step - 1) / step;
    Rate(steps.saturating_mul(step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_rounded_up_to_two_digits() {
        for (rate, rounded) in [(0, 1), (1, 1), (99, 99), (100, 100), (101, 110), (12_345, 13_000)] {
            assert_eq!(round_up(Rate::whole(rate)), Rate::whole(rounded), "{rate}");
        }
    }

    #[test]
    fn guarantees_fit_the_capacity_and_every_operation_the_bucket() {
        let cost = |ru, cpu_ns| JobCost { mean: Ru::whole(ru), largest: Ru::whole(2 * ru), cpu_ns };
        for factor in [1, 10, 1_000] {
            let jobs = Job::ALL.iter().zip(1..).map(|(job, n)| (*job, cost(n * 10, 300_000 * factor)));
            let costs = Calibration { jobs: jobs.collect(), statements: vec![] };
            let plan = Plan::new(&costs, 30, TTL);
            let top: Rate =
                plan.groups.iter().filter(|group| group.parent.is_empty()).map(|group| group.rate).sum();
            assert!(top <= plan.capacity, "{plan:?}");
            for group in &plan.groups {
                assert!(group.burst >= Ru(group.rate.0) && group.cap() >= group.rate, "{group:?}");
            }
            for (load, group) in &plan.users {
                let of = costs.of(load.job).largest;
                assert!(plan.group(group).unwrap().burst >= of, "{group}");
                assert!(load.busy_pause_us > 0 && load.busy_pause_us <= load.quiet_pause_us);
            }
        }
    }
}
