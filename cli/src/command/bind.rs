//! `tidegate bind`: who is charged to which group.

use clap::{Args, Subcommand};
use serde::Serialize;
use tidegate_proto::v1;
use tidegate_proto::v1::step::Kind;

use super::of_group::OfGroup;
use crate::admin::Admin;
use crate::args::Global;
use crate::command::apply::steps;
use crate::error::CliError;
use crate::follow::{self, Follow, Shown};
use crate::output::Output;
use crate::page::Page;
use crate::table::{Column, Table};

/// Bindings asked for in one page.
const PAGE: u32 = 1_000;

/// What to do with bindings.
#[derive(Debug, Subcommand)]
pub(crate) enum BindCommand {
    /// Charge a tenant, a user, or a user of a tenant to a group; replaces an earlier binding.
    #[command(after_help = "Examples:\n  \
        tidegate bind add shop --tenant storefront\n  \
        tidegate bind add reports --tenant storefront --user analyst\n\n\
        The closest binding counts: user in tenant, else user, else tenant, else the group `default`.")]
    Add {
        /// The group.
        group: String,
        #[command(flatten)]
        who: Who,
    },
    /// Remove bindings: all that are named, or none.
    #[command(after_help = "Examples:\n  \
        tidegate bind remove --tenant storefront --user analyst\n  \
        tidegate bind remove --tenant storefront --tenant marketing     (in one change)\n  \
        tidegate bind remove --tenant storefront --user ann --user bob  (both of this tenant)")]
    Remove {
        #[command(flatten)]
        who: Several,
        /// A missing binding is success, as it is where several are named.
        #[arg(long)]
        if_exists: bool,
    },
    /// List bindings.
    List {
        #[command(flatten)]
        group: OfGroup,
        #[command(flatten)]
        follow: Follow,
    },
}

/// A tenant, a user, or both.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct Who {
    /// The tenant.
    #[arg(long, default_value = "", hide_default_value = true)]
    tenant: String,
    /// The user.
    #[arg(long, default_value = "", hide_default_value = true)]
    user: String,
}

/// Tenants, users, or users of one tenant.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct Several {
    /// A tenant.
    #[arg(long = "tenant", value_name = "TENANT")]
    tenants: Vec<String>,
    /// A user.
    #[arg(long = "user", value_name = "USER")]
    users: Vec<String>,
}

impl Several {
    /// Each tenant and user of a binding.
    fn principals(&self) -> Result<Vec<Who>, CliError> {
        let nobody = [String::new()];
        let all = |names: &[String]| if names.is_empty() { nobody.to_vec() } else { names.to_vec() };
        if self.tenants.len() > 1 && self.users.len() > 1 {
            let message = "several tenants and several users: which user of which tenant? remove those of one tenant \
                           at a time";
            return Err(CliError::Usage(message.to_owned()));
        }
        let users = all(&self.users);
        let of =
            |tenant: String| users.iter().map(move |user| Who { tenant: tenant.clone(), user: user.clone() });
        Ok(all(&self.tenants).into_iter().flat_map(of).collect())
    }
}

#[derive(Serialize)]
struct BindingView {
    tenant: String,
    user: String,
    group: String,
}

#[derive(Serialize)]
struct Bound {
    changed: bool,
    tenant: String,
    user: String,
    group: String,
    /// The group bound before; empty for none.
    previous: String,
}

#[derive(Serialize)]
struct Unbound {
    removed: bool,
    tenant: String,
    user: String,
}

/// Runs the command.
pub(crate) async fn run(command: BindCommand, global: &Global) -> Result<(), CliError> {
    match command {
        BindCommand::Add { group, who } => add(&global.admin().await?, group, who, global.output).await,
        BindCommand::Remove { who, if_exists } => remove_all(who.principals()?, if_exists, global).await,
        BindCommand::List { group, follow } => {
            let group = group.name();
            follow::show(global, follow, async |admin: &Admin| list(admin, &group).await).await
        }
    }
}

impl Shown for Vec<BindingView> {
    fn page(&self) -> Page {
        let mut table = Table::new([Column::name("TENANT"), Column::name("USER"), Column::name("GROUP")]);
        for view in self {
            table.row([view.tenant.clone(), view.user.clone(), view.group.clone()]);
        }
        table.into()
    }

    /// Tenant and user with a tab between, as either may hold any other sign.
    fn names(&self) -> Vec<String> {
        self.iter().map(|view| format!("{}\t{}", view.tenant, view.user)).collect()
    }
}

