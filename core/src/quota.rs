//! The quota of a group: RU, or requests, that all nodes together may use within a window of the calendar.
//!
//! Nodes lease shares of what is left. A share is a ceiling: the node's use within the window, operations under way at
//! their estimates, stays below it. All ceilings that were ever given in a window add up to at most the quota, so that
//! nothing that a node does, or that happens to it, uses more; what operations cost beyond their estimates is added when
//! it is reported, and leaves less for others. A request counts when it begins, and shares are whole requests. A share
//! that a node did not use comes back with its renewal. If the node is gone, its share is lost for the rest of the
//! window, unless it returns. So shares shrink with what is left: half of it stays with the controller, and who leaves
//! takes little along.
//!
//! The caller opens windows, by the calendar, and keeps a mark on disk up to which shares are given: what an unclean
//! stop may have lost is counted as used.
//!
//! A quota that rolls has one window, which does not end. What is charged in it leaves it later, see `cells`; what
//! nodes hold, operations under way at their estimates, counts until it is charged, given back or lost. What is lost of
//! it never comes back before it leaves: the loss of a node may have left when the node returns, and what it brought
//! back would be that of another.

mod carried;
mod cells;
mod rolling;

use carried::Carried;
pub(crate) use cells::Cells;
pub use cells::{CELLS, cell};

use crate::engine::Engine;
use crate::exchange::{Allowance, Ask, Spending};
use crate::group::{GroupId, GroupSpec};
use crate::index::Slot;
use crate::lease::Lease;
use crate::tree::{Chain, Tree};
use crate::units::{Rate, Ru, Span, Time};

/// Percent of a quota of RU from which on it is spent: the last of it is less than an operation costs, and is never used.
/// With 98, groups with small operations count as spent that go on for a while.
pub const SPENT_PERCENT: u32 = 99;

/// What a quota counts. Its amounts are in this unit, to millionths: a request is [`Unit::REQUEST`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Unit {
    /// What operations cost.
    #[default]
    Ru,
    /// Operations that were admitted, whatever they cost.
    Requests,
}

impl Unit {
    /// One request.
    pub const REQUEST: Ru = Ru::whole(1);

    /// Its word, behind an amount.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ru => "RU",
            Self::Requests => "requests",
        }
    }

    /// What an operation of this cost uses when it begins.
    #[inline]
    pub(crate) fn of(self, cost: Ru) -> Ru {
        match self {
            Self::Ru => cost,
            Self::Requests => Self::REQUEST,
        }
    }

    /// The part of an amount that operations can use.
    fn usable(self, amount: Ru) -> Ru {
        match self {
            Self::Ru => amount,
            Self::Requests => Ru(amount.0 - amount.0.rem_euclid(Self::REQUEST.0)),
        }
    }

    /// Whether a quota of which so much is used or lost is spent. The last request can be used.
    pub fn is_spent(self, taken: Ru, amount: Ru) -> bool {
        match self {
            Self::Ru => reaches(taken, amount, SPENT_PERCENT),
            Self::Requests => amount - taken < Self::REQUEST,
        }
    }
}

/// Whether what was used is so many percent of a quota, or more.
pub fn reaches(used: Ru, amount: Ru, percent: u32) -> bool {
    i128::from(used.0) * 100 >= i128::from(amount.0) * i128::from(percent)
}

/// One node's share of a quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Share {
    /// The window in which it counts; none other has this number.
    window: u64,
    /// As reported.
    used: Ru,
    /// The most that the node may use, by the newest grant or by the one before, until it acknowledges.
    ceiling: Ru,
    /// Requests that the node has to begin until its next renewal.
    wanted: Ru,
    /// The part of what was used that is in a cell; nothing of it where windows are fixed.
    charged: Ru,
}

impl Share {
    /// Used, as reported.
    pub(crate) fn used(&self) -> Ru {
        self.used
    }

    /// Whether the node has some of it to use.
    pub(crate) fn is_kept(&self) -> bool {
        self.unused().is_positive()
    }

    fn unused(&self) -> Ru {
        (self.ceiling - self.used).or_zero()
    }

    /// What of it counts outside of cells.
    fn held(&self) -> i128 {
        wide(self.ceiling) - wide(self.charged)
    }
}

/// What a node can use until the answer to its next renewal.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Need {
    /// By its lease.
    pub most: Ru,
    /// By its load.
    pub load: Ru,
    /// What the operation that waits uses, if one does: less than that would be of no use.
    pub head: Ru,
}

