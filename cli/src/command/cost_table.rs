//! `tidegate cost-table`: what resources cost in RU.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use tidegate_cost_model::{CostTable, TableText};
use tidegate_proto::v1;
use tidegate_proto::v1::step::Kind;

use crate::admin::Admin;
use crate::args::Global;
use crate::command::apply::change;
use crate::error::CliError;
use crate::follow::{self, Follow, Shown};
use crate::page::Page;
use crate::sql::read as read_input;
use crate::table::{Column, Table};
use crate::view::CostTableView;

/// What to do with cost tables.
#[derive(Debug, Subcommand)]
pub(crate) enum CostTableCommand {
    /// List every version stored and its role.
    List {
        #[command(flatten)]
        follow: Follow,
    },
    /// Store a table and put it in force.
    #[command(after_help = "Examples:\n  \
        tidegate cost-table put prices.toml --shadow\n  \
        tidegate cost-table list -o json > tables.json && tidegate cost-table put tables.json\n\n\
        The file, TOML or JSON:\n  \
        name = \"mine\"\n  version = 1\n  replicas = 3\n  [coefficients]          # RU per unit; a resource left out is free\n  \
        cpu_ns = \"1/3000000\"\n  read_bytes = \"1/65536\"\n  write_bytes = \"1/1024\"\n\n\
        The output of `cost-table list -o json` works, too: it puts the active and the shadow table in their roles.")]
    Put {
        /// The table, as TOML, or as JSON when it begins with { or [; the standard input for '-'.
        file: PathBuf,
        /// Price beside the active table, without charging.
        #[arg(long)]
        shadow: bool,
    },
}

/// The role of a table in force.
const ACTIVE: &str = "active";
const SHADOW: &str = "shadow";

/// Runs the command.
pub(crate) async fn run(command: CostTableCommand, global: &Global) -> Result<(), CliError> {
    match command {
        CostTableCommand::List { follow } => follow::show(global, follow, list).await,
        CostTableCommand::Put { file, shadow } => {
            // All mistakes are reported before anything is sent.
            let tables = read(&file, shadow)?;
            let admin = global.admin().await?;
            let views = put(&admin, tables).await?;
            global.output.list(&views, || views.names(), || views.page())
        }
    }
}

impl Shown for Vec<CostTableView> {
    fn page(&self) -> Page {
        let mut table = Table::new([
            Column::name("TABLE"),
            Column::number("VERSION"),
            Column::word("ROLE"),
            Column::number("REPLICAS"),
            Column::prose("RU PER UNIT"),
        ]);
        for view in self {
            table.row([
                view.name.clone(),
                view.version.to_string(),
                view.role.to_owned(),
                view.replicas.to_string(),
                view.prices(),
            ]);
        }
        table.into()
    }

    fn names(&self) -> Vec<String> {
        self.iter().map(|view| view.name.clone()).collect()
    }
}

async fn list(admin: &Admin) -> Result<Vec<CostTableView>, CliError> {
    let request = v1::GetCostTablesRequest {};
    let reply = admin.calls().get_cost_tables(request).await.map_err(admin.failed())?.into_inner();
    let in_force = admin.part(reply.tables, "the tables in force")?;
    let is = |table: &Option<v1::CostTable>, other: &v1::CostTable| {
        table.as_ref().is_some_and(|table| table.name == other.name && table.version == other.version)
    };
    let view = |table: v1::CostTable| {
        let role = match (is(&in_force.active, &table), is(&in_force.shadow, &table)) {
            (true, _) => ACTIVE,
            (_, true) => SHADOW,
            _ => "stored",
        };
        CostTableView::new(table, role)
    };
    Ok(reply.all.into_iter().map(view).collect())
}

