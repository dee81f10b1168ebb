//! A node without a journal, whose threads ask for admission as fast as they can, so that they pay from purses.
//!
//! `purse-node ENDPOINT GROUP THREADS` writes a `tidegate_tests::process::glance` to the standard output every 20 ms,
//! until it is killed.

use std::env;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_client::{Client, Group, Ru, RuParts};
use tidegate_tests::process::finding::found;
use tidegate_tests::process::glance::{Glance, Hand};
use tidegate_tests::process::log::{MachineClock, machine_micros};

/// What an operation costs.
const COST: Ru = Ru(100_000);
/// Time between two glances.
const EVERY: Duration = Duration::from_millis(20);
/// A glance that comes later than this, in microseconds, shows that the process stood still.
const GAP_US: u64 = 100_000;
/// After that no thread looks at the group for this long, in microseconds: a look would close the purses.
const ALONE_US: u64 = 150_000;
/// A purse pays by a clock that is behind; what was admitted so many microseconds before it was asked for was paid
/// from a purse.
const BEHIND_US: u64 = 50;
/// Pause after a refusal.
const RETRY: Duration = Duration::from_millis(1);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A thread's work, for the thread that glances. Only the working thread writes.
#[derive(Default)]
struct Told {
    admitted: AtomicU64,
    last_us: AtomicU64,
    paid: AtomicU64,
    last_paid_us: AtomicU64,
}

impl Told {
    fn count(sum: &AtomicU64, last_us: &AtomicU64, at_us: u64) {
        last_us.store(at_us, Ordering::Relaxed);
        sum.store(sum.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn hand(&self) -> Hand {
        Hand {
            admitted: self.admitted.load(Ordering::Relaxed),
            last_us: self.last_us.load(Ordering::Relaxed),
            paid: self.paid.load(Ordering::Relaxed),
            last_paid_us: self.last_paid_us.load(Ordering::Relaxed),
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("purse-node: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Failure> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [endpoint, name, threads] = args.as_slice() else {
        return Err("usage: purse-node ENDPOINT GROUP THREADS".into());
    };
    let clock = MachineClock::start()?;
    let client = Client::builder([endpoint.as_str()], "purse-node").start()?;
    let group = found(&client, name).await?;
    let mut told = Vec::new();
    for _ in 0..threads.parse()? {
        let mine = Arc::new(Told::default());
        told.push(Arc::clone(&mine));
        let group = group.clone();
        std::thread::Builder::new().spawn(move || labour(&group, &mine, clock))?;
    }
    let (mut last_us, mut alone_until) = (machine_micros(), 0);
    loop {
        let at_us = machine_micros();
        if at_us - last_us > GAP_US {
            alone_until = at_us + ALONE_US;
        }
        last_us = at_us;
        let (mut lease_end_us, mut grants) = (None, None);
        if at_us >= alone_until {
            grants = Some(client.counts().grants);
            let left = group.state().expires_in;
            // The lease was looked at before now.
            lease_end_us = left.map(|left| machine_micros() + left.0);
        }
        let hands = told.iter().map(|told| told.hand()).collect();
        println!("{}", Glance { at_us, lease_end_us, grants, hands });
        tokio::time::sleep(EVERY).await;
    }
}

/// Asks again and again, on one handle.
fn labour(group: &Group, told: &Told, clock: MachineClock) {
    loop {
        let asked_us = machine_micros();
        match group.try_acquire(COST) {
            Ok(permit) => {
                let admitted_us = clock.micros(permit.admitted_at());
                permit.settle_ru(RuParts::flat(COST));
                if admitted_us + BEHIND_US < asked_us {
                    Told::count(&told.paid, &told.last_paid_us, asked_us);
                }
                Told::count(&told.admitted, &told.last_us, asked_us);
            }
            Err(_) => std::thread::park_timeout(RETRY),
        }
    }
}
