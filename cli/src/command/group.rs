//! `tidegate group`: create, alter, delete, list and show resource groups.

use clap::{Args, Subcommand};
use serde::Serialize;
use tidegate_controller::group_fields::DEFAULT;
use tidegate_controller::quantity::parse_span;
use tidegate_core::units::Span;
use tidegate_proto::v1;
use tidegate_proto::v1::step::Kind;

use crate::admin::Admin;
use crate::args::Global;
use crate::command::apply::steps;
use crate::command::proposal::{self, ProposalCommand};
use crate::error::CliError;
use crate::follow::{self, Follow, Shown};
use crate::output::note;
use crate::page::Page;
use crate::query_limit::QueryLimitText;
use crate::view;

/// Groups asked for in one page.
const PAGE: u32 = 1_000;

/// What to do with groups.
#[derive(Debug, Subcommand)]
pub(crate) enum GroupCommand {
    /// Create a group.
    #[command(after_help = "Examples:\n  \
        tidegate group create shop --rate '2000 RU/s' --comment 'checkout and search'\n  \
        tidegate group create dashboards --parent analytics --rate 300 --priority high\n  \
        tidegate group create bursty --rate 500 --burstable 'moderated:1500'\n  \
        tidegate group create batch --rate 200 --priority low --ttl 5s --fallback stop")]
    Create {
        /// 1 to 64 of a-z 0-9 . _ -
        name: String,
        #[command(flatten)]
        settings: Settings,
        /// An existing identical group is success.
        #[arg(long)]
        if_not_exists: bool,
    },
    /// Change settings of a group; those not named stay.
    #[command(after_help = "Examples:\n  \
        tidegate group alter shop --rate 1500\n  \
        tidegate group alter shop --rate 1500 --expect-revision 7\n  \
        tidegate group alter shop --parent /           (move it to the top)\n  \
        tidegate group alter shop --rate unlimited     (a limit is lifted by name only)\n  \
        tidegate group alter shop --quota '1000000 per day America/Sao_Paulo'\n  \
        tidegate group alter shop --query-limit \"EXEC_ELAPSED='60s', ACTION=KILL, WATCH=SIMILAR DURATION='10m'\"\n  \
        tidegate group alter shop --query-limit none")]
    Alter {
        /// The group.
        name: String,
        #[command(flatten)]
        settings: Settings,
        /// Refuse unless the group is still at this revision.
        #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
        expect_revision: u64,
    },
    /// Delete groups: all that are named, or none.
    #[command(after_help = "Examples:\n  \
        tidegate group delete old\n  \
        tidegate group delete old older oldest         (in one change)\n  \
        tidegate group delete old --force-to default   (move its bindings and children first)")]
    Delete {
        /// The groups.
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
        /// Move bindings and children to this group first, and let rules and watches switch, and groups demote, to it.
        #[arg(long, value_name = "GROUP", default_value = "", hide_default_value = true)]
        force_to: String,
        /// Refuse unless the group is still at this revision.
        #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
        expect_revision: u64,
        /// A missing group is success.
        #[arg(long)]
        if_exists: bool,
    },
    #[command(flatten)]
    Proposals(ProposalCommand),
    /// List all groups.
    List {
        #[command(flatten)]
        follow: Follow,
    },
    /// Show one group.
    Show {
        /// The group.
        name: String,
        #[command(flatten)]
        follow: Follow,
    },
}

