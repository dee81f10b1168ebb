//! The text form of a cost table, for REST bodies, TOML files and the controller's store.
//!
//! Name, version, replicas and a map from field name to coefficient text ("0.125", "1/65536"). Reading collects
//! every error before it refuses, since an operator who fixes a table wants all of them. A resource that is not
//! mentioned is free of charge: a table stored before a resource existed still loads. Unknown keys are refused.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::coefficient::Coefficient;
use crate::field::Field;
use crate::table::{CostTable, TableError, TableErrors, cut, faults};

/// A cost table as text; `CostTable::try_from` checks it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableText {
    /// Name: 1 to 64 of a-z, 0-9, `-`, `_` and `.`.
    pub name: String,
    /// Version, from 1.
    pub version: u32,
    /// The factor of writes, 1 to 1000.
    pub replicas: u32,
    /// RU per unit, keyed by field name; a field that is missing is free of charge.
    #[serde(default)]
    pub coefficients: BTreeMap<String, String>,
}

impl TryFrom<TableText> for CostTable {
    type Error = TableErrors;

    fn try_from(text: TableText) -> Result<Self, Self::Error> {
        let mut errors = faults(&text.name, text.version, text.replicas);
        let mut table = Self::sound(text.name, text.version, text.replicas);
        for (key, value) in &text.coefficients {
            match (Field::named(key), value.parse::<Coefficient>()) {
                (Some(field), Ok(coefficient)) => table = table.with(field, coefficient),
                (Some(field), Err(reason)) => errors.push(TableError::Coefficient { field, reason }),
                (None, _) => errors.push(TableError::UnknownField { key: cut(key) }),
            }
        }
        if errors.is_empty() { Ok(table) } else { Err(TableErrors(errors)) }
    }
}

impl From<CostTable> for TableText {
    fn from(table: CostTable) -> Self {
        Self {
            name: table.name().to_owned(),
            version: table.version(),
            replicas: table.replicas(),
            coefficients: table
                .coefficients()
                .map(|(field, price)| (field.name().to_owned(), price.to_string()))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TOML: &str = r#"
        name = "mine"
        version = 3
        replicas = 2
        [coefficients]
        cpu_ns = "1/3000000"
        read_bytes = "0.125"
    "#;

    #[test]
    fn toml_and_json_carry_a_table() {
        let table: CostTable = toml::from_str(TOML).unwrap();
        assert_eq!((table.name(), table.version(), table.replicas()), ("mine", 3, 2));
        assert_eq!(table.coefficient(Field::CpuNs).to_string(), "1/3000000");
        assert_eq!(table.coefficient(Field::NetInBytes), Coefficient::ZERO);
        let json = serde_json::to_string(&table).unwrap();
        assert!(json.contains(r#""cpu_ns":"1/3000000""#), "{json}");
        assert_eq!(serde_json::from_str::<CostTable>(&json).unwrap(), table);
    }

    #[test]
    fn all_errors_are_reported_at_once() {
        let json = r#"{"name":"No","version":0,"replicas":0,"coefficients":
            {"cpu":"1","cpu_ns":"nan","read_bytes":"-1","write_bytes":"1/0","net_in_bytes":"0.5"}}"#;
        let error = serde_json::from_str::<CostTable>(json).unwrap_err().to_string();
        for part in [
            "cost table refused: name `No` is not usable",
            "; version 0",
            "; replicas 0 is out of range",
            "; coefficient `cpu` names no resource; the resources are cpu_ns, read_requests",
            "; coefficient cpu_ns `nan` is not finite",
            "; coefficient read_bytes `-1` is negative",
            "; coefficient write_bytes `1/0` divides by zero",
        ] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }

    /// Whatever was sent, what is said of it can be read.
    #[test]
    fn errors_show_the_beginning_of_what_is_too_long() {
        let long = format!("x{}", "é".repeat(100_000));
        let text = TableText {
            name: long.clone(),
            version: 1,
            replicas: 1,
            coefficients: [(long, "1".to_owned())].into(),
        };
        let error = CostTable::try_from(text).unwrap_err().to_string();
        let shown = format!("`x{}`", "é".repeat(CostTable::MAX_NAME - 1));
        assert_eq!(error.matches(&shown).count(), 2, "{} bytes", error.len());
        assert!(error.len() < 1_000, "{} bytes", error.len());
    }

    #[test]
    fn unknown_keys_and_numbers_instead_of_text_are_refused() {
        let extra = r#"{"name":"a","version":1,"replicas":1,"colour":"red"}"#;
        assert!(serde_json::from_str::<CostTable>(extra).unwrap_err().to_string().contains("colour"));
        let float = r#"{"name":"a","version":1,"replicas":1,"coefficients":{"cpu_ns":0.1}}"#;
        assert!(serde_json::from_str::<CostTable>(float).is_err());
    }

    proptest! {
        #[test]
        fn text_round_trips(
            pairs in proptest::array::uniform10((0..=Coefficient::MAX_NUMERATOR, 1..=Coefficient::MAX_DENOMINATOR)),
            version in 1_u32.., replicas in 1..=CostTable::MAX_REPLICAS,
        ) {
            let mut table = CostTable::new("any", version, replicas).unwrap();
            for (field, (upper, lower)) in Field::ALL.into_iter().zip(pairs) {
                table = table.with(field, Coefficient::ratio(upper, lower).unwrap());
            }
            prop_assert_eq!(CostTable::try_from(TableText::from(table.clone())).unwrap(), table);
        }
    }
}
