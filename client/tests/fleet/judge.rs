//! The promises, held against the log: the bound, the ledger, and rates that are used.

use std::collections::BTreeSet;

use tidegate_client::{Rate, Ru, Span};
use tidegate_core::bound::{Bound, tick};
use tidegate_core::units::Time;

use crate::plan::GroupPlan;
use crate::world::{World, micros};

/// A group with work always waiting uses so much of its rate, in hundredths.
const USED: i64 = 90;

/// What may be in force for a group, as steps in time: a rate counts until the last lease under it has ended.
pub(crate) struct Cap {
    lease_us: u64,
    /// Rates with the times from and to which they may be in force.
    rates: Vec<(u64, u64, Rate)>,
}

impl Cap {
    pub(crate) fn new(group: &GroupPlan) -> Self {
        let lease_us = micros(group.ttl);
        Self { lease_us, rates: vec![(0, u64::MAX, Rate::whole(i64::from(group.rate)))] }
    }

    /// The group got another rate.
    pub(crate) fn alter(&mut self, rate: u32, now: u64) {
        // The controller counts a lease longer by how much clocks may drift.
        let end = now + self.lease_us + self.lease_us / 100;
        self.rates.iter_mut().for_each(|(_, to, _)| *to = end.min(*to));
        self.rates.push((now, u64::MAX, Rate::whole(i64::from(rate))));
    }

    fn at(&self, now: u64) -> Rate {
        let rates = self.rates.iter().filter(|(from, to, _)| (*from..*to).contains(&now));
        rates.map(|(_, _, rate)| *rate).max().unwrap()
    }

    fn now(&self) -> Rate {
        self.rates.last().unwrap().2
    }

    /// The worst excess of these movements over the rates.
    fn worst(&self, movements: &[(u64, Ru)]) -> Ru {
        let mut bound = Bound::new(Time(0), self.at(0));
        let changes: BTreeSet<u64> = self.rates.iter().flat_map(|(from, to, _)| [*from, *to]).collect();
        let mut changes = changes.into_iter().peekable();
        for (at, ru) in movements {
            while let Some(change) = changes.next_if(|change| change <= at) {
                bound.set_rate(Time(change), self.at(change));
            }
            bound.admit(Time(*at), *ru);
        }
        bound.worst()
    }
}

/// The group itself and those below it.
fn counted<'a>(world: &'a World<'_>, group: &'a GroupPlan) -> impl Iterator<Item = &'a GroupPlan> {
    let below = |other: &&GroupPlan| other.name == group.name || other.parent.as_ref() == Some(&group.name);
    world.plan.groups.iter().filter(below)
}

/// No window admits more than the rate, the burst and what nodes owed at most.
pub(crate) fn bounds(world: &World<'_>) -> Vec<String> {
    let records = world.log.records();
    let mut found = Vec::new();
    for (group, cap) in world.plan.groups.iter().zip(&world.caps) {
        let names: BTreeSet<&str> = counted(world, group).map(|group| group.name.as_str()).collect();
        let of = |name: &&str| records.movements.get(*name).into_iter().flatten().copied();
        let mut movements: Vec<(u64, Ru)> = names.iter().flat_map(of).collect();
        movements.sort_by_key(|(at, _)| *at);
        let accounts = records.lives.values().flat_map(|life| &life.groups);
        let owed: Ru = accounts
            .filter(|(name, _)| names.contains(name.as_str()))
            .map(|(_, account)| account.worst_debt)
            .sum();
        let fastest = cap.rates.iter().map(|(_, _, rate)| *rate).max().unwrap();
        let allowed = Ru::whole(i64::from(group.burst)) + owed + tick(fastest);
        let worst = cap.worst(&movements);
        if worst > allowed {
            found.push(format!("{}: {worst} above rate x window, but only {allowed} may be", group.name));
        }
    }
    found
}

/// Every RU that was charged is in the ledger once.
pub(crate) fn ledger(world: &World<'_>) -> Vec<String> {
    let service = world.center.service().unwrap();
    service.upkeep().flush().unwrap();
    let records = world.log.records();
    let mut found = Vec::new();
    for group in &world.plan.groups {
        let (rows, _) = service.accounts().usage(&group.name, false).unwrap();
        let ledger =
            rows.iter().find(|row| row.client.is_none()).map_or(Ru::ZERO, |row| row.total.ru().clamped());
        let of = |may_lose: bool| -> Ru {
            let lives = records.lives.values().filter(|life| life.may_lose == may_lose);
            lives.filter_map(|life| life.groups.get(&group.name)).map(|account| account.charged).sum()
        };
        let (sure, lossy) = (of(false), of(true));
        if ledger < sure || ledger > sure + lossy {
            found.push(format!("{}: the ledger has {ledger}, nodes charged {sure} and {lossy}", group.name));
        }
    }
    found
}

/// What each group admitted until now, in microseconds since the beginning.
pub(crate) fn admitted(world: &World<'_>) -> (u64, Vec<Ru>) {
    let records = world.log.records();
    let of =
        |group: &GroupPlan| records.movements.get(&group.name).into_iter().flatten().map(|(_, ru)| *ru).sum();
    (world.log.now(), world.plan.groups.iter().map(of).collect())
}

/// A group with work always waiting uses its rate once everything has recovered.
pub(crate) fn use_of_rates(world: &World<'_>, (from, before): &(u64, Vec<Ru>)) -> Vec<String> {
    let (to, after) = admitted(world);
    let mut found = Vec::new();
    for (place, group) in world.plan.groups.iter().enumerate() {
        // Those below another share its rate, and those with pauses may not ask for theirs.
        if group.workers == 0 || group.parent.is_some() || group.workers * world.nodes.len() < 4 {
            continue;
        }
        let used = after[place] - before[place];
        let all = world.caps[place].now().over(Span(to - from));
        // One operation more may be under way.
        if used + Ru::whole(i64::from(group.largest)) < Ru(all.0 / 100 * USED) {
            found.push(format!("{}: {used} of {all} were used in calm", group.name));
        }
    }
    found
}
