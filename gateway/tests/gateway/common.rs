//! What tests of both protocols need.

use std::io::{ErrorKind, Write as _};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use tempfile::TempDir;
use tidegate_controller::{Config, Controller, Running};
use tidegate_test_servers::said;

/// A controller in this process, with an empty store.
pub(crate) async fn controller() -> (Running, TempDir) {
    said::listen();
    let folder = tempfile::tempdir().unwrap();
    let controller = Controller::start(Config {
        store: folder.path().join("store.redb"),
        grpc_listen: "127.0.0.1:0".parse().unwrap(),
        http_listen: "127.0.0.1:0".parse().unwrap(),
        ..Config::default()
    });
    (controller.await.unwrap(), folder)
}

/// Longer than any client takes for its script, also on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(300);

/// What a client prints for a script, with errors behind the results. A client that does not end is killed and
/// reported.
pub(crate) fn says(client: &mut Command, script: &[u8]) -> Vec<u8> {
    client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = client.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let script = script.to_vec();
    let writer = std::thread::spawn(move || input.write_all(&script));
    let (ended, ends) = mpsc::channel::<()>();
    let pid = child.id().to_string();
    let watch = std::thread::spawn(move || {
        let hangs = ends.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout);
        hangs.then(|| Command::new("kill").args(["-9", &pid]).status())
    });
    let output = child.wait_with_output().unwrap();
    drop(ended);
    let said = [output.stdout, output.stderr].concat();
    let told = String::from_utf8_lossy(said.get(..500).unwrap_or(&said));
    assert!(watch.join().unwrap().is_none(), "{client:?} hung after {} bytes: {told}", said.len());
    // A client that was refused ends before it reads its script.
    let unread = |error: &std::io::Error| error.kind() == ErrorKind::BrokenPipe;
    assert!(writer.join().unwrap().as_ref().err().is_none_or(unread), "{client:?} got no script: {told}");
    said
}

/// Fails where what a client saw directly and through the gateway differ.
#[track_caller]
pub(crate) fn same(direct: &[u8], through: &[u8]) {
    if let Some(at) = direct.iter().zip(through).position(|(one, other)| one != other) {
        let near = |text: &[u8]| {
            String::from_utf8_lossy(&text[at.saturating_sub(200)..(at + 200).min(text.len())]).into_owned()
        };
        panic!("at byte {at}:\n{}\n--- through the gateway:\n{}", near(direct), near(through));
    }
    assert_eq!(direct.len(), through.len());
}

/// Tries until it is so.
pub(crate) async fn eventually(what: &str, mut check: impl AsyncFnMut() -> bool) {
    for _ in 0..600 {
        if check().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("never: {what}");
}
