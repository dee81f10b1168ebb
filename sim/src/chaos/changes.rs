//! Drawing definitions that come, change and go while leases are out. Every kind has a stream of random numbers of its
//! own.

use tidegate_core::group::{Fallback, GroupId, GroupSpec, Priority};
use tidegate_core::units::{Rate, Ru, Span, Time};

use super::draw::draw_policy;
use super::{Action, Change, Plan};
use crate::disk::Death;
use crate::random::Random;

/// The wall clock at the end of the first window of a quota: far enough from midnight to be set back.
const WALL: Span = Span::secs(600);

impl Plan {
    /// Adds changes to a plan whose faults and loads are drawn.
    pub(super) fn draw_changes(&mut self, seed: u64) {
        self.draw_births(&mut Random::new(seed, 17));
        self.draw_returns(&mut Random::new(seed, 18));
        self.draw_alterations(&mut Random::new(seed, 19));
        self.draw_lowered(&mut Random::new(seed, 25));
        self.draw_shadows(&mut Random::new(seed, 31));
        self.draw_quotas(&mut Random::new(seed, 32));
    }

    /// In some runs, a quota that lasts for some seconds of the group's rate, whose window ends in the run, while its
    /// amount changes, or the wall clock is set. It is set back once at most, by no more than a window: twice would reset
    /// the quota of a minute that has been before.
    fn draw_quotas(&mut self, random: &mut Random) {
        if !random.one_in(6) {
            return;
        }
        let index = random.below(self.groups.len());
        let Some((id, spec)) = self.groups.get_mut(index) else { return };
        let (id, rate) = (*id, spec.rate.unwrap_or_default());
        let lasts = |random: &mut Random| rate.over(Span::millis(random.between(500, 12_000))).max(Ru(1));
        spec.quota = Some(lasts(random).max(spec.burst.unwrap_or_default()));
        self.wall = Span(WALL.0 - random.between(1_000_000, self.calm_at.0 + 5_000_000));
        for _ in 0..if random.one_in(3) { random.between(1, 3) } else { 0 } {
            let (at, amount) = (Time(random.between(200_000, self.calm_at.0)), lasts(random));
            self.actions.push((at, Action::Alter(id, Change::Quota(Some(amount)))));
        }
        if random.one_in(3) {
            let (at, span) = (random.between(200_000, self.calm_at.0), random.between(1_000, 120_000));
            self.actions.push((Time(at), Action::SetClock(true, Span::millis(span))));
        }
        if random.one_in(3) {
            let (at, span) = (random.between(200_000, self.calm_at.0), random.between(1_000, 60_000));
            self.actions.push((Time(at), Action::SetClock(false, Span::millis(span))));
        }
        if random.one_in(2) {
            // A controller that dies about when a window ends.
            let end = WALL.0 - self.wall.0;
            let at = Time(end.saturating_sub(1_000 * random.between(0, 1_500)).max(200_000));
            let down = Span::millis(random.between(1, 3_000));
            let death = if random.one_in(2) { Death::Killed } else { Death::PowerCut };
            self.actions.push((at, Action::Crash(down, death)));
        }
    }

    /// In some runs, limits in shadow from the beginning, and others that are put in shadow or enforced in the middle.
    fn draw_shadows(&mut self, random: &mut Random) {
        if !random.one_in(8) {
            return;
        }
        for (_, spec) in &mut self.groups {
            spec.shadow = random.one_in(3);
        }
        for _ in 0..random.between(1, 4) {
            let (id, at) = (self.pick(random), Time(random.between(200_000, self.calm_at.0)));
            self.actions.push((at, Action::Alter(id, Change::Shadow(random.one_in(2)))));
        }
    }

    /// Groups that are created in the middle, on top or under another, with loads that wait for them.
    fn draw_births(&mut self, random: &mut Random) {
        if !random.one_in(3) {
            return;
        }
        for _ in 0..random.between(1, 2) {
            let next = self.ids().into_iter().max().map_or(2, |GroupId(last)| last + 1);
            let (id, at) = (GroupId(next), Time(random.between(200_000, self.calm_at.0)));
            let parent = random.one_in(2).then(|| self.pick(random));
            let spec = drawn(random, parent);
            let mut loads =
                super::draw::draw_loads(random, self.drifts.len(), &[(id, spec.clone())], self.calm_at);
            loads.truncate(2);
            let first = self.loads.len();
            for (index, load) in loads.iter_mut().enumerate() {
                load.label = format!("load-{}", first + index);
            }
            self.loads.append(&mut loads);
            self.actions.push((at, Action::Create(id, spec)));
            if random.one_in(3) {
                let at = at.after(Span::millis(random.between(1, 4_000)));
                self.actions.push((at, Action::Move(id, random.one_in(2).then(|| self.pick(random)))));
            }
        }
    }

