//! The leased, wanted and awaited amounts of a group and of all below it. The part comes with the first client and goes
//! with the last, so that idle groups cost little.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};

use crate::division::{Division, Entry};
use crate::fill::WaterFill;
use crate::group::{ClientId, GroupId};
use crate::lease::Lease;
use crate::units::{Rate, Ru, Time};

/// A client waiting for a lump, first come first served.
pub(crate) type QueuePlace = (Time, ClientId, GroupId);

/// The live part of a group. In an idle group every value reads as zero; writing one creates the part.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Live(Option<Box<Parts>>);

/// Live state of one group.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Parts {
    /// Rate and tokens that the nodes below may be using.
    pub committed: Rate,
    pub held: Ru,
    /// Of that rate, what they use, as they reported.
    pub used: Rate,
    /// After a changed definition leases may exceed the new limits by this until they are renewed or end.
    pub legacy: (Rate, Ru),
    /// Apart from the map, which has room for eleven entries: most groups have a lease or two.
    pub leases: BTreeMap<ClientId, Box<Lease>>,
    /// Own leases by committed rate, and child groups by theirs if it is not zero: the places from which rate can be
    /// recalled.
    pub by_rate: BTreeSet<(Rate, ClientId)>,
    /// Own clients whose operations under way may return a part of a lump.
    pub running: BTreeSet<ClientId>,
    pub children_by_rate: BTreeSet<(Rate, GroupId)>,
    /// The rate by which the parent lists this group.
    pub listed: Rate,
    /// The wants of the group's own clients.
    pub own: WaterFill<ClientId>,
    /// The rate that they were last given together.
    pub own_capacity: Rate,
    /// The wants of children and own clients, and this group's entry at its parent.
    pub division: Division,
    pub entered: Option<Entry>,
    /// Clients in the subtree that wait for a lump, and the number of clients with a backlog.
    pub queue: BTreeMap<QueuePlace, Ru>,
    pub backlogged: u64,
}

static IDLE: Parts = Parts::new();

impl Parts {
    const fn new() -> Self {
        Self {
            committed: Rate::ZERO,
            held: Ru::ZERO,
            used: Rate::ZERO,
            legacy: (Rate::ZERO, Ru::ZERO),
            leases: BTreeMap::new(),
            by_rate: BTreeSet::new(),
            running: BTreeSet::new(),
            children_by_rate: BTreeSet::new(),
            listed: Rate::ZERO,
            own: WaterFill::new(),
            own_capacity: Rate::ZERO,
            division: Division::new(),
            entered: None,
            queue: BTreeMap::new(),
            backlogged: 0,
        }
    }

    /// Puts a client's lease in the place of the one before, which it returns.
    pub(crate) fn put(&mut self, client: ClientId, lease: Lease) -> Option<Lease> {
        if let Some(known) = self.leases.get_mut(&client) {
            return Some(std::mem::replace(known, lease));
        }
        self.leases.insert(client, Box::new(lease));
        None
    }

    fn is_idle(&self) -> bool {
        let nothing_out = self.leases.is_empty() && self.committed == Rate::ZERO && self.held == Ru::ZERO;
        let nobody_listed =
            self.by_rate.is_empty() && self.children_by_rate.is_empty() && self.listed == Rate::ZERO;
        let nothing_wanted = self.own.len() == 0 && self.division.is_empty() && self.entered.is_none();
        nothing_out && nobody_listed && nothing_wanted && self.queue.is_empty() && self.backlogged == 0
    }
}

impl Live {
    pub(crate) fn is_awake(&self) -> bool {
        self.0.is_some()
    }

    /// Drops the part when nothing is in it.
    pub(crate) fn rest(&mut self) {
        if self.0.as_ref().is_some_and(|parts| parts.is_idle()) {
            self.0 = None;
        }
    }
}

impl Deref for Live {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        self.0.as_deref().unwrap_or(&IDLE)
    }
}

impl DerefMut for Live {
    fn deref_mut(&mut self) -> &mut Parts {
        self.0.get_or_insert_with(|| Box::new(Parts::new()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Engine, EngineConfig};
    use crate::exchange::Ask;
    use crate::group::GroupSpec;

    const CHILD: GroupId = GroupId(3);
    const A: ClientId = ClientId(1);

    type Leave = fn(&mut Engine, Ask);

    fn engine() -> Engine {
        let mut engine = Engine::new(Time(0), EngineConfig::default());
        let child = GroupSpec { parent: Some(GroupId(2)), ..GroupSpec::capped(Rate::whole(50)) };
        engine.put_group(Time(0), GroupId(2), GroupSpec::capped(Rate::whole(100))).unwrap();
        engine.put_group(Time(0), CHILD, child).unwrap();
        engine
    }

    fn awake(engine: &Engine) -> Vec<u32> {
        engine.tree.iter().filter(|group| group.live.is_awake()).map(|group| group.id.0).collect()
    }

    #[test]
    fn groups_without_clients_keep_no_live_part() {
        let mut engine = engine();
        assert_eq!(awake(&engine), [], "defined");
        for parent in [None, Some(GroupId(2))] {
            let moved = GroupSpec { parent, ..GroupSpec::capped(Rate::whole(50)) };
            engine.put_group(Time(0), CHILD, moved).unwrap();
        }
        assert_eq!(awake(&engine), [], "moved");
    }

    #[test]
    fn the_live_parts_go_with_the_last_client_however_it_leaves() {
        let asks = Ask { demand: Rate::whole(10), backlog: Ru::whole(5), ..Ask::default() };
        let gives_up = Ask { acked_seq: 1, ..Ask::default() };
        let leaves: [(&str, Leave); 3] = [
            ("it gives up", |engine, ask| assert!(engine.renew(Time(1), A, CHILD, 2, &ask, None).is_some())),
            ("it says goodbye", |engine, _| engine.release(Time(1), A)),
            ("its lease ends", |engine, _| engine.expire(Time(60_000_000))),
        ];
        for (how, leave) in leaves {
            let mut engine = engine();
            engine.renew(Time(0), A, CHILD, 1, &asks, None).unwrap();
            assert_eq!(awake(&engine), [0, 2, 3]);
            leave(&mut engine, gives_up);
            assert_eq!(awake(&engine), [], "{how}");
        }
    }
}
