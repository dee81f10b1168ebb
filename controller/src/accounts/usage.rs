//! Reading: consumption, history, nodes, leases, status, audit log and the metrics page.
//!
//! Long reads copy under the lock and format outside of it. History and audit come from the store.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use tidegate_core::group::GroupId;
use tidegate_core::units::Rate;
use tidegate_core::usage::Total;
use tidegate_proto::v1;

use crate::accounts::AccountCalls;
use crate::accounts::history::Resolution;
use crate::accounts::recent::Seconds;
use crate::accounts::what_if::room_for_replay;
use crate::answers::{cut_rows, one_group};
use crate::error::{AdminError, InField};
use crate::limits::{MAX_HISTORY_POINTS, MAX_ROWS, PAST_MINUTES_KEPT_S, SECONDS_KEPT_S};
use crate::name::GroupName;
use crate::store::records::{consumption, pair_key};

/// Consumption of a group, or of one node in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageRow {
    /// The group.
    pub group: GroupName,
    /// The node and its incarnation; `None` is the whole group.
    pub client: Option<(String, u64)>,
    /// RU/s over the last seconds.
    pub live: Rate,
    /// Consumption since the group was created.
    pub total: Total,
    /// Claims since then that exceed what any process can have used: not in `total`.
    pub apart: Total,
}

