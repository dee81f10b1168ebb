//! The searched system: small, with whole numbers, and how often each thing may happen in it.

use std::fmt;

use tidegate_core::engine::EngineConfig;
use tidegate_core::group::{Burstable, GroupId, GroupSpec};
use tidegate_core::node::NodeConfig;
use tidegate_core::units::{Rate, Ru, Span};

/// Nodes of every setting.
pub const NODES: usize = 2;

macro_rules! bounds {
    ($($(#[doc = $doc:literal])* $field:ident,)*) => {
        /// How often each thing may happen on one path; inside a state, how often it still may.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct Bounds {
            $($(#[doc = $doc])* pub $field: u8,)*
        }

        impl Bounds {
            /// Names and meanings, in the order of declaration.
            pub const NAMES: &[(&str, &str)] = &[$((stringify!($field), concat!($($doc),*)),)*];

            /// Sets a bound by its name; false when there is none of that name.
            pub fn set(&mut self, name: &str, value: u8) -> bool {
                match name {
                    $(stringify!($field) => self.$field = value,)*
                    _ => return false,
                }
                true
            }
        }

        impl fmt::Display for Bounds {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let all = [$((stringify!($field), self.$field),)*];
                let used: Vec<String> = all.iter().filter(|(_, most)| *most > 0)
                    .map(|(name, most)| format!("{name} {most}")).collect();
                f.write_str(&used.join(", "))
            }
        }
    };
}

bounds! {
    /// Steps of time.
    ticks,
    /// Operations that arrive, on both nodes together.
    operations,
    /// How many of those cost twice their estimate.
    dear,
    /// How many of those are settled later, for nothing or for twice their estimate.
    late,
    /// Waiting operations that give up.
    cancels,
    /// Nodes that sleep through a step of time although a renewal is due or their stream has ended.
    pauses,
    /// Messages that do not arrive at once but at any later time, in any order, or never; 255 is any number.
    delays,
    /// Late messages per node and direction; one more loses the oldest.
    in_flight,
    /// Late messages delivered twice.
    repeats,
    /// Streams reset by the network, with what was under way.
    resets,
    /// Nodes that die and start again as a new incarnation.
    kills,
    /// Nodes that say goodbye and start again as a new incarnation.
    leaves,
    /// Commits of the ledger.
    commits,
    /// Controllers that die and start again, in recovery, with the ledger as it was committed.
    crashes,
    /// Controllers restarted in order.
    restarts,
}

/// A small system, and what may happen to it.
#[derive(Clone, Debug)]
pub struct Setting {
    /// What it is for, in a line.
    pub about: &'static str,
    /// Groups, parents first.
    pub groups: Vec<(GroupId, GroupSpec)>,
    /// The group that each node uses.
    pub uses: [GroupId; NODES],
    /// What an operation is estimated to cost.
    pub cost: Ru,
    /// One step of time.
    pub step: Span,
    /// The controller's settings.
    pub engine: EngineConfig,
    /// The nodes' settings.
    pub node: NodeConfig,
    /// How much faster than true time each node's clock runs, in millionths.
    pub drifts: [i64; NODES],
    /// How often what may happen.
    pub bounds: Bounds,
}

/// Names of the settings.
pub const NAMES: [&str; 8] = ["grants", "repeats", "costs", "pauses", "crashes", "ends", "tree", "drift"];

impl Setting {
    /// The setting of a name.
    pub fn named(name: &str) -> Option<Self> {
        let base = Self::base();
        let calm = Bounds { in_flight: 1, ..Bounds::default() };
        Some(match name {
            "grants" => base,
            "repeats" => Self {
                about: "messages late, overtaken and repeated, streams reset",
                bounds: Bounds {
                    ticks: 3,
                    operations: 2,
                    delays: 1,
                    in_flight: 2,
                    repeats: 1,
                    resets: 1,
                    ..calm
                },
                ..base
            },
            "costs" => Self {
                about: "operations dearer and cheaper than estimated, settled late, given up",
                bounds: Bounds { ticks: 4, operations: 2, dear: 1, late: 1, cancels: 1, ..calm },
                ..base
            },
            "pauses" => Self {
                about: "nodes that sleep",
                bounds: Bounds { ticks: 5, operations: 3, pauses: 2, ..calm },
                ..base
            },
            "crashes" => Self {
                about: "the controller dies, and is restarted in order, while it recovers, too",
                bounds: Bounds { ticks: 4, operations: 2, crashes: 1, restarts: 1, ..calm },
                ..base
            },
            "ends" => Self {
                about: "nodes and the controller die and end in order, between commits of the ledger",
                bounds: Bounds {
                    ticks: 2,
                    operations: 2,
                    kills: 1,
                    leaves: 1,
                    crashes: 1,
                    commits: 2,
                    ..calm
                },
                ..base
            },
            "tree" => Self {
                about: "a group of 4 RU/s above two of 2 RU/s that borrow up to 4; each node uses another",
                groups: tree(),
                uses: [GroupId(2), GroupId(3)],
                ..base
            },
            "drift" => Self {
                about: "one clock a tenth too fast, one a tenth too slow, as far as is allowed for",
                drifts: [100_000, -100_000],
                engine: EngineConfig { drift_ppm: 100_000, margin: Span::millis(50) },
                node: NodeConfig { drift_ppm: 100_000, ..base.node },
                ..base
            },
            _ => return None,
        })
    }

    /// One group of 4 RU/s and a burst of 4 RU, leases of two steps, operations of 2 RU.
    fn base() -> Self {
        let group = GroupSpec { burst: Some(Ru::whole(4)), ..short_leases(4) };
        Self {
            about: "one group of 4 RU/s, leases of two steps, operations of 2 RU; messages late, overtaken and lost",
            groups: vec![(GroupId(1), group)],
            uses: [GroupId(1); NODES],
            cost: Ru::whole(2),
            step: Span::millis(500),
            engine: EngineConfig { drift_ppm: 0, margin: Span(0) },
            node: NodeConfig {
                drift_ppm: 0,
                max_waiters: 4,
                reply_timeout: Span::millis(500),
                longest_wait: Span::millis(500),
                idle_after: Span::secs(1),
                ..NodeConfig::default()
            },
            drifts: [0; NODES],
            bounds: Bounds { ticks: 4, operations: 3, delays: 1, in_flight: 1, ..Bounds::default() },
        }
    }

    /// Above a group: the groups that its leases count in, itself included.
    pub(super) fn chain(&self, group: GroupId) -> Vec<GroupId> {
        let spec = |id| self.groups.iter().find(|(known, _)| *known == id).map(|(_, spec)| spec);
        std::iter::successors(Some(group), |id| spec(*id)?.parent).collect()
    }

    /// The longest lease.
    pub(super) fn longest_lease(&self) -> Span {
        self.groups.iter().map(|(_, spec)| spec.ttl).max().unwrap_or_default()
    }
}

/// A group whose leases last two steps and are renewed in every step.
fn short_leases(rate: i64) -> GroupSpec {
    GroupSpec { ttl: Span::secs(1), renew_every: Span::millis(250), ..GroupSpec::capped(Rate::whole(rate)) }
}

fn tree() -> Vec<(GroupId, GroupSpec)> {
    let burst = Some(Ru::whole(4));
    let above = GroupSpec { burst, ..short_leases(4) };
    let below = GroupSpec {
        burst,
        parent: Some(GroupId(1)),
        burstable: Burstable::Moderated(Rate::whole(4)),
        ..short_leases(2)
    };
    vec![(GroupId(1), above), (GroupId(2), below.clone()), (GroupId(3), below)]
}
