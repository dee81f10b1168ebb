//! Compares what nodes say they charged with the controller's ledger, exactly: micro-RU by micro-RU, for every start
//! of every node and every group.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use tidegate_controller::quantity::Count;

/// One start of one node, in one group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Account {
    pub(crate) group: String,
    pub(crate) client: String,
    pub(crate) incarnation: u64,
}

/// Charges in micro-RU.
pub(crate) type Charges = BTreeMap<Account, u128>;

/// A group's two sums.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct LedgerRow {
    pub(crate) group: String,
    pub(crate) nodes_micro_ru: Count,
    pub(crate) controller_micro_ru: Count,
    /// Every single account is equal, not only the sums.
    pub(crate) equal: bool,
}

/// The comparison, a row per group.
pub(crate) fn compare(nodes: &Charges, controller: &Charges) -> Vec<LedgerRow> {
    let accounts: BTreeSet<&Account> = nodes.keys().chain(controller.keys()).collect();
    let mut rows: BTreeMap<&str, LedgerRow> = BTreeMap::new();
    for account in accounts {
        let of = |charges: &Charges| charges.get(account).copied().unwrap_or_default();
        let row = rows.entry(&account.group).or_insert_with(|| LedgerRow {
            group: account.group.clone(),
            nodes_micro_ru: Count(0),
            controller_micro_ru: Count(0),
            equal: true,
        });
        row.nodes_micro_ru.0 += of(nodes);
        row.controller_micro_ru.0 += of(controller);
        row.equal &= of(nodes) == of(controller);
    }
    rows.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn charges(rows: &[(&str, &str, u64, u128)]) -> Charges {
        let entry = |(group, client, incarnation, ru): &(&str, &str, u64, u128)| {
            let account = Account {
                group: (*group).to_owned(),
                client: (*client).to_owned(),
                incarnation: *incarnation,
            };
            (account, *ru)
        };
        rows.iter().map(entry).collect()
    }

    #[test]
    fn sums_that_agree_by_chance_are_not_equal() {
        let nodes = charges(&[("a", "n1", 1, 5), ("a", "n1", 2, 7), ("b", "n2", 1, 1)]);
        assert!(compare(&nodes, &nodes).iter().all(|row| row.equal));
        let swapped = charges(&[("a", "n1", 1, 7), ("a", "n1", 2, 5), ("b", "n2", 1, 1)]);
        let rows = compare(&nodes, &swapped);
        assert_eq!(rows.iter().map(|row| row.equal).collect::<Vec<_>>(), [false, true]);
        assert_eq!((rows[0].nodes_micro_ru, rows[0].controller_micro_ru), (Count(12), Count(12)));
    }

    #[test]
    fn an_account_that_is_missing_on_one_side_counts_as_zero() {
        let one = charges(&[("a", "n1", 1, 5), ("b", "n1", 1, 0)]);
        let rows = compare(&one, &Charges::new());
        assert_eq!(rows.iter().map(|row| row.equal).collect::<Vec<_>>(), [false, true]);
    }
}
