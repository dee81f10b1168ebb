//! Completions of shells: commands and options from the command line itself, names from the controller.
//!
//! The script of a shell asks this binary for the candidates. Their protocol is defined here and must not change:
//! `tidegate complete -- WORDS..`, of which the last is the word to complete, and a line for each candidate, with its
//! description behind a tab. Nothing else is ever printed, and a controller that is away costs a quarter of a second.

mod names;
mod script;

use std::ffi::OsString;
use std::io::Write as _;
use std::sync::Arc;

use clap::Args;
use clap::builder::StyledStr;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, complete};

pub(crate) use script::{Scripted, script};

use crate::args::Global;
use names::Names;

/// What has been written so far.
#[derive(Debug, Args)]
pub(crate) struct CompleteArgs {
    /// The command line, of which the last word is completed.
    #[arg(last = true)]
    words: Vec<OsString>,
}

/// Arguments that are names: of which command, which argument, and of what. Those that the usage calls `GROUP` are
/// groups, too.
const NAMED: [(&[&str], &str, Names); 18] = [
    (&["group", "alter"], "name", Names::Groups),
    (&["group", "delete"], "names", Names::Groups),
    (&["group", "show"], "name", Names::Groups),
    (&["group", "propose"], "name", Names::Groups),
    (&["group", "proposal"], "name", Names::Groups),
    (&["group", "apply-proposal"], "name", Names::Groups),
    (&["group", "withdraw"], "name", Names::Groups),
    (&["edit", "group"], "name", Names::Groups),
    (&["bind", "add"], "tenant", Names::Tenants),
    (&["bind", "add"], "user", Names::Users),
    (&["bind", "remove"], "tenants", Names::Tenants),
    (&["bind", "remove"], "users", Names::Users),
    (&["resolve"], "tenant", Names::Tenants),
    (&["resolve"], "user", Names::Users),
    (&["client", "forget"], "names", Names::Clients),
    (&["cluster", "forget"], "name", Names::Controllers),
    (&["context", "use"], "name", Names::Contexts),
    (&["context", "remove"], "names", Names::Contexts),
];

/// What the usage calls the name of a group.
const GROUP: &str = "GROUP";

/// Prints what may follow. Whatever fails is nothing to follow: a shell is no place for an error.
pub(crate) fn run(args: CompleteArgs, command: clap::Command) {
    let global = names::global(&args.words).map(Arc::new);
    let mut command = named(command, global.as_ref());
    let last = args.words.len().saturating_sub(1);
    let here = std::env::current_dir().ok();
    let candidates = complete(&mut command, args.words, last, here.as_deref()).unwrap_or_default();
    let mut out = std::io::stdout().lock();
    for candidate in candidates.iter().filter(|candidate| !candidate.is_hide_set()) {
        // A reader that is gone wants no more.
        let _ = out.write_all(&line(candidate));
    }
    let _ = out.flush();
}

/// The command with its names looked up at the controller.
fn named(command: clap::Command, global: Option<&Arc<Global>>) -> clap::Command {
    let completer = |names: Names| {
        let global = global.cloned();
        ArgValueCompleter::new(move |current: &std::ffi::OsStr| {
            let begin = current.to_string_lossy();
            let found = global.as_ref().map(|global| names.find(global, &begin)).unwrap_or_default();
            found.into_iter().map(CompletionCandidate::new).collect()
        })
    };
    let command = of_groups(command, &completer(Names::Groups));
    NAMED
        .into_iter()
        .fold(command, |command, (path, argument, names)| with(command, path, argument, completer(names)))
}

/// The same for each argument that the usage calls a group.
fn of_groups(command: clap::Command, completer: &ArgValueCompleter) -> clap::Command {
    let group = |arg: clap::Arg| {
        let is_group =
            arg.get_value_names().is_some_and(|names| names.iter().any(|name| name.as_str() == GROUP));
        if is_group { arg.add(completer.clone()) } else { arg }
    };
    command.mut_args(group).mut_subcommands(|below| of_groups(below, completer))
}

fn with(
    command: clap::Command,
    path: &'static [&'static str],
    argument: &'static str,
    completer: ArgValueCompleter,
) -> clap::Command {
    match path {
        [] => command.mut_arg(argument, |arg| arg.add(completer)),
        [first, rest @ ..] => command.mut_subcommand(*first, |below| with(below, rest, argument, completer)),
    }
}

/// A candidate and what it is, on one line.
fn line(candidate: &CompletionCandidate) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt as _;
    let mut line = candidate.get_value().as_bytes().to_vec();
    if let Some(help) = candidate.get_help().map(StyledStr::to_string) {
        let first = help.lines().next().unwrap_or_default().replace('\t', " ");
        line.push(b'\t');
        line.extend(first.into_bytes());
    }
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn every_name_is_an_argument_of_a_command() {
        for (path, argument, _) in NAMED {
            let mut command = &Cli::command();
            for step in path {
                command = command.find_subcommand(step).unwrap();
            }
            assert!(command.get_arguments().any(|arg| arg.get_id() == argument), "{path:?} {argument}");
        }
    }

    #[test]
    fn every_argument_that_takes_a_group_is_found_by_what_the_usage_calls_it() {
        let command = named(Cli::command(), None);
        let mut at = vec![(String::new(), &command)];
        let mut found = Vec::new();
        while let Some((path, command)) = at.pop() {
            at.extend(command.get_subcommands().map(|below| (format!("{path}{} ", below.get_name()), below)));
            for arg in command.get_arguments().filter(|arg| arg.get::<ArgValueCompleter>().is_some()) {
                found.push(format!("{path}{}", arg.get_id()));
            }
        }
        for argument in [
            "apply under",
            "audit group",
            "bind add group",
            "bind list group_option",
            "diff under",
            "edit group name",
            "group alter demote_to",
            "group create parent",
            "group delete force_to",
            "group withdraw name",
            "lab what-if group",
            "lease list group",
            "runaway list group",
            "statement reset group",
            "token create groups",
            "usage group_option",
            "watch add switch_group",
            "watch remove group",
        ] {
            assert!(found.iter().any(|known| known == argument), "{argument}: {found:?}");
        }
        assert!(!found.iter().any(|known| known == "group create name"), "a new name");
    }

    #[test]
    fn commands_and_options_follow_with_what_they_are() {
        let follows = |words: &[&str]| -> String {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            let last = words.len() - 1;
            let found = complete(&mut named(Cli::command(), None), words, last, None).unwrap();
            found.iter().map(|found| String::from_utf8(line(found)).unwrap()).collect()
        };
        assert!(follows(&["tidegate", "gro"]).contains("group\tCreate, alter, delete and show"));
        assert!(
            follows(&["tidegate", "group", "alter", "shop", "--prio"]).contains("--priority\tWho borrows")
        );
        assert_eq!(follows(&["tidegate", "group", "show", ""]).matches("shop").count(), 0, "nothing listens");
        assert!(!follows(&["tidegate", ""]).contains("complete\t"), "what scripts call is not for people");
    }
}
