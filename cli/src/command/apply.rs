//! `tidegate apply`: what files define becomes true in one change, or nothing does.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use prost::Message as _;
use serde::Serialize;
use tidegate_proto::v1;
use tidegate_proto::v1::step::Kind;
use tonic::{Code, Status};

use crate::admin::Admin;
use crate::args::Global;
use crate::error::CliError;
use crate::manifest::limits::{MAX_ANSWER, MAX_MESSAGE};
use crate::manifest::{Fault, Faults, Object, Unnamed, manifest, sources};
use crate::output::note;

/// What is to be applied.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    tidegate apply -f groups.yaml\n  \
    tidegate apply -f groups.yaml --dry-run\n  \
    tidegate apply -f definitions/ --prune groups,bindings --under analytics\n  \
    tidegate group list --output json | tidegate --endpoint http://other:7420 apply -f -\n\n\
    A file, of as many documents as there are things:\n  \
    kind: Group\n  name: shop\n  ru_per_sec: 2000\n  ---\n  kind: Binding\n  tenant: storefront\n  group: shop\n\n\
    Kinds are Group, Binding, CostTable and Watch; fields are those of `--output json` and REST. A field left out has\n\
    its default; a limit is lifted only by a named value: `parent: /`, `burst: default`.")]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    pub(crate) from: From,
    /// Check everything at the controller and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Delete what the files do not name without asking.
    #[arg(long)]
    yes: bool,
}

/// Which files to read, and what to delete because they do not name it.
#[derive(Debug, Args)]
pub(crate) struct From {
    /// A file, a directory with files *.yaml, *.yml and *.json, or - for the standard input.
    #[arg(short, long = "file", value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Delete what the files do not name: groups, bindings, watches. The group default stays. A file of YAML has to end
    /// with a line `...` then, by which one that was cut off differs.
    #[arg(long, value_name = "WHAT", value_enum, value_delimiter = ',')]
    prune: Vec<Prunable>,
    /// Prune only groups below this one, and bindings and watches of it and of those.
    #[arg(long, value_name = "GROUP", requires = "prune")]
    under: Option<String>,
}

/// What can be pruned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Prunable {
    /// Groups.
    Groups,
    /// Bindings.
    Bindings,
    /// Watches that an operator added.
    Watches,
}

impl From {
    /// The objects of all files.
    pub(crate) fn objects(&self) -> Result<Vec<Object>, CliError> {
        let unnamed = if self.prune.is_empty() { Unnamed::Stay } else { Unnamed::Go };
        Ok(manifest(&sources(&self.files)?, unnamed)?)
    }

    /// The change that makes them true.
    pub(crate) fn request(&self, objects: &[Object]) -> Result<v1::ApplyRequest, CliError> {
        let step = |object: &Object| v1::Step { kind: Some(object.kind.clone()) };
        let prunes = |what| self.prune.contains(&what);
        let prune = v1::Prune {
            groups: prunes(Prunable::Groups),
            bindings: prunes(Prunable::Bindings),
            watches: prunes(Prunable::Watches),
            under: self.under.clone().unwrap_or_default(),
        };
        let request = v1::ApplyRequest {
            steps: objects.iter().map(step).collect(),
            prune: Some(prune),
            ..v1::ApplyRequest::default()
        };
        fits(request)
    }

    fn reads_input(&self) -> bool {
        self.files.iter().any(|file| file.as_os_str() == "-")
    }
}

/// A change that is not too large for a message.
fn fits(request: v1::ApplyRequest) -> Result<v1::ApplyRequest, CliError> {
    let bytes = request.encoded_len();
    if bytes > MAX_MESSAGE {
        let message = format!(
            "the change has {bytes} bytes, above the {MAX_MESSAGE} that a controller takes at once; apply a part of it \
             at a time"
        );
        return Err(CliError::Refused(message));
    }
    Ok(request)
}

/// The outcome of one thing.
#[derive(Serialize)]
struct OutcomeView<'a> {
    kind: &'a str,
    name: &'a str,
    outcome: &'a str,
}

/// The outcomes of all.
#[derive(Serialize)]
struct AppliedView<'a> {
    dry_run: bool,
    changed: bool,
    revision: u64,
    outcomes: Vec<OutcomeView<'a>>,
    warnings: &'a [String],
}

/// Runs the command.
pub(crate) async fn run(args: ApplyArgs, global: &Global) -> Result<(), CliError> {
    let objects = args.from.objects()?;
    let mut request = args.from.request(&objects)?;
    let admin = global.admin().await?;
    request.dry_run = args.dry_run;
    if !args.from.prune.is_empty() && !args.dry_run && !args.yes {
        request.expected_revision = agreed(&admin, &request, &objects, &args.from).await?;
    }
    let reply = made(&admin, request, &objects).await?;
    show(&reply, args.dry_run, global)
}

/// Makes a change; reports its faults at the places of its objects.
pub(crate) async fn made(
    admin: &Admin,
    request: v1::ApplyRequest,
    objects: &[Object],
) -> Result<v1::ApplyReply, CliError> {
    let mut calls = admin.calls().max_decoding_message_size(MAX_ANSWER);
    let reply = match calls.apply(request.clone()).await {
        Ok(reply) => reply.into_inner(),
        Err(status) => {
            // The message is for people and short; a dry run lists everything.
            if !request.dry_run && may_be_faults(&status) {
                let dry = v1::ApplyRequest { dry_run: true, ..request };
                if let Ok(reply) = calls.apply(dry).await {
                    placed(&reply.into_inner(), objects)?;
                }
            }
            return Err(unknown(admin.failed()(status)));
        }
    };
    placed(&reply, objects)?;
    Ok(reply)
}

