//! `tidegate store`: backup, restore and check of what a controller keeps.
//!
//! The file of a backup is written here, by the caller and with the caller's rights: a controller that wrote where a
//! caller says would be everybody's hand on its machine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use tidegate_controller::check::{Checked, check};
use tidegate_controller::rekey::rekey;
use tidegate_controller::restore::{CopyError, Over, backup, restore, whole};
use tidegate_controller::store::{Draft, Row, Table as Rows};
use tidegate_proto::v1;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::args::Global;
use crate::command::controller::{STORE, own_folder};
use crate::error::CliError;
use crate::output::{note, print, unless_unread};
use crate::page::Page;
use crate::table::Table;
use crate::view::StoreView;

/// Longest wait for the next part of a backup: twice a long sync. A controller whose disk is slower has other troubles.
const PART_WITHIN: Duration = Duration::from_secs(60);
/// How the names of stores end; any other name that is not there yet is taken for a directory.
const ENDING: &str = "redb";

/// What to do with a store.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Copy the store of the running controller into a file, while it goes on. The copy holds the state of one moment:
    /// definitions, bindings, cost tables, audit log, and consumption counted until then. The command writes it under a
    /// temporary name beside FILE, checks it, and renames it, so that FILE is always whole. It holds the key that signs
    /// leases: only its owner can read it (mode 0600), and the controller gives it to callers on its own machine only.
    #[command(after_help = "Examples:\n  \
        tidegate store backup /backup/tidegate-$(date +%F).redb\n  \
        tidegate store backup /backup/latest.redb --replace\n  \
        tidegate store backup /backup/offline.redb --data /var/lib/tidegate   (no controller runs)")]
    Backup(BackupArgs),
    /// Put a backup in the place of a store, while no controller runs on it. The command checks the backup first. The
    /// next start of the controller recognises the copy: it raises its epoch above what nodes have seen and recovers
    /// for one lease length; nodes that run go on with it and need no restart. Changes of definitions since the backup
    /// are lost, and so are RU counted since then of processes that have ended.
    #[command(after_help = "Examples:\n  \
        tidegate store restore /backup/latest.redb --data /var/lib/tidegate             (nothing is there yet)\n  \
        tidegate store restore /backup/latest.redb --data /var/lib/tidegate --replace   (the store that is there stays\n  \
        \x20                                                                                as tidegate.redb.replaced-1)")]
    Restore(RestoreArgs),
    /// Read every page and row of a store, and say what is damaged. The file is not changed.
    ///
    /// No controller may run on it: take a backup and check that. The exit status is 1 when something is damaged.
    #[command(after_help = "Examples:\n  \
        tidegate store check /backup/latest.redb\n  \
        tidegate store check /var/lib/tidegate --output json")]
    Check(CheckArgs),
    /// Give a store another key that signs leases, as when a backup fell into wrong hands: what the old one has signed is
    /// worth nothing then. Stop the controller (SIGTERM), run this, and start it again within a minute: nodes notice
    /// nothing. Backups of before are then of another cluster.
    ///
    /// A store that was not stopped cleanly, or is a copy, keeps its key: nodes prove by it what the store does not know.
    #[command(after_help = "Examples:\n  \
        tidegate store rekey /var/lib/tidegate")]
    Rekey {
        /// The store, or its directory.
        #[arg(value_name = "PATH")]
        path: PathBuf,
    },
}

/// Arguments of a backup.
#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    /// Where the copy goes.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Copy this store, or the one in this directory, instead of asking a controller; none may run on it.
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// Replace an older backup FILE once the new one is whole.
    #[arg(long)]
    replace: bool,
}

/// Arguments of a restore.
#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// The copy.
    #[arg(value_name = "BACKUP")]
    backup: PathBuf,
    /// Directory of the controller's store, made when missing, or the file itself (any name that ends in .redb).
    #[arg(long, value_name = "PATH")]
    data: PathBuf,
    /// Put the store that is there aside, as tidegate.redb.replaced-1 and so on.
    #[arg(long)]
    replace: bool,
    /// With --replace: also replace a store of another cluster.
    #[arg(long, requires = "replace")]
    other_cluster: bool,
}

/// Arguments of a check.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The store, a backup, or the directory of a store.
    #[arg(value_name = "PATH")]
    path: PathBuf,
}

