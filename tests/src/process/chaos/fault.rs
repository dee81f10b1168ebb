//! Which fault happens when: each kind is a Poisson process of its own stream of the seed, so that one more draw for
//! one kind changes nothing for the others. What a fault meets depends on the machine, the faults do not.

use std::collections::BTreeMap;

use tidegate_sim::random::Random;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// `kill -9` of a node, running, stopped or ending.
    KillNode,
    /// `kill -9` of the controller, starting, running, stopped or ending.
    KillController,
    /// SIGSTOP of a node, and SIGCONT later.
    StopNode,
    /// SIGSTOP of the controller, and SIGCONT later.
    StopController,
    /// SIGTERM of a node.
    RestartNode,
    /// SIGTERM of the controller.
    RestartController,
    /// A link is late for a while.
    Delay,
    /// All connections of a link are closed.
    Drop,
    /// Nothing passes from the node to the controller for a while.
    CutUp,
    /// Nothing passes from the controller to the node for a while.
    CutDown,
    /// Nothing passes for a while.
    CutBoth,
    /// A link is slow for a while.
    Throttle,
    /// One way of all connections of a link is closed.
    HalfClose,
}

impl Fault {
    /// All kinds.
    pub const ALL: [Self; 13] = [
        Self::KillNode,
        Self::KillController,
        Self::StopNode,
        Self::StopController,
        Self::RestartNode,
        Self::RestartController,
        Self::Delay,
        Self::Drop,
        Self::CutUp,
        Self::CutDown,
        Self::CutBoth,
        Self::Throttle,
        Self::HalfClose,
    ];

    /// Mean time between two, in milliseconds.
    fn mean_gap_ms(self) -> u64 {
        match self {
            Self::KillNode => 750,
            Self::StopNode => 1_500,
            Self::Delay => 2_500,
            Self::Drop => 3_000,
            Self::CutBoth | Self::Throttle => 5_000,
            // Each costs a recovery, in which only what was leased before goes on.
            Self::KillController | Self::CutUp | Self::CutDown | Self::HalfClose => 6_000,
            Self::RestartNode => 7_000,
            Self::StopController => 9_000,
            Self::RestartController => 25_000,
        }
    }

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::KillNode => "kill -9 node",
            Self::KillController => "kill -9 controller",
            Self::StopNode => "stop node",
            Self::StopController => "stop controller",
            Self::RestartNode => "restart node",
            Self::RestartController => "restart controller",
            Self::Delay => "delay",
            Self::Drop => "drop",
            Self::CutUp => "cut up",
            Self::CutDown => "cut down",
            Self::CutBoth => "cut both",
            Self::Throttle => "throttle",
            Self::HalfClose => "half-close",
        }
    }

    /// Whether a process dies of it.
    pub fn kills(self) -> bool {
        matches!(self, Self::KillNode | Self::KillController)
    }
}

/// A fault that is to happen.
#[derive(Clone, Debug)]
pub struct Event {
    /// Microseconds since the run began.
    pub at_us: u64,
    /// What.
    pub fault: Fault,
    /// Numbers for its details: which node, how long, in which variant.
    pub details: Random,
}

/// The faults of a seed, in order of time.
#[derive(Clone, Debug)]
pub struct Schedule {
    streams: BTreeMap<Fault, Random>,
    next: BTreeMap<(u64, Fault), Random>,
}

impl Schedule {
    /// The schedule of a seed.
    pub fn new(seed: u64) -> Self {
        let streams = (1..).zip(Fault::ALL).map(|(purpose, fault)| (fault, Random::new(seed, purpose)));
        let mut schedule = Self { streams: streams.collect(), next: BTreeMap::new() };
        Fault::ALL.into_iter().for_each(|fault| schedule.draw(fault, 0));
        schedule
    }

    fn draw(&mut self, fault: Fault, after_us: u64) {
        if let Some(stream) = self.streams.get_mut(&fault) {
            let at = after_us.saturating_add(stream.exponential(fault.mean_gap_ms() * 1_000));
            // Details have a stream of their own: how many a fault needs does not matter.
            let details = Random::new(stream.bits(), 0);
            self.next.insert((at, fault), details);
        }
    }

    /// When the next fault is due.
    pub fn next_us(&self) -> u64 {
        self.next.first_key_value().map_or(u64::MAX, |((at, _), _)| *at)
    }

    /// Takes the next fault.
    pub fn take(&mut self) -> Option<Event> {
        let ((at_us, fault), details) = self.next.pop_first()?;
        self.draw(fault, at_us);
        Some(Event { at_us, fault, details })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_faults_and_every_kind() {
        let run = |seed| {
            let mut schedule = Schedule::new(seed);
            let mut take =
                || schedule.take().map(|mut event| (event.at_us, event.fault, event.details.bits()));
            (0..3_000).filter_map(|_| take()).collect::<Vec<_>>()
        };
        let events = run(7);
        assert_eq!(events, run(7));
        assert_ne!(events, run(8));
        assert!(events.is_sorted_by_key(|(at, _, _)| *at));
        for fault in Fault::ALL {
            let count = u64::try_from(events.iter().filter(|(_, kind, _)| *kind == fault).count()).unwrap();
            let expected = events.last().unwrap().0 / 1_000 / fault.mean_gap_ms();
            assert!((expected / 2..expected * 2).contains(&count), "{}: {count} of {expected}", fault.name());
        }
    }
}
