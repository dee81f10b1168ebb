//! `tidegate status`: how the controller is.

use serde::Serialize;
use tidegate_core::units::Span;
use tidegate_proto::v1;

use crate::args::Global;
use crate::command::group::print_warnings;
use crate::error::CliError;
use crate::output::Output;
use crate::table::Table;

#[derive(Serialize)]
struct StatusView {
    version: String,
    epoch: u64,
    revision: u64,
    uptime_us: u64,
    /// 0 when not recovering.
    recovery_us: u64,
    /// RU/s; empty for none.
    capacity: String,
    groups: u32,
    bindings: u32,
    clients: u32,
    warnings: Vec<String>,
}

/// Runs the command.
pub(crate) async fn run(global: &Global) -> Result<(), CliError> {
    let admin = global.admin().await?;
    let request = v1::StatusRequest {};
    let reply = admin.calls().status(request).await.map_err(admin.failed())?.into_inner();
    let view = StatusView {
        version: reply.version,
        epoch: reply.epoch,
        revision: reply.revision,
        uptime_us: reply.uptime_us,
        recovery_us: reply.recovery_us,
        capacity: reply.capacity,
        groups: reply.groups,
        bindings: reply.bindings,
        clients: reply.clients,
        warnings: reply.warnings,
    };
    global.output.show(&view, || sheet(&view, &global.endpoint))?;
    if global.output == Output::Table {
        print_warnings(&view.warnings)?;
    }
    Ok(())
}

fn sheet(view: &StatusView, endpoint: &str) -> String {
    let mut table = Table::new(&["CONTROLLER", endpoint]);
    let mut line = |what: &str, value: String| table.row([what.to_owned(), value]);
    line("version", view.version.clone());
    line("uptime", Span::secs(view.uptime_us / 1_000_000).to_string());
    line("epoch", view.epoch.to_string());
    line("revision", view.revision.to_string());
    let recovering =
        format!("recovering from an unclean stop, {} left", Span::millis(view.recovery_us / 1_000));
    line("state", if view.recovery_us > 0 { recovering } else { "serving".to_owned() });
    let capacity = if view.capacity.is_empty() { "unlimited".to_owned() } else { view.capacity.clone() };
    line("capacity (RU/s)", capacity);
    line("groups", view.groups.to_string());
    line("bindings", view.bindings.to_string());
    line("clients", view.clients.to_string());
    table.text()
}
