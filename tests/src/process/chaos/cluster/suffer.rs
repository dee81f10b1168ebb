//! The effect of each fault on the processes and links of a cluster.

use tidegate_sim::random::Random;
use tidegate_test_servers::Etcd;

use super::fault::{Event, Fault};
use super::scene::{Mend, Scene, THREE};
use crate::process::chaos::{NODES, TTL_US};
use crate::process::error::{ClusterError, refused};
use crate::process::proxy::{Proxy, Weather};

/// How long a killed process stays away, in milliseconds.
const AWAY_MS: (u64, u64) = (0, 3_000);
/// Stops of a leader: a little longer than its fence, longer than any lease, and long enough for its connections and
/// those of etcd to be given up. The last one takes the time of ten other faults, so it is rare.
const STOP_MS: u64 = 1_500;
const LONG_STOP_MS: u64 = 5_000;
const LONGEST_STOP_MS: u64 = 30_000;
/// One stop of the leader in so many takes the longest time.
const LONGEST_EVERY: u64 = 8;
/// Stops of others, and cuts: shorter and longer than a fence and a lease.
const SPELL_MS: (u64, u64) = (200, 4_000);
/// A member that is lost comes back after this time, which is that of some other faults.
const LOST_MS: (u64, u64) = (5_000, 15_000);
/// Cuts and stops of nodes: up to three leases.
const NODE_MS: (u64, u64) = (100, TTL_US * 3 / 1_000);

impl Scene {
    /// Lets a fault happen; one that finds nothing to happen to is not counted.
    pub(super) async fn suffer(&mut self, event: Event) -> Result<(), ClusterError> {
        let (fault, mut random) = (event.fault, event.details);
        let leader = self.leader();
        let any = random.below(THREE);
        let standby = leader.map_or(any, |leader| (leader + 1 + random.below(THREE - 1)) % THREE);
        match fault {
            Fault::KillLeader | Fault::KillBoth => {
                if let Some(leader) = leader {
                    let member = (fault == Fault::KillBoth).then(|| self.first_member()).flatten();
                    self.kill(fault, &[leader], member, &mut random)?;
                }
            }
            Fault::KillFirstMember => {
                if let Some(member) = self.first_member() {
                    self.kill(fault, &[], Some(member), &mut random)?;
                }
            }
            Fault::KillStandby => self.kill(fault, &[standby], None, &mut random)?,
            Fault::KillAll => self.kill(fault, &[0, 1, 2], None, &mut random)?,
            Fault::StopLeader | Fault::StopStandby => {
                let which = if fault == Fault::StopLeader { leader } else { Some(standby) };
                self.stop_controller(fault, which, &mut random).await?;
            }
            Fault::StopMember | Fault::StopMajority | Fault::LoseMember => {
                self.hurt_members(fault, any, &mut random)?;
            }
            Fault::CutUp | Fault::CutDown | Fault::CutBoth | Fault::CutOne => {
                if let Some(leader) = leader {
                    self.cut_engine(fault, leader, &mut random);
                }
            }
            Fault::CutStandby => self.cut_engine(fault, standby, &mut random),
            Fault::DropEngine => {
                self.engine.iter().flatten().for_each(Proxy::drop_all);
                self.tally.count(fault.name(), 0, "");
            }
            Fault::CutNodes | Fault::CutNode => self.cut_nodes(fault, leader, &mut random),
            Fault::Compact | Fault::Defragment => self.upkeep(fault, any)?,
            Fault::EndLeader | Fault::EndStandby | Fault::ForgetStandby | Fault::Roll => {
                self.end(fault, leader, standby, &mut random).await?;
            }
            Fault::KillNode | Fault::StopNode | Fault::EndNode => self.hurt_node(fault, &mut random).await?,
        }
        Ok(())
    }

    /// The controller that spoke last, as far as it is known, if it runs.
    fn leader(&mut self) -> Option<usize> {
        let leader = self.looks.speaks(0)?.controller;
        let stopped = self.stopped.get(leader).copied().unwrap_or_default();
        (!stopped && self.controllers.process(leader).is_some()).then_some(leader)
    }

