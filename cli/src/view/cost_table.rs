//! A cost table and the role it has.

use std::collections::BTreeMap;

use serde::Serialize;
use tidegate_proto::v1;

/// A cost table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CostTableView {
    pub(crate) name: String,
    pub(crate) version: u32,
    /// "active", "shadow" or "stored".
    pub(crate) role: &'static str,
    pub(crate) replicas: u32,
    pub(crate) ru_per_unit: BTreeMap<String, String>,
}

impl CostTableView {
    /// `table` in `role`.
    pub(crate) fn new(table: v1::CostTable, role: &'static str) -> Self {
        Self {
            name: table.name,
            version: table.version,
            role,
            replicas: table.replicas,
            ru_per_unit: table.ru_per_unit.into_iter().collect(),
        }
    }

    /// Prices as `field=value`, free ones left out.
    pub(crate) fn prices(&self) -> String {
        let charged = self.ru_per_unit.iter().filter(|(_, price)| *price != "0");
        charged.map(|(field, price)| format!("{field}={price}")).collect::<Vec<_>>().join(" ")
    }
}