/// Settings of a group. The controller checks them and knows the defaults.
#[derive(Debug, Default, Args)]
pub(crate) struct Settings {
    /// The group above, or / for none; its rate caps everything below it.
    #[arg(long, value_name = "GROUP")]
    parent: Option<String>,
    /// Guarantee and, unless burstable, cap: '2000', '0.5', '2000 RU/s' or 'unlimited'. A new group needs one.
    #[arg(long, value_name = "RU/s", allow_negative_numbers = true)]
    rate: Option<String>,
    /// Depth of the bucket, such as '500' or '500 RU'; 'default' is one second of the rate.
    #[arg(long, value_name = "RU", allow_negative_numbers = true)]
    burst: Option<String>,
    /// Borrow what the groups above have left: off, moderated, moderated:RU/s or unlimited.
    #[arg(long, value_name = "HOW", value_parser = bursting)]
    burstable: Option<String>,
    /// Who borrows first: low, medium or high.
    #[arg(long, value_name = "P")]
    priority: Option<String>,
    /// Share when borrowing within a priority: 1 to 10000.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    weight: Option<u32>,
    #[command(flatten)]
    leases: Leases,
    /// Debt a node is expected to stay within when operations cost more than estimated; stated, not enforced.
    #[arg(long, value_name = "RU", allow_negative_numbers = true)]
    max_debt: Option<String>,
    /// Longest wait of a statement for admission at a SQL gateway, such as 3s; 0s is the gateway's own.
    #[arg(long, value_name = "TIME", value_parser = span)]
    max_wait: Option<Span>,
    /// Free text, up to 256 characters.
    #[arg(long)]
    comment: Option<String>,
    /// Who owns the group and whom to call, up to 200 characters; '' removes it.
    #[arg(long, value_name = "TEXT")]
    owner: Option<String>,
    /// Whether limits are enforced: on, or shadow: what they would throttle, here and below, is counted and admitted.
    #[arg(long, value_name = "HOW")]
    enforcement: Option<String>,
    /// How operations follow each other: token_bucket, or paced: each starts when those before it are paid for at the
    /// rate; nothing is saved up. 'warm_up(10s, 3)' is paced at a rate that is a third of the limit when the group is
    /// cold, as after a silence, and reaches it in 10 s of full use.
    #[arg(long, value_name = "HOW")]
    policy: Option<String>,
    #[command(flatten)]
    beyond: Beyond,
    /// When a statement is a runaway and what happens to it: limits EXEC_ELAPSED, RU, ROWS; ACTION=DRYRUN, COOLDOWN,
    /// KILL or SWITCH_GROUP(group); WATCH=EXACT or SIMILAR, and its DURATION. Or none. SQL gateways enforce it.
    #[arg(long, value_name = "RULE")]
    query_limit: Option<QueryLimitText>,
}

/// What holds on top of the rate, and what becomes of work that is over both.
#[derive(Debug, Default, Args)]
struct Beyond {
    /// What all nodes together use in each minute, hour, day or month of the calendar, here and below: '1000000 per day'
    /// of RU in UTC, '5000 per month Europe/Berlin' in a zone, '10000 requests per day' of any cost; or in any time of such
    /// a length, wherever it begins: '5000 per rolling hour'. None takes it away. What is used stays used until the next
    /// window, or for that time.
    #[arg(long, value_name = "AMOUNT per [rolling] PERIOD [ZONE]")]
    quota: Option<String>,
    /// The group in which operations go on that are over the rate or the quota, before they wait or are refused: one with
    /// a limit and a lower priority, which pays for them; / for none.
    #[arg(long, value_name = "GROUP")]
    demote_to: Option<String>,
}

/// How nodes lease, and what holds without a lease.
#[derive(Debug, Default, Args)]
struct Leases {
    /// How long a lease lasts, such as 5s: for so long a node that is cut off may still spend.
    #[arg(long, value_name = "TIME", value_parser = span)]
    ttl: Option<Span>,
    /// How often nodes renew, such as 1s; at most half of the ttl.
    #[arg(long, value_name = "TIME", value_parser = span)]
    renew: Option<Span>,
    /// What a node may admit without a lease, cut off or while the controller recovers: stop, unlimited, or RU/s per node.
    #[arg(long, value_name = "WHAT")]
    fallback: Option<String>,
    /// RU/s that all nodes together may use without leases, however many there are; or none.
    #[arg(long, value_name = "RU/s")]
    fallback_total: Option<String>,
}

fn bursting(text: &str) -> Result<String, String> {
    match text.split_once(':') {
        Some((_, limit)) if limit.trim().is_empty() => {
            Err("nothing stands behind the colon: write moderated:3000, or moderated for twice the rate"
                .to_owned())
        }
        _ => Ok(text.to_owned()),
    }
}

fn span(text: &str) -> Result<Span, String> {
    parse_span(text).map_err(|error| error.to_string())
}

