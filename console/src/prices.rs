//! Cost tables: the active one and the shadow, and a calculator from usage to RU.

use maud::{Markup, html};
use tidegate_core::units::Ru;
use tidegate_core::usage::Usage;
use tidegate_cost_model::{CostTable, Field, Part};

use crate::frame::{self, Place};
use crate::quantity::short;
use crate::statement::parts_table;
use crate::viewer::Viewer;

/// Operations that the calculator fills in by one click, each with the amounts that it uses: one of each kind whose
/// price people know from TiDB's documents, and one of each way to spend many.
pub const EXAMPLES: [(&str, &[(Field, u64)]); 5] = [
    (
        "point read of 1 KiB",
        &[
            (Field::CpuNs, 250_000),
            (Field::ReadRequests, 1),
            (Field::ReadBatches, 1),
            (Field::ReadBytes, 1 << 10),
            (Field::NetOutBytes, 1 << 10),
        ],
    ),
    (
        "scan of 64 MiB",
        &[
            (Field::CpuNs, 300_000_000),
            (Field::ReadRequests, 64),
            (Field::ReadBatches, 64),
            (Field::ReadBytes, 64 << 20),
            (Field::NetOutBytes, 1 << 20),
        ],
    ),
    (
        "insert of 1 KiB",
        &[
            (Field::CpuNs, 400_000),
            (Field::WriteRequests, 1),
            (Field::WriteBatches, 1),
            (Field::WriteBytes, 1 << 10),
        ],
    ),
    (
        "bulk load of 16 MiB",
        &[
            (Field::CpuNs, 500_000_000),
            (Field::WriteRequests, 16),
            (Field::WriteBatches, 16),
            (Field::WriteBytes, 16 << 20),
            (Field::NetInBytes, 16 << 20),
        ],
    ),
    ("a second of CPU", &[(Field::CpuNs, 1_000_000_000)]),
];

/// What the page of prices shows.
#[derive(Clone, Debug)]
pub struct Prices<'p> {
    /// The table that charges.
    pub active: Option<&'p CostTable>,
    /// The table that is priced beside it.
    pub shadow: Option<&'p CostTable>,
    /// Names of all stored tables.
    pub stored: &'p [String],
    /// What the calculator prices.
    pub usage: Usage,
    /// Amounts that are no numbers, by field.
    pub faults: &'p [(Field, String)],
}

impl Prices<'_> {
    /// The page.
    pub fn page(&self, viewer: &Viewer) -> Markup {
        let content = html! {
            section aria-labelledby="tables" {
                h2 #tables { "Tables" }
                (self.tables())
                p.hint { "Stored: " (self.stored.join(", ")) ". " code { "tidegate cost-table put FILE --role shadow" } " tries prices out." }
            }
            section aria-labelledby="calculator" { h2 #calculator { "Calculator" } (self.calculator()) }
        };
        frame::page("Prices", Some(Place::Prices), Some(viewer), &content)
    }

    fn tables(&self) -> Markup {
        let tables = [("Active", self.active), ("Shadow", self.shadow)];
        let tables: Vec<(&str, &CostTable)> =
            tables.into_iter().filter_map(|(role, table)| Some((role, table?))).collect();
        html! {
            div.scrolls tabindex="0" role="group" aria-labelledby="tables" { table {
                thead { tr { th scope="col" { "RU a unit of" } @for (role, table) in &tables { th.number scope="col" { (role) ": " (table.to_string()) } } } }
                tbody {
                    @for field in Field::ALL { tr { th scope="row" { code { (field.name()) } } @for (_, table) in &tables { td.number { (table.coefficient(field).to_string()) } } } }
                    tr { th scope="row" { "replicas, by which writes are multiplied" } @for (_, table) in &tables { td.number { (table.replicas()) } } }
                }
            } }
        }
    }

    fn calculator(&self) -> Markup {
        let link = |amounts: &[(Field, u64)]| {
            amounts.iter().fold(Place::Prices.link(), |link, (field, amount)| link.with(field.name(), amount))
        };
        html! {
            p { "Fill in: " @for (at, (name, amounts)) in EXAMPLES.iter().enumerate() { @if at > 0 { ", " } a href=(link(amounts)) { (name) } } "." }
            div.beside {
                form.card method="get" {
                    @for field in Field::ALL {
                        @let fault = self.faults.iter().find(|(of, _)| *of == field);
                        div.field { label for={ "usage-" (field.name()) } { (field.name()) }
                            input id={ "usage-" (field.name()) } name=(field.name()) inputmode="numeric" value=(fault.map_or_else(|| field.of(&self.usage).to_string(), |(_, typed)| typed.clone())) aria-invalid=[fault.map(|_| "true")];
                            @if fault.is_some() { p.hint { span.bad { "Write a whole number, in the unit of the name." } } } }
                    }
                    button.main type="submit" { "Price it" }
                }
                div { @for (role, table) in [("Active", self.active), ("Shadow", self.shadow)] {
                    @if let Some(table) = table { h3 { (role) ": " (table.to_string()) } (priced(table, &self.usage)) }
                } }
            }
        }
    }
}

