//! What the processes of a test log, and what the test itself does as a controller or a gateway: kept in the folder that
//! `TIDEGATE_SAID` names, which `tests/run` searches for secrets at the end. Without it, nothing is kept. And what a
//! thread logs, for a test that says what it has to be.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError};

use tracing::{Dispatch, dispatcher};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// What is kept: all that is ours, but for what a client does for each operation.
const FILTER: &str = "info,tidegate_controller=trace,tidegate_gateway=trace,tidegate_client=debug,\
                      tidegate_listener=trace,tidegate_tls=trace";

/// Where a process may log to that would log to nowhere.
pub fn log() -> Stdio {
    file("process").map_or_else(Stdio::null, Stdio::from)
}

/// Keeps what a process said elsewhere.
pub fn keep(said: &[u8]) {
    if said.is_empty() {
        return;
    }
    if let Some(mut file) = file("kept") {
        let kept = file.write_all(said);
        assert!(kept.is_ok(), "what a process said cannot be kept: {kept:?}");
    }
}

/// Keeps what a process said into this file, if it did.
pub fn keep_file(path: &Path) {
    std::fs::read(path).into_iter().for_each(|said| keep(&said));
}

/// Keeps what this process logs from the first call on, for all tests of it.
pub fn listen() {
    static LISTENS: Once = Once::new();
    LISTENS.call_once(|| {
        let Some(file) = file("within") else { return };
        let log = tracing_subscriber::fmt().with_env_filter(EnvFilter::new(FILTER)).with_ansi(false);
        let listens = log.with_writer(file).try_init();
        assert!(listens.is_ok(), "what this process logs cannot be kept: {listens:?}");
    });
}

/// What this thread logs while `call` runs, a line each: its level, its target, what it says and its fields.
pub fn heard(call: impl FnOnce()) -> String {
    /// While there is but one subscriber, a place in the code that another thread is the first to come by is taken to
    /// interest nobody, since that thread has none.
    static OTHER: OnceLock<Dispatch> = OnceLock::new();
    OTHER.get_or_init(|| tracing_subscriber::fmt().with_max_level(LevelFilter::OFF).finish().into());
    let page = Page::default();
    let writer = page.clone();
    let log = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_ansi(false).without_time();
    dispatcher::with_default(&log.with_writer(move || writer.clone()).finish().into(), call);
    let said = page.0.lock().unwrap_or_else(PoisonError::into_inner);
    String::from_utf8_lossy(&said).into_owned()
}

#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Write for Page {
    fn write(&mut self, said: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(said);
        Ok(said.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A new file; none where nothing is kept.
fn file(kind: &str) -> Option<File> {
    /// Files of this process.
    static FILES: AtomicU32 = AtomicU32::new(0);
    let folder = PathBuf::from(std::env::var_os("TIDEGATE_SAID")?);
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let path = folder.join(format!("{kind}-{}-{number}", std::process::id()));
    let file = OpenOptions::new().create_new(true).append(true).open(&path);
    assert!(file.is_ok(), "TIDEGATE_SAID: {}: {file:?}", path.display());
    file.ok()
}
