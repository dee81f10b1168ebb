//! Invariants I1 to I3, checked after every change in debug builds and in every simulation; and that every sum, list,
//! queue and division that is kept up to date equals the one made from the leases and groups below.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::Engine;
use crate::live::QueuePlace;
use crate::tree::Group;
use crate::units::{Rate, Ru};

impl Engine {
    /// Panics when an invariant of any group is broken; cheap enough for tests, absent from release builds.
    ///
    /// # Panics
    /// When one is broken, which is always a defect of this crate and never caused by an input.
    pub(crate) fn assert_invariants(&mut self) {
        let broken = if cfg!(debug_assertions) { self.check().err() } else { None };
        if let Some(broken) = broken {
            #[expect(clippy::panic, reason = "a broken invariant must stop a test at the step that broke it")]
            {
                panic!("{broken}");
            }
        }
    }

    /// Checks the invariants of every group.
    ///
    /// # Errors
    /// Names the broken invariant and the group, with the numbers.
    pub fn check(&mut self) -> Result<(), String> {
        for group in self.tree.iter_mut() {
            if group.live.is_awake() {
                let live = &mut *group.live;
                let (committed, held) = live.legacy;
                live.legacy = (committed.min(live.committed), held.min(live.held));
            }
            if let Some(warmth) = group.warmth.as_deref_mut() {
                warmth.shrink(group.live.committed);
            }
        }
        self.check_leases()?;
        self.check_quotas()?;
        self.tree.iter().try_for_each(|group| {
            self.check_sums(group)?;
            let stale = || self.stale(group).map_or(Ok(()), |what| Err(format!("{what} is stale")));
            check_group(group)
                .and_then(|()| stale())
                .map_err(|broken| format!("group {}: {broken}", group.id.0))
        })
    }

    /// The engine knows the end and the holder of every lease, and of no others.
    fn check_leases(&self) -> Result<(), String> {
        let leases = self.tree.iter().flat_map(|group| {
            group.live.leases.iter().map(|(client, lease)| (lease.ends(), *client, group.id))
        });
        let expiries: BTreeSet<_> = leases.collect();
        let holders: BTreeSet<_> = expiries.iter().map(|(_, client, id)| (*client, *id)).collect();
        if (&expiries, &holders) != (&self.expiries, &self.holders) {
            return Err(format!(
                "{} leases are out; {} ends and {} holders are listed, or others",
                expiries.len(),
                self.expiries.len(),
                self.holders.len()
            ));
        }
        Ok(())
    }

    /// The sums of each quota are those of the shares below.
    fn check_quotas(&self) -> Result<(), String> {
        for group in self.tree.iter() {
            let Some(quota) = group.quota.as_deref() else { continue };
            let leases = self.tree.iter().flat_map(|group| group.live.leases.values());
            if !quota.is_of(leases.map(|lease| lease.share)) {
                return Err(format!(
                    "group {}: the shares of the quota do not add up: {quota:?}",
                    group.id.0
                ));
            }
        }
        Ok(())
    }

    /// What of a group is no longer what its leases and the groups below it say.
    fn stale(&self, group: &Group) -> Option<&'static str> {
        let live = &*group.live;
        let children = || group.children.iter().filter_map(|child| self.tree.get(*child));
        let by_rate = live.leases.iter().map(|(client, lease)| (lease.committed(), *client));
        let running = live.leases.iter().filter(|(_, lease)| lease.tokens().running.is_positive());
        let listed = children().map(|child| (child.live.listed, child.id));
        let wants = live.leases.iter().filter_map(|(client, lease)| Some((*client, lease.entry()?)));
        let entered: Vec<_> = children().filter_map(|child| Some((child.id, child.live.entered?))).collect();
        let mut queue: BTreeMap<QueuePlace, Ru> =
            children().flat_map(|child| &child.live.queue).map(|(place, need)| (*place, *need)).collect();
        queue.extend(live.leases.iter().filter_map(|(client, lease)| {
            Some(((lease.queued_since()?, *client, group.id), lease.reported().head))
        }));
        let below_root = |stale: bool| stale && self.tree.parent(group.id).is_some();
        let checks = [
            ("the list of leases by rate", by_rate.collect::<BTreeSet<_>>() != live.by_rate),
            ("the list of running operations", !running.map(|(client, _)| client).eq(&live.running)),
            (
                "the list of child groups by rate",
                listed.filter(|(rate, _)| *rate != Rate::ZERO).collect::<BTreeSet<_>>()
                    != live.children_by_rate,
            ),
            ("the rate at its parent", below_root(live.listed != live.committed)),
            ("the entry at its parent", below_root(live.entered != group.entry())),
            ("the fill of clients", !live.own.is_of(wants)),
            ("the division", !live.division.is_of(group.beside_children(), &entered)),
            ("the queue for lumps", queue != live.queue),
        ];
        checks.into_iter().find_map(|(what, stale)| stale.then_some(what))
    }

    /// The running sums equal the sums of the leases below.
    fn check_sums(&self, group: &Group) -> Result<(), String> {
        let live = &*group.live;
        let below = |pick: fn(&Group) -> i64| -> i64 {
            group.children.iter().filter_map(|child| self.tree.get(*child)).map(pick).sum()
        };
        let committed: i64 = live.leases.values().map(|lease| lease.committed().0).sum::<i64>()
            + below(|g| g.live.committed.0);
        let held: i64 =
            live.leases.values().map(|lease| lease.hold().0).sum::<i64>() + below(|g| g.live.held.0);
        let used: i64 =
            live.leases.values().map(|lease| lease.counted.0).sum::<i64>() + below(|g| g.live.used.0);
        if (committed, held, used) != (live.committed.0, live.held.0, live.used.0) {
            return Err(format!(
                "group {}: sums drifted: committed {} is {committed}, held {} is {held}, used {} is {used}",
                group.id.0, live.committed.0, live.held.0, live.used.0
            ));
        }
        let waiting = live.leases.values().filter(|lease| lease.reported().backlog.is_positive()).count();
        let children = group.children.iter().filter_map(|child| self.tree.get(*child));
        let backlogged = children.map(|child| child.live.backlogged).sum::<u64>()
            + u64::try_from(waiting).unwrap_or(u64::MAX);
        if backlogged != live.backlogged {
            return Err(format!(
                "group {}: {backlogged} clients have a backlog, counted as {}",
                group.id.0, live.backlogged
            ));
        }
        Ok(())
    }
}