impl Settings {
    /// The group with these settings, and the names of the fields that were given.
    pub(crate) fn apply(self, name: String) -> (v1::Group, Vec<String>) {
        let mut group = v1::Group { name, ..v1::Group::default() };
        let mut mask = Vec::new();
        let (how, limit) = match self.burstable {
            Some(how) => match how.split_once(':') {
                Some((how, limit)) => (Some(how.to_owned()), Some(limit.to_owned())),
                // Without a limit behind it the group has none, or one that follows the rate; also where a limit was
                // set before.
                None => (Some(how), Some(DEFAULT.to_owned())),
            },
            None => (None, None),
        };
        macro_rules! set {
            ($($field:ident = $given:expr;)*) => {$(
                if let Some(given) = $given {
                    group.$field = given;
                    mask.push(stringify!($field).to_owned());
                }
            )*};
        }
        set! {
            parent = self.parent;
            ru_per_sec = self.rate;
            burst = self.burst;
            burstable = how;
            burst_ru_per_sec = limit;
            priority = self.priority;
            fallback = self.leases.fallback;
            fallback_total = self.leases.fallback_total;
            max_debt = self.max_debt;
            comment = self.comment;
            owner = self.owner;
            enforcement = self.enforcement;
            policy = self.policy;
            quota = self.beyond.quota;
            demote_to = self.beyond.demote_to;
            weight = self.weight;
            ttl_us = self.leases.ttl.map(|ttl| ttl.0);
            renew_us = self.leases.renew.map(|renew| renew.0);
            max_wait_us = self.max_wait.map(|wait| wait.0);
            query_limit = self.query_limit.map(|QueryLimitText(limit)| limit);
        }
        (group, mask)
    }
}

/// The answer to a change.
#[derive(Serialize)]
struct Changed {
    changed: bool,
    group: v1::Group,
    warnings: Vec<String>,
}

/// The answer to a deletion.
#[derive(Serialize)]
struct Deleted {
    deleted: bool,
    moved: Vec<String>,
    moved_count: u64,
    warnings: Vec<String>,
}

/// Runs the command.
pub(crate) async fn run(command: GroupCommand, global: &Global) -> Result<(), CliError> {
    if let GroupCommand::Create { name, settings, .. } = &command
        && settings.rate.is_none()
    {
        let message = format!(
            "group {name} needs a limit: add --rate, such as --rate '2000 RU/s', or --rate unlimited for none"
        );
        return Err(CliError::Usage(message));
    }
    if let GroupCommand::Delete { names, expect_revision, .. } = &command
        && names.len() > 1
        && *expect_revision != 0
    {
        let message = "--expect-revision is of one group; delete that one by itself".to_owned();
        return Err(CliError::Usage(message));
    }
    let admin = global.admin().await?;
    match command {
        GroupCommand::Create { name, settings, if_not_exists } => {
            let (group, _) = settings.apply(name);
            let request = v1::CreateGroupRequest { group: Some(group), if_not_exists };
            let reply = admin.calls().create_group(request).await.map_err(admin.failed_in_flags())?;
            changed(&admin, global, reply.into_inner(), "created")
        }
        GroupCommand::Alter { name, settings, expect_revision } => {
            let (group, update_mask) = settings.apply(name);
            if update_mask.is_empty() {
                let message = "nothing to alter: name at least one setting, such as --rate 1500".to_owned();
                return Err(CliError::Usage(message));
            }
            let request =
                v1::AlterGroupRequest { group: Some(group), update_mask, expected_revision: expect_revision };
            let reply = admin.calls().alter_group(request).await.map_err(admin.failed_in_flags())?;
            changed(&admin, global, reply.into_inner(), "altered")
        }
        GroupCommand::Delete { names, force_to, expect_revision, if_exists } => {
            let request = |name: &String| v1::DeleteGroupRequest {
                name: name.clone(),
                force_to: force_to.clone(),
                expected_revision: expect_revision,
                if_exists,
            };
            let [name] = names.as_slice() else {
                let kinds = names.iter().map(|name| Kind::DeleteGroup(request(name)));
                return steps(kinds.collect(), global).await;
            };
            let reply = admin.calls().delete_group(request(name)).await;
            deleted(global, name, reply.map_err(admin.failed_in_flags())?.into_inner())
        }
        GroupCommand::Proposals(command) => proposal::run(command, global).await,
        GroupCommand::List { follow } => follow::show(global, follow, list).await,
        GroupCommand::Show { name, follow } => {
            follow::show(global, follow, async |admin: &Admin| shown(admin, &name).await).await
        }
    }
}

