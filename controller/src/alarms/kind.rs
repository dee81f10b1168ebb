//! What an alarm can be about, and what is known of it when it holds.

use tidegate_core::quota::Unit;
use tidegate_core::units::{Rate, Ru, Span};

/// Kinds of alarms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Operations of a group wait, or are refused, for longer than `alarm_throttled_for`.
    Throttled,
    /// A group used `alarm_quota_percent` of its quota.
    QuotaHigh,
    /// A group used its quota, but for what is less than an operation.
    QuotaSpent,
    /// The controller recovers from an unclean stop.
    Recovery,
    /// Guarantees add up to more than there is: of the groups right below one, or of the whole server.
    CapacityOversubscribed,
    /// More alarms hold than can be open.
    More,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Throttled,
        Self::QuotaHigh,
        Self::QuotaSpent,
        Self::Recovery,
        Self::CapacityOversubscribed,
        Self::More,
    ];

    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Throttled => "throttled",
            Self::QuotaHigh => "quota_high",
            Self::QuotaSpent => "quota_spent",
            Self::Recovery => "recovery",
            Self::CapacityOversubscribed => "capacity_oversubscribed",
            Self::More => "more",
        }
    }

    /// The kind of a word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

    /// How urgent it is: a quota that is spent stops its group until the next window.
    pub fn severity(self) -> &'static str {
        if self == Self::QuotaSpent { "critical" } else { "warning" }
    }
}

/// What tells alarms apart: at most one of a key is open.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// What it is about.
    pub kind: Kind,
    /// The group; empty for the whole controller.
    pub group: String,
}

impl Key {
    /// The id that receivers see: the same after a restart of the controller.
    pub fn id(&self) -> String {
        match self.group.as_str() {
            "" => self.kind.as_str().to_owned(),
            group => format!("{}/{group}", self.kind.as_str()),
        }
    }
}

/// What is seen at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Facts {
    /// Of a group whose operations wait or are refused.
    Waiting {
        /// Operations that wait.
        waiting: u64,
        /// RU that they wait for.
        backlog: Ru,
        /// RU that nodes owe.
        debt: Ru,
        /// Operations that were refused or gave up since the last look.
        refused: u128,
        /// RU/s asked for.
        demand: Rate,
        /// RU/s leased out.
        leased: Rate,
    },
    /// Of a group with a quota.
    Quota {
        /// What is counted.
        unit: Unit,
        /// Of the window.
        amount: Ru,
        /// Used, or lost with nodes that are gone.
        used: Ru,
        /// Time to the next window; where it rolls, until something returns.
        resets_in: Span,
        /// It rolls.
        rolls: bool,
    },
    /// Of a controller that recovers.
    Recovery {
        /// Time until all groups have recovered, at most.
        left: Span,
    },
    /// Of a group, or of the server.
    Guarantees {
        /// What the groups right below are promised together.
        sum: Rate,
        /// What there is.
        limit: Rate,
    },
    /// Of the alarms themselves.
    More {
        /// Conditions that hold and have no alarm.
        left_out: u64,
    },
}

/// What is seen of a group, or of the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The group; empty for the whole controller.
    pub group: String,
    /// What is seen.
    pub facts: Facts,
}

impl Facts {
    /// The kinds of alarms that they can raise.
    pub(super) fn kinds(&self) -> &'static [Kind] {
        match self {
            Self::Waiting { .. } => &[Kind::Throttled],
            Self::Quota { .. } => &[Kind::QuotaHigh, Kind::QuotaSpent],
            Self::Recovery { .. } => &[Kind::Recovery],
            Self::Guarantees { .. } => &[Kind::CapacityOversubscribed],
            Self::More { .. } => &[Kind::More],
        }
    }
}