/// While an equal part of what is left is this many times what a node's lease lets it use until its next renewal, nodes
/// have shares for all of that, and a load that begins waits for none. With less, idle nodes would keep from others
/// what a busy window needs at its end.
const PLENTY: i64 = 4;

/// The number of a window of a group: the group is in it, so that no two groups have the same. `count` is 1 or more, and
/// is never used again in the group.
pub fn window_number(group: GroupId, count: u32) -> u64 {
    u64::from(group.0) << 32 | u64::from(count)
}

fn wide(amount: Ru) -> i128 {
    amount.0.into()
}

/// The nearest amount from zero to the largest.
fn narrow(micro_ru: i128) -> Ru {
    Ru(i64::try_from(micro_ru.clamp(0, wide(Ru::MAX))).unwrap_or_default())
}

/// The group that a window belongs to.
fn group_of(window: u64) -> GroupId {
    GroupId(u32::try_from(window >> 32).unwrap_or_default())
}

/// A window as its caller opens it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opening {
    /// Its number, of [`window_number`].
    pub number: u64,
    /// Its end.
    pub ends: Time,
    /// Its length by the calendar, for callers of nodes; zero: unknown.
    pub length: Span,
    /// What was used in it or may have been: more than nothing when a controller goes on with it after a restart.
    pub granted: Ru,
    /// The part of that which nodes may still bring back.
    pub lost: Ru,
    /// Shares may be given up to this: it is on disk.
    pub durable: Ru,
    /// It rolls: `ends` is of no meaning, and what was granted, lost or not, is charged now.
    pub rolls: bool,
    /// It rolls, and nodes may use what is lost until then: it is charged at that time.
    pub lost_until: Time,
}

/// The quota of a group in its present window.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Quota {
    window: u64,
    /// What is counted in it.
    unit: Unit,
    ends: Time,
    length: Span,
    /// The latest end that a node was given.
    told: Time,
    /// All ceilings that were given, less what came back, and what was used beyond them. In micro-RU like the two after
    /// it, of 128 bits, so that no number of nodes can claim more than there is room for.
    granted: i128,
    /// The part of it that nodes with a lease hold and have not used, as far as they have reported.
    unused: i128,
    /// The part that nodes which are gone held and had not reported as used.
    lost: i128,
    durable: Ru,
    /// Nodes with a share.
    sharers: u64,
    /// What they want, if requests are counted.
    wanted: i128,
    /// What is charged to a quota that rolls, and is part of what is granted.
    cells: Option<Cells>,
    /// What nodes may use by shares of windows before it, and until when.
    carried: Carried,
}

/// A group's quota, for display and for the caller's marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaView {
    /// The number of the window.
    pub window: u64,
    /// What is counted.
    pub unit: Unit,
    /// For all nodes within the window.
    pub amount: Ru,
    /// Used, as reported.
    pub used: Ru,
    /// Nodes may use it and have not reported it as used.
    pub unused: Ru,
    /// Nodes which are gone may have used it.
    pub lost: Ru,
    /// All of these: what may be used by what was granted so far.
    pub granted: Ru,
    /// Neither used nor lost.
    pub left: Ru,
    /// Shares are given up to this.
    pub durable: Ru,
    /// The rate at which RU can be used at most.
    pub rate: Rate,
    /// Requests that nodes have to begin until their next renewals.
    pub wanted: Ru,
    /// Time to the next window; where it rolls, until something leaves it.
    pub resets_in: Span,
    /// It rolls.
    pub rolls: bool,
    /// What leaves a window that rolls before the next marks are on disk.
    pub returns: Ru,
    /// In micro-RU, all that ever left a window that rolls. The mark of a view is above what was granted by then, so that
    /// it is lower when more has left.
    pub gone: i128,
}

/// The time for which a mark lasts at the group's full rate: four times what a controller takes to store the next.
const AHEAD: Span = Span::secs(2);
/// The part of what is left that a mark runs ahead of what was granted, at most. With an eighth, the last hundredth of a
/// busy window takes a dozen seconds, a commit after the other; with all of it, an unclean stop ends the window.
const AHEAD_OF_LEFT: i64 = 2;
/// The least part of the quota that a mark runs ahead, so that the end of a window takes few of them.
const AHEAD_OF_ALL: i64 = 1_024;
/// The same for requests, which no rate bounds: what may begin at once when nobody did before. With a quarter of it, most
/// bursts wait for a commit; with four times as much, an unclean stop takes a part that people notice.
const AHEAD_OF_REQUESTS: i64 = 64;

