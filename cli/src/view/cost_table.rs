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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::follow::Shown as _;

    #[test]
    fn a_table_is_shown_with_its_role_and_the_prices_that_are_charged() {
        let prices = [("write_bytes", "1/1024"), ("cpu_ns", "1/3000000"), ("net_in_bytes", "0")];
        let table = v1::CostTable {
            name: "mine".to_owned(),
            version: 4,
            replicas: 3,
            ru_per_unit: prices.map(|(unit, price)| (unit.to_owned(), price.to_owned())).into(),
        };
        let views = vec![CostTableView::new(table, "shadow")];
        let json = serde_json::json!([{
            "name": "mine", "version": 4, "role": "shadow", "replicas": 3,
            "ru_per_unit": {"cpu_ns": "1/3000000", "net_in_bytes": "0", "write_bytes": "1/1024"},
        }]);
        assert_eq!(serde_json::to_value(&views).unwrap(), json);
        let shown = [
            "TABLE VERSION ROLE REPLICAS RU PER UNIT",
            "mine 4 shadow 3 cpu_ns=1/3000000 write_bytes=1/1024",
        ];
        assert_eq!(views.page().words(), shown);
        assert_eq!(views.names(), ["mine"]);
    }
}
