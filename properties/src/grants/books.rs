//! A plain model of the ledger: the highest report of each incarnation in each group, and what of it is on disk.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_controller::service::UsageRow;
use tidegate_core::units::RuTotal;
use tidegate_core::usage::{Parts, Resources, Total};
use tidegate_proto::v1;

/// Group, node, incarnation.
pub(super) type Row = (String, String, u64);

/// The model.
#[derive(Default)]
pub(super) struct Books {
    counted: BTreeMap<Row, Total>,
    on_disk: BTreeMap<Row, Total>,
    /// Reports of groups that were deleted, which do not count for later groups of the same names.
    retired: BTreeMap<Row, Total>,
}

impl Books {
    /// The reports of an incarnation for a group, and for those before it under its name.
    pub(super) fn of(&self, row: &Row) -> Total {
        self.counted.get(row).copied().unwrap_or_else(|| self.before(row))
    }

    fn before(&self, row: &Row) -> Total {
        self.retired.get(row).copied().unwrap_or_default()
    }

    /// A report was heard. It counts if it decodes, its group exists and no counter fell.
    pub(super) fn report(&mut self, row: Row, total: &v1::Consumption) {
        let Some(total) = decoded(total) else { return };
        if total.minus(&self.of(&row)).is_some() {
            self.counted.insert(row, total);
        }
    }

    /// Everything counted is on disk.
    pub(super) fn stored(&mut self) {
        self.on_disk = self.counted.clone();
    }

    /// Reports that were not on disk are lost.
    pub(super) fn crashed(&mut self) {
        self.counted = self.on_disk.clone();
    }

    /// Groups that anything was reported of.
    pub(super) fn groups(&self) -> BTreeSet<String> {
        self.counted.keys().chain(self.on_disk.keys()).map(|(group, ..)| group.clone()).collect()
    }

    /// A deleted group is gone from memory and disk at once, and how far it was counted is on disk.
    pub(super) fn forget(&mut self, group: &str) {
        let rows = self.counted.iter().filter(|((of, ..), _)| of == group);
        self.retired.extend(rows.map(|(row, total)| (row.clone(), *total)));
        self.counted.retain(|(of, ..), _| of != group);
        self.on_disk.retain(|(of, ..), _| of != group);
    }

    /// # Panics
    /// When the controller's answer about usage is another.
    pub(super) fn compare(&self, rows: &[UsageRow]) {
        let nothing = Total::default();
        let mut told: BTreeMap<Row, Total> = BTreeMap::new();
        let mut totals: BTreeMap<String, Total> = BTreeMap::new();
        for row in rows {
            match &row.client {
                Some((name, number)) => {
                    told.insert((row.group.to_string(), name.clone(), *number), row.total.plus(&row.apart));
                }
                None => drop(totals.insert(row.group.to_string(), row.total.plus(&row.apart))),
            }
        }
        told.retain(|_, total| *total != nothing);
        let known: BTreeMap<_, _> = self
            .counted
            .iter()
            .map(|(row, total)| (row.clone(), total.minus(&self.before(row)).expect("totals grow")))
            .filter(|(_, total)| *total != nothing)
            .collect();
        assert_eq!(told, known, "the rows of the ledger");
        let groups: BTreeSet<&String> = known.keys().map(|(group, ..)| group).collect();
        for group in groups {
            let rows = known.iter().filter(|((of, ..), _)| of == group);
            let sum = rows.fold(nothing, |sum, (_, total)| sum.plus(total));
            assert_eq!(totals.get(group), Some(&sum), "the total of group {group}");
        }
    }
}

/// A total as the protocol defines it: amounts are not below zero.
fn decoded(total: &v1::Consumption) -> Option<Total> {
    assert!(total.exact.is_none(), "none is drawn");
    let ru = |micro: i64| u128::try_from(micro).ok().map(RuTotal);
    let usage = total.usage.unwrap_or_default();
    Some(Total {
        charged: Parts {
            cpu: ru(total.cpu_micro_ru)?,
            read: ru(total.read_micro_ru)?,
            write: ru(total.write_micro_ru)?,
            network: ru(total.network_micro_ru)?,
            flat: ru(total.flat_micro_ru)?,
        },
        shadow: ru(total.shadow_micro_ru)?,
        operations: total.operations.into(),
        throttled: total.throttled.into(),
        waited_us: total.waited_us.into(),
        usage: Resources {
            cpu_ns: usage.cpu_ns.into(),
            read_requests: usage.read_requests.into(),
            read_batches: usage.read_batches.into(),
            read_bytes: usage.read_bytes.into(),
            write_requests: usage.write_requests.into(),
            write_batches: usage.write_batches.into(),
            write_bytes: usage.write_bytes.into(),
            net_in_bytes: usage.net_in_bytes.into(),
            net_out_bytes: usage.net_out_bytes.into(),
            cross_zone_bytes: usage.cross_zone_bytes.into(),
        },
    })
}
