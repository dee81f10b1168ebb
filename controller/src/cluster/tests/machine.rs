//! A machine, and the process on it: a standby, or a controller that leads. Two threads of it make calls: one writes
//! beats, the other does all the rest.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use tidegate_consensus::model::Model;
use tidegate_core::engine::EngineConfig;
use tidegate_core::units::{Span, Time};
use tokio::sync::watch as flag;

use super::super::leadership::Beats;
use super::super::roster::Roster;
use super::super::standby::{Before, Standby, Step, Watching};
use super::super::strict::LEAST;
use super::super::waiting::View;
use super::leads::{Leads, lead, load};
use super::link::{Life, Link};
use super::streams::{self, Held, News, Over};
use super::world::{Draws, MS, SECOND, World};
use crate::clock::Clock;
use crate::service::Service;
use crate::store::replicated::tests::memory::Memory;
use crate::store::replicated::{MemberRecord, Members, Owner, Settings};

/// The name of all things in the shared store.
const PREFIX: &str = "t/";
/// Wall clocks show true time: machines' own clocks began up to this long before.
const OLDEST: u64 = 1_000 * SECOND;

pub(super) struct Machine {
    clock: Arc<AtomicU64>,
    wall: Arc<AtomicU64>,
    /// What the clock showed at zero, and how much too fast it is, in millionths.
    zero: u64,
    ppm: i64,
    /// From when until when it is halted, clocks and all; and for how long it was before.
    halted: AtomicU64,
    goes_on: AtomicU64,
    lost: AtomicU64,
    /// In some worlds two have one name.
    name: String,
    pub(super) fence: Span,
    pub(super) place: Arc<Memory>,
    /// What it knows of the others; nothing, unless a test says so.
    roster: OnceLock<Arc<Roster>>,
    state: Mutex<State>,
}

pub(super) struct State {
    pub(super) life: Life,
    /// It does not go on before.
    pub(super) stopped_until: u64,
    /// It does not reach the shared store before.
    pub(super) away_until: u64,
    pub(super) is_to_stop: bool,
    pub(super) main_at: u64,
    role: Option<Role>,
    beats_at: u64,
    pub(super) beats: Option<Beats>,
    pub(super) is_beating: bool,
    /// When the newest beat of this leadership that is stored was sent.
    pub(super) beat_sent: Option<u64>,
    /// The number of this leadership.
    term: u64,
    /// What speaks to nodes, with its term.
    pub(super) speaks: Option<(u64, Arc<Service>)>,
    /// What nodes brought of other controllers, to be stored.
    pub(super) news: Vec<News>,
    /// Goodbyes of nodes whose reports are to be stored.
    pub(super) farewells: Vec<(Over, u64)>,
    /// Answers that wait for a beat, in a strict world, by when their renewals came in.
    waiting: Vec<(Time, Held)>,
}

/// What a process does; none while it is at it.
pub(super) enum Role {
    Down,
    Stands(Box<(Standby, Watching)>),
    Leads(Leads),
}

impl State {
    pub(super) fn is_busy(&self) -> bool {
        self.role.is_none() || self.is_beating
    }

    pub(super) fn main_due(&self) -> Option<u64> {
        self.role.is_some().then_some(self.main_at.max(self.stopped_until))
    }

    pub(super) fn beat_due(&self) -> Option<u64> {
        (self.beats.is_some() && !self.is_beating).then_some(self.beats_at.max(self.stopped_until))
    }

    pub(super) fn begin_leadership(&mut self, beats: Beats, now: u64) {
        self.term += 1;
        (self.beats, self.beats_at, self.beat_sent) = (Some(beats), now, None);
    }

    pub(super) fn end_leadership(&mut self) {
        (self.beats, self.speaks) = (None, None);
        self.waiting.clear();
        self.news.clear();
        self.farewells.clear();
        self.term += 1;
    }
}

