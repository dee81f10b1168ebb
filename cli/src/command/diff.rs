//! `tidegate diff`: what `apply` would change, as diff(1) shows it.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Map, Value};
use tidegate_proto::v1;

use super::apply::{From, made};
use crate::args::Global;
use crate::error::CliError;
use crate::manifest::{Comments, document, unified};
use crate::output::{print, print_raw, unless_unread};
use crate::plain;
use crate::screen::Screen;

/// What is compared.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    tidegate diff -f groups.yaml\n  \
    tidegate diff -f definitions/ --prune groups,bindings --under analytics\n\n\
    Exit status: 0 nothing differs, 1 something does, 2 it failed.")]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    from: From,
}

/// The status of a failure, as with diff(1): 1 says that something differs.
pub(crate) const FAILED: u8 = 2;

/// Runs the command.
pub(crate) async fn run(args: DiffArgs, global: &Global) -> Result<ExitCode, CliError> {
    let text = differences(&args, global).await?;
    if text.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    // Except for colours, no output may control a terminal.
    let printed =
        if Screen::stdout().color { print_raw(&coloured(&plain::lines(&text))) } else { print(&text) };
    unless_unread(printed)?;
    Ok(ExitCode::from(1))
}

async fn differences(args: &DiffArgs, global: &Global) -> Result<String, CliError> {
    let objects = args.from.objects()?;
    let mut request = args.from.request(&objects)?;
    request.dry_run = true;
    let admin = global.admin().await?;
    let reply = made(&admin, request, &objects).await?;
    let mut text = String::new();
    // The first outcomes are those of the objects, in order.
    for (index, outcome) in reply.outcomes.iter().enumerate() {
        let from = objects.get(index);
        let name = from.map_or_else(|| "(not in the files)".to_owned(), |object| object.file.clone());
        let live = format!("live/{} {}", outcome.kind, outcome.name);
        text.push_str(&unified(
            (&live, &state(outcome, &outcome.before)),
            (&name, &state(outcome, &outcome.after)),
        ));
    }
    Ok(text)
}

/// A state as a document; empty where there was or is no state.
fn state(outcome: &v1::Outcome, json: &str) -> String {
    let kind = match outcome.kind.as_str() {
        "group" => "Group",
        "binding" => "Binding",
        "cost_table" => "CostTable",
        _ => "Watch",
    };
    match serde_json::from_str(json) {
        Ok(Value::Object(mut fields)) => {
            if kind == "CostTable" {
                // The log has the table, and the name which role it has.
                let role = outcome.name.split(' ').next().unwrap_or_default();
                fields.insert("role".to_owned(), Value::from(role));
            }
            document(kind, &fields, Comments::None)
        }
        // Of a binding the log has the group.
        Ok(Value::String(group)) => document(kind, &binding(&outcome.name, &group), Comments::None),
        _ => String::new(),
    }
}

/// The fields of a binding that is named like `user ann in tenant acme`.
fn binding(name: &str, group: &str) -> Map<String, Value> {
    // A tenant or a user may be called like one of the words between.
    let parts = match *name.split(' ').collect::<Vec<_>>().as_slice() {
        ["user", user, "in", "tenant", tenant] => vec![("tenant", tenant), ("user", user)],
        [part @ ("tenant" | "user"), name] => vec![(part, name)],
        _ => Vec::new(),
    };
    let fields = parts.into_iter().chain([("group", group)]);
    fields.map(|(name, value)| (name.to_owned(), Value::from(value))).collect()
}

fn coloured(text: &str) -> String {
    let line = |line: &str| {
        let colour = match line.as_bytes() {
            [b'-', b'-', b'-', ..] | [b'+', b'+', b'+', ..] => "1",
            [b'@', ..] => "36",
            [b'-', ..] => "31",
            [b'+', ..] => "32",
            _ => return format!("{line}\n"),
        };
        format!("\u{1b}[{colour}m{line}\u{1b}[0m\n")
    };
    text.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_a_document_and_colours_are_around_lines() {
        let outcome = |kind: &str, name: &str| v1::Outcome {
            kind: kind.into(),
            name: name.into(),
            ..v1::Outcome::default()
        };
        assert_eq!(
            state(&outcome("group", "a"), r#"{"name":"a","parent":""}"#),
            "kind: Group\nname: a\nparent: /\n"
        );
        let bound = state(&outcome("binding", "user u in tenant t"), "\"shop\"");
        assert_eq!(bound, "kind: Binding\ntenant: t\nuser: u\ngroup: shop\n");
        // Names of tenants and users that are words of the line.
        for (tenant, user) in [("acme", "user"), ("tenant", "tenant"), ("user", "in"), ("in", "user")] {
            let name = format!("user {user} in tenant {tenant}");
            let bound = state(&outcome("binding", &name), "\"shop\"");
            let quiet = |name: &str| bound.contains(&format!("{name}\n"));
            assert!(quiet(&format!("tenant: {tenant}")) && quiet(&format!("user: {user}")), "{bound}");
            assert_eq!(bound.lines().count(), 4, "{bound}");
        }
        let table = state(
            &outcome("cost_table", "shadow table mine"),
            r#"{"name":"mine","version":2,"replicas":3,"ru_per_unit":{"cpu_ns":"1/3"}}"#,
        );
        let written = "kind: CostTable\nrole: shadow\nname: mine\nversion: 2\nreplicas: 3\nru_per_unit:\n  cpu_ns: \"1/3\"\n";
        assert_eq!(table, written);
        let watch = state(
            &outcome("watch", "1"),
            r#"{"id":1,"group":"a","match":"similar","digest":"00","text":"","action":"kill","start_unix_ms":1,"rule":"r"}"#,
        );
        let written = "kind: Watch\ngroup: a\nmatch: similar\ndigest: \"00\"\ntext: \"\"\naction: kill\n";
        assert_eq!(watch, written);
        assert_eq!(state(&outcome("group", "a"), ""), "");
        assert_eq!(coloured("-a\n b\n"), "\u{1b}[31m-a\u{1b}[0m\n b\n");
    }
}
