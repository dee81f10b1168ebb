//! Invariants I1 to I3, checked after every change in debug builds and in every simulation.

use crate::engine::Engine;
use crate::tree::Group;
use crate::units::Rate;

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
                live.committed_legacy = live.committed_legacy.min(live.committed);
                live.held_legacy = live.held_legacy.min(live.held);
            }
        }
        self.tree.iter().try_for_each(|group| {
            self.check_sums(group)?;
            check_group(group).map_err(|broken| format!("group {}: {broken}", group.id.0))
        })
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
        if (committed, held) != (live.committed.0, live.held.0) {
            return Err(format!(
                "group {}: sums drifted: committed {} is {committed}, held {} is {held}",
                group.id.0, live.committed.0, live.held.0
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
    if live.committed > limit.max(live.committed_legacy) || live.committed < Rate::ZERO {
        return Err(format!("I1: committed {} is above the limit {limit}", live.committed));
    }
    let held = group.pool.tokens().or_zero() + live.held;
    if held > depth.max(live.held_legacy) {
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
    use crate::engine::EngineConfig;
    use crate::exchange::Ask;
    use crate::group::{ClientId, GroupId, GroupSpec};
    use crate::units::{Ru, Time};

    const GROUP: GroupId = GroupId(2);

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
        let unlike = says(|group| group.parts.as_mut().unwrap().load(Time(0), ClientId(1), Rate(7)));
        assert!(unlike.starts_with("group 2: the parts of the fallback do not add up"), "{unlike}");
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "sums drifted")]
    fn a_defect_stops_a_test_at_the_next_step() {
        broken(|group| group.live.committed += Rate(1)).release(Time(1), ClientId(9));
    }
}
