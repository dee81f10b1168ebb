//! Showing that this controller runs, under its name, and reading which others do.
//!
//! A record is written over the one that was seen. One of another process under the same name is left by a predecessor,
//! if it does not change for three seconds, and is replaced; if it changes twice, two processes have one name, and this
//! one ends. Once, it may be what a predecessor sent before it was killed. Who leads is decided without any of this.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle, park_timeout};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tidegate_core::units::{Span, Time};
use tokio::task::spawn_blocking;

use super::roster::{GONE, Roster};
use crate::clock::{Clock, duration};
use crate::store::StoreError;
use crate::store::replicated::{MemberRecord, Wrote};

/// Between two records, in the mean. Half of it would double the writes for nothing; twice as much would be more than a
/// drain waits.
const EVERY: Span = Span::secs(1);
/// By this part of it pauses are longer or shorter, at random: controllers that kept step would see each other's records
/// as late as the first one for ever, and take that for a difference of clocks. With half of it a record and the look for
/// it can be as far apart as makes a controller look gone; a tenth would take minutes to show the clocks.
const VARIES: u64 = 4;

/// Another process has the name of this one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "another controller of the cluster under {prefix}, at {addresses}, has the name of this one ({name}); give each its \
     own cluster_name"
)]
pub struct Namesake {
    prefix: String,
    name: String,
    addresses: String,
}

/// The record of this controller.
pub(super) struct Presence {
    pub(super) clock: Clock,
    pub(super) record: MemberRecord,
    pub(super) roster: Arc<Roster>,
    /// The revision of the record that is to be replaced.
    seen: u64,
    /// A record of another process.
    rival: Option<Rival>,
    is_failing: bool,
    random: StdRng,
}

/// A record of another process under the same name.
#[derive(Clone, Copy, Debug)]
struct Rival {
    /// Its revision, and when that was first seen.
    changed: u64,
    since: Time,
    /// Whether it was seen to change before.
    has_changed: bool,
}

impl Presence {
    pub(super) fn new(clock: Clock, record: MemberRecord, roster: Arc<Roster>) -> Self {
        let random = StdRng::seed_from_u64(record.instance);
        Self { clock, record, roster, seen: 0, rival: None, is_failing: false, random }
    }

    /// The time until the next step.
    fn pause(&mut self) -> Span {
        let most = EVERY.0 / VARIES;
        Span(self.random.random_range(EVERY.0 - most..=EVERY.0 + most))
    }

    /// Writes the record once, and reads those of all.
    ///
    /// # Errors
    /// Another process has the name.
    pub(super) fn step(&mut self) -> Result<(), Namesake> {
        match self.written().and_then(|wrote| Ok((wrote, self.cluster()?, self.roster.members.all()?))) {
            Ok((wrote, cluster, records)) => {
                self.roster.saw(cluster, records);
                self.is_failing = false;
                self.judge(wrote)
            }
            Err(error) => {
                if !self.is_failing {
                    tracing::warn!(%error, "other controllers do not see that this one runs");
                }
                self.is_failing = true;
                Ok(())
            }
        }
    }

    fn written(&mut self) -> Result<Wrote, StoreError> {
        self.record.unix_ms = self.clock.unix_ms();
        self.roster.members.write(&self.record, self.seen)
    }

    /// Which log it is, unless that is known: it is drawn once.
    fn cluster(&self) -> Result<Option<String>, StoreError> {
        if self.roster.cluster().is_empty() { self.roster.members.cluster() } else { Ok(None) }
    }

    fn judge(&mut self, wrote: Wrote) -> Result<(), Namesake> {
        match wrote {
            Wrote::Done(revision) => (self.seen, self.rival) = (revision, None),
            Wrote::Other(None) => (self.seen, self.rival) = (0, None),
            // An answer to an attempt before this one was lost.
            Wrote::Other(Some((record, changed))) if record.instance == self.record.instance => {
                (self.seen, self.rival) = (changed, None);
            }
            Wrote::Other(Some((record, changed))) => match self.rival {
                None => self.rival = Some(Rival { changed, since: self.clock.now(), has_changed: false }),
                Some(rival) if rival.changed != changed && !rival.has_changed => {
                    self.rival = Some(Rival { changed, since: self.clock.now(), has_changed: true });
                }
                Some(rival) if rival.changed != changed => {
                    return Err(Namesake {
                        prefix: self.roster.prefix().to_owned(),
                        name: self.record.controller.clone(),
                        addresses: record.addresses.join(", "),
                    });
                }
                Some(rival) if self.clock.now().since(rival.since) >= GONE => self.seen = changed,
                Some(_) => {}
            },
        }
        Ok(())
    }

