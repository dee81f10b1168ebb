//! The groups that nodes use: a plain one, one with a burst of seconds, and a parent whose children want more than it
//! has.

use tidegate_core::units::{Rate, Ru, Span};
use tidegate_proto::v1;

use crate::definitions::definition::{Bursting, Definition};
use crate::name::GroupName;

/// A group; amounts are whole RU.
pub(super) struct Kind {
    pub(super) name: &'static str,
    parent: Option<usize>,
    rate: i64,
    burst: Option<i64>,
    bursting: Bursting,
}

/// Parents come before their children.
pub(super) const KINDS: [Kind; 5] = [
    Kind { name: "plain", parent: None, rate: 100, burst: None, bursting: Bursting::Off },
    Kind { name: "deep", parent: None, rate: 30, burst: Some(150), bursting: Bursting::Off },
    Kind { name: "all", parent: None, rate: 60, burst: None, bursting: Bursting::Off },
    Kind { name: "capped", parent: Some(2), rate: 45, burst: None, bursting: Bursting::Off },
    Kind { name: "lends", parent: Some(2), rate: 15, burst: None, bursting: Bursting::Unlimited },
];
/// Those that operations run in.
pub(super) const USED: [usize; 4] = [0, 1, 3, 4];

impl Kind {
    pub(super) fn rate(&self) -> Rate {
        Rate::whole(self.rate)
    }

    /// What bounds every window of the group, if something of its own does.
    pub(super) fn limit(&self) -> Option<(Rate, Ru)> {
        (self.bursting == Bursting::Off).then(|| (self.rate(), Ru::whole(self.burst.unwrap_or(self.rate))))
    }
}

/// A group and those above it.
pub(super) fn chain(group: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(group), |group| KINDS[*group].parent)
}

/// A group and those below it.
pub(super) fn tree(group: usize) -> impl Iterator<Item = usize> {
    (0..KINDS.len()).filter(move |below| chain(*below).any(|above| above == group))
}

pub(super) fn by_name(name: &str) -> usize {
    KINDS.iter().position(|kind| kind.name == name).unwrap()
}

/// The definition of a group with leases of this length. One that nodes do not use has a limit, and no more.
pub(super) fn definition(name: &str, ttl: Span) -> v1::Group {
    let parsed = |name: &str| GroupName::parse(name).unwrap();
    let named = Definition {
        ttl,
        renew_every: Span(ttl.0 / 2).min(Span::secs(1)),
        rate: Some(Rate::whole(100)),
        ..Definition::named(parsed(name))
    };
    let Some(kind) = KINDS.iter().find(|kind| kind.name == name) else { return named.text() };
    let definition = Definition {
        parent: kind.parent.map(|parent| parsed(KINDS[parent].name)),
        rate: Some(kind.rate()),
        burst: kind.burst.map(Ru::whole),
        burstable: kind.bursting,
        ..named
    };
    definition.text()
}
