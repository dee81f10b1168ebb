//! `tidegate cost-table`: what resources cost in RU.

use std::path::PathBuf;

use clap::Subcommand;
use tidegate_cost_model::{CostTable, TableText};
use tidegate_proto::v1;

use crate::admin::Admin;
use crate::args::Global;
use crate::error::CliError;
use crate::table::Table;
use crate::view::CostTableView;

/// What to do with cost tables.
#[derive(Debug, Subcommand)]
pub(crate) enum CostTableCommand {
    /// List every version stored and its role.
    List,
    /// Store a table and put it in force.
    #[command(after_help = "Example:\n  tidegate cost-table put prices.toml --shadow\n\n\
        The file, TOML or JSON:\n  \
        name = \"mine\"\n  version = 1\n  replicas = 3\n  [coefficients]          # RU per unit; what is left out is free\n  \
        cpu_ns = \"1/3000000\"\n  read_bytes = \"1/65536\"\n  write_bytes = \"1/1024\"")]
    Put {
        /// The table, as TOML, or as JSON when the name ends in .json.
        file: PathBuf,
        /// Price beside the active table and do not charge.
        #[arg(long)]
        shadow: bool,
    },
}

/// Runs the command.
pub(crate) async fn run(command: CostTableCommand, global: &Global) -> Result<(), CliError> {
    let views = match command {
        CostTableCommand::List => list(&global.admin().await?).await?,
        CostTableCommand::Put { file, shadow } => {
            let table = read(&file)?;
            put(&global.admin().await?, table, shadow).await?
        }
    };
    global.output.show(&views, || {
        let mut table = Table::new(&["TABLE", ">VERSION", "ROLE", ">REPLICAS", "RU PER UNIT"]);
        for view in &views {
            table.row([
                view.name.clone(),
                view.version.to_string(),
                view.role.to_owned(),
                view.replicas.to_string(),
                view.prices(),
            ]);
        }
        table.text()
    })
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
            (true, _) => "active",
            (_, true) => "shadow",
            _ => "stored",
        };
        CostTableView::new(table, role)
    };
    Ok(reply.all.into_iter().map(view).collect())
}

async fn put(admin: &Admin, table: v1::CostTable, shadow: bool) -> Result<Vec<CostTableView>, CliError> {
    let request = v1::PutCostTableRequest {
        table: Some(table),
        role: if shadow { "shadow" } else { "active" }.to_owned(),
    };
    let reply = admin.calls().put_cost_table(request).await.map_err(admin.failed())?.into_inner();
    let active = reply.active.map(|table| CostTableView::new(table, "active"));
    let shadow = reply.shadow.map(|table| CostTableView::new(table, "shadow"));
    Ok(active.into_iter().chain(shadow).collect())
}

/// Reads and checks a table, so that every mistake is told at once and before anything is sent.
fn read(file: &PathBuf) -> Result<v1::CostTable, CliError> {
    let text = std::fs::read_to_string(file).map_err(CliError::file("read", file))?;
    let wrong = |message: String| CliError::Content {
        path: file.clone(),
        message: message.trim().replace('\n', " | "),
    };
    let table: TableText = if file.extension().is_some_and(|extension| extension == "json") {
        serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?
    } else {
        toml::from_str(&text).map_err(|error| wrong(error.to_string()))?
    };
    let checked = CostTable::try_from(table).map_err(|errors| wrong(errors.to_string()))?;
    let table = TableText::from(checked);
    Ok(v1::CostTable {
        name: table.name,
        version: table.version,
        replicas: table.replicas,
        ru_per_unit: table.coefficients.into_iter().collect(),
    })
}