impl AccountCalls<'_> {
    /// Consumption of one group, or of all that consumed anything; and whether rows are missing.
    pub fn usage(&self, group: &str, per_client: bool) -> Result<(Vec<UsageRow>, bool), AdminError> {
        let one = one_group(group)?;
        let now = self.service.clock().now();
        let state = self.service.lock();
        let mut rows = Vec::new();
        let none = BTreeSet::new();
        for (id, name) in
            state.definitions.chosen(self.sight, one.as_ref(), &state.accounts.charged, &none)?
        {
            if rows.len() > MAX_ROWS {
                break;
            }
            let (total, apart) = (state.accounts.ledger.total(id), state.accounts.ledger.apart(id));
            if one.is_none() && (total, apart) == Default::default() {
                continue;
            }
            let live = state.accounts.live(id, now);
            rows.push(UsageRow { group: name.clone(), client: None, live, total, apart });
            if per_client {
                let by_client = state.accounts.ledger.accounts(id).filter_map(|(client, total, apart)| {
                    let live = state
                        .accounts
                        .live_clients
                        .get(&(id, client))
                        .map_or(Rate::ZERO, |live| live.rate(now));
                    Some(UsageRow {
                        group: name.clone(),
                        client: Some(state.leasing.clients().identity(client)?),
                        live,
                        total,
                        apart,
                    })
                });
                rows.extend(by_client);
            }
        }
        let truncated = cut_rows(&mut rows);
        Ok((rows, truncated))
    }

    /// RU/s of each group over the last seconds, of those that used any.
    pub(crate) fn rates(&self) -> Vec<(GroupName, Rate)> {
        let now = self.service.clock().now();
        let state = self.service.lock();
        let used = state.accounts.rates(now);
        used.filter_map(|(id, rate)| Some((state.definitions.catalog().name(id)?.clone(), rate))).collect()
    }

    /// What a group consumed by the second, the minute or the hour, in `from_unix_s..to_unix_s`; a `to_unix_s` of 0 means
    /// now, and a `from_unix_s` of 0 as far back as is usual.
    pub fn usage_history(
        &self,
        group: &str,
        resolution: &str,
        from_unix_s: u64,
        to_unix_s: u64,
    ) -> Result<Vec<Point>, AdminError> {
        let (group, resolution) = (group.to_owned(), resolution.to_owned());
        let wish = v1::UsageHistoryRequest { group, resolution, from_unix_s, to_unix_s, below: false };
        Ok(self.history_of(&wish)?.0)
    }

    /// The same, with what groups below consumed if that is asked for; and of how many groups it is.
    ///
    /// # Errors
    /// A range or resolution that makes no answer, an unknown group, too many groups below, or as many replays at once
    /// as there may be.
    pub fn history_of(&self, wish: &v1::UsageHistoryRequest) -> Result<(Vec<Point>, usize), AdminError> {
        let name = GroupName::parse(&wish.group).in_field("group")?;
        let step = Step::parse(&wish.resolution)?;
        let range = self.range(step, wish.from_unix_s, wish.to_unix_s);
        let points = range.end.saturating_sub(range.start).div_ceil(step.seconds());
        if points > MAX_HISTORY_POINTS {
            return Err(AdminError::invalid(
                "from_unix_s",
                format!(
                    "{points} points are too many for an answer: at most {MAX_HISTORY_POINTS}; ask for parts"
                ),
            ));
        }
        if !wish.below {
            let id = self.service.lock().definitions.require(self.sight, &name)?;
            return Ok((self.points([id], step, &range)?, 1));
        }
        let groups = self.with_those_below(&name)?;
        let _room = room_for_replay(self.service)?;
        Ok((self.points(groups.iter().copied(), step, &range)?, groups.len()))
    }

    /// What a group and those below it that are seen consumed together by the minute since then; and of how many groups
    /// it is.
    pub(crate) fn minutes_of_all(
        &self,
        group: &str,
        from_unix_s: u64,
    ) -> Result<(Vec<Point>, usize), AdminError> {
        let name = GroupName::parse(group).in_field("group")?;
        let step = Step::Stored(Resolution::Minute);
        let (groups, range) = (self.with_those_below(&name)?, self.range(step, from_unix_s, 0));
        Ok((self.points(groups.iter().copied(), step, &range)?, groups.len()))
    }

    /// What is kept of a range of seconds.
    pub(super) fn range(&self, step: Step, from_unix_s: u64, to_unix_s: u64) -> Range<u64> {
        let end = (self.service.clock().unix_ms() / 1_000).saturating_add(1);
        let to = if to_unix_s == 0 { end } else { to_unix_s.min(end) };
        let back = |seconds: u64| end.saturating_sub(seconds.saturating_add(1));
        let from = if from_unix_s == 0 { back(step.usual_s()) } else { from_unix_s.max(back(step.kept_s())) };
        from..to.max(from)
    }

    /// Points of some groups together, which begin in a range.
    pub(super) fn points(
        &self,
        groups: impl IntoIterator<Item = GroupId>,
        step: Step,
        range: &Range<u64>,
    ) -> Result<Vec<Point>, AdminError> {
        // The answer includes what was counted a moment ago. If the disk fails, the flush counts and logs that, and the
        // answer is what is stored.
        let _ = self.service.upkeep().flush();
        let mut all = Vec::new();
        for group in groups {
            all = together(all, self.points_of(group, step, range)?);
        }
        Ok(all)
    }

    fn points_of(&self, id: GroupId, step: Step, range: &Range<u64>) -> Result<Vec<Point>, AdminError> {
        let resolution = match step {
            Step::Second => {
                let state = self.service.lock();
                let seconds = state.accounts.recent.of(id).filter(|at| range.contains(&at.start_unix_s));
                let point = |at: &Seconds| (at.start_unix_s, at.length_s, at.amount.total());
                return Ok(seconds.map(point).collect());
            }
            Step::Stored(resolution) => resolution,
        };
        let mut points = match resolution {
            Resolution::Hour => BTreeMap::new(),
            Resolution::Minute => {
                let hours = starts(Resolution::Hour, &(Resolution::Hour.start(range.start)..range.end));
                self.past_minutes(id, hours)?
            }
        };
        points.retain(|start, _| range.contains(start));
        // Those that are stored in full are not older than this, unless the controller stood still.
        let now = self.service.clock().unix_ms() / 1_000;
        let full = range.start.max(now.saturating_sub(resolution.kept_s()))..range.end;
        let starts: Vec<u64> = starts(resolution, &full).collect();
        let keys: Vec<_> = starts.iter().map(|start| pair_key(*start, id)).collect();
        let values = self.service.store().get(resolution.table(), &keys)?;
        for (start, value) in starts.into_iter().zip(values) {
            if let Some(value) = value {
                points.insert(start, consumption(resolution.table(), &value)?);
            }
        }
        Ok(points.into_iter().map(|(start, amount)| (start, resolution.seconds(), amount)).collect())
    }
}

