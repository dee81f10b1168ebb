//! What of a store all controllers share, and what belongs to one file: the one place that says so.
//!
//! All tables are shared, history too, so that a successor shows what was consumed before it led. Rows of `Meta` that say
//! something of a file stay with that file.

use super::super::records::{META_APPLIED, META_CLUSTER, META_COMMIT, META_FORMAT};
use super::super::{StoreError, Table, Write};

/// Rows of `Meta` that belong to the file.
const OF_THE_FILE: [&[u8]; 4] = [META_FORMAT, META_COMMIT, META_APPLIED, META_CLUSTER];

/// The number of a table in the log, which never changes.
pub(super) const fn code(table: Table) -> u8 {
    match table {
        Table::Meta => 1,
        Table::Groups => 2,
        Table::Bindings => 3,
        Table::CostTables => 4,
        Table::Clients => 5,
        Table::Tombstones => 6,
        Table::Ledger => 7,
        Table::Folded => 8,
        Table::Retired => 9,
        Table::Audit => 10,
        Table::Watches => 11,
        Table::Runaways => 12,
        Table::Parts => 13,
        Table::Quotas => 14,
        Table::Apart => 15,
        Table::Tokens => 16,
        Table::Minutes => 17,
        Table::Hours => 18,
        Table::PastMinutes => 19,
        Table::Proposals => 20,
    }
}

/// The table of a number in the log.
pub(super) fn table(of: u8) -> Option<Table> {
    Table::ALL.into_iter().find(|table| code(*table) == of)
}

/// Whether a row belongs to one file.
pub(super) fn is_local(table: Table, key: &[u8]) -> bool {
    table == Table::Meta && OF_THE_FILE.contains(&key)
}

/// Whether a write is of what operators define, of which the controller has a picture in memory.
pub(in crate::store) fn defines(write: &Write) -> bool {
    matches!(
        write.table(),
        Table::Groups | Table::Bindings | Table::CostTables | Table::Audit | Table::Tokens | Table::Proposals
    )
}

/// Whether a reader of the store sees a row: what binds a file to the log is no content.
pub(super) fn is_content(table: Table, key: &[u8]) -> bool {
    table != Table::Meta || key == META_FORMAT || !OF_THE_FILE.contains(&key)
}

/// What of a batch goes into the log.
pub(super) fn shared(batch: &[Write]) -> Result<Vec<&Write>, StoreError> {
    if batch.iter().any(|write| matches!(write, Write::DeleteBelow(Table::Meta, _))) {
        let reason = "rows of meta are removed one by one".to_owned();
        return Err(StoreError::Failed { operation: "log a change", reason });
    }
    let is_shared = |write: &&Write| match write {
        Write::Put(table, key, _) | Write::Delete(table, key) => !is_local(*table, key),
        Write::DeleteBelow(..) => true,
    };
    Ok(batch.iter().filter(is_shared).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_in_the_log_under_a_number_of_its_own() {
        for of in Table::ALL {
            assert_eq!(table(code(of)), Some(of));
        }
        assert!(table(0).is_none() && table(21).is_none());
    }

    #[test]
    fn only_what_is_shared_goes_into_the_log() {
        let put = |table, key: &[u8]| Write::Put(table, key.to_vec(), b"1".to_vec());
        let local = [put(Table::Meta, META_FORMAT), Write::Delete(Table::Meta, META_APPLIED.to_vec())];
        assert!(shared(&local).unwrap().is_empty());
        let mixed = [put(Table::Meta, META_FORMAT), put(Table::Minutes, b"b"), put(Table::Meta, b"clean")];
        assert_eq!(shared(&mixed).unwrap(), mixed[1..].iter().collect::<Vec<_>>());
        let all = [Write::DeleteBelow(Table::Meta, b"z".to_vec())];
        assert!(shared(&all).unwrap_err().to_string().contains("one by one"));
    }
}
