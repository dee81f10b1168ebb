//! `tidegate resolve`: which group pays for someone.

use clap::Args;
use serde::Serialize;
use tidegate_proto::v1;

use crate::admin::Admin;
use crate::args::Global;
use crate::error::CliError;
use crate::follow::{self, Follow, Shown};
use crate::page::Page;

/// The tenant and user to look up.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  tidegate resolve --tenant storefront --user analyst")]
pub(crate) struct ResolveArgs {
    /// The tenant.
    #[arg(long, default_value = "", hide_default_value = true)]
    tenant: String,
    /// The user.
    #[arg(long, default_value = "", hide_default_value = true)]
    user: String,
    #[command(flatten)]
    follow: Follow,
}

#[derive(Serialize)]
struct Resolved {
    group: String,
    /// "user in tenant", "user", "tenant" or "default".
    matched: String,
}

/// Runs the command.
pub(crate) async fn run(args: ResolveArgs, global: &Global) -> Result<(), CliError> {
    let read = async |admin: &Admin| {
        let request = v1::ResolveRequest { tenant: args.tenant.clone(), user: args.user.clone() };
        let reply = admin.calls().resolve(request).await.map_err(admin.failed())?.into_inner();
        Ok(Resolved { group: reply.group, matched: reply.matched })
    };
    follow::show(global, args.follow, read).await
}

impl Shown for Resolved {
    fn page(&self) -> Page {
        format!("{} (by {})", self.group, self.matched).into()
    }

    fn names(&self) -> Vec<String> {
        vec![self.group.clone()]
    }
}
