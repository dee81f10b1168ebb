//! The machines' side of the streams of nodes: what the adapter of the grant stream does with each message.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::groups::by_name;
use super::machine;
use super::nodes::Nodes;
use super::session::{Hear, Say};
use super::world::World;
use crate::service::{Push, RenewIn, Renewed, Seen, Service, Session};

/// The streams that machines have accepted, by number.
#[derive(Default)]
pub(super) struct Streams(BTreeMap<u64, Accepted>);

struct Accepted {
    over: Over,
    /// The leadership that accepted it.
    term: u64,
    session: Session,
}

/// Who says something, over which stream, to which machine.
#[derive(Clone, Copy)]
pub(super) struct Over {
    pub(super) node: usize,
    pub(super) incarnation: u64,
    pub(super) stream: u64,
    pub(super) machine: usize,
}

/// A node brings news of other controllers: they are stored before it is accepted.
pub(super) struct News {
    pub(super) over: Over,
    pub(super) seen: Seen,
}

/// An answer to a node that may have to wait for a beat.
pub(super) struct Held {
    over: Over,
    renewed: Renewed,
}

/// News that a node brought are stored, or cannot be.
pub(super) fn heeded(world: &Arc<World>, news: &News, is_stored: bool) {
    let mut nodes = world.nodes.lock().unwrap();
    let speaks = world.machines[news.over.machine].lock().speaks.clone();
    match speaks.filter(|_| is_stored) {
        Some((term, service)) => nodes.accept(world, news.over, (term, &service)),
        None => nodes.refuse(world, news.over),
    }
}

/// What goodbyes reported is durable.
pub(super) fn farewell(world: &World, farewells: Vec<(Over, u64)>) {
    let mut nodes = world.nodes.lock().unwrap();
    for (over, seq) in farewells {
        nodes.say(world, over, Hear::Farewell { seq });
    }
}

/// An answer goes out that waited for a beat.
pub(super) fn released(world: &World, held: Held) {
    let mut nodes = world.nodes.lock().unwrap();
    nodes.waited += 1;
    nodes.say(world, held.over, Hear::Granted(held.renewed));
}

impl Nodes {
    /// A message comes in at a machine.
    pub(super) fn comes(&mut self, world: &Arc<World>, over: Over, say: Say) {
        let speaks = world.machines[over.machine].lock().speaks.clone();
        let Some((term, service)) = speaks else { return self.refuse(world, over) };
        match say {
            Say::Hello(seen) if service.leasing().is_news(&seen) => {
                machine::bring(world, News { over, seen })
            }
            Say::Hello(_) => self.accept(world, over, (term, &service)),
            Say::Renew(request) => self.renew(world, over, request, (term, &service)),
            Say::Goodbye { seq, reports } => {
                let accepted = self.streams.0.remove(&over.stream).filter(|accepted| accepted.term == term);
                let Some(Accepted { session, .. }) = accepted else { return self.refuse(world, over) };
                if service.leasing().goodbye(session.client, session.session, seq, &reports).is_some() {
                    world.machines[over.machine].lock().farewells.push((over, seq));
                }
            }
            Say::Gone => {
                let left = self.streams.0.remove(&over.stream).filter(|accepted| accepted.term == term);
                if let Some(Accepted { session, .. }) = left {
                    service.leasing().disconnect(session.client, session.session);
                }
            }
        }
    }

    fn accept(&mut self, world: &World, over: Over, (term, service): (u64, &Service)) {
        let name = &self.all[over.node].name;
        let Ok(session) = service.leasing().hello(name, over.incarnation, "t") else {
            return self.refuse(world, over);
        };
        let welcome = Hear::Welcome { epoch: session.epoch, standing: session.standing.clone() };
        self.streams.0.insert(over.stream, Accepted { over, term, session });
        self.say(world, over, welcome);
    }

    fn renew(&mut self, world: &World, over: Over, request: RenewIn, (term, service): (u64, &Arc<Service>)) {
        let accepted = self.streams.0.get(&over.stream).filter(|accepted| accepted.term == term);
        let Some(Accepted { session, .. }) = accepted else { return self.refuse(world, over) };
        let came = service.clock().now();
        match service.leasing().renew(session.client, session.session, request) {
            Ok(renewed) => {
                let held = Held { over, renewed };
                if let Some(held) = machine::answer(world, over.machine, service, came, held) {
                    self.say(world, held.over, Hear::Granted(held.renewed));
                }
            }
            Err(_) => {
                self.streams.0.remove(&over.stream);
                self.refuse(world, over);
            }
        }
        self.push(world, term);
    }

    /// Orders to lower leases go out over the streams of a leadership; those of nodes that have a newer one end.
    fn push(&mut self, world: &World, term: u64) {
        let mut pushed = Vec::new();
        for accepted in self.streams.0.values_mut().filter(|accepted| accepted.term == term) {
            let over = accepted.over;
            loop {
                match accepted.session.pushes.try_recv() {
                    Ok(Push::Lower(lowers)) => {
                        let lowers = lowers.iter().map(|(name, rate)| (by_name(name.as_str()), *rate));
                        let (epoch, lowers) = (accepted.session.epoch, lowers.collect());
                        pushed.push((over, Hear::Lower { epoch, lowers }));
                    }
                    Err(tokio::sync::mpsc::error::TryRecvError::Disconnected) => {
                        pushed.push((over, Hear::Ended));
                        break;
                    }
                    Err(_) => break,
                }
            }
        }
        for (over, hear) in pushed {
            if matches!(hear, Hear::Ended) {
                self.streams.0.remove(&over.stream);
            }
            self.say(world, over, hear);
        }
    }

    /// The node hears that there is no stream; or nothing, as of a machine that vanished.
    fn refuse(&mut self, world: &World, over: Over) {
        if world.draws.below(5) > 0 {
            self.say(world, over, Hear::Ended);
        }
    }

    /// The streams of leaderships that are over end.
    pub(super) fn sweep(&mut self, world: &World) {
        let terms: Vec<Option<u64>> =
            world.machines.iter().map(|of| of.lock().speaks.as_ref().map(|(term, _)| *term)).collect();
        let ended = self.streams.0.extract_if(.., |_, of| terms[of.over.machine] != Some(of.term));
        let ended: Vec<Over> = ended.map(|(_, of)| of.over).collect();
        for over in ended {
            self.refuse(world, over);
        }
    }
}
