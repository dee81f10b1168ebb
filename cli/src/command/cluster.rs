//! `tidegate cluster`: the controllers of a cluster, each asked by itself.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;
use tidegate_controller::quantity::parse_span;
use tidegate_core::units::Span;
use tidegate_proto::v1;
use tonic::Code;

use crate::admin::Admin;
use crate::args::Global;
use crate::clock::monotonic_us;
use crate::command::controller::{EtcdArgs, config_of};
use crate::endpoints;
use crate::error::CliError;
use crate::output::{note, unless_unread};
use crate::table::{Column, Table};
use crate::token;
use crate::view::RestoredView;

/// What to do with a cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Show which controller leads, which stand by, and which cannot be reached; fails unless one leads.
    #[command(after_help = "Example:\n  \
        tidegate cluster status --endpoint http://c1:7420,http://c2:7420,http://c3:7420\n  \
        tidegate cluster status --wait 30      (after a start or a failure: until one leads)")]
    Status {
        /// Wait until one leads, for at most so many seconds.
        #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=3_600))]
        wait: u64,
    },
    /// List the controllers of the cluster as the one that leads sees them: where they are, their versions, when they
    /// last showed that they run, and how far their clocks are off.
    Members,
    /// Let the controller that leads hand the lead over, with all leases, and leave it to others for a while.
    #[command(
        after_help = "Examples:\n  tidegate cluster drain\n  tidegate cluster drain --controller c1 --rest 10m\n\n\
        It is refused where no other controller runs. The controller goes on as a standby; when the time is over, no\n\
        other one runs any more, or none takes the lead, it may lead again."
    )]
    Drain {
        /// The controller that is meant: refused if another one leads [default: whichever leads].
        #[arg(long, value_name = "NAME")]
        controller: Option<String>,
        /// How long it leaves the lead to others, up to 24h [default: 30s].
        #[arg(long, value_name = "TIME", value_parser = rest)]
        rest: Option<u64>,
    },
    /// Remove a controller that was killed for good from the list of members. One that is stopped in order leaves the
    /// list by itself.
    #[command(after_help = "Example:\n  tidegate cluster forget c3\n\n\
        It is refused for the controller that leads, and for one that showed within the last 3 s that it runs.")]
    Forget {
        /// The controller, as `tidegate cluster members` names it.
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Let a cluster go on whose etcd was restored from a backup, while none of its controllers runs. Controllers whose
    /// files are ahead of what was restored refuse to start; run this once, beside the files of the one that led last.
    ///
    /// What the file knows is not taken over: definitions, tokens and bindings are those of the backup, so that a token
    /// that was revoked since is valid again, and RU that were counted since are lost but for those that living nodes
    /// still report. The command lists them. The next controller leads a later epoch than any before, and
    /// grants nothing new for as long as leases of before may be in use. All files that are ahead are put aside: this one
    /// now, the others as their controllers start.
    #[command(after_help = "Examples:\n  \
        tidegate cluster restored --config /etc/tidegate.toml\n  \
        tidegate cluster restored --data /var/lib/tidegate --cluster-name c1 --etcd https://etcd1.example:2379")]
    Restored(Box<RestoredArgs>),
}

/// Arguments of `restored`.
#[derive(Debug, Args)]
pub(crate) struct RestoredArgs {
    /// Settings of the controller, in TOML.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Directory of its store.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(flatten)]
    etcd: EtcdArgs,
}

fn rest(text: &str) -> Result<u64, String> {
    match parse_span(text) {
        Ok(Span(0)) => Err("it would lead again at once; leave it out for 30s".to_owned()),
        Ok(span) => Ok(span.0),
        Err(error) => Err(error.to_string()),
    }
}

/// A controller as it is printed.
#[derive(Serialize)]
struct ControllerView {
    endpoint: String,
    /// `leader`, `standby` or `unreachable`.
    role: &'static str,
    /// 0 unless it leads.
    epoch: u64,
    /// What it says, or why it says nothing.
    says: String,
    /// It leads, and has no successor.
    #[serde(skip)]
    takes_calls: bool,
    /// Which cluster it leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
}

/// Runs the command.
pub(crate) async fn run(command: ClusterCommand, global: &Global) -> Result<(), CliError> {
    match command {
        ClusterCommand::Status { wait } => status(wait, global).await,
        ClusterCommand::Members => members(global).await,
        ClusterCommand::Drain { controller, rest } => {
            let request = v1::DrainControllerRequest {
                controller: controller.unwrap_or_default(),
                rest_us: rest.unwrap_or_default(),
            };
            let admin = global.admin().await?;
            let reply = admin.calls().drain_controller(request).await.map_err(admin.failed_in_flags())?;
            let reply = reply.into_inner();
            global.output.show(&reply, || {
                let rest = Span(reply.rest_us);
                format!("controller {} leaves the lead to another one for {rest}\n", reply.controller)
            })
        }
        ClusterCommand::Forget { name } => {
            let request = v1::ForgetControllerRequest { controller: name };
            let admin = global.admin().await?;
            let reply = admin.calls().forget_controller(request).await.map_err(admin.failed())?.into_inner();
            global.output.show(&reply, || {
                let silent = Span(reply.silent_us / 1_000 * 1_000);
                format!("controller {} is forgotten; it was silent for {silent}", reply.controller)
            })
        }
        ClusterCommand::Restored(args) => restored(*args, global).await,
    }
}

