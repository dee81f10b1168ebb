//! The single values of a store: read once at start, and refused if no controller can have written them.

use std::collections::BTreeMap;

use tidegate_core::units::Span;

use crate::store::records::{
    META_CLEAN, META_EPOCH, META_FENCE, META_FORMAT, META_LONGEST_TTL, SavedLeases, bad, json, number,
};
use crate::store::{Store, StoreError, Table, each};

/// Bound of a stored length: far above the longest lease with all that drift and margin can add to it.
const LONGEST_USE: Span = Span::secs(600);

/// Single values of the store.
pub(crate) struct Meta(BTreeMap<Vec<u8>, Vec<u8>>);

impl Meta {
    pub(crate) fn load(store: &dyn Store) -> Result<Self, StoreError> {
        let mut values = BTreeMap::new();
        each(store, Table::Meta, |key, value| {
            values.insert(key.to_vec(), value.to_vec());
            Ok(())
        })?;
        Ok(Self(values))
    }

    /// Whether no controller has ever used the store. A used one without its epoch must not pass for new: leases that
    /// are out would be granted again.
    pub(crate) fn is_new(&self) -> Result<bool, StoreError> {
        let used = self.0.keys().any(|key| key != META_FORMAT);
        if used && !self.0.contains_key(META_EPOCH) {
            return Err(bad(Table::Meta, "the epoch is missing"));
        }
        Ok(!used)
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&Vec<u8>> {
        self.0.get(key)
    }

    pub(crate) fn number(&self, key: &[u8]) -> Result<Option<u64>, StoreError> {
        self.0.get(key).map(|value| countable(Table::Meta, number(value)?)).transpose()
    }

    /// The leases of a clean stop.
    pub(crate) fn saved(&self) -> Result<Option<SavedLeases>, StoreError> {
        let Some(value) = self.0.get(META_CLEAN) else { return Ok(None) };
        let saved: SavedLeases = json(Table::Meta, value)?;
        if !saved.in_range() {
            return Err(bad(Table::Meta, "a saved lease is out of range"));
        }
        Ok(Some(saved))
    }

    /// The longest lease that may be out, by the last run.
    pub(crate) fn longest_ttl(&self) -> Result<Span, StoreError> {
        self.span(META_LONGEST_TTL, "a lease")
    }

    /// The fence of the last run.
    pub(crate) fn fence(&self) -> Result<Span, StoreError> {
        self.span(META_FENCE, "a fence")
    }

    fn span(&self, key: &[u8], what: &str) -> Result<Span, StoreError> {
        possible(Table::Meta, self.number(key)?.unwrap_or(0), what)
    }
}

/// Checks that a stored length is one that a lease or a fence can have.
pub(crate) fn possible(table: Table, us: u64, what: &str) -> Result<Span, StoreError> {
    if Span(us) > LONGEST_USE {
        return Err(bad(table, &format!("{what} of {} is longer than any can be", Span(us))));
    }
    Ok(Span(us))
}

/// Checks a number that counts up from one: no counter ever reaches half of its range.
pub(crate) fn countable(table: Table, number: u64) -> Result<u64, StoreError> {
    if number > u64::MAX / 2 {
        return Err(bad(table, &format!("{number} is more than was ever counted")));
    }
    Ok(number)
}
