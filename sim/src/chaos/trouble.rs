//! Drawing troubles that come together: changes that a node cannot hear of, disks that stutter, long ways, long leases,
//! and groups that all want more than there is. Every kind has a stream of random numbers of its own.

use tidegate_core::group::{Burstable, GroupId, GroupSpec, Priority};
use tidegate_core::units::{Rate, Ru, Span, Time};

use super::{Action, Change, Plan};
use crate::disk::Death;
use crate::load::{Load, Pattern};
use crate::random::Random;
use crate::settling::Settling;

/// The shortest lease, in one-way delays: a renewal and its answer take two.
pub(super) const LEASE_IN_DELAYS: u64 = 5;

impl Plan {
    /// Adds them to a plan whose faults, loads and changes are drawn.
    pub(super) fn draw_trouble(&mut self, seed: u64, many: bool) {
        if !many {
            self.draw_contest(&mut Random::new(seed, 26));
            self.draw_long_leases(&mut Random::new(seed, 24));
        }
        self.draw_ends(&mut Random::new(seed, 27));
        self.draw_severed(&mut Random::new(seed, 23));
        self.draw_disks(&mut Random::new(seed, 22));
        self.draw_distance(&mut Random::new(seed, 25));
    }

    /// Nodes that end in order and start again, in half of the cases all together, as when a new version is rolled out.
    fn draw_ends(&mut self, random: &mut Random) {
        if !random.one_in(3) {
            return;
        }
        let (at, nodes) = (random.between(200_000, self.calm_at.0), self.drifts.len());
        let together = random.one_in(2);
        for number in 0..random.between(1, 4) {
            let node =
                if together { usize::try_from(number).unwrap_or(0) % nodes } else { random.below(nodes) };
            let at = Time(if together {
                at + random.between(0, 500_000)
            } else {
                random.between(200_000, self.calm_at.0)
            });
            self.actions.push((at, Action::End(node, Span::millis(random.between(1, 4_000)))));
        }
    }

    /// Leases of seconds, seldom of a minute: the longer they are, the more is out when something happens.
    fn draw_long_leases(&mut self, random: &mut Random) {
        if !random.one_in(8) {
            return;
        }
        let longest = if random.one_in(8) { 60_000 } else { 10_000 };
        for (_, spec) in &mut self.groups {
            if random.one_in(2) {
                spec.ttl = Span::millis(random.between(3_000, longest));
            }
        }
    }

    /// A node that one direction of its link fails just before a definition changes, mostly for less, and after it, in
    /// half of the cases, a crash: what the node holds is known by what was on disk alone.
    fn draw_severed(&mut self, random: &mut Random) {
        if !random.one_in(4) {
            return;
        }
        let at = Time(random.between(1_000_000, self.calm_at.0));
        let (node, id) = (random.below(self.drifts.len()), self.pick(random));
        let cut = Time(at.0 - 1_000 * random.between(0, 300));
        let span = Span::millis(random.between(1_000, 8_000));
        self.actions.push((cut, Action::Cut(node, random.below(2), span)));
        let few = i64::try_from(random.between(1, 50)).unwrap_or(1);
        let change = match random.below(6) {
            0 => Action::Rate(id, Rate::whole(few)),
            1 => Action::Alter(id, Change::Depth(Some(Ru::whole(few)))),
            2 => Action::Remove(id),
            _ => {
                // Leases of before are out for long.
                if let Some((_, spec)) = self.groups.iter_mut().find(|(known, _)| *known == id) {
                    spec.ttl = spec.ttl.max(Span::millis(random.between(3_000, 8_000)));
                }
                Action::Alter(id, Change::Ttl(Span::millis(random.between(500, 1_000))))
            }
        };
        self.actions.push((at, change));
        if random.one_in(2) {
            let crash = at.after(Span::millis(random.between(0, 2_500)));
            let down = Span::millis(random.between(10, 300));
            let death = if random.one_in(2) { Death::Killed } else { Death::PowerCut };
            self.actions.push((crash, Action::Crash(down, death)));
        }
    }

    /// Disks that take no writes for a while, and disks that take their time. A controller that is taken over from is
    /// often one whose disk was slow.
    fn draw_disks(&mut self, random: &mut Random) {
        let slow = |random: &mut Random| {
            let sync = Span::millis(random.between(20, 900));
            Action::DiskSlows(sync, Span::millis(random.between(500, 4_000)))
        };
        if random.one_in(5) {
            for _ in 0..random.between(1, 3) {
                let at = Time(random.between(200_000, self.calm_at.0));
                self.actions.push((at, Action::DiskPauses(Span::millis(random.between(50, 5_000)))));
            }
        }
        if random.one_in(8) {
            self.actions.push((Time(random.between(200_000, self.calm_at.0)), slow(random)));
        }
        let takeovers = self.actions.iter().filter(|(_, action)| matches!(action, Action::TakeOver(..)));
        let before: Vec<Time> = takeovers.map(|(at, _)| *at).collect();
        for at in before {
            if random.one_in(2) {
                let ahead = 1_000 * random.between(10, 2_000);
                self.actions.push((Time(at.0.saturating_sub(ahead)), slow(random)));
            }
        }
    }

    /// Round trips of up to a second. Leases are longer than those, or no node could ever hold one.
    fn draw_distance(&mut self, random: &mut Random) {
        if !random.one_in(8) {
            return;
        }
        let most = random.between(40_000, 450_000);
        self.delay = (Span(random.between(100, most)), Span(most));
        for (_, spec) in &mut self.groups {
            spec.ttl = spec.ttl.max(Span(most * LEASE_IN_DELAYS));
        }
    }

    /// Three levels of groups, all of which want more than there is: what each is sure of can be seen.
    fn draw_contest(&mut self, random: &mut Random) {
        if !random.one_in(16) {
            return;
        }
        let rate = Rate::whole(i64::try_from(random.between(600, 3_000)).unwrap_or(600));
        let ttl = Span::millis(random.between(500, 3_000));
        let child = |parent: u32, tenths: i64, priority| GroupSpec {
            parent: Some(GroupId(parent)),
            burstable: Burstable::Unlimited,
            priority,
            ttl,
            ..GroupSpec::capped(rate.scale(tenths, 20))
        };
        self.groups = vec![
            (GroupId(2), GroupSpec { ttl, ..GroupSpec::capped(rate) }),
            (GroupId(3), child(2, 10, Priority::Medium)),
            (GroupId(4), child(2, 4, Priority::High)),
            (GroupId(5), child(3, 6, Priority::Low)),
            (GroupId(6), GroupSpec { weight: 10, ..child(3, 1, Priority::High) }),
        ];
        let cost = u64::try_from(rate.0 / 400_000_000).unwrap_or(1).max(1);
        let nodes = self.drifts.len();
        let load = |(index, id): (usize, u32)| Load {
            label: format!("load-{index}"),
            nodes: (0, nodes - 1),
            group: GroupId(id),
            pattern: Pattern::Closed(3),
            cost: (1, cost),
            settle_tenths: 10,
            max_wait: Span::secs(8),
            from: Time(0),
            until: Time(u64::MAX),
            turns: Span(0),
            odd: false,
            moves: Span(0),
            settling: Settling::default(),
        };
        self.loads = [4, 5, 6].into_iter().enumerate().map(load).collect();
        // Changed definitions would spoil what is judged here; faults stay.
        self.actions.retain(|(_, action)| action.group().is_none() && !matches!(action, Action::Lie(_)));
    }
}
