//! Which faults happen to a cluster, in which order: all kinds in an order of the seed, then all of them in another.

use tidegate_sim::random::Random;

/// A kind of fault. The leader is the controller that leads, the first member the one of etcd that leads there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// `kill -9` of the leader.
    KillLeader,
    /// `kill -9` of the first member.
    KillFirstMember,
    /// `kill -9` of both at once.
    KillBoth,
    /// `kill -9` of a standby.
    KillStandby,
    /// `kill -9` of all controllers.
    KillAll,
    /// SIGSTOP of the leader for longer than its fence.
    StopLeader,
    /// SIGSTOP of a standby.
    StopStandby,
    /// SIGSTOP of a member.
    StopMember,
    /// SIGSTOP of two members: nothing can be written.
    StopMajority,
    /// Nothing passes from the leader to etcd.
    CutUp,
    /// Nothing passes from etcd to the leader.
    CutDown,
    /// Nothing passes between the leader and etcd.
    CutBoth,
    /// Nothing passes between the leader and the member that it talks to, or another one.
    CutOne,
    /// Nothing passes between a standby and etcd.
    CutStandby,
    /// Connections between all controllers and etcd are closed.
    DropEngine,
    /// No node reaches the leader.
    CutNodes,
    /// One node reaches no controller.
    CutNode,
    /// A member is gone, and comes back after some other faults.
    LoseMember,
    /// etcd's history is compacted.
    Compact,
    /// A member writes its file again.
    Defragment,
    /// SIGTERM of the leader.
    EndLeader,
    /// SIGTERM of a standby.
    EndStandby,
    /// A standby loses its files.
    ForgetStandby,
    /// SIGTERM of one controller after the other, the leader last.
    Roll,
    /// `kill -9` of a node.
    KillNode,
    /// SIGSTOP of a node.
    StopNode,
    /// SIGTERM of a node.
    EndNode,
}

impl Fault {
    /// All kinds, those more than once that are to happen more often.
    const BAG: [Self; 31] = [
        Self::KillLeader,
        Self::KillLeader,
        Self::KillLeader,
        Self::KillFirstMember,
        Self::KillBoth,
        Self::KillStandby,
        Self::KillAll,
        Self::StopLeader,
        Self::StopLeader,
        Self::StopStandby,
        Self::StopMember,
        Self::StopMajority,
        Self::CutUp,
        Self::CutDown,
        Self::CutBoth,
        Self::CutOne,
        Self::CutStandby,
        Self::DropEngine,
        Self::CutNodes,
        Self::CutNode,
        Self::LoseMember,
        Self::Compact,
        Self::Defragment,
        Self::EndLeader,
        Self::EndLeader,
        Self::EndStandby,
        Self::ForgetStandby,
        Self::Roll,
        Self::KillNode,
        Self::StopNode,
        Self::EndNode,
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::KillLeader => "kill -9 leader",
            Self::KillFirstMember => "kill -9 etcd's leader",
            Self::KillBoth => "kill -9 leader and etcd's leader",
            Self::KillStandby => "kill -9 standby",
            Self::KillAll => "kill -9 all controllers",
            Self::StopLeader => "stop leader",
            Self::StopStandby => "stop standby",
            Self::StopMember => "stop member",
            Self::StopMajority => "stop two members",
            Self::CutUp => "cut leader to etcd",
            Self::CutDown => "cut etcd to leader",
            Self::CutBoth => "cut leader and etcd",
            Self::CutOne => "cut leader and one member",
            Self::CutStandby => "cut standby and etcd",
            Self::DropEngine => "drop connections to etcd",
            Self::CutNodes => "cut nodes and leader",
            Self::CutNode => "cut node and controllers",
            Self::LoseMember => "lose member",
            Self::Compact => "compact",
            Self::Defragment => "defragment",
            Self::EndLeader => "end leader",
            Self::EndStandby => "end standby",
            Self::ForgetStandby => "lose files of standby",
            Self::Roll => "rolling restart",
            Self::KillNode => "kill -9 node",
            Self::StopNode => "stop node",
            Self::EndNode => "end node",
        }
    }
}

/// A fault that is to happen.
#[derive(Clone, Debug)]
pub struct Event {
    /// What.
    pub fault: Fault,
    /// Numbers for its details: which one, how long.
    pub details: Random,
}

/// The faults of a seed. Their order hangs on nothing else.
#[derive(Clone, Debug)]
pub struct Bag {
    random: Random,
    left: Vec<Fault>,
}

impl Bag {
    /// The faults of a seed.
    pub fn new(seed: u64) -> Self {
        Self { random: Random::new(seed, 2_000), left: Vec::new() }
    }

    /// The next one.
    pub fn draw(&mut self) -> Event {
        if self.left.is_empty() {
            self.left = Fault::BAG.to_vec();
        }
        let fault = self.left.swap_remove(self.random.below(self.left.len()));
        // Details have a stream of their own: how many a fault needs does not matter.
        Event { fault, details: Random::new(self.random.bits(), 0) }
    }

    /// Whether another fault is to happen beside the one that was drawn, and how many milliseconds later.
    pub fn beside(&mut self) -> Option<u64> {
        let after = self.random.between(BESIDE_MS.0, BESIDE_MS.1);
        self.random.one_in(BESIDE_EVERY).then_some(after)
    }
}

/// One fault in so many has another one beside it: what one does to the end of the other is seen that way, while most
/// faults can be told apart.
const BESIDE_EVERY: u64 = 4;
/// How much later: until after the takeover that the first one brings.
const BESIDE_MS: (u64, u64) = (0, 1_800);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_gives_the_same_faults_and_each_kind_in_every_round() {
        let drawn = |seed| {
            let mut bag = Bag::new(seed);
            (0..200).map(|_| (bag.draw().fault, bag.beside())).collect::<Vec<_>>()
        };
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
        let kinds = |faults: &[(Fault, Option<u64>)]| {
            faults.iter().map(|(fault, _)| fault.name()).collect::<BTreeSet<_>>()
        };
        let all: BTreeSet<_> = Fault::BAG.map(Fault::name).into();
        for round in drawn(7).chunks_exact(Fault::BAG.len()) {
            assert_eq!(kinds(round), all);
        }
    }
}