/// Groups and what the controller warns of.
#[derive(Serialize)]
#[serde(transparent)]
struct Listed {
    groups: Vec<v1::Group>,
    #[serde(skip)]
    warnings: Vec<String>,
}

impl Shown for Listed {
    fn page(&self) -> Page {
        view::groups(&self.groups).into()
    }

    fn names(&self) -> Vec<String> {
        self.groups.iter().map(|group| group.name.clone()).collect()
    }

    fn notes(&self) -> Vec<String> {
        warnings(&self.warnings)
    }
}

/// One group and what the controller warns of.
#[derive(Serialize)]
#[serde(transparent)]
struct One {
    group: v1::Group,
    #[serde(skip)]
    warnings: Vec<String>,
}

impl Shown for One {
    fn page(&self) -> Page {
        view::group(&self.group).into()
    }

    fn names(&self) -> Vec<String> {
        vec![self.group.name.clone()]
    }

    fn notes(&self) -> Vec<String> {
        warnings(&self.warnings)
    }
}

async fn list(admin: &Admin) -> Result<Listed, CliError> {
    let (groups, warnings) = all(admin).await?;
    Ok(Listed { groups, warnings })
}

async fn shown(admin: &Admin, name: &str) -> Result<One, CliError> {
    let request = v1::GetGroupRequest { name: name.to_owned() };
    let reply = admin.calls().get_group(request).await.map_err(admin.failed())?.into_inner();
    Ok(One { group: admin.part(reply.group, "the group")?, warnings: reply.warnings })
}

/// Every group, page by page, and the controller's warnings.
pub(crate) async fn all(admin: &Admin) -> Result<(Vec<v1::Group>, Vec<String>), CliError> {
    let mut groups = Vec::new();
    let mut after = String::new();
    loop {
        let request = v1::ListGroupsRequest { after: after.clone(), limit: PAGE };
        let page = admin.calls().list_groups(request).await.map_err(admin.failed())?.into_inner();
        groups.extend(page.groups);
        // A page that does not move on would be asked for again for ever.
        if page.next_after.is_empty() || page.next_after == after {
            return Ok((groups, page.warnings));
        }
        after = page.next_after;
    }
}

fn changed(admin: &Admin, global: &Global, reply: v1::GroupReply, done: &str) -> Result<(), CliError> {
    let view = Changed {
        changed: reply.changed,
        group: admin.part(reply.group, "the group")?,
        warnings: reply.warnings,
    };
    let names = || vec![view.group.name.clone()];
    global.output.list(&view, names, || {
        let what = if view.changed { done } else { "unchanged" };
        format!("group {} {what}, revision {}", view.group.name, view.group.revision)
    })?;
    warn(&view.warnings);
    Ok(())
}

fn deleted(global: &Global, name: &str, reply: v1::DeleteGroupReply) -> Result<(), CliError> {
    let view = Deleted {
        deleted: reply.deleted,
        moved: reply.moved,
        moved_count: reply.moved_count,
        warnings: reply.warnings,
    };
    global.output.show(&view, || {
        if !view.deleted {
            return format!("group {name} did not exist");
        }
        let mut text = format!("group {name} deleted");
        if !view.moved.is_empty() {
            text.push_str(&format!(", moved {}", view.moved.join(", ")));
        }
        text
    })?;
    warn(&view.warnings);
    Ok(())
}

/// Warnings go beside the result, so that JSON stays JSON.
fn warn(of: &[String]) {
    warnings(of).iter().for_each(|line| note(line));
}

