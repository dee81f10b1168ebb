//! `tidegate edit`: a definition in an editor, put in force when the editor is closed.
//!
//! No edited text is lost: a text that cannot be read, is refused, or comes too late because someone else changed the
//! group, is opened again with the reason above it, and is kept when the command gives up.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitStatus};

use clap::Subcommand;
use serde_json::Value;
use tempfile::{NamedTempFile, TempPath};
use tidegate_controller::group_fields::{TOP, alterable};
use tidegate_proto::v1;
use tidegate_proto::v1::step::Kind;
use tonic::Code;

use crate::admin::Admin;
use crate::args::Global;
use crate::error::CliError;
use crate::manifest::{Comments, Object, Source, Unnamed, document, manifest, unified};
use crate::output::{note, print};

/// Begins a line that says why a text is opened again.
const REASON: &str = "#! ";
/// How often a text is opened again before the command gives up: after so many reasons the user has to look elsewhere.
const MAX_ROUNDS: usize = 20;

/// What to edit.
#[derive(Debug, Subcommand)]
pub(crate) enum EditCommand {
    /// Edit a group.
    #[command(after_help = "Example:\n  EDITOR=nano tidegate edit group shop\n\n\
        $VISUAL, else $EDITOR, is run with a file. A text that is not changed changes nothing; one that is refused, or\n\
        comes after somebody else's change, is opened again with the reason above it, and kept when it is given up.")]
    Group {
        /// The group.
        name: String,
    },
}

/// Runs the command.
pub(crate) async fn run(command: EditCommand, global: &Global) -> Result<(), CliError> {
    let EditCommand::Group { name } = command;
    let editor = editor(|name| std::env::var(name).ok())?;
    let admin = global.admin().await?;
    let mut live = read(&admin, &name).await?;
    let file = scratch(&name)?;
    let mut given = text(&live);
    let mut reason = String::new();
    for _ in 0..MAX_ROUNDS {
        let opened = format!("{}{given}", reason_lines(&reason));
        fs::write(&file, &opened).map_err(CliError::file("write", &*file))?;
        let (status, written) = match open(&editor, &file).and_then(|status| Ok((status, read_back(&file)?)))
        {
            Ok(left) => left,
            Err(error) => {
                let keep = file.exists();
                return Err(given_up(file, keep, format!("nothing is changed: {error}")));
            }
        };
        let edited = without_reason(&written);
        if !status.success() {
            let reason = format!("{editor} ended with {status}; nothing is changed");
            return Err(given_up(file, edited != text(&live), reason));
        }
        if written == opened {
            return match reason.as_str() {
                "" => print(&format!("group {name} unchanged")),
                reason => Err(given_up(file, true, format!("nothing is changed: {reason}"))),
            };
        }
        if is_empty(&edited) {
            return print(&format!("group {name} unchanged: the text is empty"));
        }
        given = edited;
        reason = match put(&admin, &given, &mut live).await {
            Ok(Put::Done(reply)) => return done(&admin, *reply, global),
            Ok(Put::Refused(reason)) => reason,
            // No other text would help.
            Err(error) => return Err(given_up(file, true, error.to_string())),
        };
    }
    Err(given_up(file, true, format!("nothing is changed after {MAX_ROUNDS} tries: {reason}")))
}

/// The outcome of a text.
enum Put {
    Done(Box<v1::GroupReply>),
    Refused(String),
}

async fn put(admin: &Admin, given: &str, live: &mut v1::Group) -> Result<Put, CliError> {
    let wanted = match wanted(given, &live.name) {
        Ok(wanted) => wanted,
        Err(reason) => return Ok(Put::Refused(reason)),
    };
    let update_mask = alterable().map(str::to_owned).collect();
    let request =
        v1::AlterGroupRequest { group: Some(wanted), update_mask, expected_revision: live.revision };
    match admin.calls().alter_group(request).await {
        Ok(reply) => Ok(Put::Done(Box::new(reply.into_inner()))),
        Err(status) if status.code() == Code::Aborted => {
            let now = read(admin, &live.name).await?;
            let difference = unified(("as it was", &text(live)), ("as it is now", &text(&now)));
            *live = now;
            Ok(Put::Refused(format!(
                "someone else changed the group meanwhile, as shown here; delete these lines to replace it with what is below\n\
                 {difference}"
            )))
        }
        Err(status) => match admin.failed()(status) {
            CliError::Refused(reason) | CliError::Invalid(reason) => Ok(Put::Refused(reason)),
            lost if lost.passes() => Ok(Put::Refused(lost.to_string())),
            other => Err(other),
        },
    }
}

/// The group of a text.
fn wanted(given: &str, name: &str) -> Result<v1::Group, String> {
    let source = Source { name: "the text".to_owned(), text: given.to_owned() };
    let objects = manifest(&[source], Unnamed::Stay).map_err(|faults| faults.to_string())?;
    match objects.as_slice() {
        [Object { kind: Kind::Group(group), .. }] if group.name.eq_ignore_ascii_case(name) => {
            Ok(v1::Group::clone(group))
        }
        [Object { kind: Kind::Group(group), .. }] => {
            Err(format!("name: {:?} is another group; a group keeps its name, {name}", group.name))
        }
        _ => Err(format!("the text must be one document, of group {name}")),
    }
}