impl QuotaView {
    /// The mark on disk with which a window of this quota begins.
    pub fn first_mark(unit: Unit, amount: Ru, rate: Rate) -> Ru {
        Self { unit, amount, rate, ..Self::default() }.mark().unwrap_or_default()
    }

    /// The mark to store now: what an unclean stop counts as used. `None`: the one on disk will do.
    pub fn mark(&self) -> Option<Ru> {
        let left = (self.amount - self.granted + self.returns).or_zero();
        let (most, least) = match self.unit {
            Unit::Ru => (self.rate.over(AHEAD), AHEAD_OF_ALL),
            Unit::Requests => (self.wanted, AHEAD_OF_REQUESTS),
        };
        let ahead = left.scale(1, AHEAD_OF_LEFT).min(most);
        let ahead = ahead.max(self.amount.scale(1, least)).max(self.unit.of(Ru(1))).min(left);
        let mark = self.unit.usable(self.granted + ahead);
        (self.durable < mark && self.durable - self.granted <= ahead.scale(1, 2)).then_some(mark)
    }
}

impl Quota {
    fn open(now: Time, unit: Unit, opening: &Opening) -> Self {
        let Opening { number: window, ends, length, granted, lost, durable, rolls, lost_until } = *opening;
        let (granted, lost) = (wide(granted), wide(lost.or_zero().min(granted)));
        let until = if rolls { lost_until } else { lost_until.min(ends) };
        let carried = Carried { until, held: if until > now { lost } else { 0 } };
        let mut cells = rolls.then(|| Cells::new(length));
        if let Some(cells) = &mut cells {
            cells.charge(now, granted - lost, 0);
            cells.lose(now, lost_until, lost);
        }
        Self {
            window,
            unit,
            ends,
            length,
            told: Time(0),
            granted,
            unused: 0,
            lost,
            durable,
            sharers: 0,
            wanted: 0,
            cells,
            carried,
        }
    }

    /// Lets go what leaves a window that rolls.
    fn pass(&mut self, now: Time) {
        let Some(cells) = &mut self.cells else { return };
        let (left, lost) = cells.pass(now);
        self.granted -= left;
        self.lost -= lost;
        self.durable = Ru(i64::try_from(wide(self.durable) - left).unwrap_or_default());
    }

    /// The same quota at a moment.
    fn at(&self, now: Time) -> Self {
        let mut quota = self.clone();
        quota.pass(now);
        quota
    }

    /// Takes in what a node says of its share, before it is answered.
    fn hear(&mut self, now: Time, share: Share, applied: bool, told: &Spending) -> Share {
        let (used, ceiling) = (told.used.or_zero().min(Ru::MAX), told.ceiling.or_zero().min(Ru::MAX));
        let unused = (ceiling - used).or_zero();
        let fresh = Share { window: self.window, ..Share::default() };
        match (share.window == self.window, told.window == self.window) {
            (true, true) => {
                let ceiling = (used + unused).min(share.ceiling).max(used);
                let charged = self.charge(now, share.charged, used, told.running);
                self.change(share, Share { used, ceiling, charged, ..share })
            }
            // The newest grant, with the node's first share of this window, was not applied and never will be.
            (true, false) if !applied => self.change(share, fresh),
            // The node began to count again.
            (true, false) => {
                self.lose(now, share);
                self.sharers += 1;
                fresh
            }
            // It had a share in this window and lost its lease, or the controller was started again.
            (false, true) => {
                self.sharers += 1;
                if self.cells.is_some() {
                    // What it used was charged, or counted as lost. What still runs is charged when it ends.
                    let charged = (used - told.running.or_zero()).or_zero();
                    return self.change(fresh, Share { used, ceiling: used, charged, ..fresh });
                }
                let back = unused.min(narrow(self.lost));
                self.lost -= wide(back);
                self.unused += wide(back);
                Share { used, ceiling: used + back, ..fresh }
            }
            (false, false) => {
                self.sharers += 1;
                fresh
            }
        }
    }

    /// Charges to a window that rolls what ended of a node's operations. It cannot have ended later than it is heard of.
    /// Returns what of its use is charged by now.
    fn charge(&mut self, now: Time, before: Ru, used: Ru, running: Ru) -> Ru {
        let Some(cells) = &mut self.cells else { return Ru::ZERO };
        let charged = (used - running.or_zero()).max(before).min(used);
        let more = (wide(charged) - wide(before)).max(0);
        cells.charge(now, more, 0);
        self.granted += more;
        charged
    }