/// Lines that warn.
pub(crate) fn warnings(of: &[String]) -> Vec<String> {
    of.iter().map(|warning| format!("warning: {warning}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_settings_that_were_given_are_in_the_mask() {
        let settings = Settings {
            rate: Some("5".into()),
            burstable: Some("moderated:10".into()),
            leases: Leases { ttl: Some(Span::secs(2)), ..Leases::default() },
            ..Settings::default()
        };
        let (group, mask) = settings.apply("g".into());
        assert_eq!(mask, ["ru_per_sec", "burstable", "burst_ru_per_sec", "ttl_us"]);
        assert_eq!((group.burstable.as_str(), group.burst_ru_per_sec.as_str()), ("moderated", "10"));
        assert_eq!(group.ttl_us, 2_000_000);
        assert!(Settings::default().apply("g".into()).1.is_empty());
        // Without a limit behind the colon, one that was set before does not stay.
        let bare = Settings { burstable: Some("moderated".into()), ..Settings::default() };
        let (group, mask) = bare.apply("g".into());
        assert_eq!(
            (mask.join(" ").as_str(), &*group.burst_ru_per_sec),
            ("burstable burst_ru_per_sec", DEFAULT)
        );
        let none = Settings { query_limit: Some(QueryLimitText(None)), ..Settings::default() };
        assert_eq!(none.apply("g".into()).1, ["query_limit"]);
    }

    #[test]
    fn every_setting_that_can_be_altered_has_a_flag_that_sets_it_and_is_in_the_mask() {
        use clap::Parser as _;

        use crate::args::{Cli, Command};
        let given = [
            ("parent", "--parent", "top", json!("top")),
            ("ru_per_sec", "--rate", "1", json!("1")),
            ("burst", "--burst", "2", json!("2")),
            ("burstable", "--burstable", "moderated:3", json!("moderated")),
            ("burst_ru_per_sec", "--burstable", "moderated:3", json!("3")),
            ("priority", "--priority", "high", json!("high")),
            ("weight", "--weight", "4", json!(4)),
            ("ttl_us", "--ttl", "5us", json!(5)),
            ("renew_us", "--renew", "6us", json!(6)),
            ("fallback", "--fallback", "7", json!("7")),
            ("fallback_total", "--fallback-total", "8", json!("8")),
            ("max_debt", "--max-debt", "9", json!("9")),
            ("max_wait_us", "--max-wait", "10us", json!(10)),
            ("comment", "--comment", "eleven", json!("eleven")),
            ("owner", "--owner", "twelve", json!("twelve")),
            ("enforcement", "--enforcement", "shadow", json!("shadow")),
            ("policy", "--policy", "paced", json!("paced")),
            ("quota", "--quota", "13 per day", json!("13 per day")),
            ("demote_to", "--demote-to", "slow", json!("slow")),
        ];
        let parsed = |flags: &[&str]| {
            let line = ["tidegate", "group", "alter", "g"].iter().chain(flags);
            match Cli::try_parse_from(line).unwrap().command {
                Command::Group(GroupCommand::Alter { name, settings, expect_revision: 0 }) => {
                    settings.apply(name)
                }
                other => panic!("{other:?}"),
            }
        };
        for (field, flag, text, value) in &given {
            let (group, mut mask) = parsed(&[flag, text]);
            mask.sort_unstable();
            let mut expected =
                serde_json::to_value(v1::Group { name: "g".into(), ..v1::Group::default() }).unwrap();
            let together = given.iter().filter(|(_, other, ..)| other == flag);
            let mut fields: Vec<&str> = together.clone().map(|(field, ..)| *field).collect();
            together.for_each(|(field, _, _, value)| expected[field] = value.clone());
            assert_eq!(serde_json::to_value(group).unwrap(), expected, "{flag}: {field}: {value}");
            fields.sort_unstable();
            assert_eq!(mask, fields, "{flag}");
        }
        let (group, mask) = parsed(&["--query-limit", "RU=5 ACTION=KILL"]);
        assert_eq!((group.query_limit.unwrap().ru.as_str(), mask.join(" ").as_str()), ("5", "query_limit"));
        let mut known: Vec<&str> = given.iter().map(|(field, ..)| *field).chain(["query_limit"]).collect();
        let mut alterable: Vec<&str> = tidegate_controller::group_fields::alterable().collect();
        known.sort_unstable();
        alterable.sort_unstable();
        assert_eq!(known, alterable);
    }
}