async fn read(admin: &Admin, name: &str) -> Result<v1::Group, CliError> {
    let request = v1::GetGroupRequest { name: name.to_owned() };
    let reply = admin.calls().get_group(request).await.map_err(admin.failed())?.into_inner();
    admin.part(reply.group, "the group")
}

/// A group as people edit it.
fn text(group: &v1::Group) -> String {
    let mut group = group.clone();
    if group.parent.is_empty() {
        TOP.clone_into(&mut group.parent);
    }
    match serde_json::to_value(group) {
        Ok(Value::Object(fields)) => document("Group", &fields, Comments::Fields),
        _ => String::new(),
    }
}

/// The editor that the user named. The command does not guess one: an unfamiliar editor is a trap.
fn editor(variable: impl Fn(&str) -> Option<String>) -> Result<String, CliError> {
    let named = ["VISUAL", "EDITOR"].into_iter().filter_map(variable);
    named.into_iter().find(|editor| !editor.trim().is_empty()).ok_or_else(|| {
        CliError::Usage(
            "neither VISUAL nor EDITOR is set; name an editor, such as EDITOR=nano, or use `tidegate apply -f FILE`"
                .to_owned(),
        )
    })
}

/// Runs the editor as shells do, so that it may have options.
fn open(editor: &str, file: &Path) -> Result<ExitStatus, CliError> {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("{editor} \"$1\"")).arg("sh").arg(file);
    command.status().map_err(|error| CliError::Process { what: editor.to_owned(), reason: error.to_string() })
}

/// What the editor left in the file.
fn read_back(file: &Path) -> Result<String, CliError> {
    let bytes = fs::read(file).map_err(CliError::file("read", file))?;
    String::from_utf8(bytes).map_err(|error| CliError::Content {
        path: file.to_owned(),
        message: format!(
            "byte {} is not UTF-8; have the editor save it as UTF-8, and apply it",
            error.utf8_error().valid_up_to()
        ),
    })
}

/// A file that only its owner reads.
fn scratch(name: &str) -> Result<TempPath, CliError> {
    let folder = std::env::temp_dir();
    let made = tempfile::Builder::new().prefix(&format!("tidegate-{name}-")).suffix(".yaml").tempfile();
    made.map(NamedTempFile::into_temp_path).map_err(CliError::file("make a file in", folder))
}

/// The reason why a text is not in force; the text is kept if `keep`.
fn given_up(file: TempPath, keep: bool, reason: String) -> CliError {
    if !keep {
        return CliError::Refused(reason);
    }
    match file.keep() {
        Ok(path) => {
            // The difference comes last, whole.
            let (first, rest) = reason.split_at(reason.find('\n').unwrap_or(reason.len()));
            CliError::Refused(format!("{first}; the text is in {}{rest}", path.display()))
        }
        Err(error) => CliError::Refused(format!("{reason}; the text could not be kept: {error}")),
    }
}

fn reason_lines(reason: &str) -> String {
    reason.lines().map(|line| format!("{REASON}{line}\n")).collect()
}

fn without_reason(text: &str) -> String {
    let lines = text.split_inclusive('\n').filter(|line| !line.starts_with(REASON.trim_end()));
    lines.collect()
}

fn is_empty(text: &str) -> bool {
    text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
}

fn done(admin: &Admin, reply: v1::GroupReply, global: &Global) -> Result<(), CliError> {
    let view = admin.part(reply.group, "the group")?;
    let what = if reply.changed { "altered" } else { "unchanged" };
    global.output.show(&view, || format!("group {} {what}, revision {}", view.name, view.revision))?;
    reply.warnings.iter().for_each(|warning| note(&format!("warning: {warning}")));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_editor_is_the_one_that_is_named() {
        let set = |visual: Option<&'static str>, editor: Option<&'static str>| {
            move |name: &str| if name == "VISUAL" { visual } else { editor }.map(str::to_owned)
        };
        assert_eq!(editor(set(Some("code -w"), Some("vi"))).unwrap(), "code -w");
        assert_eq!(editor(set(Some(" "), Some("vi"))).unwrap(), "vi");
        assert_eq!(editor(set(None, None)).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn what_is_edited_reads_back_and_reasons_do_not_stay() {
        let group = v1::Group {
            name: "shop".into(),
            ru_per_sec: "5".into(),
            burstable: "off".into(),
            revision: 3,
            query_limit: Some(v1::QueryLimit {
                ru: "7".into(),
                action: "kill".into(),
                ..v1::QueryLimit::default()
            }),
            ..v1::Group::default()
        };
        let text = text(&group);
        assert_eq!(wanted(&text, "SHOP").unwrap().query_limit.unwrap().ru, "7");
        assert!(wanted(&text, "other").unwrap_err().contains("keeps its name"));
        assert!(
            wanted("kind: Binding\nuser: u\ngroup: shop\n", "shop").unwrap_err().contains("one document")
        );
        assert!(wanted("kind: Group\nname: shop\nx: 1\n", "shop").unwrap_err().contains("unknown field"));
        let again = format!("{}{text}", reason_lines("a\n- b"));
        assert_eq!(without_reason(&again), text);
        assert!(is_empty("# a\n\n  # b\n") && !is_empty(&text));
    }
}