fn priced(table: &CostTable, usage: &Usage) -> Markup {
    let components = table.breakdown(usage);
    let part = |of: Part| {
        components.iter().filter(|one| one.field.part() == of).map(|one| i128::from(one.ru.0)).sum::<i128>()
    };
    let total: Ru = components.iter().map(|one| one.ru).sum();
    html! {
        p.total { b { (short(total.0.into())) " RU" } }
        (parts_table(&[("CPU", part(Part::Cpu)), ("Read", part(Part::Read)), ("Write", part(Part::Write)), ("Network", part(Part::Network))]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::tests::viewer;

    #[test]
    fn usage_is_priced_by_both_tables() {
        let table = CostTable::tidb_v1();
        let usage = Usage { cpu_ns: 3_000_000, write_bytes: 1_024, ..Usage::default() };
        let stored = [table.to_string()];
        let prices = Prices { active: Some(&table), shadow: None, stored: &stored, usage, faults: &[] };
        let text = prices.page(&viewer(true, true)).into_string();
        assert!(
            text.contains("<b>4 RU</b>") && text.contains("75 %"),
            "one RU of CPU, three copies written: {text}"
        );
        let rows = |text: &str| text.matches("<tr>").count();
        let (one, dearer) = (text, table.clone());
        // The table that is tried out stands beside the one that charges, with a price of its own.
        let shadowed =
            Prices { shadow: Some(&dearer), ..prices.clone() }.page(&viewer(true, true)).into_string();
        let alone = Prices { active: None, shadow: Some(&dearer), ..prices.clone() };
        let alone = alone.page(&viewer(true, true)).into_string();
        for (text, active, shadow) in [(&one, 1, 0), (&shadowed, 1, 1), (&alone, 0, 1)] {
            for (role, count) in [("Active: ", active), ("Shadow: ", shadow)] {
                assert_eq!(text.matches(&format!("scope=\"col\">{role}")).count(), count, "{text}");
                assert_eq!(text.matches(&format!("<h3>{role}")).count(), count, "{text}");
            }
            assert_eq!(text.matches("<b>4 RU</b>").count(), active + shadow, "{text}");
        }
        assert!(rows(&shadowed) > rows(&one) && one.contains(&format!("Stored: {table}.")), "{one}");
        let cells = |name: &str, of: String| format!("{name}</code></th><td class=\"number\">{of}</td>");
        for field in Field::ALL {
            assert!(
                one.contains(&cells(field.name(), table.coefficient(field).to_string())),
                "{field:?}: {one}"
            );
            let typed =
                format!("name=\"{}\" inputmode=\"numeric\" value=\"{}\"", field.name(), field.of(&usage));
            assert!(one.contains(&typed), "{typed}: {one}");
        }
        assert!(
            one.contains(&format!("multiplied</th><td class=\"number\">{}</td>", table.replicas())),
            "{one}"
        );
        let parts = [("CPU", "1 RU", 25), ("Read", "0 RU", 0), ("Write", "3 RU", 75), ("Network", "0 RU", 0)];
        for (part, ru, percent) in parts {
            let row =
                format!("{part}</th><td class=\"number\">{ru}</td><td class=\"number\">{percent} %</td>");
            assert!(one.contains(&row), "{row}: {one}");
        }
        let faults = [(Field::CpuNs, "<x>".to_owned())];
        let text = Prices { faults: &faults, ..prices }.page(&viewer(true, true)).into_string();
        assert!(text.contains("value=\"&lt;x&gt;\"") && text.contains("aria-invalid"), "{text}");
    }

    #[test]
    fn each_example_costs_something() {
        for (name, amounts) in EXAMPLES {
            let mut usage = Usage::default();
            amounts.iter().for_each(|(field, amount)| *field.of_mut(&mut usage) = *amount);
            let total: Ru = CostTable::tidb_v1().breakdown(&usage).iter().map(|one| one.ru).sum();
            assert!(total.is_positive(), "{name}");
        }
    }
}