    fn first_member(&self) -> Option<usize> {
        tokio::task::block_in_place(|| self.controllers.etcd.leader())
    }

    fn kill(
        &mut self,
        fault: Fault,
        controllers: &[usize],
        member: Option<usize>,
        random: &mut Random,
    ) -> Result<(), ClusterError> {
        let running = controllers.iter().copied().filter(|index| self.controllers.process(*index).is_some());
        let running: Vec<usize> = running.collect();
        // Not another one: while one is away, the majority shall live.
        let member = member.filter(|_| !self.absent.iter().any(|absent| *absent));
        let killed = running.len() as u64 + u64::from(member.is_some());
        if killed == 0 {
            return Ok(());
        }
        self.tally.count(fault.name(), killed, &format!("controllers {running:?}, member {member:?}"));
        if let Some(member) = member {
            self.etcd(|etcd| etcd.kill(member))?;
            self.is_absent(member);
            self.later(random.between(AWAY_MS.0, AWAY_MS.1), Mend::StartMember(member));
        }
        for index in running {
            self.kill_controller(index, random.between(AWAY_MS.0, AWAY_MS.1));
        }
        Ok(())
    }

    async fn stop_controller(
        &mut self,
        fault: Fault,
        which: Option<usize>,
        random: &mut Random,
    ) -> Result<(), ClusterError> {
        let length = match fault {
            Fault::StopLeader if random.one_in(LONGEST_EVERY) => LONGEST_STOP_MS,
            Fault::StopLeader if random.one_in(2) => LONG_STOP_MS,
            Fault::StopLeader => STOP_MS,
            _ => random.between(SPELL_MS.0, SPELL_MS.1),
        };
        let Some(index) = which.filter(|index| self.stopped.get(*index) == Some(&false)) else {
            return Ok(());
        };
        if Self::halt(self.controllers.process(index)).await? {
            self.tally.count(fault.name(), 0, &format!("c{index} for {length} ms"));
            if let Some(stopped) = self.stopped.get_mut(index) {
                *stopped = true;
            }
            self.later(length, Mend::ContinueController(index));
        }
        Ok(())
    }

    fn hurt_members(&mut self, fault: Fault, any: usize, random: &mut Random) -> Result<(), ClusterError> {
        if self.absent.iter().any(|absent| *absent) {
            return Ok(());
        }
        let length = random.between(SPELL_MS.0, SPELL_MS.1);
        let mut members = vec![any];
        if fault == Fault::StopMajority {
            members.push((any + 1) % THREE);
        }
        self.tally.count(
            fault.name(),
            u64::from(fault == Fault::LoseMember),
            &format!("members {members:?} for {length} ms"),
        );
        for member in members {
            if fault == Fault::LoseMember {
                self.etcd(|etcd| etcd.kill(member))?;
                self.later(random.between(LOST_MS.0, LOST_MS.1), Mend::StartMember(member));
            } else {
                self.etcd(|etcd| etcd.pause(member))?;
                self.later(length, Mend::ContinueMember(member));
            }
            self.is_absent(member);
        }
        Ok(())
    }

    fn cut_engine(&mut self, fault: Fault, index: usize, random: &mut Random) {
        let member = random.below(THREE);
        let links = self.engine.get(index).into_iter().flatten().enumerate();
        for (_, link) in links.filter(|(of, _)| fault != Fault::CutOne || *of == member) {
            cut(link, fault != Fault::CutDown, fault != Fault::CutUp);
        }
        let length = random.between(SPELL_MS.0, SPELL_MS.1);
        self.tally.count(fault.name(), 0, &format!("c{index} for {length} ms"));
        self.later(length, Mend::Engine(index));
    }

