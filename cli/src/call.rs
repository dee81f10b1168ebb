//! Faults of a call beyond its grammar: an empty argument, an option that the command would ignore, an output shape
//! that it does not have; and how a negative number is distinguished from an option.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, ColorChoice, Command, CommandFactory as _};
use tidegate_controller::group_fields::{self, Takes};

use crate::args::Cli;
use crate::output::Output;

/// Options of every command that say nothing to these: they ask no controller, or print no result.
const IGNORED: [(&[&str], &[&str]); 21] = [
    (&["controller"], &["endpoint", "output", "actor", "ca", "cert", "key", "token-file", "context"]),
    (&["gateway"], &["output", "actor", "context"]),
    (&["node"], &["actor", "context"]),
    (&["demo"], &["endpoint", "actor", "ca", "cert", "key", "token-file", "context"]),
    (&["completions"], &["endpoint", "output", "actor", "ca", "cert", "key", "token-file", "context"]),
    (&["cert", "init"], &["endpoint", "output", "actor", "ca", "cert", "key", "token-file", "context"]),
    (&["cert", "issue"], &["endpoint", "output", "actor", "ca", "cert", "key", "token-file", "context"]),
    (&["cert", "show"], &["endpoint", "actor", "ca", "cert", "key", "token-file", "context"]),
    (&["cert", "renew"], &["endpoint", "output", "actor", "ca", "cert", "key", "token-file", "context"]),
    (&["lab", "policies"], &["endpoint", "actor", "ca", "cert", "key", "token-file", "context"]),
    (&["lab", "accuracy"], &["endpoint", "actor", "ca", "cert", "key", "token-file", "context"]),
    (&["lab", "arrangements"], &["endpoint", "actor", "ca", "cert", "key", "token-file", "context"]),
    (&["lab", "warmup"], &["endpoint", "actor", "ca", "cert", "key", "token-file", "context"]),
    (&["context", "add"], &["output", "actor", "context"]),
    (&["context", "use"], &["endpoint", "output", "actor", "ca", "cert", "key", "token-file", "context"]),
    (&["context", "list"], &["endpoint", "actor", "ca", "cert", "key", "token-file", "context"]),
    (&["context", "remove"], &["endpoint", "output", "actor", "ca", "cert", "key", "token-file", "context"]),
    (&["store", "restore"], &["endpoint", "actor", "ca", "cert", "key", "token-file", "context"]),
    (&["store", "check"], &["endpoint", "actor", "ca", "cert", "key", "token-file", "context"]),
    (&["store", "rekey"], &["endpoint", "output", "actor", "ca", "cert", "key", "token-file", "context"]),
    (&["cluster", "restored"], &["endpoint", "ca", "cert", "key", "token-file", "context"]),
];

/// Commands that print names with `-o name`.
const NAMED: [&[&str]; 26] = [
    &["group", "list"],
    &["group", "show"],
    &["group", "create"],
    &["group", "alter"],
    &["group", "propose"],
    &["group", "proposal"],
    &["group", "proposals"],
    &["group", "apply-proposal"],
    &["bind", "list"],
    &["resolve"],
    &["usage"],
    &["client", "list"],
    &["lease", "list"],
    &["token", "list"],
    &["context", "list"],
    &["cluster", "status"],
    &["cluster", "members"],
    &["cost-table", "list"],
    &["cost-table", "put"],
    &["statement", "list"],
    &["watch", "list"],
    &["watch", "add"],
    &["runaway", "list"],
    &["audit"],
    &["status"],
    &["top"],
];

/// The command line, and in which colours it explains itself.
pub(crate) fn command(arguments: &[OsString]) -> Command {
    let mut command = with_values(Cli::command()).color(color(arguments));
    for (path, ignored) in IGNORED {
        command = hiding(command, path, ignored);
    }
    command
}

/// A number below zero is a value for each argument that takes one, and no option.
fn with_values(command: Command) -> Command {
    let value =
        |arg: Arg| if arg.get_action().takes_values() { arg.allow_negative_numbers(true) } else { arg };
    command.mut_args(value).mut_subcommands(with_values)
}

