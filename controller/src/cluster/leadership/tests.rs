//! Beats and checkpoints of a controller that leads, each step by itself, and their threads.

use std::sync::atomic::AtomicU64;

use tidegate_consensus::model::{Fault, Model};
use tidegate_consensus::{Row, Transaction};
use tidegate_test_servers::said::heard;

use super::*;
use crate::service::{ServiceConfig, Succession};
use crate::store::replicated::tests::memory::Memory;
use crate::store::replicated::tests::owner;
use crate::store::replicated::tests::way::{Over, Way};
use crate::store::replicated::{Follower, Settings};
use crate::store::{Store as _, Table, Write};

const FENCE: Span = Span::secs(1);
/// Between two beats of such a fence, a thread that is not woken is not seen again.
const LONG: Span = Span::secs(3_600);

/// A shared store whose writes take time and are counted.
struct Slow {
    model: Arc<Model>,
    now: Arc<AtomicU64>,
    /// Of each, in microseconds.
    takes: AtomicU64,
    writes: AtomicU64,
}

impl Way for Slow {
    fn model(&self) -> &Model {
        &self.model
    }

    fn before_transaction(&self, _: &Transaction) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.now.fetch_add(self.takes.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// A controller that has taken the log.
struct Led {
    slow: Arc<Slow>,
    clock: Clock,
    settings: Settings,
    store: Arc<ReplicatedStore>,
}

impl Led {
    fn new() -> Self {
        let now = Arc::<AtomicU64>::default();
        let (model, takes, writes) = (Arc::default(), AtomicU64::new(0), AtomicU64::new(0));
        let slow = Arc::new(Slow { model, now: Arc::clone(&now), takes, writes });
        let clock = Clock::driven(now);
        // One attempt of each call; and a checkpoint is due soon.
        let settings = Settings { checkpoint_after: 2_000, ..Settings::new(clock.clone(), Span(0)) };
        let store = taken(&slow, &settings, "a");
        Self { slow, clock, settings, store }
    }

    fn pass(&self, span: Span) {
        self.slow.now.fetch_add(span.0, Ordering::Relaxed);
    }

    fn model(&self) -> &Model {
        &self.slow.model
    }

    /// Its beats, what they keep open, and what shows that the log has another owner.
    fn beats(&self, strict: Option<Span>) -> (Beats, Arc<Kept>, flag::Receiver<bool>) {
        let (kept, (over, is_over)) = (Arc::new(Kept::new(strict)), flag::channel(false));
        let (store, clock) = (Arc::clone(&self.store), self.clock.clone());
        (Beats::new(store, clock, FENCE, Arc::clone(&kept), over), kept, is_over)
    }

    fn service(&self) -> Arc<Service> {
        let config = ServiceConfig {
            fence: Some(FENCE),
            succession: Succession::Cluster { silent: true },
            ..ServiceConfig::default()
        };
        let store = Arc::clone(&self.store);
        Arc::new(Service::load(store, config, self.clock.clone()).unwrap())
    }

    fn begin(&self, fence: Span, is_strict: bool) -> Leadership {
        let over = flag::Sender::new(false);
        Leadership::begin(&self.store, self.clock.clone(), fence, is_strict, over).unwrap()
    }

    fn has(&self, key: &[u8]) -> bool {
        self.model().rows().iter().any(|row| row.key == key)
    }

    /// Begins, and waits until the first beat is stored; the next one is not due soon.
    fn begun(&self, is_strict: bool) -> Leadership {
        let leadership = self.begin(LONG, is_strict);
        let is_first = |row: Row| row.key == b"t/beat/0" && row.value == b"1";
        while !self.model().rows().into_iter().any(is_first) {
            assert!(!leadership.threads[0].is_finished(), "nobody writes beats");
            park_timeout(Duration::from_millis(1));
        }
        leadership
    }

    /// Makes a checkpoint due.
    fn grow(&self) {
        for n in 0..20_u8 {
            self.store.commit(&[Write::Put(Table::Bindings, vec![n], vec![n; 500])]).unwrap();
        }
    }
}

fn taken(slow: &Arc<Slow>, settings: &Settings, name: &str) -> Arc<ReplicatedStore> {
    let consensus = Arc::new(Over(Arc::clone(slow)));
    let follower = Follower::follow(consensus, "t/", Memory::new(), settings.clone(), false).unwrap();
    let seen = follower.look().unwrap();
    Arc::new(follower.take(&seen, &owner(name)).unwrap())
}

/// Waits until it is so, while this thread of the leadership goes on; wakes it all the time. Returns how often.
fn until(leadership: &Leadership, name: &str, is_so: impl Fn() -> bool) -> u64 {
    let mut wakes = 0;
    let named = |thread: &&JoinHandle<()>| thread.thread().name() == Some(name);
    let thread = leadership.threads.iter().find(named).expect("it has this thread");
    while !is_so() {
        let is_over = thread.is_finished();
        assert!(!is_over || is_so(), "the thread has ended");
        thread.thread().unpark();
        wakes += 1;
        park_timeout(Duration::from_millis(2));
    }
    wakes
}

#[test]
fn a_service_that_is_loaded_speaks_by_the_newest_beat_that_is_stored_already() {
    let led = Led::new();
    let (mut beats, kept, _) = led.beats(None);
    let service = led.service();
    beats.step().unwrap();
    led.pass(Span(1));
    kept.open(&service);
    assert_eq!(service.silence(), None);
    led.pass(Span(FENCE.0 - 1));
    assert_eq!(service.silence(), Some(Silence::CutOff(FENCE)), "its fence began at the beat");
    beats.step().unwrap();
    assert_eq!(service.silence(), None);
    assert!(service.beside().gate.get().is_none(), "answers wait for nothing");
}

#[test]
fn beats_keep_their_pace_however_long_one_takes() {
    let led = Led::new();
    let (mut beats, ..) = led.beats(None);
    for (takes, pause) in [(0, 200), (50, 150), (200, 0), (300, 0)] {
        led.slow.takes.store(takes * 1_000, Ordering::Relaxed);
        assert_eq!(beats.step(), Some(Span::millis(pause)), "after {takes} ms");
    }
}

#[test]
fn a_fence_begins_when_its_beat_is_sent_and_not_when_that_is_stored() {
    let led = Led::new();
    let (mut beats, kept, _) = led.beats(None);
    let service = led.service();
    kept.open(&service);
    led.slow.takes.store(300_000, Ordering::Relaxed);
    beats.step().unwrap();
    led.pass(Span::millis(699));
    assert_eq!(service.silence(), None);
    led.pass(Span::millis(1));
    assert_eq!(service.silence(), Some(Silence::CutOff(FENCE)));
}

#[test]
fn a_beat_that_fails_is_tried_again_and_one_that_finds_another_owner_ends_them() {
    let led = Led::new();
    let (mut beats, _, is_over) = led.beats(None);
    for fault in Fault::ALL {
        led.model().plan([Some(fault)]);
        assert!(beats.step().is_some() && !*is_over.borrow(), "{fault:?}");
        assert!(beats.step().is_some() && !*is_over.borrow());
    }
    taken(&led.slow, &led.settings, "b");
    assert!(beats.step().is_none() && *is_over.borrow());
}

#[test]
fn beats_that_are_not_stored_are_said_once_and_so_is_their_end() {
    let led = Led::new();
    let (mut beats, ..) = led.beats(None);
    for _ in 0..2 {
        let said = heard(|| {
            for fault in [None, Some(Fault::Away), Some(Fault::Away), None, None] {
                led.model().plan([fault]);
                beats.step().unwrap();
            }
        });
        let lines: Vec<&str> =
            said.lines().filter(|line| line.contains(" a beat ") || line.contains(" beats ")).collect();
        let [not_stored, stored_again] = lines.as_slice() else { panic!("{said}") };
        assert!(not_stored.contains("WARN") && not_stored.contains("a beat was not stored error="), "{said}");
        assert!(stored_again.contains("INFO") && stored_again.contains("beats are stored again"), "{said}");
    }
}

#[test]
fn what_waits_for_a_beat_wants_one_until_that_is_stored() {
    let led = Led::new();
    let (mut beats, kept, _) = led.beats(Some(FENCE));
    let service = led.service();
    kept.open(&service);
    let gate = service.beside().gate.get().expect("answers wait");
    led.pass(Span(5));
    let came = led.clock.now();
    led.pass(Span(1));
    gate.want();
    assert!(gate.is_wanted() && !gate.is_open(came));
    beats.step().unwrap();
    assert!(!gate.is_wanted() && gate.is_open(came), "and nothing else is wanted");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_waits_wants_another_beat_after_one_that_failed() {
    let led = Led::new();
    let (mut beats, kept, _) = led.beats(Some(FENCE));
    let service = led.service();
    kept.open(&service);
    let gate = Arc::clone(service.beside().gate.get().expect("answers wait"));
    let came = led.clock.now();
    led.pass(Span(1));
    let waits = Arc::clone(&gate);
    let waiting = tokio::spawn(async move { waits.passed(came).await });
    tokio::task::yield_now().await;
    led.model().plan([Some(Fault::Away), Some(Fault::Lost), None, Some(Fault::Away)]);
    for _ in 0..2 {
        beats.step().unwrap();
        assert!(gate.is_wanted(), "it is not due before a fifth of the fence otherwise");
    }
    beats.step().unwrap();
    assert_eq!(waiting.await.unwrap(), Ok(()));
    assert!(!gate.is_wanted());
    beats.step().unwrap();
    assert!(!gate.is_wanted(), "nothing waits any more");
}

#[tokio::test]
async fn answers_wait_for_beats_where_the_settings_say_so() {
    for is_strict in [false, true] {
        let led = Led::new();
        let (leadership, service) = (led.begin(LONG, is_strict), led.service());
        leadership.keeps_open(&service);
        assert_eq!(service.beside().gate.get().is_some(), is_strict);
        leadership.end().await;
    }
}

#[tokio::test]
async fn a_leadership_ends_at_once_and_lets_go_of_the_store_though_nobody_answers() {
    for is_strict in [false, true] {
        let led = Led::new();
        let leadership = led.begun(is_strict);
        led.model().draw(1, 1);
        leadership.end().await;
        assert_eq!(Arc::strong_count(&led.store), 1);
        assert!(!led.store.has_ended(), "it still owns the log");
    }
}

#[tokio::test]
async fn a_checkpoint_that_fails_is_written_later() {
    let led = Led::new();
    let leadership = led.begun(false);
    led.grow();
    led.model().plan([Some(Fault::Away), Some(Fault::Away), Some(Fault::Refused)]);
    assert!(!led.has(b"t/ckpt/0"));
    until(&leadership, "checkpoints", || led.has(b"t/ckpt/0"));
    leadership.end().await;
}

#[tokio::test]
async fn a_checkpoint_that_fails_is_tried_once_a_second_and_no_more() {
    let led = Led::new();
    let leadership = led.begun(false);
    led.grow();
    led.model().draw(1, 1);
    let (clock, before) = (Clock::start(), led.slow.writes.load(Ordering::Relaxed));
    let tries = || led.slow.writes.load(Ordering::Relaxed) - before;
    let wakes = until(&leadership, "checkpoints", || tries() > 0);
    park_timeout(Duration::from_millis(20));
    leadership.end().await;
    // The thread rests before each try, until a second is over or it is woken, as it is at its end; seldom for nothing.
    let most = wakes + 3 + clock.now().0 / 1_000_000;
    assert!(tries() <= most, "{} tries, {most} at most", tries());
}