    fn change(&mut self, before: Share, after: Share) -> Share {
        self.granted += after.held() - before.held();
        self.unused += wide(after.unused()) - wide(before.unused());
        self.wanted += wide(after.wanted) - wide(before.wanted);
        after
    }

    /// A node with a share is gone.
    fn lose(&mut self, now: Time, share: Share) {
        self.unused -= wide(share.unused());
        self.wanted -= wide(share.wanted);
        self.sharers -= 1;
        match &mut self.cells {
            None => self.lost += wide(share.unused()),
            Some(cells) => {
                cells.charge(now, 0, share.held());
                self.lost += share.held();
            }
        }
    }

    /// Gives a node its share of what is left; returns the ceiling of the grant.
    fn give(&mut self, amount: Ru, share: Share, need: Need) -> (Share, Ru) {
        let free = narrow(wide(amount.min(self.durable)) - self.granted + wide(share.unused()));
        let sharers = i64::try_from(self.sharers).unwrap_or(i64::MAX - 1);
        // With as much again for each and the controller, all that keep theirs leave half of it to those who ask.
        let part = free.scale(1, sharers.saturating_add(1));
        let wanted = if part.scale(1, PLENTY) >= need.most { need.most } else { need.load };
        // A part that does not cover the operation that waits would be kept from those whose operations it covers.
        let part = if need.head > free { Ru::ZERO } else { wanted.min(part.max(need.head)) };
        let part = self.unit.usable(part);
        let ceiling = share.used + part;
        debug_assert!(part <= free && part >= Ru::ZERO, "{part} of {free}");
        let wanted = if self.unit == Unit::Requests { need.load } else { Ru::ZERO };
        (self.change(share, Share { ceiling: share.ceiling.max(ceiling), wanted, ..share }), ceiling)
    }

    /// What nobody has used for certain, and no node that is gone may have used.
    fn left(&self, amount: Ru) -> Ru {
        narrow(wide(amount) - self.granted + self.unused)
    }

    /// Time to the end of the window; where it rolls, until something leaves it.
    fn resets_in(&self, now: Time) -> Span {
        self.cells.as_ref().map_or(self.ends, |cells| cells.next_leaves(now)).since(now)
    }

    fn terms(&self, amount: Ru, now: Time, ceiling: Ru) -> Allowance {
        let Self { window, unit, length, .. } = *self;
        let (left, resets_in, rolls) = (self.left(amount), self.resets_in(now), self.cells.is_some());
        Allowance { window, unit, ceiling: ceiling.min(Ru::MAX), amount, left, resets_in, length, rolls }
    }

    fn view(&self, spec: &GroupSpec, now: Time) -> QuotaView {
        let (amount, rate) = (spec.quota.unwrap_or_default(), spec.limit().unwrap_or(Rate::MAX));
        let cells = self.cells.as_ref();
        QuotaView {
            window: self.window,
            unit: self.unit,
            amount,
            used: narrow(self.granted - self.unused - self.lost),
            unused: narrow(self.unused),
            lost: narrow(self.lost),
            granted: narrow(self.granted),
            left: self.left(amount),
            durable: self.durable,
            rate,
            wanted: narrow(self.wanted),
            resets_in: self.resets_in(now),
            rolls: cells.is_some(),
            returns: cells.map_or(Ru::ZERO, |cells| narrow(cells.leaving(now.after(AHEAD)))),
            gone: cells.map_or(0, Cells::gone),
        }
    }

    /// Whether the sums are those of these shares.
    pub(crate) fn is_of(&self, shares: impl Iterator<Item = Share>) -> bool {
        let (mut unused, mut sharers, mut wanted, mut held) = (0, 0, 0, 0);
        for share in shares.filter(|share| share.window == self.window) {
            unused += wide(share.unused());
            sharers += 1;
            wanted += wide(share.wanted);
            held += share.held();
        }
        let all = self.cells.as_ref().is_none_or(|cells| cells.sums() == (self.granted - held, self.lost));
        all && (unused, sharers, wanted) == (self.unused, self.sharers, self.wanted) && self.lost >= 0
    }
}

impl Tree {
    /// The level of a chain with a quota whose window is open.
    fn quota_level(&self, chain: &Chain) -> Option<Slot> {
        chain.quota().filter(|slot| self.at(*slot).quota.is_some())
    }

