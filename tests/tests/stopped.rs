//! A process that is stopped past its lease spends nothing when it goes on: not from the purses of its threads either,
//! which are open as it stops, and pay by the kernel's coarse clock. The real binaries, a link that is cut, and every
//! admission stamped by the node itself just before it is asked for.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tidegate_proto::v1::{CreateGroupRequest, Group};
use tidegate_tests::process::child::Process;
use tidegate_tests::process::cluster::Cluster;
use tidegate_tests::process::error::PATIENCE;
use tidegate_tests::process::glance::Glance;
use tidegate_tests::process::log::machine_micros;

/// Rounds in which the purse of a thread is open as its time is over.
const ROUNDS: usize = 24;
/// A busy machine may spoil some.
const MOST_ROUNDS: usize = 4 * ROUNDS;
const THREADS: usize = 2;
/// Lease length, in microseconds.
const TTL_US: u64 = 500_000;
/// So long after the lease's end the process goes on, in microseconds; without, it is not stopped. The last makes the
/// stop longer than a lease.
const WAKES_US: [Option<u64>; 6] =
    [Some(0), Some(1_000), None, Some(6_000), Some(40_000), Some(TTL_US + 100_000)];
/// Bytes that had passed the link when it was cut reach the node within this, in microseconds.
const SETTLED_US: u64 = 30_000;
/// A purse that paid so shortly ago is open, in microseconds.
const RECENT_US: u64 = 10_000;
/// The link stays cut for so long after the node goes on, in microseconds: longer than any purse is good for.
const DARK_US: u64 = 200_000;

/// The node's reports.
struct Glances(BufReader<File>, String);

impl Glances {
    fn next(&mut self) -> Option<Glance> {
        loop {
            // A line that is not yet whole is gone on with.
            if self.0.read_line(&mut self.1).unwrap() == 0 || !self.1.ends_with('\n') {
                return None;
            }
            let line = std::mem::take(&mut self.1);
            if let Ok(glance) = line.trim_end().parse() {
                return Some(glance);
            }
        }
    }

    /// The first glance that is so.
    async fn until(&mut self, node: &mut Process, is_so: impl Fn(&Glance) -> bool) -> Glance {
        let found = async {
            loop {
                if let Some(glance) = self.next() {
                    if is_so(&glance) {
                        return glance;
                    }
                } else {
                    assert!(node.ended().is_none(), "{}", node.tail());
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        };
        let found = tokio::time::timeout(PATIENCE, found).await;
        assert!(found.is_ok(), "{}", node.tail());
        found.unwrap()
    }
}

/// Both threads pay from their purses.
fn is_busy(glance: &Glance) -> bool {
    let pays = |last_us: u64| last_us + RECENT_US >= glance.at_us;
    glance.lease_end_us.is_some() && glance.hands.iter().all(|hand| pays(hand.last_paid_us))
}

async fn sleep_until(at_us: u64) {
    tokio::time::sleep(Duration::from_micros(at_us.saturating_sub(machine_micros() + 1_500))).await;
    while machine_micros() < at_us {
        std::thread::yield_now();
    }
}

/// Figures of all rounds.
#[derive(Debug, Default)]
struct Figures {
    rounds: usize,
    /// Purses that were open.
    open: usize,
    stops: usize,
    longest_stop_us: u64,
    spoilt: usize,
    violations: Vec<String>,
}

struct Scene {
    cluster: Cluster,
    node: Process,
    glances: Glances,
}

impl Scene {
    fn cut(&self, cut: bool) {
        self.cluster.links.first().unwrap().set(|weather| (weather.up.cut, weather.down.cut) = (cut, cut));
    }

    /// Cuts the link, lets the lease end, and checks for admissions after that.
    async fn round(&mut self, wake_us: Option<u64>, figures: &mut Figures) {
        let Self { node, glances, .. } = self;
        let begun_us = machine_micros();
        glances.until(node, |glance| glance.at_us > begun_us && is_busy(glance)).await;
        self.cut(true);
        let cut_us = machine_micros();
        let Self { node, glances, .. } = self;
        let before = glances.until(node, |glance| glance.at_us > cut_us + SETTLED_US).await;
        let Some(told_us) = before.lease_end_us else {
            figures.spoilt += 1;
            return self.cut(false);
        };
        // The node asked for its lease before the cut.
        let mut end_us = told_us.min(cut_us + TTL_US);

        let (mut open_at, mut wake_at) = (end_us, end_us);
        if let Some(wake_us) = wake_us {
            open_at = machine_micros();
            assert!(node.stop().await.unwrap(), "{}", node.tail());
            let stopped_us = machine_micros();
            if stopped_us >= end_us {
                figures.spoilt += 1;
                node.go_on();
                return self.cut(false);
            }
            sleep_until(end_us + wake_us).await;
            wake_at = machine_micros();
            node.go_on();
            figures.stops += 1;
            figures.longest_stop_us = figures.longest_stop_us.max(wake_at - stopped_us);
        }
        let over = |glance: &Glance| glance.at_us > wake_at + DARK_US && glance.grants.is_some();
        let after = glances.until(node, over).await;
        if after.grants != before.grants {
            end_us = cut_us + TTL_US;
        }
        // A thread that runs past the lease's end uses the lock for the last moments.
        let recent_us = if wake_us.is_some() { RECENT_US } else { 100_000 };
        let open = after.hands.iter().filter(|hand| hand.last_paid_us + recent_us >= open_at).count();
        figures.rounds += usize::from(open > 0);
        figures.open += open;
        for hand in after.hands.iter().filter(|hand| hand.last_us > end_us) {
            let late = hand.last_us - end_us;
            figures.violations.push(format!("{late} us past the lease, awake at {wake_us:?}: {hand:?}"));
        }
        self.cut(false);
    }
}

#[tokio::test]
#[ignore = "needs the clock that ships, and not the one of test-util; tests/run runs it by itself"]
async fn who_is_stopped_past_the_lease_spends_nothing_from_a_purse() {
    let folder = tempfile::tempdir().unwrap();
    let load_node = Path::new(env!("CARGO_BIN_EXE_load-node"));
    let mut cluster = Cluster::new(folder.path(), load_node, 1, Vec::new()).await.unwrap();
    cluster.start_controller().await.unwrap();
    let group = Group {
        name: "load".to_owned(),
        ru_per_sec: "1000000".to_owned(),
        ttl_us: TTL_US,
        ..Group::default()
    };
    let request = CreateGroupRequest { group: Some(group), if_not_exists: false };
    cluster.admin().await.unwrap().create_group(request).await.unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_purse-node"));
    command
        .arg(format!("http://{}", cluster.links.first().unwrap().address()))
        .arg("load")
        .arg(THREADS.to_string());
    let node = Process::start(command, "purse-node", folder.path()).unwrap();
    let told = File::open(folder.path().join("purse-node.out")).unwrap();
    let mut scene = Scene { cluster, node, glances: Glances(BufReader::new(told), String::new()) };

    let mut figures = Figures::default();
    for wake_us in WAKES_US.into_iter().cycle().take(MOST_ROUNDS) {
        if figures.rounds == ROUNDS {
            break;
        }
        scene.round(wake_us, &mut figures).await;
    }
    println!("{figures:?}");
    assert!(figures.violations.is_empty(), "{:#?}", figures.violations);
    assert_eq!(figures.rounds, ROUNDS, "no purse was open as the lease ended: {figures:?}");
}