/// Puts tables in force, all of them or none; returns those that are in force then.
async fn put(
    admin: &Admin,
    tables: Vec<(v1::CostTable, &'static str)>,
) -> Result<Vec<CostTableView>, CliError> {
    let put =
        |(table, role): (_, &str)| v1::PutCostTableRequest { table: Some(table), role: role.to_owned() };
    let puts: Vec<v1::PutCostTableRequest> = tables.into_iter().map(put).collect();
    let (active, shadow) = if let [request] = puts.as_slice() {
        let reply = admin.calls().put_cost_table(request.clone()).await.map_err(admin.failed())?.into_inner();
        (reply.active, reply.shadow)
    } else {
        change(admin, puts.into_iter().map(Kind::CostTable).collect()).await?;
        let request = v1::GetCostTablesRequest {};
        let reply = admin.calls().get_cost_tables(request).await.map_err(admin.failed())?.into_inner();
        let in_force = admin.part(reply.tables, "the tables in force")?;
        (in_force.active, in_force.shadow)
    };
    let active = active.map(|table| CostTableView::new(table, ACTIVE));
    let shadow = shadow.map(|table| CostTableView::new(table, SHADOW));
    Ok(active.into_iter().chain(shadow).collect())
}

/// Reads and checks tables and their roles. With `shadow` there is one, whatever its role was.
fn read(file: &Path, shadow: bool) -> Result<Vec<(v1::CostTable, &'static str)>, CliError> {
    let text = read_input(Some(file))?;
    let wrong = |message: String| CliError::Content {
        path: file.to_owned(),
        message: message.trim().replace('\n', " | "),
    };
    if text.trim().is_empty() {
        return Err(wrong("is empty; write a table, such as `cost-table list -o json` prints".to_owned()));
    }
    let asked = if shadow { SHADOW } else { ACTIVE };
    let begin: String = text.chars().filter(|c| !c.is_whitespace()).take(2).collect();
    let is_json = begin.starts_with('{') || matches!(begin.as_str(), "[{" | "[]");
    let tables = if is_json {
        let value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        listed(value, asked).map_err(wrong)?
    } else {
        vec![(toml::from_str(&text).map_err(|error| wrong(error.to_string()))?, asked)]
    };
    if tables.is_empty() || (shadow && tables.len() > 1) {
        let message = format!("holds {} tables to put in force; leave one", tables.len());
        return Err(wrong(message));
    }
    let put = |(table, role)| Ok((checked(table).map_err(wrong)?, if shadow { SHADOW } else { role }));
    tables.into_iter().map(put).collect()
}

/// The tables of a JSON document: one, for the role that is `asked`, or those of a list that have a role.
fn listed(value: serde_json::Value, asked: &'static str) -> Result<Vec<(TableText, &'static str)>, String> {
    let serde_json::Value::Array(mut list) = value else {
        return Ok(vec![(one(value)?.0, asked)]);
    };
    if list.len() == 1 {
        return list.pop().map(|table| Ok((one(table)?.0, asked))).into_iter().collect();
    }
    let mut tables = Vec::new();
    for table in list {
        match one(table)? {
            (table, Some(role)) if role == ACTIVE => tables.push((table, ACTIVE)),
            (table, Some(role)) if role == SHADOW => tables.push((table, SHADOW)),
            (_, Some(_)) => {}
            (table, None) => {
                return Err(format!("table {} of a list needs a role: active, shadow or stored", table.name));
            }
        }
    }
    Ok(tables)
}

/// A table as it is written, or as `cost-table list` prints it, and the role that it says.
fn one(mut value: serde_json::Value) -> Result<(TableText, Option<String>), String> {
    let mut role = None;
    if let Some(fields) = value.as_object_mut() {
        role = fields.remove("role").and_then(|role| role.as_str().map(str::to_owned));
        if let Some(prices) = fields.remove("ru_per_unit") {
            fields.insert("coefficients".to_owned(), prices);
        }
    }
    let table = serde_json::from_value(value).map_err(|error| error.to_string())?;
    Ok((table, role))
}

fn checked(table: TableText) -> Result<v1::CostTable, String> {
    let table = CostTable::try_from(table).map_err(|errors| errors.to_string())?;
    let table = TableText::from(table);
    Ok(v1::CostTable {
        name: table.name,
        version: table.version,
        replicas: table.replicas,
        ru_per_unit: table.coefficients.into_iter().collect(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_puts_its_tables_in_their_roles_and_one_table_in_the_role_that_is_asked() {
        let table = |name: &str, role: &str| json!({"name": name, "version": 1, "replicas": 1, "role": role, "ru_per_unit": {"cpu_ns": "1"}});
        let names = |value| {
            let read = listed(value, SHADOW).unwrap();
            read.into_iter().map(|(table, role)| (table.name, role)).collect::<Vec<_>>()
        };
        let all = json!([table("a", "stored"), table("b", "active"), table("c", "shadow")]);
        assert_eq!(names(all), [("b".to_owned(), ACTIVE), ("c".to_owned(), SHADOW)]);
        assert_eq!(names(json!([table("a", "active")])), [("a".to_owned(), SHADOW)]);
        assert_eq!(names(table("a", "stored")), [("a".to_owned(), SHADOW)]);
        let nameless =
            json!([table("a", "active"), {"name": "b", "version": 1, "replicas": 1, "coefficients": {}}]);
        assert!(listed(nameless, ACTIVE).unwrap_err().contains("needs a role"));
    }
}