    /// Groups that are removed and created again under their name, at once or after a while.
    fn draw_returns(&mut self, random: &mut Random) {
        if !random.one_in(3) {
            return;
        }
        for _ in 0..random.between(1, 2) {
            let (id, at) = (self.pick(random), Time(random.between(200_000, self.calm_at.0)));
            let most = if random.one_in(2) { 100 } else { 5_000 };
            let again = at.after(Span::millis(random.between(1, most)));
            let known = self.groups.iter().find(|(known, _)| *known == id).map(|(_, spec)| spec.clone());
            let spec = match known.filter(|_| random.one_in(2)) {
                Some(spec) => spec,
                None => drawn(random, None),
            };
            self.actions.push((at, Action::Remove(id)));
            self.actions.push((again, Action::Create(id, spec)));
        }
    }

    /// Changes of what is neither rate nor parent.
    fn draw_alterations(&mut self, random: &mut Random) {
        if !random.one_in(3) {
            return;
        }
        for _ in 0..random.between(1, 4) {
            let at = Time(random.between(200_000, self.calm_at.0));
            let id = self.pick(random);
            let change = match random.below(7) {
                6 => Change::FallbackTotal(
                    random.one_in(2).then(|| Rate::whole(whole(random.between(1, 500)))),
                ),
                0 => Change::Weight(u32::try_from(random.between(1, 100)).unwrap_or(1)),
                1 => Change::Priority(if random.one_in(2) { Priority::High } else { Priority::Low }),
                2 => Change::Ttl(Span::millis(random.between(500, 4_000))),
                3 if random.one_in(3) => Change::Fallback(Fallback::Stop),
                3 => Change::Fallback(Fallback::Rate(Rate::whole(whole(random.between(1, 200))))),
                4 => Change::MaxDebt(Ru::whole(whole(random.between(0, 5_000)))),
                _ => Change::Depth(random.one_in(4).then(|| Ru::whole(whole(random.between(1, 3_000))))),
            };
            self.actions.push((at, Action::Alter(id, change)));
        }
    }

    /// A limit that is lowered, after which nodes fall silent one by one, each with the lease it has by then. In half of
    /// the cases some of the nodes do not hear of the change: what is on its way to them then is lost.
    fn draw_lowered(&mut self, random: &mut Random) {
        if !random.one_in(4) {
            return;
        }
        let (id, at) = (self.pick(random), Time(random.between(1_000_000, self.calm_at.0)));
        let known = self.groups.iter().find(|(known, _)| *known == id);
        let Some((rate, ttl)) = known.and_then(|(_, spec)| Some((spec.rate?, spec.ttl))) else { return };
        let lowered = rate.scale(whole(random.between(20, 80)), 100).max(Rate(1));
        self.actions.push((at, Action::Rate(id, lowered)));
        let unheard = random.one_in(2);
        for node in 0..self.drifts.len() {
            if unheard && random.one_in(2) {
                let from = Time(at.0 - 1_000 * random.between(0, 50));
                self.actions.push((from, Action::Cut(node, 1, Span::millis(random.between(60, 400)))));
            }
            if random.one_in(2) {
                let at = at.after(Span(random.between(0, ttl.0)));
                let silent = Span::millis(random.between(1_000, 6_000));
                let directions = if random.one_in(2) { 0..1 } else { 0..2 };
                self.actions.extend(directions.map(|direction| (at, Action::Cut(node, direction, silent))));
            }
        }
    }

    /// A group that is there from the beginning or created.
    pub(super) fn pick(&self, random: &mut Random) -> GroupId {
        let ids = self.ids();
        ids.get(random.below(ids.len())).copied().unwrap_or(GroupId(2))
    }

    /// All groups, those that are created included.
    fn ids(&self) -> Vec<GroupId> {
        let created = self.actions.iter().filter_map(|(_, action)| match action {
            Action::Create(id, _) => Some(*id),
            _ => None,
        });
        self.groups.iter().map(|(id, _)| *id).chain(created).collect()
    }
}

/// A definition like those of the beginning.
fn drawn(random: &mut Random, parent: Option<GroupId>) -> GroupSpec {
    let rate = Rate::whole(whole(random.between(5, 3_000)));
    let burst = random.one_in(4).then(|| rate.over(Span::millis(random.between(50, 3_000))).max(Ru(1)));
    let ttl = Span::millis(random.between(500, 3_000));
    GroupSpec { parent, burst, ttl, policy: draw_policy(random), ..GroupSpec::capped(rate) }
}

fn whole(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(1)
}
