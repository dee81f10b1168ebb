//! A handful of faults on three controllers and three members of etcd under load, with the real binaries: nothing is
//! lost or doubled, no window passes the bound, never do two lead, and somebody leads again soon. The `chaos` binary runs
//! any number with `--cluster`.

use std::path::Path;
use std::time::Duration;

use tidegate_tests::process::chaos::Settings;
use tidegate_tests::process::chaos::run::run;

const FAULTS: u64 = 12;
/// A seed whose first faults cut off, end, stop and kill the controller that leads, kill and stop members of etcd, and
/// restart all controllers.
const SEED: u64 = 38_840;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_loses_and_doubles_nothing_whatever_fails_and_somebody_leads_again() {
    let mut folder = tempfile::Builder::new().prefix("tidegate-faults-").tempdir().unwrap();
    let settings = Settings {
        folder: folder.path().to_owned(),
        load_node: Path::new(env!("CARGO_BIN_EXE_load-node")).to_owned(),
        seed: SEED,
        cluster: true,
        // The default has the test of takeovers.
        strict: true,
        kills: FAULTS,
        // Only a run that hangs takes so long.
        limit: Duration::from_secs(600),
        progress: false,
    };
    // Kept unless the test passes.
    folder.disable_cleanup(true);
    let outcome = run(&settings).await.unwrap_or_else(|error| panic!("{error}; see {:?}", folder.path()));
    println!("{outcome}");
    assert!(outcome.violations.is_empty(), "see {:?}", folder.path());
    assert!(outcome.tally.happened() >= FAULTS);
    assert!(outcome.leadership.as_ref().is_some_and(|leadership| leadership.changes >= 4));
    assert!(outcome.operations() > 1_000, "the nodes hardly worked");
    folder.disable_cleanup(false);
}