fn hiding(command: Command, path: &[&str], ignored: &[&'static str]) -> Command {
    match path.split_first() {
        Some((name, below)) => command.mut_subcommand(*name, |sub| hiding(sub, below, ignored)),
        None => command.args(ignored.iter().map(|id| {
            let arg = Arg::new(*id).long(*id).hide(true);
            if *id == "output" { arg.short('o') } else { arg }
        })),
    }
}

/// The choice of `--color`, before the arguments are parsed: errors are shown in it.
fn color(arguments: &[OsString]) -> ColorChoice {
    let mut words = arguments.iter().filter_map(|word| word.to_str()).take_while(|word| *word != "--");
    let mut chosen = ColorChoice::Auto;
    while let Some(word) = words.next() {
        let value = if word == "--color" { words.next() } else { word.strip_prefix("--color=") };
        chosen = match value {
            Some("always") => ColorChoice::Always,
            Some("never") => ColorChoice::Never,
            _ => chosen,
        };
    }
    chosen
}

/// Refuses what the grammar lets through.
pub(crate) fn check(command: &Command, matches: &ArgMatches) -> Result<(), clap::Error> {
    let path = path(matches);
    if let Some(name) = empty_argument(command, matches) {
        let message =
            format!("{name} is empty: name a value, or leave it out (is a shell variable not set?)");
        return Err(named(command, &path).error(ErrorKind::InvalidValue, message));
    }
    let ignored = ignored(&path);
    let given = |id: &&&str| matches.value_source(id) == Some(ValueSource::CommandLine);
    if let Some(option) = ignored.iter().find(given) {
        let message = format!("--{option} has no meaning for `tidegate {}`: leave it out", path.join(" "));
        return Err(named(command, &path).error(ErrorKind::ArgumentConflict, message));
    }
    if takes(&path) && matches.value_source("context").is_some() && has_endpoint(matches) {
        let message = "a context (--context, TIDEGATE_CONTEXT) and an endpoint (--endpoint, TIDEGATE_ENDPOINT) are both \
                       given: leave one out";
        return Err(named(command, &path).error(ErrorKind::ArgumentConflict, message));
    }
    let shape = matches.try_get_one::<Output>("output").ok().flatten();
    if shape == Some(&Output::Name) && !NAMED.contains(&path.as_slice()) {
        let message = format!("`tidegate {}` prints no names: write -o table, json or yaml", path.join(" "));
        return Err(named(command, &path).error(ErrorKind::InvalidValue, message));
    }
    Ok(())
}

fn ignored(path: &[&str]) -> &'static [&'static str] {
    IGNORED.iter().find(|(known, _)| *known == path).map_or(&[], |(_, ignored)| *ignored)
}

/// Whether a context has a meaning for a command.
fn takes(path: &[&str]) -> bool {
    !ignored(path).contains(&"context")
}

/// Whether the command goes where a context says: it asks a controller, and no endpoint is given.
pub(crate) fn takes_context(matches: &ArgMatches) -> bool {
    takes(&path(matches)) && !has_endpoint(matches)
}

/// Whether an endpoint is given, by option or environment.
pub(crate) fn has_endpoint(matches: &ArgMatches) -> bool {
    matches.value_source("endpoint").is_some_and(|source| source != ValueSource::DefaultValue)
}

/// The command at a path, for its usage.
fn named(command: &Command, path: &[&str]) -> Command {
    path.iter().fold(command, |at, name| at.find_subcommand(name).unwrap_or(at)).clone()
}

/// The commands that were named, from the outermost.
fn path(matches: &ArgMatches) -> Vec<&str> {
    let mut path = Vec::new();
    let mut at = matches;
    while let Some((name, below)) = at.subcommand() {
        path.push(name);
        at = below;
    }
    path
}

/// A value such as `-5s` looks like an option to the parser, whose remedy `-- -5` does not work for an option's value.
pub(crate) fn explained(mut error: clap::Error) -> clap::Error {
    let looks_like_a_value = |text: &str| {
        text.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
    };
    let ContextValue::String(argument) =
        error.get(ContextKind::InvalidArg).cloned().unwrap_or(ContextValue::None)
    else {
        return error;
    };
    if error.kind() == ErrorKind::UnknownArgument && looks_like_a_value(&argument) {
        let tip = "a value that begins with '-' is written behind '=', such as '--option=-5s'";
        let tips = ContextValue::StyledStrs(vec![StyledStr::from(tip)]);
        error.insert(ContextKind::Suggested, tips);
    }
    error
}

/// The first argument that was given and is empty, as an unset variable of a shell is. It says nothing, and must not
/// lift a limit, or stand for all groups or tenants. Free text may be empty.
fn empty_argument(command: &Command, matches: &ArgMatches) -> Option<String> {
    let empty = |argument: &&Arg| {
        let id = argument.get_id().as_str();
        let given = matches.value_source(id) == Some(ValueSource::CommandLine);
        let blank = |value: &std::ffi::OsStr| value.to_str().is_some_and(|text| text.trim().is_empty());
        let values = matches.try_get_raw(id).ok().flatten();
        !may_be_empty(id) && given && values.into_iter().flatten().any(blank)
    };
    let here = command.get_arguments().find(empty).map(|argument| match argument.get_long() {
        Some(long) => format!("--{long}"),
        None => format!("<{}>", argument.get_id().as_str().to_uppercase()),
    });
    here.or_else(|| {
        let (name, below) = matches.subcommand()?;
        empty_argument(command.find_subcommand(name)?, below)
    })
}

/// Whether an argument says something when it is empty: free text, and the words of a line that is being written.
fn may_be_empty(id: &str) -> bool {
    id == "words" || group_fields::field(id).is_some_and(|field| matches!(field.takes, Takes::Text(_)))
}
