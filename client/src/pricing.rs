//! The cost tables in force: one that is charged and, optionally, a shadow that is only counted.
//!
//! Until the controller's watch has delivered a table, the built-in `tidb_v1` is charged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use tidegate_core::units::Ru;
use tidegate_core::usage::{RuParts, Usage};
use tidegate_cost_model::{Charge, CostTable, TableText};
use tidegate_proto::v1;

/// The tables in force; replaced as a whole.
#[derive(Debug)]
pub(crate) struct Prices {
    tables: ArcSwap<Tables>,
    /// Whether there is a shadow table, for charges that need no table.
    shadowed: AtomicBool,
}

/// A pair of tables.
#[derive(Clone, Debug)]
pub(crate) struct Tables {
    pub(crate) active: CostTable,
    pub(crate) shadow: Option<CostTable>,
}

/// A table that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PricingError {
    #[error("the controller sent cost tables without an active one")]
    NoActive,
    #[error("cost table {name} version {version} cannot be used: {error}")]
    Table { name: String, version: u32, error: tidegate_cost_model::TableErrors },
}

impl Default for Prices {
    fn default() -> Self {
        let tables = ArcSwap::from_pointee(Tables { active: CostTable::tidb_v1(), shadow: None });
        Self { tables, shadowed: AtomicBool::new(false) }
    }
}

impl Prices {
    /// The tables in force.
    pub(crate) fn tables(&self) -> Arc<Tables> {
        self.tables.load_full()
    }

    /// Puts new ones in force.
    pub(crate) fn set(&self, tables: Tables) {
        self.shadowed.store(tables.shadow.is_some(), Ordering::Relaxed);
        self.tables.store(Arc::new(tables));
    }

    /// The charge of one operation, by the active and by the shadow table.
    pub(crate) fn price(&self, usage: &Usage) -> Charge {
        let tables = self.tables.load();
        Charge::new(&tables.active, tables.shadow.as_ref(), usage)
    }

    /// One operation charged directly. It costs the same under the shadow table, so that totals compare.
    #[inline]
    pub(crate) fn direct(&self, charged: RuParts) -> Charge {
        let part = |ru: Ru| ru.clamp(Ru::ZERO, Ru::MAX);
        let parts = RuParts {
            cpu: part(charged.cpu),
            read: part(charged.read),
            write: part(charged.write),
            network: part(charged.network),
            flat: part(charged.flat),
        };
        self.with_shadow(parts, parts.total())
    }

    /// The same for a charge without parts.
    #[inline]
    pub(crate) fn flat(&self, ru: Ru) -> Charge {
        let ru = ru.clamp(Ru::ZERO, Ru::MAX);
        self.with_shadow(RuParts::flat(ru), ru)
    }

    #[inline]
    fn with_shadow(&self, parts: RuParts, total: Ru) -> Charge {
        let shadow = if self.shadowed.load(Ordering::Relaxed) { total } else { Ru::ZERO };
        Charge { parts, total, shadow }
    }
}

/// Reads the controller's tables.
pub(crate) fn tables(wire: v1::CostTables) -> Result<Tables, PricingError> {
    Ok(Tables {
        active: table(wire.active.ok_or(PricingError::NoActive)?)?,
        shadow: wire.shadow.map(table).transpose()?,
    })
}

fn table(wire: v1::CostTable) -> Result<CostTable, PricingError> {
    let (name, version) = (wire.name.clone(), wire.version);
    let text = TableText {
        name: wire.name,
        version: wire.version,
        replicas: wire.replicas,
        coefficients: wire.ru_per_unit.into_iter().collect(),
    };
    CostTable::try_from(text).map_err(|error| PricingError::Table { name, version, error })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(name: &str, per_cpu_ns: &str) -> v1::CostTable {
        v1::CostTable {
            name: name.into(),
            version: 1,
            replicas: 1,
            ru_per_unit: [("cpu_ns".to_owned(), per_cpu_ns.to_owned())].into(),
        }
    }

    #[test]
    fn the_active_table_is_charged_and_the_shadow_counted() {
        let prices = Prices::default();
        assert_eq!(prices.price(&Usage::default()).shadow, Ru::ZERO);
        let both =
            v1::CostTables { active: Some(wire("a", "1/1000000")), shadow: Some(wire("b", "1/500000")) };
        prices.set(tables(both).unwrap());
        let usage = Usage { cpu_ns: 3_000_000, ..Usage::default() };
        let priced = prices.price(&usage);
        assert_eq!(
            (priced.parts.cpu, priced.total, priced.shadow),
            (Ru::whole(3), Ru::whole(3), Ru::whole(6))
        );
        let consumed = priced.of_one_operation(&usage);
        assert_eq!((consumed.operations, consumed.usage, consumed.ru()), (1, usage, Ru::whole(3)));
        let direct = prices.direct(RuParts { cpu: Ru(-5), ..RuParts::flat(Ru(7)) });
        assert_eq!((direct.parts.total(), direct.shadow), (Ru(7), Ru(7)));
        assert_eq!(prices.flat(Ru(9)).shadow, Ru(9));
        let parts =
            RuParts { cpu: Ru(1), read: Ru(20), write: Ru(300), network: Ru(4_000), flat: Ru(50_000) };
        let direct = prices.direct(parts);
        assert_eq!((direct.parts, direct.total, direct.shadow), (parts, Ru(54_321), Ru(54_321)));
    }

    #[test]
    fn a_shadow_that_is_withdrawn_counts_nothing_any_more() {
        let prices = Prices::default();
        let only = |shadow| v1::CostTables { active: Some(wire("a", "1/1000000")), shadow };
        for shadow in [None, Some(wire("b", "1/500000")), None] {
            let counts = shadow.is_some();
            prices.set(tables(only(shadow)).unwrap());
            let usage = Usage { cpu_ns: 3_000_000, ..Usage::default() };
            let charges = [prices.price(&usage), prices.direct(RuParts::flat(Ru(7))), prices.flat(Ru(9))];
            let shadows = charges.map(|charge| charge.shadow);
            let counted = [Ru::whole(6), Ru(7), Ru(9)];
            assert_eq!(shadows, if counts { counted } else { [Ru::ZERO; 3] });
        }
    }

    #[test]
    fn tables_that_make_no_sense_are_refused_by_name() {
        assert!(tables(v1::CostTables::default()).is_err());
        for text in ["-1", "x", "1/0"] {
            let wire = v1::CostTables { active: Some(wire("a", text)), shadow: None };
            let error = tables(wire).unwrap_err().to_string();
            assert!(error.contains("cost table a version 1"), "{error}");
        }
    }
}
