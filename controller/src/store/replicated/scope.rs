//! What of a store all controllers share, and what belongs to one file: the one place that says so.
//!
//! History by the minute and the hour can be drawn up from what is shared, and each controller keeps its own. Rows of
//! `Meta` that say something of a file stay with that file. The mark of a clean stop is shared, although only its own
//! file has the seal that it names: the next owner must be able to remove it from every copy.

use super::super::records::{META_APPLIED, META_CLUSTER, META_COMMIT, META_FORMAT};
use super::super::{StoreError, Table, Write};
use super::bytes;

/// Rows of `Meta` that belong to the file.
const OF_THE_FILE: [&[u8]; 4] = [META_FORMAT, META_COMMIT, META_APPLIED, META_CLUSTER];

/// The number of a table in the log, which never changes; `None`: its rows are not in the log.
pub(super) const fn code(table: Table) -> Option<u8> {
    Some(match table {
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
        Table::Minutes | Table::Hours | Table::PastMinutes => return None,
    })
}

/// The table of a number in the log.
pub(super) fn table(of: u8) -> Option<Table> {
    Table::ALL.into_iter().find(|table| code(*table) == Some(of))
}

/// Whether a row belongs to one file.
pub(super) fn is_local(table: Table, key: &[u8]) -> bool {
    code(table).is_none() || (table == Table::Meta && OF_THE_FILE.contains(&key))
}

/// Whether a reader of the store sees a row: what binds a file to the log is no content.
pub(super) fn is_content(table: Table, key: &[u8]) -> bool {
    table != Table::Meta || key == META_FORMAT || !OF_THE_FILE.contains(&key)
}

/// What of a batch goes into the log, as bytes; `None`: nothing.
pub(super) fn shared(batch: &[Write]) -> Result<Option<Vec<u8>>, StoreError> {
    let mut out = Vec::new();
    for write in batch {
        match write {
            Write::DeleteBelow(Table::Meta, _) => {
                let reason = "rows of meta are removed one by one".to_owned();
                return Err(StoreError::Failed { operation: "log a change", reason });
            }
            Write::Put(table, key, _) | Write::Delete(table, key) if is_local(*table, key) => {}
            Write::DeleteBelow(table, _) if code(*table).is_none() => {}
            shared => bytes::put_entry(&mut out, shared),
        }
    }
    Ok((!out.is_empty()).then_some(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_in_the_log_under_a_number_of_its_own_or_local() {
        let local: Vec<Table> = Table::ALL.into_iter().filter(|table| code(*table).is_none()).collect();
        assert_eq!(local, [Table::Minutes, Table::Hours, Table::PastMinutes]);
        for of in Table::ALL.into_iter().filter(|of| !local.contains(of)) {
            assert_eq!(code(of).and_then(table), Some(of));
        }
        assert!(table(0).is_none() && table(17).is_none());
    }

    #[test]
    fn only_what_is_shared_goes_into_the_log() {
        let put = |table, key: &[u8]| Write::Put(table, key.to_vec(), b"1".to_vec());
        let local = [
            put(Table::Meta, META_FORMAT),
            put(Table::Meta, META_APPLIED),
            put(Table::Minutes, b"a"),
            Write::DeleteBelow(Table::Hours, b"z".to_vec()),
        ];
        assert_eq!(shared(&local).unwrap(), None);
        let mixed = [put(Table::Minutes, b"a"), put(Table::Ledger, b"b"), put(Table::Meta, b"clean")];
        assert_eq!(bytes::entries(&shared(&mixed).unwrap().unwrap()).unwrap(), mixed[1..]);
        let all = [Write::DeleteBelow(Table::Meta, b"z".to_vec())];
        assert!(shared(&all).unwrap_err().to_string().contains("one by one"));
    }
}
