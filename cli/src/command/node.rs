//! `tidegate node`: a SQL node under governance, over statements from a file or as a part of the demo.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rusqlite::Connection;
use serde::Serialize;
use tidegate_client::{Client, Resolved};
use tidegate_controller::quantity::parse_span;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::args::Global;
use crate::demo::worker;
use crate::endpoints;
use crate::error::CliError;
use crate::node::{AdmissionLog, Governor, NotRun, Ran, Transaction};
use crate::output::{Output, note, print, unless_unread};
use crate::sql::{Statement, read, split};
use crate::stop;
use crate::unconfirmed;
use crate::view::{millis, ru_text};

/// Between two interruptions of a node that is to end: what a person takes for at once, and no load.
const INTERRUPTS_EVERY: Duration = Duration::from_millis(100);

/// Longest wait for a lock of a database: SQLite counts in milliseconds, in 32 bits.
const LONGEST_BUSY: Duration = Duration::from_millis(i32::MAX as u64);

/// How to run.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    tidegate node --sql work.sql --tenant storefront --user checkout --db shop.db\n  \
    echo 'select 1; select 2;' | tidegate node --user analyst\n\n\
    Every statement waits for admission in the group of its user, is metered, and settled with what it used.\n\
    BEGIN and COMMIT are statements of their own here, so a transaction holds its locks while it waits. One of which\n\
    a statement is refused or fails is rolled back, and the rest of it does not run.")]
pub(crate) struct NodeArgs {
    /// Statements to run; the standard input when left out or '-'.
    #[arg(long, value_name = "FILE")]
    sql: Option<PathBuf>,
    /// The tenant to charge.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "NAME")]
    tenant: String,
    /// The user to charge.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "NAME")]
    user: String,
    /// The SQLite database; one in memory when left out.
    #[arg(long, value_name = "FILE")]
    db: Option<PathBuf>,
    /// Identity of this node: the same from start to start, and used by no other process. By default the name of this
    /// host and, without a journal, the number of this process; below the name in its certificate, if it has one. With a
    /// token it is the name of that, or that name, a full stop and anything.
    #[arg(long, value_name = "NAME")]
    identity: Option<String>,
    /// Keep consumption in a file in this directory, made when absent, so that it survives a crash.
    #[arg(long, value_name = "DIR")]
    journal: Option<PathBuf>,
    /// Longest wait for admission of one statement.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = wait)]
    max_wait: Duration,
    /// Workload of the demo, in JSON.
    #[arg(long, hide = true, conflicts_with = "sql", requires = "db")]
    workload: Option<PathBuf>,
    /// End with the standard input, as children of the demo do.
    #[arg(long, hide = true, requires = "sql")]
    until_stdin_ends: bool,
    /// Where to log admissions.
    #[arg(long, hide = true)]
    admission_log: Option<PathBuf>,
    /// Where to leave the final counters.
    #[arg(long, hide = true)]
    final_counters: Option<PathBuf>,
}

fn wait(text: &str) -> Result<Duration, String> {
    parse_span(text).map(|span| Duration::from_micros(span.0)).map_err(|error| error.to_string())
}

/// An identity that no other process has: a second process under the same identity would end the first. A journal's
/// totals are reported under the identity that wrote it, so with a journal it is the host's name, the same from start
/// to start. Under a certificate of a node it is below the name of that, as the controller demands.
fn own_identity(certified: Option<&str>, journal: bool) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let known = |c: &char| c.is_ascii_alphanumeric() || "._-".contains(*c);
    let host: String = host.trim().chars().filter(known).collect();
    let process = if journal { String::new() } else { format!("-{}", std::process::id()) };
    let begin = certified.map_or_else(|| "sql-node-".to_owned(), |name| format!("{name}."));
    let room = LONGEST_HOST.min(LONGEST_ID.saturating_sub(begin.len() + process.len()));
    let host: String = host.chars().take(room).collect();
    format!("{begin}{host}{process}")
}

/// Characters of an identity.
const LONGEST_ID: usize = 64;
/// Characters of a host's name in an identity.
const LONGEST_HOST: usize = 40;

/// What one statement cost.
#[derive(Serialize)]
struct Line {
    sql: String,
    group: String,
    rows: u64,
    changed: u64,
    waited_us: u64,
    estimate_micro_ru: i64,
    charged_micro_ru: i64,
    cpu_micro_ru: i64,
    read_micro_ru: i64,
    write_micro_ru: i64,
    network_micro_ru: i64,
    /// Empty when it ran.
    error: String,
}