fn check_group(group: &Group) -> Result<(), String> {
    if group.parts.as_ref().is_some_and(|parts| !parts.balances()) {
        return Err(format!("the parts of the fallback do not add up: {:?}", group.parts));
    }
    let live = &*group.live;
    let (Some(limit), Some(depth)) = (group.spec.limit(), group.spec.depth()) else {
        return Ok(());
    };
    let (committed_legacy, held_legacy) = live.legacy;
    if live.committed > limit.max(committed_legacy) || live.committed < Rate::ZERO {
        return Err(format!("I1: committed {} is above the limit {limit}", live.committed));
    }
    if let Some(warmth) = group.warmth.as_deref()
        && live.committed > warmth.most_leased().max(committed_legacy)
    {
        return Err(format!(
            "I1: committed {} is above the rate {} of the warm-up",
            live.committed,
            warmth.rate()
        ));
    }
    let held = group.pool.tokens().or_zero() + live.held;
    if held > depth.max(held_legacy) {
        return Err(format!("I2: pool and held {held} are above the depth {depth}"));
    }
    if group.pool.is_late() {
        return Err(format!("I2: what was granted ahead has not come in time: {:?}", group.pool));
    }
    if !group.pool.balances() {
        return Err(format!("I3: the books do not balance: {:?}", group.pool));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::division::Party;
    use crate::engine::EngineConfig;
    use crate::exchange::Ask;
    use crate::fill::Member;
    use crate::group::{ClientId, GroupId, GroupSpec, Policy};
    use crate::lease::Lease;
    use crate::units::{Span, Time};
    use crate::warmth::Warmth;

    const GROUP: GroupId = GroupId(2);

    type Defect = fn(&mut Group);

    /// A group with a lease and a part of its fallback, after a defect changed something in it.
    fn broken(defect: impl FnOnce(&mut Group)) -> Engine {
        let mut engine = Engine::new(Time(0), EngineConfig::default());
        let total = Some(Rate::whole(10));
        let spec = GroupSpec { fallback_total: total, ..GroupSpec::capped(Rate::whole(100)) };
        engine.put_group(Time(0), GROUP, spec).unwrap();
        let ask = Ask { demand: Rate::whole(50), ..Ask::default() };
        engine.renew(Time(0), ClientId(1), GROUP, 1, &ask, None).unwrap();
        engine.check().unwrap();
        defect(engine.tree.get_mut(GROUP).unwrap());
        engine
    }

    #[test]
    fn a_check_names_what_is_broken_and_where() {
        let says = |defect: fn(&mut Group)| broken(defect).check().unwrap_err();
        assert!(says(|group| group.live.held += Ru(1)).contains("sums drifted"));
        assert!(says(|group| group.live.backlogged += 1).contains("have a backlog, counted as"));
        assert!(says(|group| group.spec.rate = Some(Rate(1))).starts_with("group 2: I1"));
        assert!(says(|group| group.spec.burst = Some(Ru(1))).starts_with("group 2: I2"));
        let cold = says(|group| {
            let policy = Policy::WarmUp { period: Span::secs(10), factor: 3 };
            group.warmth = Warmth::cold(Time(0), &GroupSpec { policy, ..group.spec.clone() });
        });
        assert!(cold.contains("is above the rate 33.333333 RU/s of the warm-up"), "{cold}");
        let unlike = says(|group| group.parts.as_mut().unwrap().load(Time(0), ClientId(1), Rate(7)));
        assert!(unlike.starts_with("group 2: the parts of the fallback do not add up"), "{unlike}");
    }

    #[test]
    fn a_check_names_what_is_stale() {
        const CLIENT: ClientId = ClientId(1);
        let defects: [(Defect, &str); 8] = [
            (|group| group.live.by_rate.clear(), "group 2: the list of leases by rate"),
            (|group| _ = group.live.running.insert(CLIENT), "group 2: the list of running operations"),
            (|group| group.live.listed = Rate(1), "group 0: the list of child groups"),
            (|group| group.spec.weight = 7, "group 2: the entry at its parent"),
            (|group| _ = group.live.queue.insert((Time(0), CLIENT, GROUP), Ru(1)), "group 0: the queue"),
            (
                |group| {
                    let entry = group.entry();
                    group.live.division.change(Party::Child(GROUP), None, entry);
                },
                "group 2: the division",
            ),
            (
                |group| {
                    let lease = *group.live.leases[&CLIENT];
                    let heavier = Member::new(lease.want().0, 2);
                    group.live.own.change(CLIENT, lease.entry(), Some(heavier));
                },
                "group 2: the fill of clients",
            ),
            (
                |group| _ = group.live.put(ClientId(3), Lease::default()),
                "2 leases are out; 1 ends and 1 holders",
            ),
        ];
        for (defect, named) in defects {
            let says = broken(defect).check().unwrap_err();
            assert!(says.starts_with(named), "{says}, not {named}");
        }
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "sums drifted")]
    fn a_defect_stops_a_test_at_the_next_step() {
        broken(|group| group.live.committed += Rate(1)).release(Time(1), ClientId(9));
    }
}
