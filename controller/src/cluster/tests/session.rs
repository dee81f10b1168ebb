//! A node's conversation with the cluster, as the client that ships has it: one stream to one controller at a time, the
//! next one when it ends or is silent, and at most ten renewals a second.
//!
//! Answers of streams that it has left come in late. The client drops those; here the node machines get them, too, unless
//! a newer epoch is known, so that they are held to more than they need.

use std::collections::BTreeMap;

use tidegate_core::exchange::{Ask, Grant};
use tidegate_core::node::Heard;
use tidegate_core::units::{Rate, Span};

use super::groups::{KINDS, by_name};
use super::node::Node;
use super::world::{MS, SECOND};
use crate::service::{Answer, EntryIn, RenewIn, Renewed, ReportIn, Seen, Sent};

/// At most one renewal in this time.
const SEND_EVERY: u64 = 100 * MS;
/// Reports go out after this time without any renewal.
const REPORT_EVERY: u64 = SECOND;
/// A controller that answers nothing for so long is as good as gone.
const SILENCE: u64 = 3 * SECOND;
/// A stream opens within this time.
const OPEN_WITHIN: u64 = 4 * SECOND;
/// The ends of the first and the longest pause between two tries, which double with each round of all controllers.
const FIRST_PAUSE: u64 = 50 * MS;
const LONGEST_PAUSE: u64 = 5 * SECOND;
/// A stream that lasted so long was no failure.
const LASTED: u64 = SECOND;

pub(super) struct Session {
    /// The number of its newest stream, unlike any other in the world.
    pub(super) stream: u64,
    pub(super) machine: usize,
    pub(super) state: State,
    /// Which controller is tried next.
    pub(super) turn: usize,
    failures: u32,
    /// When it began to open the stream, or had opened it.
    since: u64,
    heard: u64,
    seq: u64,
    epoch: u64,
    standing: Vec<u8>,
    /// Renewals without an answer: when they were sent, and of which groups.
    asked: BTreeMap<u64, (u64, Vec<usize>)>,
    sent: u64,
    /// When reports were last looked at.
    looked: u64,
    /// A lowered lease waits to be acknowledged.
    is_urgent: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Closed,
    Opening,
    Open,
}

/// What a node says.
#[derive(Clone)]
pub(super) enum Say {
    Hello(Seen),
    Renew(RenewIn),
    /// It ends in order: its last reports.
    Goodbye {
        seq: u64,
        reports: Vec<ReportIn>,
    },
    /// It has left the stream.
    Gone,
}

/// What it hears.
#[derive(Clone)]
pub(super) enum Hear {
    Welcome {
        epoch: u64,
        standing: Vec<u8>,
    },
    Granted(Renewed),
    Lower {
        epoch: u64,
        lowers: Vec<(usize, Rate)>,
    },
    /// What a goodbye reported is durable.
    Farewell {
        seq: u64,
    },
    /// There is no stream, or no more.
    Ended,
}

impl Session {
    pub(super) fn new(turn: usize) -> Self {
        Self {
            stream: 0,
            machine: 0,
            state: State::Closed,
            turn,
            failures: 0,
            since: 0,
            heard: 0,
            seq: 0,
            epoch: 0,
            standing: Vec::new(),
            asked: BTreeMap::new(),
            sent: 0,
            looked: 0,
            is_urgent: false,
        }
    }

    /// Opens a stream to the next machine.
    pub(super) fn open(&mut self, now: u64, stream: u64) -> Say {
        (self.stream, self.machine) = (stream, self.turn % 3);
        (self.state, self.since) = (State::Opening, now);
        self.turn += 1;
        Say::Hello(Seen { epoch: self.epoch, standing: self.standing.clone() })
    }

    /// When it is to be looked at again.
    fn due(&self) -> u64 {
        match self.state {
            State::Closed => u64::MAX,
            State::Opening => self.since + OPEN_WITHIN,
            State::Open => {
                let oldest = self.asked.values().next().map(|(sent, _)| *sent.max(&self.heard));
                (self.looked + REPORT_EVERY).min(oldest.map_or(u64::MAX, |at| at + SILENCE))
            }
        }
    }

    /// Whether nothing is to be expected of the stream any more.
    pub(super) fn is_silent(&self, now: u64) -> bool {
        let oldest = self.asked.values().next().map(|(sent, _)| *sent.max(&self.heard));
        match self.state {
            State::Closed => false,
            State::Opening => now >= self.since + OPEN_WITHIN,
            State::Open => oldest.is_some_and(|at| now >= at + SILENCE),
        }
    }

    fn may_send(&self, now: u64) -> bool {
        self.is_urgent || now >= self.sent + SEND_EVERY
    }

    /// Whether a message of this epoch counts.
    fn is_current(&mut self, epoch: u64) -> bool {
        let is_current = epoch >= self.epoch;
        self.epoch = self.epoch.max(epoch);
        is_current
    }
}