/// Runs the command.
pub(crate) async fn run(args: NodeArgs, global: &Global) -> Result<(), CliError> {
    let tls = global.tls();
    let own = || own_identity(tls.own_name().as_deref(), args.journal.is_some());
    let identity = args.identity.clone().unwrap_or_else(own);
    let mut builder = Client::builder(endpoints::each(&global.endpoint), &identity)
        .tls(tls)
        .agent(concat!("tidegate-node/", env!("CARGO_PKG_VERSION")));
    if let Some(token) = global.token() {
        builder = builder.token(token);
    }
    if let Some(journal) = &args.journal {
        std::fs::create_dir_all(journal).map_err(CliError::file("make the directory", journal))?;
        builder = builder.journal_dir(journal);
    }
    let client = builder.connect().await?;
    let log = match &args.admission_log {
        Some(path) => AdmissionLog::create(path)?,
        None => AdmissionLog::none(),
    };
    let governor = Arc::new(Governor::new(client, log));
    let done = match (&args.workload, &args.db) {
        (Some(workload), Some(database)) => worker::run(&governor, workload, database).await,
        _ => statements(&governor, &args, global.output).await,
    };
    let last = governor.finish(&identity).await;
    if let Some(path) = &args.final_counters {
        last.write(path)?;
    }
    let confirmed = unconfirmed::check(&last.unconfirmed, args.journal.is_some());
    if let (Err(_), Err(lost)) = (&done, &confirmed) {
        note(&format!("tidegate: {lost}"));
    }
    done.and(confirmed)
}

/// Runs the statements one after the other; it tries all of them, and reports refused or failed ones at the end.
async fn statements(governor: &Arc<Governor>, args: &NodeArgs, output: Output) -> Result<(), CliError> {
    let text = read(args.sql.as_deref())?;
    let texts: Vec<String> = split(&text).into_iter().map(str::to_owned).collect();
    if texts.is_empty() {
        let message = "no statement to run; write some, ended by semicolons, into the file named by --sql";
        return Err(CliError::Usage(message.to_owned()));
    }
    let who = governor.resolve(&args.tenant, &args.user).await?;
    let connection = match &args.db {
        Some(path) => Connection::open(path)?,
        None => Connection::open_in_memory()?,
    };
    connection.busy_timeout(args.max_wait.min(LONGEST_BUSY))?;
    let (stopping, stop) = watch::channel(false);
    let (interrupt, parent) = (connection.get_interrupt_handle(), args.until_stdin_ends);
    let stopper = tokio::spawn(async move {
        // Where nobody can ask for it, it ends at once.
        let _ = stop::requested(parent).await;
        stopping.send_replace(true);
        // SQLite interrupts what runs, and the next statement may be about to begin.
        loop {
            interrupt.interrupt();
            sleep(INTERRUPTS_EVERY).await;
        }
    });
    let work = Statements {
        governor: Arc::clone(governor),
        connection,
        who,
        max_wait: args.max_wait,
        handle: Handle::current(),
        output,
        stop,
    };
    // The statement runs on the thread whose CPU is metered, so a whole thread is set aside for it.
    let done = tokio::task::spawn_blocking(move || work.run_all(texts)).await;
    stopper.abort();
    let failed = done
        .map_err(|error| CliError::Process { what: "statements".to_owned(), reason: error.to_string() })??;
    match failed {
        0 => Ok(()),
        1 => Err(CliError::Refused("a statement was refused or failed, see above".to_owned())),
        failed => Err(CliError::Refused(format!("{failed} statements were refused or failed, see above"))),
    }
}

/// What it takes to run statements.
struct Statements {
    governor: Arc<Governor>,
    connection: Connection,
    who: Resolved,
    max_wait: Duration,
    handle: Handle,
    output: Output,
    stop: watch::Receiver<bool>,
}