impl Machine {
    pub(super) fn new(at: u64, fence: Span, draws: &Draws) -> Self {
        let drift = u64::from(EngineConfig::default().drift_ppm);
        let machine = Self {
            clock: Arc::default(),
            wall: Arc::default(),
            zero: draws.below(OLDEST),
            ppm: i64::try_from(draws.below(drift + 1)).unwrap() - i64::try_from(drift / 2).unwrap(),
            halted: AtomicU64::new(0),
            goes_on: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            name: if at == 1 && draws.below(8) == 0 { "0".to_owned() } else { at.to_string() },
            fence,
            place: Memory::new(),
            roster: OnceLock::new(),
            state: Mutex::new(State {
                life: Arc::new(AtomicBool::new(true)),
                stopped_until: 0,
                away_until: 0,
                is_to_stop: false,
                main_at: at * MS,
                role: Some(Role::Down),
                beats_at: 0,
                beats: None,
                is_beating: false,
                beat_sent: None,
                term: 0,
                speaks: None,
                news: Vec::new(),
                farewells: Vec::new(),
                waiting: Vec::new(),
            }),
        };
        machine.show(0);
        machine
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Its clocks stand still until then.
    pub(super) fn halt(&self, now: u64, until: u64) {
        if self.goes_on.load(Ordering::Relaxed) <= now {
            self.show(now);
            self.halted.store(now, Ordering::Relaxed);
        }
        self.goes_on.store(until, Ordering::Relaxed);
    }

    /// Shows the true time as this machine sees it.
    pub(super) fn show(&self, now: u64) {
        let goes_on = self.goes_on.load(Ordering::Relaxed);
        if goes_on > now {
            return;
        }
        if goes_on > 0 {
            self.lost.fetch_add(goes_on - self.halted.load(Ordering::Relaxed), Ordering::Relaxed);
            self.goes_on.store(0, Ordering::Relaxed);
        }
        let ran = now - self.lost.load(Ordering::Relaxed);
        let off = i128::from(ran) * i128::from(self.ppm) / 1_000_000;
        let shown = u64::try_from(i128::from(self.zero + ran) + off).unwrap();
        self.clock.store(shown, Ordering::Relaxed);
        self.wall.store(2 * OLDEST + now - shown, Ordering::Relaxed);
    }

    pub(super) fn clock(&self) -> Clock {
        Clock::driven(Arc::clone(&self.clock)).with_wall(Arc::clone(&self.wall))
    }

    /// It knows of another controller that runs, as it stands by from now on.
    pub(super) fn knows_of_another(&self) -> &Roster {
        self.roster.get_or_init(|| {
            let settings = Settings::new(self.clock(), Span(0));
            let members = Members::new(Arc::new(Model::new()), PREFIX, settings).unwrap();
            Arc::new(Roster::new("", members, self.clock()))
        })
    }

    pub(super) fn clear(&self) {
        let mut state = self.lock();
        state.end_leadership();
        state.role = Some(Role::Down);
    }
}

/// A process that ends without warning, and starts again after a while. With `lost`, its local store is gone, too.
pub(super) fn crash(world: &World, at: usize, down: u64, lost: bool) {
    let mut state = world.machines[at].lock();
    state.life.store(false, Ordering::Relaxed);
    state.life = Arc::new(AtomicBool::new(true));
    state.end_leadership();
    // A call that is under way ends first.
    if let Some(role) = &mut state.role {
        *role = Role::Down;
    }
    (state.main_at, state.stopped_until, state.is_to_stop) = (world.now() + down, 0, false);
    if lost {
        world.machines[at].place.wipe();
    }
}

/// A node brings news: they are stored when this machine comes to it.
pub(super) fn bring(world: &World, news: News) {
    let mut state = world.machines[news.over.machine].lock();
    state.news.push(news);
    state.main_at = state.main_at.min(world.now());
}

/// An answer to a node goes out, or waits for a beat of this machine.
pub(super) fn answer(world: &World, at: usize, service: &Service, came: Time, held: Held) -> Option<Held> {
    let Some(gate) = service.beside().gate.get() else { return Some(held) };
    if gate.is_open(came) {
        return Some(held);
    }
    gate.want();
    let mut state = world.machines[at].lock();
    state.waiting.push((came, held));
    // The thread that writes beats is woken, if it is not at one.
    state.beats_at = state.beats_at.min(world.now() + LEAST.0);
    None
}

/// One beat. It lets answers out.
pub(super) fn beat(world: &Arc<World>, at: usize) {
    let (mut beats, term) = {
        let mut state = world.machines[at].lock();
        state.is_beating = true;
        (state.beats.take().unwrap(), state.term)
    };
    let pause = beats.step();
    let mut state = world.machines[at].lock();
    state.is_beating = false;
    let Some(pause) = pause.filter(|_| state.term == term) else { return };
    (state.beats, state.beats_at) = (Some(beats), world.now() + pause.0);
    let Some((_, service)) = &state.speaks else { return };
    let Some(gate) = service.beside().gate.get().map(Arc::clone) else { return };
    if gate.is_wanted() {
        state.beats_at = world.now() + LEAST.0.min(pause.0);
    }
    let (out, waiting) =
        std::mem::take(&mut state.waiting).into_iter().partition(|(came, _)| gate.is_open(*came));
    state.waiting = waiting;
    drop(state);
    let out: Vec<(Time, Held)> = out;
    out.into_iter().for_each(|(_, held)| streams::released(world, held));
}

/// One step of what is not beats.
pub(super) fn step(world: &Arc<World>, at: usize) {
    let (role, life) = {
        let mut state = world.machines[at].lock();
        (state.role.take().unwrap(), Arc::clone(&state.life))
    };
    let (role, pause) = match role {
        Role::Down => stand(world, at, &life, None),
        Role::Stands(stands) => look(world, at, &life, stands),
        Role::Leads(leads) => lead(world, at, &life, leads),
    };
    let mut state = world.machines[at].lock();
    if life.load(Ordering::Relaxed) {
        state.main_at = world.now() + pause;
        state.role = Some(role);
    } else {
        state.role = Some(Role::Down);
    }
}

pub(super) fn stand(world: &Arc<World>, at: usize, life: &Life, before: Option<Before>) -> (Role, u64) {
    let pauses = Arc::clone(world);
    let settings = Settings {
        pause: Arc::new(move || pauses.pass(20 * MS)),
        segment: 600,
        last_segment: 1_200,
        checkpoint_after: 8_000,
        hashes_beside: false,
        ..Settings::new(world.machines[at].clock(), world.machines[at].fence)
    };
    let standby = Standby {
        consensus: Arc::new(Link { world: Arc::clone(world), machine: at, life: Arc::clone(life) }),
        prefix: PREFIX.to_owned(),
        place: Arc::<Memory>::clone(&world.machines[at].place),
        seed: false,
        settings,
        clocks: EngineConfig::default(),
        me: Owner {
            controller: world.machines[at].name.clone(),
            instance: world.draws.below(u64::MAX).max(1),
            addresses: Vec::new(),
            fence_ms: world.machines[at].fence.0 / MS,
            clean: false,
        },
        before,
        view: flag::Sender::new(View::default()),
        roster: world.machines[at].roster.get().cloned(),
    };
    (Role::Stands(Box::new((standby, Watching::default()))), 0)
}

fn look(world: &Arc<World>, at: usize, life: &Life, mut stands: Box<(Standby, Watching)>) -> (Role, u64) {
    let (standby, watching) = &mut *stands;
    if let Some(roster) = &standby.roster {
        // The other one's record changes.
        let (controller, addresses, version) = ("another".to_owned(), Vec::new(), String::new());
        let record = MemberRecord { controller, instance: 1, addresses, version, unix_ms: 0 };
        roster.saw(None, vec![(record, world.now())]);
    }
    match standby.step(watching) {
        // Threads wake a little late.
        Ok(Step::Wait(Span(pause))) => (Role::Stands(stands), pause + world.draws.below(2 * MS)),
        Ok(Step::Taken(taken)) => load(world, at, life, standby.me.instance, *taken),
        Err(error) => {
            assert!(!life.load(Ordering::Relaxed), "seed {}: a standby ended: {error}", world.seed);
            (Role::Down, 0)
        }
    }
}