    /// Removes the record, which is looked for first if an answer was lost.
    fn leave(&mut self) {
        if self.is_failing {
            // It ends in any case.
            let _ = self.step();
        }
        if self.seen > 0
            && let Err(error) = self.roster.members.remove(&self.record.controller, self.seen)
        {
            tracing::warn!(%error, "the list of controllers goes on to name this one");
        }
    }

    /// Goes on in a thread. `ended` is called with what ends it before its time.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(super) fn go_on(mut self, ended: impl FnOnce(Namesake) + Send + 'static) -> std::io::Result<Shown> {
        let ending = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&ending);
        let thread = Builder::new().name("presence".to_owned()).spawn(move || {
            while !is_over.load(Ordering::Acquire) {
                if let Err(namesake) = self.step() {
                    ended(namesake);
                    return;
                }
                park_timeout(duration(self.pause()));
            }
            self.leave();
        })?;
        Ok(Shown { ending, thread })
    }
}

/// A record that is being written.
pub(super) struct Shown {
    ending: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Shown {
    /// Removes the record, and waits for that.
    pub(super) async fn end(self) {
        self.ending.store(true, Ordering::Release);
        self.thread.thread().unpark();
        let joined = spawn_blocking(move || self.thread.join());
        if !matches!(joined.await, Ok(Ok(()))) {
            tracing::error!("the thread that shows this controller panicked");
        }
    }
}

#[cfg(test)]
mod shown_tests;

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use tidegate_consensus::model::{Fault, Model};
    use tidegate_test_servers::said::heard;

    use super::*;
    use crate::store::replicated::{Members, Settings};

    pub(super) struct Cluster {
        pub(super) model: Arc<Model>,
        pub(super) now: Arc<AtomicU64>,
    }

    impl Cluster {
        pub(super) fn presence(&self, name: &str, instance: u64) -> Presence {
            let clock = Clock::driven(Arc::clone(&self.now));
            let settings = Settings::new(clock.clone(), Span(0));
            let members = Members::new(Arc::<Model>::clone(&self.model), "t/", settings).unwrap();
            let record = MemberRecord {
                controller: name.to_owned(),
                instance,
                addresses: vec![format!("http://{name}.{instance}:7420")],
                version: "1".to_owned(),
                unix_ms: 0,
            };
            let roster = Arc::new(Roster::new(name, members, clock.clone()));
            Presence::new(clock, record, roster)
        }

        fn pass(&self, ms: u64) {
            self.now.fetch_add(ms * 1_000, Ordering::Relaxed);
        }
    }

    pub(super) fn cluster() -> Cluster {
        Cluster { model: Arc::default(), now: Arc::default() }
    }

    #[test]
    fn two_processes_with_one_name_are_noticed_by_the_second() {
        let cluster = cluster();
        let (mut first, mut second) = (cluster.presence("a", 1), cluster.presence("a", 2));
        first.step().unwrap();
        second.step().unwrap();
        cluster.pass(1_000);
        first.step().unwrap();
        second.step().expect("a write that was late looks so, too");
        cluster.pass(1_000);
        first.step().unwrap();
        let namesake = second.step().unwrap_err().to_string();
        assert!(namesake.contains("at http://a.1:7420, has the name of this one (a)"), "{namesake}");
        assert!(namesake.contains("under t/") && namesake.contains("its own cluster_name"), "{namesake}");
        first.step().unwrap();
    }

    #[test]
    fn the_name_of_a_process_that_is_gone_is_taken_after_a_while_and_a_late_one_ends() {
        let cluster = cluster();
        let (mut first, mut second) = (cluster.presence("a", 1), cluster.presence("a", 2));
        first.step().unwrap();
        for _ in 0..6 {
            second.step().unwrap();
            cluster.pass(1_000);
        }
        assert_eq!(second.roster.all()[0].record.instance, 2);
        // The first was stopped meanwhile.
        for _ in 0..2 {
            first.step().unwrap();
            second.step().unwrap();
        }
        first.step().unwrap_err();
    }

    #[test]
    fn what_was_seen_of_a_predecessor_counts_no_more_once_its_name_is_taken() {
        let cluster = cluster();
        let (mut first, mut second) = (cluster.presence("a", 1), cluster.presence("a", 2));
        for _ in 0..2 {
            first.step().unwrap();
            second.step().unwrap();
            cluster.pass(1_000);
        }
        for _ in 0..6 {
            second.step().unwrap();
            cluster.pass(1_000);
        }
        assert_eq!(second.roster.all()[0].record.instance, 2);
        // An operator removes the record, and what the first one had sent comes late.
        second.roster.members.remove("a", second.seen).unwrap();
        first.seen = 0;
        first.step().unwrap();
        second.step().expect("that is the first record of another one since");
    }