/// Runs the command.
pub(crate) async fn run(command: StoreCommand, global: &Global) -> Result<(), CliError> {
    match command {
        StoreCommand::Backup(args) => run_backup(args, global).await,
        StoreCommand::Restore(args) => run_restore(args, global).await,
        StoreCommand::Check(args) => run_check(args, global).await,
        StoreCommand::Rekey { path } => run_rekey(store_at(&path)).await,
    }
}

async fn run_backup(args: BackupArgs, global: &Global) -> Result<(), CliError> {
    let file = args.file.clone();
    let checked = match args.data {
        Some(data) => {
            let store = store_at(&data);
            blocking(move || backup(&store, &file, args.replace)).await?
        }
        None => receive(file, args.replace, global).await?,
    };
    let view = StoreView::of(&args.file, &checked);
    global.output.show(&view, || Page::from(view.backed_up()).then(table(&view)))
}

/// Writes what the controller streams.
async fn receive(file: PathBuf, replace: bool, global: &Global) -> Result<Checked, CliError> {
    // A name that cannot be had is said before the controller has any work with it.
    let begun = file.clone();
    let draft = blocking(move || Ok(Draft::begin(&begun, replace)?)).await?;
    let admin = global.admin().await?;
    let request = v1::BackupRequest {};
    let mut parts = admin.calls().backup(request).await.map_err(admin.failed())?.into_inner();
    let next = async || parts.message().await.map_err(admin.failed());
    let draft = filled(draft, &file, admin.endpoint(), next, sleep).await?;
    // Damage in a copy is damage in the store.
    let named = PathBuf::from(format!("the store of {}", admin.endpoint()));
    blocking(move || {
        let mut checked = Checked::default();
        draft.finish(|path| {
            checked = whole(path, &named)?;
            Ok::<(), CopyError>(())
        })?;
        Ok(checked)
    })
    .await
}

/// Puts into `draft` each part that `next` gives, up to the last one; `wait` completes when it took too long.
async fn filled<W: Future<Output = ()>>(
    mut draft: Draft,
    file: &Path,
    endpoint: &str,
    mut next: impl AsyncFnMut() -> Result<Option<v1::BackupPart>, CliError>,
    wait: impl Fn(Duration) -> W,
) -> Result<Draft, CliError> {
    let cut = |reason: String| CliError::Refused(format!("{}: no backup: {reason}", file.display()));
    loop {
        let part = tokio::select! {
            biased;
            part = next() => part?,
            () = wait(PART_WITHIN) => {
                return Err(cut(format!("the controller sent nothing for {} s", PART_WITHIN.as_secs())));
            }
        };
        let part =
            part.ok_or_else(|| cut("the controller broke off; is it stopping? try again".to_owned()))?;
        if part.last {
            // The mark of a clean stop is never there while a controller runs.
            if part.rows_in_all != draft.rows() {
                let (had, sent) = (draft.rows(), part.rows_in_all);
                return Err(cut(format!("{had} of {sent} rows arrived; try again")));
            }
            return Ok(draft);
        }
        let rows: Result<Vec<Row>, CliError> =
            part.rows.into_iter().map(|row| decoded(row, endpoint)).collect();
        let rows = rows?;
        draft = blocking(move || {
            draft.put(&rows)?;
            Ok(draft)
        })
        .await?;
    }
}

fn decoded(row: v1::StoreRow, endpoint: &str) -> Result<Row, CliError> {
    let table = Rows::named(&row.table).ok_or_else(|| {
        CliError::Refused(format!(
            "the controller at {endpoint} has a table {}, which this version does not know; use the `tidegate` of the \
             controller's version",
            row.table
        ))
    })?;
    Ok((table, row.key, row.value))
}

async fn run_restore(args: RestoreArgs, global: &Global) -> Result<(), CliError> {
    let store = store_at(&args.data);
    // A name that was mistyped makes no folder.
    std::fs::metadata(&args.backup).map_err(CliError::file("read", &args.backup))?;
    if let Some(folder) = store.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        own_folder(folder).map_err(CliError::file("make the data directory", folder))?;
    }
    let over = Over { store: args.replace, other_cluster: args.other_cluster };
    let (from, to) = (args.backup.clone(), store.clone());
    let restored = blocking(move || restore(&from, &to, over)).await?;
    if let Some(aside) = &restored.aside {
        note(&format!("the store that was there is now {}", aside.display()));
    }
    let view = StoreView::of(&store, &restored.checked);
    global.output.show(&view, || Page::from(view.restored()).then(table(&view)))
}

