//! A cost table: a named, versioned set of prices, one per field of a usage vector.
//!
//! Holds RU per unit for each field and the replica count by which writes are multiplied. A table never changes
//! once made: a new price is a new version, so that a charge can be explained later by name and version. Tables
//! come from `TableText` (REST, TOML, the controller's store), which reports every error at once, or from code.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::coefficient::{Coefficient, CoefficientError};
use crate::field::Field;
use crate::text::TableText;

/// Prices of all resources, under a name and a version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "TableText", into = "TableText")]
pub struct CostTable {
    name: String,
    version: u32,
    replicas: u32,
    coefficients: [Coefficient; Field::COUNT],
}

/// One thing that is wrong with a table.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TableError {
    /// The name is empty, too long, or has other characters.
    #[error("name `{name}` is not usable; write 1 to {} of a-z, 0-9, `-`, `_` and `.`", CostTable::MAX_NAME)]
    Name {
        /// What was written, cut to the limit.
        name: String,
    },
    /// Versions start at one.
    #[error("version 0 is not usable; count versions from 1")]
    Version,
    /// Outside 1 to [`CostTable::MAX_REPLICAS`].
    #[error(
        "replicas {replicas} is out of range; write 1 to {}, and 1 when writes are not replicated",
        CostTable::MAX_REPLICAS
    )]
    Replicas {
        /// What was written.
        replicas: u32,
    },
    /// No field of a usage vector has this name.
    #[error("coefficient `{key}` names no resource; the resources are {}", names())]
    UnknownField {
        /// The key as written, cut to the limit of a name.
        key: String,
    },
    /// The text of a coefficient is wrong.
    #[error("coefficient {field} {reason}")]
    Coefficient {
        /// The field it is for.
        field: Field,
        /// What is wrong with it.
        reason: CoefficientError,
    },
}

/// Everything that is wrong with a table; never empty.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct TableErrors(pub Vec<TableError>);

impl CostTable {
    /// Longest name, in bytes. It is stored with every charge's explanation and printed as a metric label.
    pub const MAX_NAME: usize = 64;
    /// Largest replica count. Above it a price could pass `i128`.
    pub const MAX_REPLICAS: u32 = 1_000;

    /// A table in which every resource is free of charge; add prices with [`Self::with`].
    pub fn new(name: impl Into<String>, version: u32, replicas: u32) -> Result<Self, TableErrors> {
        let name = name.into();
        let errors = faults(&name, version, replicas);
        if errors.is_empty() { Ok(Self::sound(name, version, replicas)) } else { Err(TableErrors(errors)) }
    }

    /// The same with another price for `field`.
    #[must_use]
    pub fn with(mut self, field: Field, coefficient: Coefficient) -> Self {
        for (slot, of) in self.coefficients.iter_mut().zip(Field::ALL) {
            if of == field {
                *slot = coefficient;
            }
        }
        self
    }

    /// A table whose name, version and replicas are known to be within limits.
    pub(crate) fn sound(name: String, version: u32, replicas: u32) -> Self {
        Self { name, version, replicas, coefficients: [Coefficient::ZERO; Field::COUNT] }
    }

    /// The name: 1 to [`Self::MAX_NAME`] of a-z, 0-9, `-`, `_` and `.`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version, from 1.
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// The factor of writes, 1 to [`Self::MAX_REPLICAS`].
    pub const fn replicas(&self) -> u32 {
        self.replicas
    }

    /// The price of `field`, before replication.
    pub fn coefficient(&self, field: Field) -> Coefficient {
        self.coefficients.get(field as usize).copied().unwrap_or(Coefficient::ZERO)
    }

    /// All prices, in the order of the usage vector.
    pub fn coefficients(&self) -> impl Iterator<Item = (Field, Coefficient)> {
        Field::ALL.into_iter().zip(self.coefficients)
    }
}

/// What is wrong with the head of a table.
pub(crate) fn faults(name: &str, version: u32, replicas: u32) -> Vec<TableError> {
    let mut errors = Vec::new();
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
    if name.is_empty() || name.len() > CostTable::MAX_NAME || !name.bytes().all(allowed) {
        errors.push(TableError::Name { name: cut(name) });
    }
    if version == 0 {
        errors.push(TableError::Version);
    }
    if replicas == 0 || replicas > CostTable::MAX_REPLICAS {
        errors.push(TableError::Replicas { replicas });
    }
    errors
}

/// Cuts to [`CostTable::MAX_NAME`] characters, so that an error stays readable whatever was sent.
pub(crate) fn cut(text: &str) -> String {
    text.chars().take(CostTable::MAX_NAME).collect()
}

fn names() -> String {
    Field::ALL.map(Field::name).join(", ")
}

impl fmt::Display for CostTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} version {}", self.name, self.version)
    }
}

impl fmt::Display for TableErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cost table refused")?;
        for (index, error) in self.0.iter().enumerate() {
            write!(f, "{} {error}", if index == 0 { ":" } else { ";" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_made_in_code_keeps_its_head_within_limits() {
        let table = CostTable::new("mine", 2, 1).unwrap().with(Field::WriteBytes, Coefficient::ONE);
        assert_eq!(table.coefficient(Field::WriteBytes), Coefficient::ONE);
        assert_eq!(table.coefficient(Field::ReadBytes), Coefficient::ZERO);
        assert_eq!(table.to_string(), "mine version 2");
        for (name, version, replicas, wrong) in [
            ("", 1, 1, 1),
            ("Mine", 1, 1, 1),
            ("a b", 1, 1, 1),
            (&*"x".repeat(65), 1, 1, 1),
            ("mine", 0, 1, 1),
            ("mine", 1, 0, 1),
            ("mine", 1, 1_001, 1),
            ("", 0, 0, 3),
        ] {
            assert_eq!(CostTable::new(name, version, replicas).unwrap_err().0.len(), wrong, "{name}");
        }
        assert!(CostTable::new("x".repeat(64), 1, CostTable::MAX_REPLICAS).is_ok());
        let refused = CostTable::new("mine", 1, 1_001).unwrap_err().to_string();
        assert!(refused.contains("1001"), "{refused}");
    }
}
