//! Fifty `kill -9` of controller and nodes under load, with stops, restarts and a bad network between, with the real
//! binaries: no definition, no binding and no RU is lost or doubled, no window passes the bound, and no node admits
//! without a lease. The `chaos` binary runs as many with any seed.

use std::path::Path;
use std::time::Duration;

use tidegate_tests::process::chaos::Settings;
use tidegate_tests::process::chaos::fault::Fault;
use tidegate_tests::process::chaos::run::run;

const KILLS: u64 = 50;
/// A seed that has every kind of fault at least five times before the last kill, which is due after 37 seconds.
const SEED: u64 = 2_891;

#[tokio::test]
async fn nothing_is_lost_or_doubled_by_kills_stops_and_cuts() {
    let mut folder = tempfile::Builder::new().prefix("tidegate-kills-").tempdir().unwrap();
    let settings = Settings {
        folder: folder.path().to_owned(),
        load_node: Path::new(env!("CARGO_BIN_EXE_load-node")).to_owned(),
        seed: SEED,
        kills: KILLS,
        // Only a run that hangs takes so long.
        limit: Duration::from_secs(600),
        progress: false,
        cluster: false,
        strict: false,
    };
    // Kept unless the test passes.
    folder.disable_cleanup(true);
    let outcome = run(&settings).await.unwrap_or_else(|error| panic!("{error}; see {:?}", folder.path()));
    println!("{outcome}");
    assert!(outcome.violations.is_empty(), "see {:?}", folder.path());
    assert_eq!(outcome.tally.kills(), KILLS);
    for fault in Fault::ALL {
        assert!(outcome.tally.faults.contains_key(fault.name()), "no {}", fault.name());
    }
    assert!(outcome.stops.silences > 0 && outcome.stops.dark_wakes > 0, "{:?}", outcome.stops);
    assert!(outcome.operations() > 1_000, "the nodes hardly worked");
    folder.disable_cleanup(false);
}
