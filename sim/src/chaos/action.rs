//! The actions of a plan: faults, and changes of definitions.

use std::fmt;
use std::str::FromStr;

use tidegate_core::group::{Burstable, Fallback, GroupId, GroupSpec, Priority};
use tidegate_core::units::{Rate, Ru, Span};

use crate::disk::Death;
use crate::words::{Words, group_id, micro, show_micro, show_spec, span, spec};
use crate::world::{Event, World};

/// A fault or a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A node dies; it starts again after this, as a new incarnation.
    Kill(usize, Span),
    /// The same, but it comes back as the incarnation it was.
    KillSame(usize, Span),
    /// A node ends in order; it starts again after this, as a new incarnation.
    End(usize, Span),
    /// A node is stopped for this long.
    Pause(usize, Span),
    /// The controller is stopped for this long.
    Stall(Span),
    /// Nothing passes from (0) or to (1) a node for this long.
    Cut(usize, usize, Span),
    /// A node's stream is reset.
    Reset(usize),
    /// The controller dies; it starts again after this.
    Crash(Span, Death),
    /// The controller dies in this sync of its disk, counted from now, and starts again after this.
    DieInSync(u32, Span),
    /// The controller's disk takes no more writes until it starts again.
    DiskFails,
    /// The same, but it takes them again after this.
    DiskPauses(Span),
    /// Every sync of the disk takes so long, for so long.
    DiskSlows(Span, Span),
    /// The controller is restarted in order.
    Restart,
    /// A group gets another rate.
    Rate(GroupId, Rate),
    /// A group gets no limit of its own, or its rate again.
    Burst(GroupId, Burstable),
    /// A group is moved under another, or to the top.
    Move(GroupId, Option<GroupId>),
    /// A group is removed.
    Remove(GroupId),
    /// A group is created, or one that was removed again.
    Create(GroupId, GroupSpec),
    /// Something else of a group's definition changes.
    Alter(GroupId, Change),
    /// The user of a load is bound to a group.
    Bind(usize, GroupId),
    /// A node says what is not so from now on; what it admits counts in no bound.
    Lie(usize),
    /// Another controller takes over. The one before runs on for this long without its disk, and the nodes of these
    /// bits stay with it.
    TakeOver(u64, Span),
    /// The store is copied, as it is or after a stop in order.
    Copy(bool),
    /// The controller ends, in order or not; the newest copy is put in place of the store, and it starts after this.
    PutBack(bool, Span),
    /// The wall clock is set forward, or back, by so much.
    SetClock(bool, Span),
}

/// A part of a definition that changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Share when borrowing.
    Weight(u32),
    /// Rank when borrowing.
    Priority(Priority),
    /// Length of leases.
    Ttl(Span),
    /// What nodes may admit past their leases.
    Fallback(Fallback),
    /// The rate that all nodes together may admit without leases.
    FallbackTotal(Option<Rate>),
    /// Expected debt.
    MaxDebt(Ru),
    /// Depth of the bucket.
    Depth(Option<Ru>),
    /// Whether the limit is in shadow.
    Shadow(bool),
    /// The amount of a quota.
    Quota(Option<Ru>),
}

impl Change {
    fn apply(self, spec: &mut GroupSpec) {
        match self {
            Self::Weight(weight) => spec.weight = weight,
            Self::Priority(priority) => spec.priority = priority,
            Self::Ttl(ttl) => spec.ttl = ttl,
            Self::Fallback(fallback) => spec.fallback = fallback,
            Self::FallbackTotal(total) => spec.fallback_total = total,
            Self::MaxDebt(debt) => spec.max_debt = debt,
            Self::Depth(burst) => spec.burst = burst,
            Self::Shadow(shadow) => spec.shadow = shadow,
            Self::Quota(amount) => spec.quota = amount,
        }
    }

    /// The word for it in a definition.
    fn key(self) -> &'static str {
        match self {
            Self::Weight(_) => "weight=",
            Self::Priority(_) => "priority=",
            Self::Ttl(_) => "ttl=",
            Self::Fallback(_) => "fallback=",
            Self::FallbackTotal(_) => "total=",
            Self::MaxDebt(_) => "debt=",
            Self::Depth(_) => "burst=",
            Self::Shadow(_) => "enforcement=",
            Self::Quota(_) => "quota=",
        }
    }

    /// All that can be changed, to what a definition says.
    fn all(spec: &GroupSpec) -> [Self; 9] {
        [
            Self::Weight(spec.weight),
            Self::Priority(spec.priority),
            Self::Ttl(spec.ttl),
            Self::Fallback(spec.fallback),
            Self::FallbackTotal(spec.fallback_total),
            Self::MaxDebt(spec.max_debt),
            Self::Depth(spec.burst),
            Self::Shadow(spec.shadow),
            Self::Quota(spec.quota),
        ]
    }
}