/// When a part of the history begins, how many seconds it has, and what was consumed in it.
pub(crate) type Point = (u64, u64, Total);

/// Points of some groups and of one more, both in order of time. Seconds of two groups may overlap, and are one point then.
fn together(some: Vec<Point>, more: Vec<Point>) -> Vec<Point> {
    if some.is_empty() {
        return more;
    }
    let mut points: Vec<Point> = some.into_iter().chain(more).collect();
    points.sort_by_key(|(start, ..)| *start);
    let mut all: Vec<Point> = Vec::with_capacity(points.len());
    for (start, length, amount) in points {
        match all.last_mut() {
            Some((first, so_long, sum)) if start < first.saturating_add(*so_long) => {
                *so_long = start.saturating_add(length).saturating_sub(*first).max(*so_long);
                sum.add(&amount);
            }
            _ => all.push((start, length, amount)),
        }
    }
    all
}

/// When the buckets begin that begin in a range.
fn starts(resolution: Resolution, range: &Range<u64>) -> impl Iterator<Item = u64> + use<> {
    let step = usize::try_from(resolution.seconds()).unwrap_or(60);
    let from = range.start;
    (resolution.start(from)..range.end).step_by(step).filter(move |start| *start >= from)
}

/// Length of a point, as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// From memory.
    Second,
    Stored(Resolution),
}

impl Step {
    pub(super) fn parse(text: &str) -> Result<Self, AdminError> {
        match text {
            "second" => Ok(Self::Second),
            "" | "minute" => Ok(Self::Stored(Resolution::Minute)),
            "hour" => Ok(Self::Stored(Resolution::Hour)),
            _ => Err(AdminError::invalid("resolution", "write \"second\", \"minute\" or \"hour\"")),
        }
    }

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Stored(Resolution::Minute) => "minute",
            Self::Stored(Resolution::Hour) => "hour",
        }
    }

    pub(super) const fn seconds(self) -> u64 {
        match self {
            Self::Second => 1,
            Self::Stored(resolution) => resolution.seconds(),
        }
    }

    /// How far back answers go when nobody says.
    const fn usual_s(self) -> u64 {
        match self {
            Self::Second => SECONDS_KEPT_S,
            Self::Stored(resolution) => resolution.kept_s(),
        }
    }

    /// How far back they can go.
    const fn kept_s(self) -> u64 {
        match self {
            Self::Second => SECONDS_KEPT_S,
            Self::Stored(Resolution::Minute) => PAST_MINUTES_KEPT_S,
            Self::Stored(Resolution::Hour) => Resolution::Hour.kept_s(),
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::units::Ru;
    use tidegate_core::usage::{Consumption, RuParts};

    use super::*;

    fn points(of: &[(u64, u64, i64)]) -> Vec<Point> {
        let total = |ru| Consumption { charged: RuParts::flat(Ru(ru)), ..Consumption::default() }.into();
        of.iter().map(|(start, length, ru)| (*start, *length, total(*ru))).collect()
    }

    #[test]
    fn points_of_two_groups_are_in_order_and_those_that_overlap_are_one() {
        let one = points(&[(10, 1, 1), (20, 5, 2), (30, 1, 4)]);
        assert_eq!(together(Vec::new(), one.clone()), one);
        assert_eq!(together(one.clone(), Vec::new()), one);
        let other = points(&[(5, 1, 8), (22, 9, 16), (31, 1, 32)]);
        let both = points(&[(5, 1, 8), (10, 1, 1), (20, 11, 22), (31, 1, 32)]);
        assert_eq!(together(one.clone(), other.clone()), both);
        assert_eq!(together(other, one), both);
        // One within the other.
        assert_eq!(together(points(&[(1, 9, 1)]), points(&[(2, 2, 2)])), points(&[(1, 9, 3)]));
    }
}
