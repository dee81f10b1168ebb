//! `tidegate context`: controllers by name.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::args::Global;
use crate::contexts::{Context, Contexts, check_name, path};
use crate::error::CliError;
use crate::output::print;
use crate::table::{Column, Table};
use crate::token;

/// What to do with contexts.
#[derive(Debug, Subcommand)]
pub(crate) enum ContextCommand {
    /// Note a controller under a name, with --ca, --cert and --key, or --token-file. The first becomes the current one.
    #[command(after_help = "Examples:\n  \
        tidegate context add prod --endpoint https://rates.example:7420 --ca ca.pem --token-file ann.token\n  \
        tidegate context add here --endpoint http://127.0.0.1:7420 --use\n\n\
        Files are noted by their full paths, and stay where they are. Commands then go to the current context, to\n\
        --context NAME (TIDEGATE_CONTEXT), or to --endpoint (TIDEGATE_ENDPOINT), which no context has a part in.")]
    Add(AddArgs),
    /// Make a context the current one.
    Use {
        /// Its name.
        name: String,
    },
    /// List them.
    List,
    /// Forget contexts; the files that they name stay.
    Remove {
        /// Their names.
        #[arg(value_name = "NAME", required = true)]
        names: Vec<String>,
    },
}

/// The context to be noted.
#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// Its name.
    name: String,
    /// Make it the current one.
    #[arg(long = "use")]
    current: bool,
    /// Replace one of this name.
    #[arg(long)]
    force: bool,
}

/// Runs the command.
pub(crate) fn run(command: ContextCommand, global: &Global) -> Result<(), CliError> {
    let path = path()?;
    let all = Contexts::read(&path)?;
    match command {
        ContextCommand::Add(args) => add(all, &path, args, global),
        ContextCommand::Use { name } => choose(all, &path, name),
        ContextCommand::List => list(&all, global),
        ContextCommand::Remove { names } => remove(all, &path, &names),
    }
}

fn add(mut all: Contexts, path: &Path, args: AddArgs, global: &Global) -> Result<(), CliError> {
    let AddArgs { name, current, force } = args;
    check_name(&name)?;
    if !global.endpoint_given {
        return Err(CliError::Usage(format!("name the controller of context {name}: --endpoint URL")));
    }
    if all.contexts.contains_key(&name) && !force {
        let message = format!("there is a context {name}; choose another name, or replace it with --force");
        return Err(CliError::Refused(message));
    }
    let context = Context {
        endpoint: global.endpoint.clone(),
        ca: noted(global.ca.as_deref())?,
        cert: noted(global.cert.as_deref())?,
        key: noted(global.key.as_deref())?,
        token_file: noted(global.token_file.as_deref())?,
    };
    context.check()?;
    if let Some(file) = &context.token_file {
        token::bearer(Some(file))?;
    }
    all.contexts.insert(name.clone(), context);
    if current || all.current.is_none() {
        all.current = Some(name.clone());
    }
    all.write(path)?;
    let is_current = all.current.as_ref() == Some(&name);
    print(&format!("context {name} added{}", if is_current { ", and current" } else { "" }))
}

/// The full path of a file that is there.
fn noted(file: Option<&Path>) -> Result<Option<PathBuf>, CliError> {
    let Some(file) = file else { return Ok(None) };
    std::fs::metadata(file).map_err(CliError::file("read", file))?;
    std::path::absolute(file).map(Some).map_err(CliError::file("find", file))
}

fn choose(mut all: Contexts, path: &Path, name: String) -> Result<(), CliError> {
    let endpoint = all.get(&name, path)?.endpoint.clone();
    let line = format!("context {name} is current: {endpoint}");
    all.current = Some(name);
    all.write(path)?;
    print(&line)
}

fn remove(mut all: Contexts, path: &Path, names: &[String]) -> Result<(), CliError> {
    for name in names {
        all.get(name, path)?;
    }
    for name in names {
        all.contexts.remove(name);
        all.current.take_if(|current| current == name);
    }
    all.write(path)?;
    let left = all.current.is_none() && !all.contexts.is_empty();
    let hint = if left { "; none is current: tidegate context use NAME" } else { "" };
    print(&format!("removed {}{hint}", names.join(", ")))
}

/// A context as it is printed.
#[derive(Serialize)]
struct ContextView<'a> {
    name: &'a str,
    current: bool,
    shows: &'static str,
    #[serde(flatten)]
    context: &'a Context,
}

fn list(all: &Contexts, global: &Global) -> Result<(), CliError> {
    let views: Vec<ContextView<'_>> = all
        .contexts
        .iter()
        .map(|(name, context)| ContextView {
            name,
            current: all.current.as_ref() == Some(name),
            shows: context.shows(),
            context,
        })
        .collect();
    let names = || views.iter().map(|view| view.name.to_owned()).collect();
    global.output.list(&views, names, || {
        let columns =
            [Column::word("CURRENT"), Column::name("NAME"), Column::text("ENDPOINT"), Column::word("SHOWS")];
        let mut table = Table::new(columns);
        for view in &views {
            let current = if view.current { "*" } else { "" };
            table.row([
                current.to_owned(),
                view.name.to_owned(),
                view.context.endpoint.clone(),
                view.shows.to_owned(),
            ]);
        }
        table
    })
}