async fn add(admin: &Admin, group: String, who: Who, output: Output) -> Result<(), CliError> {
    let binding = v1::Binding { tenant: who.tenant.clone(), user: who.user.clone(), group: group.clone() };
    let request = v1::BindRequest { binding: Some(binding) };
    let reply = admin.calls().bind(request).await.map_err(admin.failed_in_flags())?.into_inner();
    let view =
        Bound { changed: reply.changed, tenant: who.tenant, user: who.user, group, previous: reply.previous };
    output.show(&view, || {
        let who = described(&view.tenant, &view.user);
        match (view.changed, view.previous.as_str()) {
            (false, _) => format!("{who} was bound to {} already", view.group),
            (true, "") => format!("{who} bound to {}", view.group),
            (true, previous) => format!("{who} bound to {}, before to {previous}", view.group),
        }
    })
}

/// One binding is a call of its own, which says whether the binding existed; several are one change.
async fn remove_all(mut principals: Vec<Who>, if_exists: bool, global: &Global) -> Result<(), CliError> {
    match (principals.pop(), principals.is_empty()) {
        (Some(who), true) => remove(&global.admin().await?, who, if_exists, global.output).await,
        (last, _) => {
            let unbind =
                |who: Who| Kind::DeleteBinding(v1::UnbindRequest { tenant: who.tenant, user: who.user });
            steps(principals.into_iter().chain(last).map(unbind).collect(), global).await
        }
    }
}

async fn remove(admin: &Admin, who: Who, if_exists: bool, output: Output) -> Result<(), CliError> {
    let request = v1::UnbindRequest { tenant: who.tenant.clone(), user: who.user.clone() };
    let reply = admin.calls().unbind(request).await.map_err(admin.failed_in_flags())?;
    let view = Unbound { removed: reply.into_inner().removed, tenant: who.tenant, user: who.user };
    if !view.removed && !if_exists {
        let who = described(&view.tenant, &view.user);
        return Err(CliError::Refused(format!(
            "{who} has no binding; `tidegate bind list` shows those there are"
        )));
    }
    output.show(&view, || {
        let who = described(&view.tenant, &view.user);
        if view.removed { format!("binding of {who} removed") } else { format!("{who} had no binding") }
    })
}

async fn list(admin: &Admin, group: &str) -> Result<Vec<BindingView>, CliError> {
    let mut views: Vec<BindingView> = Vec::new();
    loop {
        let last = views.last();
        let request = v1::ListBindingsRequest {
            group: group.to_owned(),
            after_tenant: last.map(|view| view.tenant.clone()).unwrap_or_default(),
            after_user: last.map(|view| view.user.clone()).unwrap_or_default(),
            limit: PAGE,
        };
        let page = admin.calls().list_bindings(request).await.map_err(admin.failed())?.into_inner();
        let more = page.more && !page.bindings.is_empty();
        views.extend(page.bindings.into_iter().map(|binding| BindingView {
            tenant: binding.tenant,
            user: binding.user,
            group: binding.group,
        }));
        if !more {
            return Ok(views);
        }
    }
}

fn described(tenant: &str, user: &str) -> String {
    match (tenant, user) {
        (tenant, "") => format!("tenant {tenant}"),
        ("", user) => format!("user {user}"),
        (tenant, user) => format!("user {user} of tenant {tenant}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_are_each_tenant_each_user_or_each_user_of_a_tenant() {
        let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let all = |tenants: &[&str], users: &[&str]| {
            let several = Several { tenants: named(tenants), users: named(users) };
            let all = several.principals().map_err(|error| error.exit_code())?.into_iter();
            Ok(all.map(|who| format!("{}/{}", who.tenant, who.user)).collect::<Vec<_>>().join(" "))
        };
        for (tenants, users, expected) in [
            (&["t"][..], &[][..], Ok("t/")),
            (&[], &["u"], Ok("/u")),
            (&["t"], &["u"], Ok("t/u")),
            (&["s", "t"], &[], Ok("s/ t/")),
            (&[], &["u", "v"], Ok("/u /v")),
            (&["t"], &["u", "v"], Ok("t/u t/v")),
            (&["s", "t"], &["u"], Ok("s/u t/u")),
            (&["s", "t"], &["u", "v"], Err(2)),
        ] {
            assert_eq!(all(tenants, users), expected.map(str::to_owned), "{tenants:?} {users:?}");
        }
    }
}
