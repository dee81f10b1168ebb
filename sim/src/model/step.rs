//! One step: what can happen next, and its description.

use std::fmt;

use tidegate_core::node::WaiterId;

/// What an operation costs in the end, and when that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Its estimate, settled at once.
    Exact,
    /// Twice its estimate, settled at once.
    Dear,
    /// Settled in a step of its own.
    Late,
}

/// Which messages of a step do not arrive at once. They stay under way and may arrive at any later time, or never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// The renewal.
    pub renewal: bool,
    /// Its answer.
    pub answer: bool,
    /// Orders to other nodes to lower their rates.
    pub orders: bool,
}

impl Delays {
    /// Every way in which the messages of a renewal can be late.
    pub const OF_RENEWAL: [Self; 5] = [
        Self { renewal: false, answer: false, orders: false },
        Self { renewal: true, answer: false, orders: false },
        Self { renewal: false, answer: true, orders: false },
        Self { renewal: false, answer: false, orders: true },
        Self { renewal: false, answer: true, orders: true },
    ];
    /// Every way in which the messages that answer a renewal can be late.
    pub const OF_ANSWER: [Self; 4] = [
        Self { renewal: false, answer: false, orders: false },
        Self { renewal: false, answer: true, orders: false },
        Self { renewal: false, answer: false, orders: true },
        Self { renewal: false, answer: true, orders: true },
    ];
}

impl fmt::Display for Delays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let late =
            [(self.renewal, "it"), (self.answer, "the answer"), (self.orders, "an order to the other")];
        let late: Vec<&str> = late.iter().filter(|(late, _)| *late).map(|(_, what)| *what).collect();
        if late.is_empty() { Ok(()) } else { write!(f, "; {} is late", late.join(" and ")) }
    }
}

/// An event. Messages are named by their place among those under way, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Time passes.
    Tick,
    /// An operation arrives.
    Arrive {
        /// The node.
        node: usize,
        /// What it will cost.
        kind: Kind,
    },
    /// An operation turns out to cost nothing, or twice its estimate.
    Settle {
        /// The node.
        node: usize,
        /// Twice instead of nothing.
        as_dear: bool,
    },
    /// A waiter gives up.
    Cancel {
        /// The node.
        node: usize,
        /// The waiter.
        waiter: WaiterId,
    },
    /// A node sends the renewal that is due.
    Renew {
        /// The node.
        node: usize,
        /// Which messages of it are late.
        late: Delays,
    },
    /// A node notices that its stream ended with the controller.
    Notice {
        /// The node.
        node: usize,
    },
    /// The network resets a stream.
    Reset {
        /// The node whose stream it is.
        node: usize,
    },
    /// A node dies and starts again.
    Kill {
        /// The node.
        node: usize,
    },
    /// A node says goodbye and starts again.
    Leave {
        /// The node.
        node: usize,
        /// The goodbye is late.
        late: bool,
    },
    /// The controller hears a late message.
    ToController {
        /// The node that sent it.
        node: usize,
        /// The place of the message among those under way.
        place: usize,
        /// Which messages of the answer are late.
        late: Delays,
        /// It stays under way, to be heard once more.
        again: bool,
    },
    /// A node hears a late message.
    ToNode {
        /// The node.
        node: usize,
        /// The place of the message among those under way.
        place: usize,
        /// It stays under way, to be heard once more.
        again: bool,
    },
    /// The ledger is committed.
    Commit,
    /// The controller dies and starts again.
    Crash,
    /// The controller is restarted in order.
    Restart,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stays = |again: &bool| if *again { ", which will come once more" } else { "" };
        match self {
            Self::Tick => f.write_str("time passes"),
            Self::Arrive { node, kind: Kind::Exact } => write!(f, "n{node} an operation arrives"),
            Self::Arrive { node, kind: Kind::Dear } => {
                write!(f, "n{node} an operation arrives that will cost twice its estimate")
            }
            Self::Arrive { node, kind: Kind::Late } => {
                write!(f, "n{node} an operation arrives that is settled later")
            }
            Self::Settle { node, as_dear: false } => {
                write!(f, "n{node} an operation turns out to cost nothing")
            }
            Self::Settle { node, as_dear: true } => write!(f, "n{node} an operation turns out to cost twice"),
            Self::Cancel { node, waiter } => write!(f, "n{node} waiter {} gives up", waiter.0),
            Self::Renew { node, late } => write!(f, "n{node} sends a renewal{late}"),
            Self::Notice { node } => write!(f, "n{node} notices that its stream has ended"),
            Self::Reset { node } => write!(f, "n{node} its stream is reset"),
            Self::Kill { node } => write!(f, "n{node} dies and starts again"),
            Self::Leave { node, late } => {
                let late = if *late { "; the goodbye is late" } else { "" };
                write!(f, "n{node} says goodbye and starts again{late}")
            }
            Self::ToController { node, place, late, again } => {
                write!(f, "controller hears late message {place} of n{node}{}{late}", stays(again))
            }
            Self::ToNode { node, place, again } => {
                write!(f, "n{node} hears late message {place} of the controller{}", stays(again))
            }
            Self::Commit => f.write_str("controller commits the ledger"),
            Self::Crash => f.write_str("controller dies and starts again, in recovery"),
            Self::Restart => f.write_str("controller is restarted in order"),
        }
    }
}