    #[test]
    fn a_record_is_found_again_whose_answer_was_lost_or_that_was_removed() {
        let cluster = cluster();
        let mut first = cluster.presence("a", 1);
        for fault in [Fault::Lost, Fault::Away, Fault::Late] {
            cluster.model.plan([Some(fault)]);
            first.step().unwrap();
            cluster.pass(1_000);
            first.step().unwrap();
        }
        first.roster.members.remove("a", first.seen).unwrap();
        for _ in 0..3 {
            first.step().unwrap();
        }
        assert_eq!(first.roster.all().len(), 1);
    }

    #[test]
    fn that_nobody_sees_a_controller_is_said_once_until_others_see_it_again() {
        let cluster = cluster();
        let mut first = cluster.presence("a", 1);
        for _ in 0..2 {
            let said = heard(|| {
                for fault in [None, Some(Fault::Away), Some(Fault::Away), Some(Fault::Away), None] {
                    cluster.model.plan([fault]);
                    first.step().unwrap();
                }
            });
            assert_eq!(said.matches("WARN").count(), 1, "{said}");
            let line = "other controllers do not see that this one runs error=the shared store failed to show that \
                        this controller runs: ";
            assert!(said.contains(line), "{said}");
        }
        cluster.model.plan([Some(Fault::Away)]);
        let said = heard(|| first.leave());
        let line = "the list of controllers goes on to name this one error=the shared store failed to remove a record \
                    of the list of controllers: ";
        assert!(said.contains("WARN") && said.contains(line), "{said}");
    }

    #[test]
    fn clocks_are_compared_to_some_hundredths_of_a_second_whenever_each_begins() {
        for late in [0, 100, 400, 900] {
            let cluster = cluster();
            let (mut a, mut b) = (cluster.presence("a", late + 1), cluster.presence("b", late + 2));
            let ahead = Arc::new(AtomicU64::new(70_000));
            b.clock = b.clock.clone().with_wall(ahead);
            let (mut a_at, mut b_at) = (Time(late * 1_000), Time(0));
            let mut seen_gone = 0;
            while a_at < Time(150_000_000) {
                let next = a_at.min(b_at);
                cluster.now.store(next.0, Ordering::Relaxed);
                if next == b_at {
                    b.step().unwrap();
                    b_at = next.after(b.pause());
                } else {
                    a.step().unwrap();
                    a_at = next.after(a.pause());
                    seen_gone += u32::from(next > Time(5_000_000) && a.roster.others().is_empty());
                }
            }
            let ahead_ms = a.roster.all().remove(1).ahead_ms;
            assert!((30..=70).contains(&ahead_ms) && seen_gone == 0, "{late}: {ahead_ms} of 70 ms");
        }
    }

    #[test]
    fn others_that_run_are_those_whose_records_change_and_clocks_are_compared() {
        let cluster = cluster();
        let (mut a, mut b) = (cluster.presence("a", 1), cluster.presence("b", 1));
        let ahead = Arc::new(AtomicU64::new(70_000));
        b.clock = b.clock.clone().with_wall(ahead);
        b.step().unwrap();
        a.step().unwrap();
        assert!(a.roster.others().is_empty(), "its record may be an old one");
        for _ in 0..3 {
            cluster.pass(900);
            b.step().unwrap();
            cluster.pass(100);
            a.step().unwrap();
        }
        assert_eq!(a.roster.others(), ["b"]);
        a.roster.drain(Span::secs(60));
        assert!(a.roster.rests());
        let seen = a.roster.all().remove(1);
        // It is seen 100 ms late.
        assert_eq!((seen.record.controller.as_str(), seen.age, seen.ahead_ms), ("b", Span(0), -30));
        cluster.pass(3_000);
        a.step().unwrap();
        assert!(a.roster.others().is_empty() && !a.roster.rests(), "nobody else would lead");
        assert_eq!(a.roster.all()[1].age, Span::secs(3));
        b.step().unwrap();
        a.step().unwrap();
        assert!(a.roster.rests());
        cluster.pass(60_000);
        b.step().unwrap();
        a.step().unwrap();
        assert!(!a.roster.rests(), "its time is over");
    }
}
