//! The cost tables: every version ever put, the one that charges, and the one priced beside it.
//!
//! A version never changes once stored, so that a charge can be explained later. The active table charges; the
//! shadow table is priced in parallel and only reported, to try new prices on live load.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidegate_cost_model::{CostTable, TableText};

use crate::error::AdminError;
use crate::limits::MAX_COST_TABLES;
use tidegate_proto::v1;

/// Name and version of a table.
pub type Key = (String, u32);

/// The use of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Priced and charged.
    Active,
    /// Priced and reported.
    Shadow,
}

impl Role {
    /// Reads the spelling of the API.
    pub fn parse(text: &str) -> Result<Self, AdminError> {
        match text {
            "active" => Ok(Self::Active),
            "shadow" => Ok(Self::Shadow),
            _ => Err(AdminError::invalid("role", "write \"active\" or \"shadow\"")),
        }
    }
}

/// The tables in each role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roles {
    /// Priced and charged.
    pub active: Key,
    /// Priced and reported.
    pub shadow: Option<Key>,
}

/// All tables.
#[derive(Clone, Debug)]
pub struct CostTables {
    all: BTreeMap<Key, CostTable>,
    roles: Roles,
}

impl CostTables {
    /// The tables of a new store: TiDB's prices.
    pub fn first() -> Self {
        let table = CostTable::tidb_v1();
        let active = key(&table);
        Self { all: BTreeMap::from([(active.clone(), table)]), roles: Roles { active, shadow: None } }
    }

    /// The tables of a store; `None` when a role names a missing table.
    pub fn load(tables: impl IntoIterator<Item = CostTable>, roles: Roles) -> Option<Self> {
        let all: BTreeMap<Key, CostTable> = tables.into_iter().map(|table| (key(&table), table)).collect();
        let known = |key: &Key| all.contains_key(key);
        (known(&roles.active) && roles.shadow.as_ref().is_none_or(known)).then_some(Self { all, roles })
    }

    /// The tables in each role.
    pub fn roles(&self) -> &Roles {
        &self.roles
    }

    /// The table that charges.
    pub fn active(&self) -> Option<&CostTable> {
        self.all.get(&self.roles.active)
    }

    /// The table priced beside it.
    pub fn shadow(&self) -> Option<&CostTable> {
        self.all.get(self.roles.shadow.as_ref()?)
    }

    /// Every version, in order.
    pub fn all(&self) -> impl Iterator<Item = &CostTable> {
        self.all.values()
    }

    /// The tables after `table` got a role. `None` removes the shadow.
    pub fn with(&self, role: Role, table: Option<CostTable>) -> Result<Self, AdminError> {
        let mut after = self.clone();
        let key = table.as_ref().map(key);
        match (role, key) {
            (Role::Active, Some(key)) => after.roles.active = key,
            (Role::Active, None) => {
                return Err(AdminError::invalid("table", "is missing; one table must be active"));
            }
            (Role::Shadow, key) => after.roles.shadow = key,
        }
        let Some(table) = table else { return Ok(after) };
        match self.all.get(&self::key(&table)) {
            Some(known) if *known == table => {}
            Some(known) => {
                let fields = differing(known, &table).join(", ");
                let difference = format!("with another {fields}; put it under a new version");
                return Err(AdminError::AlreadyExists { what: format!("cost table {table}"), difference });
            }
            None if self.all.len() >= MAX_COST_TABLES => {
                return Err(AdminError::Full { what: "cost tables", limit: MAX_COST_TABLES });
            }
            None => {
                after.all.insert(self::key(&table), table);
            }
        }
        Ok(after)
    }
}

/// Checks a table, and reports all errors together.
pub fn parse(shape: v1::CostTable) -> Result<CostTable, AdminError> {
    let replicas = shape.replicas.max(1);
    let text =
        TableText { name: shape.name, version: shape.version, replicas, coefficients: shape.ru_per_unit };
    CostTable::try_from(text).map_err(|errors| AdminError::invalid("table", errors))
}

/// A table in the shape of the API.
pub fn shape(table: &CostTable) -> v1::CostTable {
    let text = TableText::from(table.clone());
    v1::CostTable {
        name: text.name,
        version: text.version,
        ru_per_unit: text.coefficients,
        replicas: text.replicas,
    }
}

/// Name and version.
pub fn key(table: &CostTable) -> Key {
    (table.name().to_owned(), table.version())
}

fn differing(one: &CostTable, other: &CostTable) -> Vec<String> {
    let mut fields: Vec<String> = one
        .coefficients()
        .zip(other.coefficients())
        .filter(|((_, a), (_, b))| a != b)
        .map(|((field, _), _)| field.name().to_owned())
        .collect();
    if one.replicas() != other.replicas() {
        fields.push("replicas".to_owned());
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str, version: u32, price: &str) -> CostTable {
        let ru_per_unit = BTreeMap::from([("cpu_ns".to_owned(), price.to_owned())]);
        parse(v1::CostTable { name: name.into(), version, ru_per_unit, replicas: 0 }).unwrap()
    }

    #[test]
    fn versions_are_immutable_and_roles_move() {
        let first = CostTables::first();
        let two = first.with(Role::Shadow, Some(table("mine", 1, "1/3000000"))).unwrap();
        assert_eq!(two.shadow().map(key), Some(("mine".to_owned(), 1)));
        assert!(two.with(Role::Active, Some(table("mine", 1, "1/3000000"))).is_ok());
        let error = two.with(Role::Active, Some(table("mine", 1, "1/2"))).unwrap_err().to_string();
        assert!(error.contains("cpu_ns"), "{error}");
        assert!(two.with(Role::Shadow, None).unwrap().shadow().is_none());
        assert!(two.with(Role::Active, None).is_err());
        let loaded = CostTables::load(two.all().cloned(), two.roles().clone()).unwrap();
        assert_eq!(loaded.all().count(), 2);
        let missing = Roles { active: ("gone".into(), 1), shadow: None };
        assert!(CostTables::load(two.all().cloned(), missing).is_none());
    }

    #[test]
    fn bad_tables_are_refused() {
        for (name, version, field, price) in [
            ("A", 1, "cpu_ns", "1"),
            ("a", 0, "cpu_ns", "1"),
            ("a", 1, "cpu", "1"),
            ("a", 1, "cpu_ns", "NaN"),
        ] {
            let ru_per_unit = BTreeMap::from([(field.to_owned(), price.to_owned())]);
            let shape = v1::CostTable { name: name.into(), version, ru_per_unit, replicas: 1 };
            assert_eq!(parse(shape).unwrap_err().field(), Some("table"));
        }
    }
}