    /// The quota that a share counts in, while its window is open.
    fn quota_of(&mut self, share: Share) -> Option<&mut Quota> {
        let group = self.get_mut(group_of(share.window))?;
        group.quota.as_deref_mut().filter(|quota| quota.window == share.window)
    }

    /// The node of a lease is gone, or counts elsewhere from now on.
    pub(crate) fn lose_share(&mut self, now: Time, lease: &mut Lease) {
        if lease.share.window == 0 {
            return;
        }
        let share = std::mem::take(&mut lease.share);
        if let Some(quota) = self.quota_of(share) {
            quota.lose(now, share);
        }
    }

    /// What the quota of a chain counts, in its present window if one is open; `None` without a quota.
    pub(crate) fn quota_unit(&self, chain: &Chain) -> Option<Unit> {
        let group = self.at(chain.quota()?);
        Some(group.quota.as_deref().map_or(group.spec.quota_unit, |quota| quota.unit))
    }

    /// Takes in what a node says of its share, before anything else that it says.
    pub(crate) fn hear_share(&mut self, now: Time, chain: &Chain, lease: &mut Lease, ask: &Ask) {
        let level = self.quota_level(chain);
        let window = level.and_then(|slot| Some(self.at(slot).quota.as_ref()?.window));
        if window != Some(lease.share.window) {
            self.lose_share(now, lease);
        }
        if let Some(quota) = level.and_then(|slot| self.at_mut(slot).quota.as_deref_mut()) {
            let applied = lease.seq() > 0 && ask.acked_seq == lease.seq();
            quota.pass(now);
            lease.share = quota.hear(now, lease.share, applied, &ask.spending);
        }
    }

    /// Gives a node its share; what the node is to know of it.
    pub(crate) fn give_share(
        &mut self,
        chain: &Chain,
        now: Time,
        lease: &mut Lease,
        need: Need,
    ) -> Option<Allowance> {
        let slot = self.quota_level(chain)?;
        let group = self.at_mut(slot);
        let (amount, quota) = (group.spec.quota?, group.quota.as_deref_mut()?);
        let ceiling;
        (lease.share, ceiling) = quota.give(amount, lease.share, need);
        // A share of a window that rolls ends with its lease, or later where the clock of its node is slow.
        quota.told = if quota.cells.is_some() { Time(u64::MAX) } else { quota.told.max(quota.ends) };
        Some(quota.terms(amount, now, ceiling))
    }

    /// What a node that has nothing more to use is to know of the quota.
    pub(crate) fn spent_share(&self, chain: &Chain, now: Time, told: &Spending) -> Option<Allowance> {
        let group = self.at(self.quota_level(chain)?);
        let (amount, quota) = (group.spec.quota?, group.quota.as_deref()?);
        let used = if told.window == quota.window { told.used.or_zero().min(Ru::MAX) } else { Ru::ZERO };
        Some(quota.terms(amount, now, used))
    }
}

impl Engine {
    /// Forgets the window of a group that has no quota any more.
    pub fn close_quota(&mut self, group: GroupId) {
        if let Some(group) = self.tree.get_mut(group) {
            group.quota = None;
        }
        self.assert_invariants();
    }

    /// Moves the end of a group's window: the clock of the calendar was set.
    pub fn move_quota_end(&mut self, group: GroupId, ends: Time) {
        if let Some(quota) = self.tree.get_mut(group).and_then(|group| group.quota.as_deref_mut()) {
            quota.ends = ends;
        }
    }

    /// Shares of the window `number` may be given up to `durable`, which is on disk, of a view in which so much was `gone`.
    pub fn quota_durable(&mut self, group: GroupId, number: u64, durable: Ru, gone: i128) {
        let quota = self.tree.get_mut(group).and_then(|group| group.quota.as_deref_mut());
        if let Some(quota) = quota.filter(|quota| quota.window == number) {
            let left = quota.cells.as_ref().map_or(0, Cells::gone) - gone;
            quota.durable = quota.durable.max(narrow(wide(durable) - left));
        }
    }

    /// What the quota counts that a group counts in; `None` without one.
    pub fn quota_unit(&self, group: GroupId) -> Option<Unit> {
        self.tree.quota_unit(&self.tree.chain(group)?)
    }

    /// A group's quota in its present window; `None` when it has none, or no window was opened yet.
    pub fn quota_view(&self, group: GroupId, now: Time) -> Option<QuotaView> {
        let group = self.tree.get(group)?;
        Some(group.quota.as_deref()?.at(now).view(&group.spec, now))
    }
}