impl Node {
    /// The stream is over. Returns the longest pause until the next one.
    pub(super) fn lose(&mut self, now: u64) -> u64 {
        let (clock, session) = (self.clock(now), &mut self.session);
        if session.state == State::Open && now - session.since >= LASTED {
            session.failures = 0;
        }
        let rounds = (session.failures / 3).min(16);
        session.failures += 1;
        session.state = State::Closed;
        session.asked.clear();
        self.reports.unsure();
        self.groups.values_mut().for_each(|group| group.on_session_lost(clock));
        (FIRST_PAUSE << rounds).min(LONGEST_PAUSE)
    }

    /// The renewal that is due now.
    pub(super) fn renewal(&mut self, now: u64) -> Option<Say> {
        let clock = self.clock(now);
        if self.session.state != State::Open || !self.session.may_send(now) {
            return None;
        }
        let seq = self.session.seq + 1;
        let (mut entries, mut groups, mut answer_within) = (Vec::new(), Vec::new(), Span(0));
        for (at, group) in &mut self.groups {
            if group.due(clock).is_some_and(|due| due <= clock) {
                let ask: Ask = group.ask(clock, seq);
                answer_within = group.look().answer_wait().max(answer_within);
                let proof = self.proofs.get(at).cloned().unwrap_or_default();
                entries.push(EntryIn { group: KINDS[*at].name.to_owned(), ask: Ok((ask, proof)) });
                groups.push(*at);
            }
        }
        if entries.is_empty() && now < self.session.looked + REPORT_EVERY {
            return None;
        }
        self.tally();
        let reports: Vec<ReportIn> = self.reports.send(seq);
        let session = &mut self.session;
        (session.looked, session.is_urgent) = (now, false);
        if entries.is_empty() && reports.is_empty() {
            return None;
        }
        (session.seq, session.sent) = (seq, now);
        session.asked.insert(seq, (now, groups));
        let sent = Some(Sent { at: clock, answer_within });
        let (counts_requests, counts_rolling) = (true, true);
        Some(Say::Renew(RenewIn { seq, entries, reports, node: None, sent, counts_requests, counts_rolling }))
    }

    /// What it says before it ends in order, if anybody hears it.
    pub(super) fn goodbye(&mut self) -> Option<Say> {
        self.tally();
        let session = &mut self.session;
        session.seq += 1;
        let seq = session.seq;
        let reports = self.reports.send(seq);
        (session.state == State::Open).then_some(Say::Goodbye { seq, reports })
    }

    /// Takes a message in. False: the stream is over.
    pub(super) fn hear(&mut self, now: u64, stream: u64, heard: Hear) -> bool {
        let is_old = self.session.stream != stream || self.session.state == State::Closed;
        if !is_old {
            self.session.heard = now;
        }
        match heard {
            Hear::Ended => return is_old,
            Hear::Welcome { epoch, standing } if !is_old => {
                if !self.session.is_current(epoch) {
                    return false;
                }
                self.session.standing = standing;
                let session = &mut self.session;
                (session.state, session.since, session.sent, session.looked) = (State::Open, now, 0, 0);
            }
            Hear::Granted(renewed) => self.granted(now, renewed),
            // It has ended.
            Hear::Farewell { .. } => {}
            Hear::Lower { epoch, lowers } if self.session.is_current(epoch) => {
                let clock = self.clock(now);
                for (at, rate) in lowers {
                    if let Some(group) = self.groups.get_mut(&at) {
                        group.on_lower(clock, rate);
                        self.session.is_urgent = true;
                    }
                }
            }
            Hear::Welcome { .. } | Hear::Lower { .. } => {}
        }
        true
    }

    fn granted(&mut self, now: u64, renewed: Renewed) {
        let clock = self.clock(now);
        if !self.session.is_current(renewed.epoch) {
            return;
        }
        if let Some(standing) = renewed.standing {
            self.session.standing = standing;
        }
        self.reports.durable(renewed.durable_seq);
        let groups = self.session.asked.remove(&renewed.seq).map(|(_, groups)| groups).unwrap_or_default();
        if renewed.shed {
            for at in groups {
                self.groups.get_mut(&at).unwrap().on_shed(clock, renewed.seq);
            }
            return;
        }
        for entry in renewed.entries {
            let (at, Answer::Grant(grant, proof)) = (by_name(&entry.group), entry.answer) else { continue };
            let Some(group) = self.groups.get_mut(&at) else { continue };
            if group.on_grant(clock, renewed.seq, &grant) == Heard::Applied {
                self.proofs.insert(at, proof);
                self.session.is_urgent |= matches!(grant, Grant::Leased(terms) if terms.ack_now);
            }
        }
    }

    /// When something is to be done without a message.
    pub(super) fn next_wake(&self, now: u64) -> u64 {
        let clock = self.clock(now);
        let polls = self.groups.values().filter_map(|group| group.look().next_poll());
        let mut next = polls.min().map_or(u64::MAX, |at| self.true_time(at)).min(self.session.due());
        if self.session.state == State::Open {
            let due = self.groups.values().filter_map(|group| group.due(clock)).min();
            let from = if self.session.is_urgent { 0 } else { self.session.sent + SEND_EVERY };
            next = next.min(due.map_or(u64::MAX, |due| self.true_time(due).max(from)));
        }
        next.max(now + 1)
    }
}
