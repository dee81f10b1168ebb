//! `tidegate status`: how the controller is.

use clap::Args;
use serde::Serialize;
use tidegate_core::units::Span;
use tidegate_proto::v1;

use crate::admin::Admin;
use crate::args::Global;
use crate::command::group::warnings;
use crate::error::CliError;
use crate::follow::{self, Follow, Shown};
use crate::page::Page;
use crate::table::{Column, Table};

/// How to look.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    follow: Follow,
}

#[derive(Serialize)]
struct StatusView {
    endpoint: String,
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
pub(crate) async fn run(args: StatusArgs, global: &Global) -> Result<(), CliError> {
    follow::show(global, args.follow, read).await
}

async fn read(admin: &Admin) -> Result<StatusView, CliError> {
    let request = v1::StatusRequest {};
    let reply = admin.calls().status(request).await.map_err(admin.failed())?.into_inner();
    Ok(StatusView {
        endpoint: admin.endpoint().to_owned(),
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
    })
}

impl Shown for StatusView {
    fn page(&self) -> Page {
        let mut table = Table::new([Column::word("CONTROLLER"), Column::prose(&self.endpoint)]);
        let mut line = |what: &str, value: String| table.row([what.to_owned(), value]);
        line("version", self.version.clone());
        line("uptime", Span::secs(self.uptime_us / 1_000_000).to_string());
        line("epoch", self.epoch.to_string());
        line("revision", self.revision.to_string());
        let recovering =
            format!("recovering from an unclean stop, {} left", Span::millis(self.recovery_us / 1_000));
        line("state", if self.recovery_us > 0 { recovering } else { "serving".to_owned() });
        let capacity = if self.capacity.is_empty() { "unlimited".to_owned() } else { self.capacity.clone() };
        line("capacity (RU/s)", capacity);
        line("groups", self.groups.to_string());
        line("bindings", self.bindings.to_string());
        line("clients", self.clients.to_string());
        warnings(&self.warnings).into_iter().fold(table.into(), Page::then)
    }

    fn names(&self) -> Vec<String> {
        vec![self.endpoint.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_of_a_controller_is_shown_as_what_it_is() {
        let mut status = StatusView {
            endpoint: "http://a:1".into(),
            version: "0.9".into(),
            epoch: 2,
            revision: 3,
            uptime_us: 4_999_999,
            recovery_us: 5_000_999,
            capacity: "6".into(),
            groups: 7,
            bindings: 8,
            clients: 9,
            warnings: vec!["mind the gap".into()],
        };
        let lines = status.page().words();
        let expected = [
            "CONTROLLER http://a:1",
            "version 0.9",
            "uptime 4s",
            "epoch 2",
            "revision 3",
            "state recovering from an unclean stop, 5s left",
            "capacity (RU/s) 6",
            "groups 7",
            "bindings 8",
            "clients 9",
        ];
        assert_eq!(lines[..10], expected);
        assert!(lines[10..].iter().any(|line| line.contains("mind the gap")), "{lines:?}");
        (status.recovery_us, status.capacity, status.warnings) = (0, String::new(), Vec::new());
        let lines = status.page().words();
        assert_eq!((lines[5].as_str(), lines[6].as_str()), ("state serving", "capacity (RU/s) unlimited"));
        assert_eq!((lines.len(), status.names()), (10, vec!["http://a:1".to_owned()]));
    }
}