/// Whether a refusal is about the steps.
fn may_be_faults(status: &Status) -> bool {
    let codes = [
        Code::InvalidArgument,
        Code::NotFound,
        Code::AlreadyExists,
        Code::FailedPrecondition,
        Code::ResourceExhausted,
        Code::Aborted,
    ];
    codes.contains(&status.code())
}

/// Where the answer was lost, the change may have been made.
fn unknown(error: CliError) -> CliError {
    match error {
        CliError::Unreachable { endpoint, reason } => CliError::Unreachable {
            endpoint,
            reason: format!(
                "{reason} (all of the change is in force, or nothing: doing it again once the controller is back is safe)"
            ),
        },
        other => other,
    }
}

/// The faults of a dry run, at the places of their objects.
fn placed(reply: &v1::ApplyReply, objects: &[Object]) -> Result<(), CliError> {
    let mut faults = Faults::default();
    for fault in &reply.faults {
        let known = step_of(&fault.field).and_then(|(step, field)| Some((objects.get(step)?, field)));
        faults.add(match known {
            Some((object, field)) => object.fault(field, fault.message.clone()),
            None => Fault {
                file: fault.field.clone(),
                line: 0,
                place: String::new(),
                message: fault.message.clone(),
            },
        });
    }
    let count = usize::try_from(reply.fault_count).unwrap_or(usize::MAX);
    faults.and_more(count.saturating_sub(reply.faults.len()));
    Ok(faults.result(())?)
}

/// The step and the field in it of `steps[3].group.burst`.
fn step_of(field: &str) -> Option<(usize, &str)> {
    let (number, rest) = field.strip_prefix("steps[")?.split_once(']')?;
    let inside = rest.strip_prefix('.').and_then(|rest| rest.split_once('.'));
    let inside = inside.map(|(_, field)| field).unwrap_or_default();
    // The fields of a table are in the document itself.
    Some((
        number.parse().ok()?,
        inside.strip_prefix("table").map_or(inside, |rest| rest.trim_start_matches('.')),
    ))
}

/// Asks whether what the files do not name may go; the revision for which that was agreed to.
async fn agreed(
    admin: &Admin,
    request: &v1::ApplyRequest,
    objects: &[Object],
    from: &From,
) -> Result<u64, CliError> {
    let plan = made(admin, v1::ApplyRequest { dry_run: true, ..request.clone() }, objects).await?;
    let gone: Vec<String> = plan
        .outcomes
        .iter()
        .filter(|outcome| outcome.outcome == "deleted")
        .map(|outcome| format!("{} {}", outcome.kind, outcome.name))
        .collect();
    if gone.is_empty() {
        return Ok(plan.revision);
    }
    let what = format!("{} that the files do not name would be deleted: {}", gone.len(), gone.join(", "));
    if from.reads_input() || !io::stdin().is_terminal() {
        return Err(CliError::Usage(format!("{what}; say --yes to do it, or --dry-run to look")));
    }
    note(&what);
    let _ = write!(io::stderr().lock(), "Delete them? [y/N] ");
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).map_err(CliError::file("read", "(standard input)"))?;
    if matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
        return Ok(plan.revision);
    }
    Err(CliError::Refused("nothing is changed".to_owned()))
}

/// Prints the outcome of each thing.
pub(crate) fn show(reply: &v1::ApplyReply, dry_run: bool, global: &Global) -> Result<(), CliError> {
    let view = AppliedView {
        dry_run,
        changed: reply.outcomes.iter().any(|outcome| outcome.outcome != "unchanged") && !dry_run,
        revision: reply.revision,
        outcomes: reply
            .outcomes
            .iter()
            .map(|outcome| OutcomeView {
                kind: &outcome.kind,
                name: &outcome.name,
                outcome: &outcome.outcome,
            })
            .collect(),
        warnings: &reply.warnings,
    };
    global.output.show(&view, || {
        let lines = view.outcomes.iter().map(|outcome| {
            let kind = outcome.kind.replace('_', " ");
            let dry = if dry_run { " (dry run)" } else { "" };
            format!("{kind} {} {}{dry}\n", outcome.name, outcome.outcome)
        });
        lines.collect::<String>()
    })?;
    reply.warnings.iter().for_each(|warning| note(&format!("warning: {warning}")));
    Ok(())
}

/// Makes a change of steps that no file has, and prints what became of them.
pub(crate) async fn steps(kinds: Vec<Kind>, global: &Global) -> Result<(), CliError> {
    let admin = global.admin().await?;
    show(&change(&admin, kinds).await?, false, global)
}

/// Makes a change of steps that no file has: all of them, or none.
pub(crate) async fn change(admin: &Admin, kinds: Vec<Kind>) -> Result<v1::ApplyReply, CliError> {
    let steps = kinds.into_iter().map(|kind| v1::Step { kind: Some(kind) }).collect();
    let request = fits(v1::ApplyRequest { steps, ..v1::ApplyRequest::default() })?;
    let mut calls = admin.calls().max_decoding_message_size(MAX_ANSWER);
    let reply = calls.apply(request).await.map_err(|status| unknown(admin.failed()(status)))?;
    Ok(reply.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_names_its_step_and_field() {
        assert_eq!(step_of("steps[3].group.query_limit.ru"), Some((3, "query_limit.ru")));
        assert_eq!(step_of("steps[0].binding"), Some((0, "")));
        assert_eq!(step_of("steps[7].cost_table.table"), Some((7, "")));
        for other in ["prune.under", "steps", "steps[x].group", "steps[99999999999999999999].group.a"] {
            assert_eq!(step_of(other), None, "{other}");
        }
    }
}
