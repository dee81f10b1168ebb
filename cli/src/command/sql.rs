//! `tidegate sql`: TiDB's resource control statements, and SELECTs from tidegate's tables.
//!
//! Statements run one after the other, as an administrator, until one fails. Statements for a database are refused:
//! there is none here.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tidegate_cost_model::SqlDialect;
use tidegate_sql::{Answer, Context, SessionChange, SqlError, Statement, execute, split};

use crate::admin::Admin;
use crate::args::Global;
use crate::clock::unix_ms;
use crate::error::CliError;
use crate::output::{Output, note, unless_unread};
use crate::sql::read;
use crate::view::AnswerView;

/// What to send.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    tidegate sql 'CREATE RESOURCE GROUP shop RU_PER_SEC = 2000 PRIORITY = HIGH'\n  \
    tidegate sql 'ALTER USER ann RESOURCE GROUP shop; SHOW RESOURCE GROUPS'\n  \
    tidegate sql 'SELECT template, ru FROM tidegate.statements ORDER BY ru DESC LIMIT 10'\n  \
    tidegate sql -f groups.sql\n\n\
    Grammar and tables are in docs/sql.md.")]
pub(crate) struct SqlArgs {
    /// Statements with semicolons between them; read from the standard input when neither this nor a file is given.
    #[arg(conflicts_with = "file", value_name = "TEXT")]
    text: Option<String>,
    /// Read the statements from this file.
    #[arg(short, long)]
    file: Option<PathBuf>,
    /// The dialect of the text's quotes and comments.
    #[arg(long, value_enum, default_value_t)]
    dialect: Dialect,
}

/// A dialect of SQL.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum Dialect {
    /// MySQL's and TiDB's.
    #[default]
    Mysql,
    /// PostgreSQL's.
    Postgres,
}

impl From<Dialect> for SqlDialect {
    fn from(dialect: Dialect) -> Self {
        match dialect {
            Dialect::Mysql => Self::MySql,
            Dialect::Postgres => Self::PostgreSql,
        }
    }
}

/// Runs the command.
pub(crate) async fn run(args: SqlArgs, global: &Global) -> Result<(), CliError> {
    let dialect = args.dialect.into();
    let text = match args.text {
        Some(text) => text,
        None => read(args.file.as_deref())?,
    };
    let texts = split(&text, dialect).map_err(|error| CliError::Refused(error.to_string()))?;
    if texts.is_empty() {
        let message = "no statement to send; write one, such as 'SHOW RESOURCE GROUPS'";
        return Err(CliError::Usage(message.to_owned()));
    }
    // All are read before the first is done, so that a slip in the last does not leave half of them behind.
    let statements = texts
        .iter()
        .enumerate()
        .map(|(index, text)| {
            let statement = parse(text, dialect).map_err(|error| numbered(index, texts.len(), error))?;
            Ok((index, *text, statement))
        })
        .collect::<Result<Vec<_>, CliError>>()?;
    let admin = global.admin().await?;
    let mut context = Context {
        tenant: String::new(),
        user: global.actor.clone(),
        group: "default".to_owned(),
        dialect,
        is_admin: true,
        may_switch: true,
        now_unix_ms: unix_ms(),
        token: admin.token(),
    };
    for (index, text, statement) in statements {
        context.now_unix_ms = unix_ms();
        let answer = execute(admin.channel(), &statement, &context)
            .await
            .map_err(|error| numbered(index, texts.len(), failed(&admin, error)))?;
        if let Answer::Session(SessionChange::SetGroup(group)) = &answer {
            context.group.clone_from(group);
        }
        let view = AnswerView::new(text, answer);
        unless_unread(show(&view, global.output))?;
    }
    Ok(())
}

/// One statement: a line of JSON with its notes, or a text with the notes beside it.
fn show(view: &AnswerView<'_>, output: Output) -> Result<(), CliError> {
    output.one(view, || view.page())?;
    if !output.is_for_people() {
        return Ok(());
    }
    view.notes.iter().for_each(|line| note(line));
    Ok(())
}

fn parse(text: &str, dialect: SqlDialect) -> Result<Statement, CliError> {
    let statement = Statement::parse(text, dialect).map_err(|error| CliError::Refused(error.to_string()))?;
    statement.ok_or_else(|| {
        let start: String = text.chars().take(60).collect();
        CliError::Refused(format!(
            "{start:?} is not a statement for tidegate, and there is no database here; send it to a gateway or to \
             the database itself"
        ))
    })
}

fn failed(admin: &Admin, error: SqlError) -> CliError {
    match error {
        SqlError::Unavailable { reason } => {
            CliError::Unreachable { endpoint: admin.endpoint().to_owned(), reason }
        }
        other => CliError::Refused(other.to_string()),
    }
}

/// Says which of several statements failed.
fn numbered(index: usize, of: usize, error: CliError) -> CliError {
    match error {
        CliError::Refused(message) if of > 1 => {
            CliError::Refused(format!("statement {} of {of}: {message}", index + 1))
        }
        other => other,
    }
}