impl Action {
    /// The node it happens to.
    pub(super) fn node(&self) -> Option<usize> {
        match self {
            Self::Kill(node, _) | Self::KillSame(node, _) | Self::End(node, _) => Some(*node),
            Self::Pause(node, _) | Self::Cut(node, ..) | Self::Reset(node) | Self::Lie(node) => Some(*node),
            _ => None,
        }
    }

    /// The group it is about.
    pub(super) fn group(&self) -> Option<GroupId> {
        match self {
            Self::Rate(id, _) | Self::Burst(id, _) | Self::Move(id, _) | Self::Remove(id) => Some(*id),
            Self::Create(id, _) | Self::Alter(id, _) | Self::Bind(_, id) => Some(*id),
            _ => None,
        }
    }

    /// Does it, if it can be done now.
    pub(super) fn act(&self, world: &mut World) {
        match self {
            Self::Kill(node, span) | Self::KillSame(node, span) if world.node_is_up(*node) => {
                world.kill_node(*node);
                let same = matches!(self, Self::KillSame(..));
                world.at(world.now.after(*span), Event::StartNode { node: *node, same });
            }
            Self::End(node, span) if world.node_is_up(*node) => {
                world.end_node(*node);
                world.at(world.now.after(*span), Event::StartNode { node: *node, same: false });
            }
            Self::Crash(span, death) if world.controller_is_up() => {
                world.crash_controller(*death);
                world.at(world.now.after(*span), Event::StartController);
            }
            Self::DieInSync(nth, span) => {
                world.restart_after = *span;
                world.controller.disk.die_in_sync(*nth);
            }
            Self::DiskFails => world.controller.disk.fail(),
            Self::DiskPauses(span) => world.interrupt_disk(*span),
            Self::DiskSlows(sync, span) => world.slow_disk(*sync, *span),
            Self::Restart if world.controller_is_up() && !world.stalled() => world.restart_controller(),
            Self::Pause(node, span) => world.pause(*node, *span),
            Self::Stall(span) => world.stall_controller(*span),
            Self::Cut(node, direction, span) => world.cut(*node, *direction, *span),
            Self::Reset(node) => world.reset_stream(*node),
            Self::Lie(node) => world.lie(*node),
            // One that is woken after another took over is not promised anything.
            Self::TakeOver(stay, span) if world.controller_is_up() && !world.frozen() => {
                world.take_over(*stay, *span)
            }
            Self::Copy(stopped) if world.controller_is_up() && !world.stalled() => world.copy_store(*stopped),
            Self::PutBack(in_order, span) if !world.stalled() => world.put_back(*in_order, *span),
            Self::SetClock(forward, span) => world.set_wall(*forward, *span),
            Self::Rate(id, rate) => world.change_group(*id, |spec| spec.rate = Some(*rate)),
            Self::Burst(id, burstable) => world.change_group(*id, |spec| spec.burstable = *burstable),
            Self::Move(id, parent) => world.change_group(*id, |spec| spec.parent = *parent),
            // A refusal (it has children, the controller is down) is an answer.
            Self::Remove(id) => drop(world.remove_group(*id)),
            Self::Create(id, spec) if world.spec(*id).is_none() => drop(world.put_group(*id, spec.clone())),
            Self::Alter(id, change) => world.change_group(*id, |spec| change.apply(spec)),
            Self::Bind(load, id) => drop(world.bind(*load, *id)),
            Self::Kill(..)
            | Self::KillSame(..)
            | Self::End(..)
            | Self::Crash(..)
            | Self::Create(..)
            | Self::Restart
            | Self::Copy(..)
            | Self::PutBack(..)
            | Self::TakeOver(..) => {}
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = GroupSpec::unlimited;
        // The word of a whole definition that a change is about.
        let word = |spec: GroupSpec, key: &str| {
            let words = show_spec(&spec);
            words.split(' ').find(|word| word.starts_with(key)).unwrap_or_default().to_owned()
        };
        match self {
            Self::Kill(node, span) => write!(f, "kill {node} {}us", span.0),
            Self::KillSame(node, span) => write!(f, "kill-same {node} {}us", span.0),
            Self::End(node, span) => write!(f, "end {node} {}us", span.0),
            Self::Pause(node, span) => write!(f, "pause {node} {}us", span.0),
            Self::Stall(span) => write!(f, "stall {}us", span.0),
            Self::Cut(node, direction, span) => write!(f, "cut {node} {direction} {}us", span.0),
            Self::Reset(node) => write!(f, "reset {node}"),
            Self::Crash(span, Death::Killed) => write!(f, "crash {}us killed", span.0),
            Self::Crash(span, Death::PowerCut) => write!(f, "crash {}us power-cut", span.0),
            Self::DieInSync(nth, span) => write!(f, "die-in-sync {nth} {}us", span.0),
            Self::DiskFails => f.write_str("disk-fails"),
            Self::DiskPauses(span) => write!(f, "disk-pauses {}us", span.0),
            Self::DiskSlows(sync, span) => write!(f, "disk-slows {}us {}us", sync.0, span.0),
            Self::Restart => f.write_str("restart"),
            Self::Rate(id, rate) => write!(f, "rate {} {}", id.0, show_micro(rate.0)),
            Self::Burst(id, burstable) => {
                let spec = GroupSpec { burstable: *burstable, ..plain() };
                write!(f, "burst {} {}", id.0, word(spec, "burstable="))
            }
            Self::Move(id, parent) => {
                write!(f, "move {} {}", id.0, word(GroupSpec { parent: *parent, ..plain() }, "parent="))
            }
            Self::Remove(id) => write!(f, "remove {}", id.0),
            Self::Create(id, spec) => write!(f, "create {} {}", id.0, show_spec(spec)),
            Self::Alter(id, change) => {
                let mut spec = plain();
                change.apply(&mut spec);
                write!(f, "alter {} {}", id.0, word(spec, change.key()))
            }
            Self::Bind(load, id) => write!(f, "bind {load} {}", id.0),
            Self::Lie(node) => write!(f, "lie {node}"),
            Self::TakeOver(stay, span) => write!(f, "take-over {stay} {}us", span.0),
            Self::Copy(false) => f.write_str("copy running"),
            Self::Copy(true) => f.write_str("copy stopped"),
            Self::PutBack(false, span) => write!(f, "put-back killed {}us", span.0),
            Self::SetClock(true, span) => write!(f, "clock forward {}us", span.0),
            Self::SetClock(false, span) => write!(f, "clock back {}us", span.0),
            Self::PutBack(true, span) => write!(f, "put-back stopped {}us", span.0),
        }
    }
}

impl FromStr for Action {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        fn arg<T: FromStr>(args: &[&str], place: usize) -> Result<T, String> {
            let text = args.get(place).ok_or("something is missing")?;
            text.parse().map_err(|_| format!("`{text}` is not a number"))
        }
        let args: Vec<&str> = text.split_whitespace().skip(1).collect();
        let word = |place: usize| args.get(place).copied().unwrap_or_default();
        let time = |place| span(word(place)).ok_or_else(|| "how long?".to_owned());
        let definition = || spec(GroupSpec::unlimited(), &Words::new(args.iter().copied()));
        let group = || group_id(word(0));
        Ok(match text.split_whitespace().next().unwrap_or_default() {
            "kill" => Self::Kill(arg(&args, 0)?, time(1)?),
            "kill-same" => Self::KillSame(arg(&args, 0)?, time(1)?),
            "end" => Self::End(arg(&args, 0)?, time(1)?),
            "pause" => Self::Pause(arg(&args, 0)?, time(1)?),
            "stall" => Self::Stall(time(0)?),
            "cut" => Self::Cut(arg(&args, 0)?, arg(&args, 1)?, time(2)?),
            "reset" => Self::Reset(arg(&args, 0)?),
            "crash" => match word(1) {
                "killed" => Self::Crash(time(0)?, Death::Killed),
                "power-cut" => Self::Crash(time(0)?, Death::PowerCut),
                _ => return Err("killed or power-cut?".to_owned()),
            },
            "die-in-sync" => Self::DieInSync(arg(&args, 0)?, time(1)?),
            "disk-fails" => Self::DiskFails,
            "disk-pauses" => Self::DiskPauses(time(0)?),
            "disk-slows" => Self::DiskSlows(time(0)?, time(1)?),
            "restart" => Self::Restart,
            "rate" => Self::Rate(group()?, Rate(micro(word(1)).ok_or("which rate?")?)),
            "burst" => Self::Burst(group()?, definition()?.burstable),
            "move" => Self::Move(group()?, definition()?.parent),
            "remove" => Self::Remove(group()?),
            "create" => Self::Create(group()?, definition()?),
            "alter" => {
                let key = word(1).split_inclusive('=').next().unwrap_or_default();
                let spec = definition()?;
                let changes = Change::all(&spec);
                let change = changes.into_iter().find(|change| change.key() == key);
                Self::Alter(group()?, change.ok_or("which change?")?)
            }
            "bind" => Self::Bind(arg(&args, 0)?, group_id(word(1))?),
            "lie" => Self::Lie(arg(&args, 0)?),
            "copy" => Self::Copy(word(0) == "stopped"),
            "put-back" => Self::PutBack(word(0) == "stopped", time(1)?),
            "clock" => Self::SetClock(word(0) == "forward", time(1)?),
            "take-over" => Self::TakeOver(arg(&args, 0)?, time(1)?),
            _ => return Err("no such action".to_owned()),
        })
    }
}