async fn run_check(args: CheckArgs, global: &Global) -> Result<(), CliError> {
    let path = store_at(&args.path);
    let named = path.clone();
    let checked = blocking(move || Ok(check(&named)?)).await?;
    let view = StoreView::of(&path, &checked);
    unless_unread(global.output.show(&view, || Page::from(view.found()).then(table(&view))))?;
    if checked.is_whole() {
        return Ok(());
    }
    for damage in &view.damage {
        note(&format!("damaged: {damage}"));
    }
    Err(CliError::Content {
        path,
        message: format!("{} damages; restore it from a backup with `tidegate store restore`", view.damages),
    })
}

async fn run_rekey(path: PathBuf) -> Result<(), CliError> {
    let store = path.clone();
    blocking(move || rekey(&store)).await?;
    print(&format!("{} has another key; start its controller", path.display()))
}

fn table(view: &StoreView) -> Table {
    let mut table = Table::new(["TABLE", ">ROWS"]);
    for (name, rows) in &view.rows {
        table.row([name.clone(), rows.to_string()]);
    }
    table
}

/// The file that a path stands for.
fn store_at(path: &Path) -> PathBuf {
    let is_file = path.is_file() || path.extension().is_some_and(|ending| ending == ENDING) && !path.is_dir();
    if is_file { path.to_owned() } else { path.join(STORE) }
}

/// Work on a disk.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CopyError> + Send + 'static,
) -> Result<T, CliError> {
    let done = spawn_blocking(work).await;
    let done = done.map_err(|error| CliError::Process {
        what: "work on the store".to_owned(),
        reason: error.to_string(),
    })?;
    done.map_err(|error| CliError::Refused(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::{pending, ready};

    use super::*;

    fn part(table: &str, keys: &[&str]) -> v1::BackupPart {
        let row = |key: &&str| v1::StoreRow {
            table: table.to_owned(),
            key: key.as_bytes().to_vec(),
            value: b"v".to_vec(),
        };
        v1::BackupPart { rows: keys.iter().map(row).collect(), ..v1::BackupPart::default() }
    }

    fn last(rows_in_all: u64) -> v1::BackupPart {
        v1::BackupPart { last: true, rows_in_all, ..v1::BackupPart::default() }
    }

    /// A large store, or a slow link, takes longer than the longest silence.
    #[tokio::test]
    async fn each_part_of_a_backup_has_its_own_time_and_a_stream_that_is_cut_is_no_backup() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("backup.redb");
        let meta = Rows::Meta.name();
        for (parts, told) in [
            (vec![part(meta, &["a", "b"]), part(meta, &[]), part(meta, &["c"]), last(3)], ""),
            (vec![last(0)], ""),
            (vec![part(meta, &["a"]), last(2)], "1 of 2 rows arrived; try again"),
            (vec![part(meta, &["a", "b"]), last(1)], "2 of 1 rows arrived; try again"),
            (vec![part(meta, &["a"])], "the controller broke off; is it stopping? try again"),
            (vec![part("moods", &["a"]), last(1)], "a table moods, which this version does not know"),
        ] {
            let (mut asked, waits) = (0, RefCell::new(Vec::new()));
            let rows: usize = parts.iter().map(|part| part.rows.len()).sum();
            let mut parts = parts.into_iter();
            let wait = |span| {
                waits.borrow_mut().push(span);
                pending()
            };
            let next = async || {
                asked += 1;
                // So that the time is looked at, too.
                tokio::task::yield_now().await;
                Ok(parts.next())
            };
            let draft = Draft::begin(&file, false).unwrap();
            let filled = filled(draft, &file, "http://c", next, wait).await;
            match filled {
                Ok(draft) => assert_eq!((draft.rows(), told), (rows as u64, "")),
                Err(error) => assert!(!told.is_empty() && error.to_string().contains(told), "{error}"),
            }
            let waits = waits.into_inner();
            assert!(waits.len() == asked && waits.iter().all(|span| *span == PART_WITHIN), "{waits:?}");
        }
        let draft = Draft::begin(&file, false).unwrap();
        let never = async || pending().await;
        let error = filled(draft, &file, "http://c", never, |_| ready(())).await.err().unwrap().to_string();
        assert!(error.ends_with("backup.redb: no backup: the controller sent nothing for 60 s"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left of them");
    }
}
