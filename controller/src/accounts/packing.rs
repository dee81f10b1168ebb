//! Packing: minutes that are over join a short row of their hour, which is kept for 90 days.
//!
//! Minutes are stored in full for a day. Once an hour is over, a row for each group takes what a replay needs of them,
//! so that nothing is added to what is stored twice a second. A row that is there already gains the minutes that it does
//! not have: a repeated packing, after a restart, changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use tidegate_core::group::GroupId;
use tidegate_core::usage::Total;

use super::brief::{self, Brief};
use crate::accounts::history::Resolution;
use crate::accounts::prune::Pruned;
use crate::accounts::{AccountCalls, Upkeep};
use crate::limits::MAX_MINUTE_GROUPS;
use crate::store::records::{consumption, pair_key, pair_of};
use crate::store::{Batch, StoreError, Table, Write};

impl Upkeep<'_> {
    /// Packs the oldest hour that is over and not packed: one at a time, since there are many only after a long stop.
    /// Returns its end, up to which minutes are packed once the batch is stored.
    pub(crate) fn pack(&self, pruned: &Pruned, batch: &mut Batch) -> Result<Option<u64>, StoreError> {
        // What was counted at the end of an hour is stored within a minute after it.
        let stored = (self.service.clock().unix_ms() / 1_000).saturating_sub(Resolution::Minute.seconds());
        let over = Resolution::Hour.start(stored);
        let oldest = self.first_minute(pruned.unpacked_from())?.map(|start| Resolution::Hour.start(start));
        let Some(hour) = oldest.filter(|hour| *hour < over) else { return Ok(None) };
        batch.extend(self.packed(hour)?);
        Ok(Some(hour.saturating_add(Resolution::Hour.seconds())))
    }

    fn first_minute(&self, from_unix_s: u64) -> Result<Option<u64>, StoreError> {
        let (table, mut first) = (Table::Minutes, None);
        self.service.store().scan(table, &pair_key(from_unix_s, GroupId::ROOT), &mut |key, _| {
            first = Some(pair_of(table, key)?.0);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(first)
    }

    /// Visits rows of an hour: when they begin, their group and what it consumed.
    fn in_hour(
        &self,
        table: Table,
        hour: u64,
        mut visit: impl FnMut(u64, GroupId, Total),
    ) -> Result<(), StoreError> {
        let end = hour.saturating_add(Resolution::Hour.seconds());
        self.service.store().scan(table, &pair_key(hour, GroupId::ROOT), &mut |key, value| {
            let (start, group) = pair_of(table, key)?;
            if start >= end {
                return Ok(ControlFlow::Break(()));
            }
            visit(start, group, consumption(table, value)?);
            Ok(ControlFlow::Continue(()))
        })
    }

    fn packed(&self, hour: u64) -> Result<Batch, StoreError> {
        let mut most: BTreeSet<(u128, GroupId)> = BTreeSet::new();
        self.in_hour(Table::Hours, hour, |_, group, total| {
            most.insert((total.ru().0, group));
            if most.len() > MAX_MINUTE_GROUPS {
                most.pop_first();
            }
        })?;
        let chosen: BTreeSet<GroupId> = most.into_iter().map(|(_, group)| group).collect();
        let mut minutes: BTreeMap<GroupId, BTreeMap<u64, Brief>> = BTreeMap::new();
        self.in_hour(Table::Minutes, hour, |start, group, total| {
            if chosen.contains(&group) {
                let minute = start.saturating_sub(hour) / Resolution::Minute.seconds();
                minutes.entry(group).or_default().insert(minute, Brief::of(&total));
            }
        })?;
        let keys: Vec<_> = minutes.keys().map(|group| pair_key(hour, *group)).collect();
        let before = self.service.store().get(Table::PastMinutes, &keys)?;
        let mut batch = Batch::new();
        for ((key, mut minutes), before) in keys.into_iter().zip(minutes.into_values()).zip(before) {
            for (minute, brief) in before.as_deref().map(brief::minutes).transpose()?.unwrap_or_default() {
                minutes.entry(minute).or_insert(brief);
            }
            let row = brief::row(&minutes.into_iter().collect::<Vec<_>>());
            if before.is_none_or(|before| before != row) {
                batch.push(Write::Put(Table::PastMinutes, key, row));
            }
        }
        Ok(batch)
    }
}

impl AccountCalls<'_> {
    /// Minutes of a group that are packed, of hours that begin in a range, by when they begin.
    pub(super) fn past_minutes(
        &self,
        group: GroupId,
        hours: impl Iterator<Item = u64>,
    ) -> Result<BTreeMap<u64, Total>, StoreError> {
        let hours: Vec<u64> = hours.collect();
        let keys: Vec<_> = hours.iter().map(|hour| pair_key(*hour, group)).collect();
        let rows = self.service.store().get(Table::PastMinutes, &keys)?;
        let mut minutes = BTreeMap::new();
        for (hour, row) in hours.into_iter().zip(rows).filter_map(|(hour, row)| Some((hour, row?))) {
            let of = brief::minutes(&row)?;
            let start = |minute: u64| hour.saturating_add(minute * Resolution::Minute.seconds());
            minutes.extend(of.into_iter().map(|(minute, brief)| (start(minute), brief.total())));
        }
        Ok(minutes)
    }
}
