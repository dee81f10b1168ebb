//! `tidegate resolve`: which group pays for someone.

use clap::Args;
use serde::Serialize;
use tidegate_proto::v1;

use crate::args::Global;
use crate::error::CliError;

/// Whom to look up.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  tidegate resolve --tenant storefront --user analyst")]
pub(crate) struct ResolveArgs {
    /// The tenant.
    #[arg(long, default_value = "", hide_default_value = true)]
    tenant: String,
    /// The user.
    #[arg(long, default_value = "", hide_default_value = true)]
    user: String,
}

#[derive(Serialize)]
struct Resolved {
    group: String,
    /// "user in tenant", "user", "tenant" or "default".
    matched: String,
}

/// Runs the command.
pub(crate) async fn run(args: ResolveArgs, global: &Global) -> Result<(), CliError> {
    let admin = global.admin().await?;
    let request = v1::ResolveRequest { tenant: args.tenant, user: args.user };
    let reply = admin.calls().resolve(request).await.map_err(admin.failed())?.into_inner();
    let view = Resolved { group: reply.group, matched: reply.matched };
    global.output.show(&view, || format!("{} (by {})", view.group, view.matched))
}