    fn cut_nodes(&mut self, fault: Fault, leader: Option<usize>, random: &mut Random) {
        let length = random.between(NODE_MS.0, NODE_MS.1);
        let (up, node) = (random.one_in(2), random.below(NODES));
        let down = !up || random.one_in(2);
        match (fault, leader) {
            (Fault::CutNodes, Some(leader)) => {
                let links = self.nodes.links.iter().filter_map(|links| links.get(leader));
                links.for_each(|link| cut(link, up, down));
                self.tally.count(fault.name(), 0, &format!("c{leader} for {length} ms"));
                self.later(length, Mend::NodesOf(leader));
            }
            (Fault::CutNode, _) => {
                let links = self.nodes.links.get(node);
                links.into_iter().flatten().for_each(|link| cut(link, up, down));
                self.is_cut(node);
                self.tally.count(fault.name(), 0, &format!("node {node} for {length} ms"));
                self.later(length, Mend::Node(node));
            }
            _ => {}
        }
    }

    fn upkeep(&mut self, fault: Fault, member: usize) -> Result<(), ClusterError> {
        if self.absent.iter().any(|absent| *absent) {
            return Ok(());
        }
        self.tally.count(fault.name(), 0, &format!("member {member}"));
        self.etcd(|etcd| match fault {
            Fault::Compact => etcd.compact(member),
            _ => etcd.defragment(member),
        })
    }

    async fn end(
        &mut self,
        fault: Fault,
        leader: Option<usize>,
        standby: usize,
        random: &mut Random,
    ) -> Result<(), ClusterError> {
        let which = match (fault, leader) {
            (Fault::EndLeader, Some(leader)) => vec![leader],
            // Standbys first.
            (Fault::Roll, Some(leader)) => (1..=THREE).map(|next| (leader + next) % THREE).collect(),
            (Fault::EndStandby | Fault::ForgetStandby, _) => vec![standby],
            _ => return Ok(()),
        };
        let runs = |scene: &mut Self, index: usize| {
            scene.controllers.process(index).is_some() && scene.stopped.get(index) == Some(&false)
        };
        if !which.iter().all(|index| runs(self, *index)) {
            return Ok(());
        }
        self.tally.count(fault.name(), u64::from(fault == Fault::ForgetStandby), &format!("{which:?}"));
        for index in which {
            if fault == Fault::ForgetStandby {
                self.controllers.kill(index);
                self.controllers.forget(index)?;
            } else {
                self.controllers.end_early(index).await?;
                self.tally.clean_ends += 1;
            }
            if fault == Fault::Roll {
                self.start_controller(index)?;
                // Another one leads, or this one stands by: an operator looks before going on.
                self.controllers.successor(None).await?;
            } else {
                self.later(random.between(AWAY_MS.0, AWAY_MS.1), Mend::StartController(index));
            }
        }
        Ok(())
    }

    async fn hurt_node(&mut self, fault: Fault, random: &mut Random) -> Result<(), ClusterError> {
        let node = random.below(NODES);
        let length = random.between(NODE_MS.0, NODE_MS.1);
        if !self.node_is_up(node) {
            return Ok(());
        }
        match fault {
            Fault::KillNode => {
                self.node_dies(node);
                self.later(length, Mend::StartNode(node));
            }
            Fault::StopNode => {
                if !Self::halt(self.nodes.process(node)).await? {
                    return Ok(());
                }
                self.node_is_stopped(node);
                self.later(length, Mend::ContinueNode(node));
            }
            _ => {
                self.nodes.process(node).into_iter().for_each(|process| process.terminate());
                if let Some(ending) = self.ending.get_mut(node) {
                    *ending = true;
                }
            }
        }
        self.tally.count(fault.name(), u64::from(fault == Fault::KillNode), &format!("node {node}"));
        Ok(())
    }

    fn etcd(
        &mut self,
        act: impl FnOnce(&mut Etcd) -> Result<(), tidegate_test_servers::ServerError>,
    ) -> Result<(), ClusterError> {
        let done = tokio::task::block_in_place(|| act(&mut self.controllers.etcd));
        done.map_err(|error| refused("hurt etcd", error))
    }
}

fn cut(link: &Proxy, up: bool, down: bool) {
    link.set(|weather: &mut Weather| (weather.up.cut, weather.down.cut) = (up, down));
}