impl Statements {
    /// Runs them until all are done or it is time to stop; returns how many did not succeed.
    fn run_all(mut self, texts: Vec<String>) -> Result<usize, CliError> {
        let mut failed = 0_usize;
        let mut transaction = Transaction::default();
        for sql in texts {
            let is_inside = !self.connection.is_autocommit();
            if transaction.leaves_out(&sql, is_inside) {
                failed = failed.saturating_add(1);
                let line = not_run(sql, &self.who, 0, "not run: its transaction was rolled back".to_owned());
                unless_unread(show(&line, self.output))?;
                continue;
            }
            let operation = [Statement::new(&sql, [])];
            let admission = async {
                tokio::select! {
                    biased;
                    // A sender that is gone will not ask to stop; the statements go on then.
                    Ok(_) = self.stop.wait_for(|stop| *stop) => None,
                    answer = self.governor.admit(&self.who, &operation, self.max_wait) => Some(answer),
                }
            };
            let line = match self.handle.block_on(admission) {
                None => {
                    return Err(CliError::Refused(
                        "interrupted; the remaining statements did not run".to_owned(),
                    ));
                }
                Some(Ok(admitted)) => ran(sql, &self.governor.run(&self.connection, &operation, admitted)),
                Some(Err(NotRun { refused, waited_us })) => {
                    not_run(sql, &self.who, waited_us, refused.to_string())
                }
            };
            if !line.error.is_empty() {
                failed = failed.saturating_add(1);
                self.roll_back()?;
                transaction.lose(&line.sql, is_inside);
            }
            unless_unread(show(&line, self.output))?;
        }
        Ok(failed)
    }

    /// Keeps nothing of a transaction, unless it is rolled back already, or will be as the connection ends with it.
    fn roll_back(&self) -> Result<(), CliError> {
        if self.connection.is_autocommit() || *self.stop.borrow() {
            Ok(())
        } else {
            Ok(self.connection.execute_batch("ROLLBACK")?)
        }
    }
}

fn ran(sql: String, ran: &Ran) -> Line {
    let (mut rows, mut changed) = (0_u64, 0_u64);
    for measured in &ran.statements {
        rows = rows.saturating_add(measured.rows);
        changed = changed.saturating_add(measured.changed);
    }
    Line {
        sql,
        group: ran.group.clone(),
        rows,
        changed,
        waited_us: ran.waited_us,
        estimate_micro_ru: ran.estimate.0,
        charged_micro_ru: ran.charged.total().0,
        cpu_micro_ru: ran.charged.cpu.0,
        read_micro_ru: ran.charged.read.0,
        write_micro_ru: ran.charged.write.0,
        network_micro_ru: ran.charged.network.0,
        error: ran.failure.clone().unwrap_or_default(),
    }
}

fn not_run(sql: String, who: &Resolved, waited_us: u64, error: String) -> Line {
    Line {
        sql,
        group: who.group().name().to_string(),
        rows: 0,
        changed: 0,
        waited_us,
        estimate_micro_ru: 0,
        charged_micro_ru: 0,
        cpu_micro_ru: 0,
        read_micro_ru: 0,
        write_micro_ru: 0,
        network_micro_ru: 0,
        error,
    }
}

/// One statement: a line of JSON, or two lines of text.
fn show(line: &Line, output: Output) -> Result<(), CliError> {
    if !output.is_for_people() {
        return output.one(line, || "");
    }
    let waited = format!("waited {} ms", millis(line.waited_us.into()));
    let sql = line.sql.split_whitespace().collect::<Vec<_>>().join(" ");
    let cost = format!(
        "{} RU in {} (cpu {}, read {}, write {}, network {}; estimated {}), {waited}, {} rows, {} changed",
        ru_text(line.charged_micro_ru),
        line.group,
        ru_text(line.cpu_micro_ru),
        ru_text(line.read_micro_ru),
        ru_text(line.write_micro_ru),
        ru_text(line.network_micro_ru),
        ru_text(line.estimate_micro_ru),
        line.rows,
        line.changed,
    );
    if line.error.is_empty() {
        print(&format!("{sql}\n  {cost}"))
    } else if line.charged_micro_ru > 0 {
        print(&format!("{sql}\n  failed: {}; {cost}", line.error))
    } else {
        print(&format!("{sql}\n  failed: {}, {waited}", line.error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second process under the identity of the first would end it, and a journal belongs to one identity.
    #[test]
    fn an_identity_is_the_same_with_a_journal_only_and_fits_whatever_it_is_below() {
        let process = format!("-{}", std::process::id());
        let kept = own_identity(None, true);
        let host = kept.strip_prefix("sql-node-").unwrap();
        assert!(!kept.ends_with(&process) && host.len() <= LONGEST_HOST, "{kept}");
        assert_eq!(own_identity(None, false), format!("{kept}{process}"));
        assert_eq!(own_identity(Some("till"), true), format!("till.{host}"));
        assert_eq!(own_identity(Some("till"), false), format!("till.{host}{process}"));
        let long = "n".repeat(LONGEST_ID - 1 - process.len());
        assert_eq!(own_identity(Some(&long), false), format!("{long}.{process}"));
    }
}
