//! What a seed draws: groups, nodes, what they run, and the faults.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use tidegate_proto::v1;

use crate::network::Way;
use crate::world::micros;

/// Faults come until then; after that everybody recovers.
pub(crate) const CALM_AT: Duration = Duration::from_secs(20);
/// The time to recover, before the rate that is used is judged.
pub(crate) const RECOVERED_AT: Duration = Duration::from_secs(30);
/// The run ends.
pub(crate) const END_AT: Duration = Duration::from_secs(34);

/// A run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) groups: Vec<GroupPlan>,
    pub(crate) nodes: Vec<NodePlan>,
    /// Entries in one message to the controller.
    pub(crate) max_entries: Option<u32>,
    pub(crate) faults: Vec<(Duration, Fault)>,
}

/// A group and what each node runs in it.
#[derive(Clone, Debug)]
pub(crate) struct GroupPlan {
    pub(crate) name: String,
    pub(crate) parent: Option<String>,
    /// RU/s.
    pub(crate) rate: u32,
    /// RU.
    pub(crate) burst: u32,
    pub(crate) ttl: Duration,
    /// Operations at one time on each node; none where the group is there for those below it.
    pub(crate) workers: usize,
    /// The largest estimate, in RU.
    pub(crate) largest: u32,
    /// Costs differ from their estimates.
    pub(crate) wrong: bool,
}

impl GroupPlan {
    /// The definition, with another rate if need be.
    pub(crate) fn definition(&self, rate: u32) -> v1::Group {
        v1::Group {
            name: self.name.clone(),
            parent: self.parent.clone().unwrap_or_default(),
            ru_per_sec: rate.to_string(),
            burst: self.burst.to_string(),
            ttl_us: micros(self.ttl),
            renew_us: micros(self.ttl / 4),
            ..v1::Group::default()
        }
    }
}

/// A node.
#[derive(Clone, Debug)]
pub(crate) struct NodePlan {
    pub(crate) journal: bool,
    /// A group without operations for this long goes to sleep.
    pub(crate) idle_after: Duration,
    /// Its operations pause now and then for this long.
    pub(crate) pause: Duration,
    /// The time that a message takes in one direction in calm.
    pub(crate) delay: Duration,
}

/// What happens.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// Connections of a node break.
    Break { node: usize },
    /// Nothing passes in one direction, or in both, for a while.
    Hold { node: usize, ways: Vec<Way>, lasts: Duration },
    /// Messages take longer, for a while.
    Delay { node: usize, delay: Duration, lasts: Duration },
    /// A process is killed and starts again.
    Kill { node: usize, down: Duration },
    /// A process ends in order and starts again.
    End { node: usize, down: Duration },
    /// The controller ends and starts again.
    Center { in_order: bool, down: Duration },
    /// A group gets another rate.
    Alter { group: usize, rate: u32 },
}

impl Plan {
    /// The plan of a seed.
    pub(crate) fn draw(seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let many = random.random_range(0..3) == 0;
        let groups = if many { draw_many(&mut random) } else { draw_few(&mut random) };
        let nodes: Vec<NodePlan> = (0..random.random_range(2..=4)).map(|_| draw_node(&mut random)).collect();
        let max_entries = (many && random.random()).then(|| random.random_range(3..=9));
        let mut faults = Vec::new();
        let mut at = Duration::from_millis(random.random_range(500..2_500));
        while at < CALM_AT {
            faults.push((at, draw_fault(&mut random, nodes.len(), &groups)));
            at += Duration::from_millis(random.random_range(50..2_500));
        }
        Self { seed, groups, nodes, max_entries, faults }
    }
}

fn draw_few(random: &mut SmallRng) -> Vec<GroupPlan> {
    let ttl = Duration::from_millis(random.random_range(1_500..5_000));
    let mut groups: Vec<GroupPlan> = (0..random.random_range(1..=3))
        .map(|number| {
            let rate = random.random_range(100..1_000);
            let burst = random.random_range(rate / 4..=2 * rate);
            GroupPlan {
                name: format!("g{number}"),
                parent: None,
                rate,
                burst,
                ttl,
                workers: random.random_range(2..=5),
                largest: random.random_range(1..=(burst / 4).max(1)),
                wrong: random.random(),
            }
        })
        .collect();
    if random.random() {
        let rate = random.random_range(200..800);
        let above = GroupPlan { name: "above".to_owned(), rate, burst: rate, ..groups[0].clone() };
        for number in 0..2 {
            let name = format!("below{number}");
            let (rate, parent) = (rate * 3 / 4, Some(above.name.clone()));
            let largest = rate / 16;
            groups.push(GroupPlan { name, parent, rate, burst: rate, workers: 3, largest, ..above.clone() });
        }
        groups.push(GroupPlan { workers: 0, ..above });
    }
    groups
}

fn draw_many(random: &mut SmallRng) -> Vec<GroupPlan> {
    let rate = random.random_range(10..40);
    let group = |number: i32| GroupPlan {
        name: format!("g{number}"),
        parent: None,
        rate,
        burst: rate,
        ttl: Duration::from_secs(3),
        workers: 1,
        largest: 2,
        wrong: number % 3 == 0,
    };
    (0..random.random_range(8..=20)).map(group).collect()
}

fn draw_node(random: &mut SmallRng) -> NodePlan {
    NodePlan {
        journal: random.random_range(0..4) > 0,
        idle_after: Duration::from_millis(if random.random() { 300 } else { 60_000 }),
        pause: Duration::from_millis(random.random_range(400..2_000)),
        delay: Duration::from_millis(random.random_range(0..20)),
    }
}

fn draw_fault(random: &mut SmallRng, nodes: usize, groups: &[GroupPlan]) -> Fault {
    let node = random.random_range(0..nodes);
    let lasts = Duration::from_millis(random.random_range(100..6_000));
    let down = Duration::from_millis(random.random_range(1..3_000));
    match random.random_range(0..16) {
        0..=1 => Fault::Break { node },
        2..=4 => {
            let ways = [vec![Way::Up], vec![Way::Down], vec![Way::Up, Way::Down]];
            Fault::Hold { node, ways: ways[random.random_range(0..3)].clone(), lasts }
        }
        5..=6 => Fault::Delay { node, delay: Duration::from_millis(random.random_range(20..700)), lasts },
        7..=9 => Fault::Kill { node, down },
        10..=11 => Fault::End { node, down },
        12..=13 => Fault::Center { in_order: random.random(), down },
        _ => {
            let group = random.random_range(0..groups.len());
            let rate = groups[group].rate;
            Fault::Alter { group, rate: random.random_range(rate / 4..=rate * 2).max(1) }
        }
    }
}