async fn restored(args: RestoredArgs, global: &Global) -> Result<(), CliError> {
    if let Some(data) = args.data.as_ref().filter(|data| !data.is_dir()) {
        let message =
            format!("--data {}: there is no such directory; name that of the controller", data.display());
        return Err(CliError::Usage(message));
    }
    let config = config_of(args.config, args.data, args.etcd)?;
    let actor = global.actor.clone();
    let done = tokio::task::spawn_blocking(move || tidegate_controller::restored(&config, &actor)).await;
    let done = done.map_err(|error| CliError::Process {
        what: "restore the cluster".to_owned(),
        reason: error.to_string(),
    })?;
    let view = RestoredView::of(done.map_err(|error| CliError::Refused(error.to_string()))?);
    global.output.show(&view, || view.page())
}

async fn members(global: &Global) -> Result<(), CliError> {
    let admin = global.admin().await?;
    let request = v1::ListControllersRequest {};
    let reply = admin.calls().list_controllers(request).await.map_err(admin.failed())?.into_inner();
    note(&format!("cluster {} under {}", reply.cluster, reply.prefix));
    let controllers = reply.controllers;
    global.output.list(
        &controllers,
        || controllers.iter().map(|controller| controller.name.clone()).collect(),
        || {
            let mut table = Table::new([
                Column::name("CONTROLLER"),
                Column::word("ROLE"),
                Column::text("ADDRESS"),
                Column::word("VERSION"),
                Column::number("SEEN"),
                Column::number("CLOCK"),
            ]);
            for controller in &controllers {
                let role = if controller.leads { LEADER } else { STANDBY };
                let seen = Span(controller.age_us / 1_000 * 1_000);
                table.row([
                    controller.name.clone(),
                    role.to_owned(),
                    controller.addresses.join(" "),
                    controller.version.clone(),
                    format!("{seen} ago"),
                    format!("{:+} ms", controller.clock_ahead_ms),
                ]);
            }
            table
        },
    )
}

async fn status(wait: u64, global: &Global) -> Result<(), CliError> {
    let until_us = monotonic_us().saturating_add(wait.saturating_mul(1_000_000));
    let mut views = look_at_all(global).await?;
    let is_led = |views: &[ControllerView]| {
        let mut leaders = views.iter().filter(|view| view.role == LEADER);
        leaders.next().is_some_and(|leader| leader.takes_calls) && leaders.next().is_none()
    };
    while !is_led(&views) && monotonic_us() < until_us {
        tokio::time::sleep(LOOK).await;
        views = look_at_all(global).await?;
    }
    if let [leader] = views.iter().filter(|view| view.role == LEADER).collect::<Vec<_>>().as_slice()
        && let Some(cluster) = &leader.cluster
    {
        note(&format!("cluster {cluster}"));
    }
    let leaders = || views.iter().filter(|view| view.role == LEADER).map(|view| view.endpoint.clone());
    let shown = global.output.list(
        &views,
        || leaders().collect(),
        || {
            let columns = [
                Column::text("CONTROLLER"),
                Column::word("ROLE"),
                Column::number("EPOCH"),
                Column::text("SAYS"),
            ];
            let mut table = Table::new(columns);
            for view in &views {
                let epoch = if view.epoch == 0 { "-".to_owned() } else { view.epoch.to_string() };
                table.row([view.endpoint.clone(), view.role.to_owned(), epoch, view.says.clone()]);
            }
            table
        },
    );
    unless_unread(shown)?;
    match leaders().count() {
        1 => Ok(()),
        0 => Err(CliError::Unavailable("no controller leads; see what each of them says".to_owned())),
        // Between two answers another one may take over; then the next look shows one.
        several => Err(CliError::Refused(format!(
            "{several} controllers say that they lead; look again, and if they still do, they are of different clusters"
        ))),
    }
}

const LEADER: &str = "leader";
const STANDBY: &str = "standby";
/// Between two looks at all of them: a takeover takes ten times as long.
const LOOK: Duration = Duration::from_millis(100);

async fn look_at_all(global: &Global) -> Result<Vec<ControllerView>, CliError> {
    let mut views = Vec::new();
    for endpoint in endpoints::each(&global.endpoint) {
        views.push(look(endpoint, global).await?);
    }
    Ok(views)
}

async fn look(endpoint: &str, global: &Global) -> Result<ControllerView, CliError> {
    let token = token::bearer(global.token_file.as_deref())?;
    let asked = async {
        let admin = Admin::connect(endpoint, &global.actor, &global.tls(), token).await?;
        let status = admin.calls().status(v1::StatusRequest {}).await.map_err(admin.failed())?.into_inner();
        // One that leads no cluster is alone, and refuses; one that may have a successor takes no call.
        let of = admin.calls().list_controllers(v1::ListControllersRequest {}).await;
        let takes_calls = of.as_ref().err().is_none_or(|status| status.code() != Code::Unavailable);
        Ok((status, of.ok().map(|of| of.into_inner()), takes_calls))
    };
    let silent = |role, says| ControllerView {
        endpoint: endpoint.to_owned(),
        role,
        epoch: 0,
        says,
        takes_calls: false,
        cluster: None,
    };
    match asked.await {
        Ok((status, of, takes_calls)) => Ok(ControllerView {
            epoch: status.epoch,
            takes_calls,
            cluster: of.map(|of| format!("{} under {}", of.cluster, of.prefix)),
            ..silent(
                LEADER,
                if status.warnings.is_empty() { "serving".to_owned() } else { status.warnings.join("; ") },
            )
        }),
        Err(CliError::Unavailable(says)) => Ok(silent(STANDBY, says)),
        Err(error @ CliError::Unreachable { .. }) => Ok(silent("unreachable", error.to_string())),
        Err(error) => Err(error),
    }
}
