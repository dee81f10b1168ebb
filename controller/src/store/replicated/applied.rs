//! What a local store says of the log: whose it is, and how far it has come.

use std::ops::ControlFlow;

use super::super::records::{META_APPLIED, META_CLUSTER, bad};
use super::super::{Store, StoreError, Table, Write};
use super::scope;

/// A place in the log: behind a whole batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Applied {
    /// The last segment; 0 is before the first.
    pub(super) n: u64,
    /// Its epoch.
    pub(super) epoch: u64,
    /// Bytes of all segments up to it.
    pub(super) logged: u64,
}

impl Applied {
    pub(super) fn row(self) -> Write {
        let Self { n, epoch, logged } = self;
        Write::Put(Table::Meta, META_APPLIED.to_vec(), format!("{n} {epoch} {logged}").into_bytes())
    }

    pub(super) fn parse(value: &[u8]) -> Result<Self, StoreError> {
        let text = std::str::from_utf8(value).unwrap_or_default();
        let mut numbers = text.split(' ').map(str::parse);
        match (numbers.next(), numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(n)), Some(Ok(epoch)), Some(Ok(logged)), None) => Ok(Self { n, epoch, logged }),
            _ => Err(bad(Table::Meta, "the place in the log does not read")),
        }
    }
}

/// The row that binds a store to a cluster.
pub(super) fn cluster_row(cluster: &str) -> Write {
    Write::Put(Table::Meta, META_CLUSTER.to_vec(), cluster.as_bytes().to_vec())
}

/// The cluster that a store is bound to, and its place in the log.
pub(super) fn bound(local: &dyn Store) -> Result<Option<(String, Applied)>, StoreError> {
    let rows = local.get(Table::Meta, &[META_CLUSTER.to_vec(), META_APPLIED.to_vec()])?;
    let mut rows = rows.into_iter();
    let (Some(cluster), applied) = (rows.next().flatten(), rows.next().flatten()) else { return Ok(None) };
    let applied = applied.ok_or_else(|| bad(Table::Meta, "the place in the log is missing"))?;
    Ok(Some((String::from_utf8_lossy(&cluster).into_owned(), Applied::parse(&applied)?)))
}

/// Whether a store has anything that would go into a log.
pub(super) fn has_content(local: &dyn Store) -> Result<bool, StoreError> {
    for table in Table::ALL {
        let mut found = false;
        local.scan(table, &[], &mut |key, _| {
            found = !scope::is_local(table, key);
            Ok(if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_was_written_and_anything_else_is_refused() {
        let applied = Applied { n: 7, epoch: 3, logged: 900 };
        let Write::Put(_, _, value) = applied.row() else { panic!() };
        assert_eq!(Applied::parse(&value).unwrap(), applied);
        for bad in ["", "7", "7 3", "7 3 900 1", "7 3 x", "-7 3 900"] {
            assert!(Applied::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
