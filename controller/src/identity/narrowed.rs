//! What a node that was given groups is sent of the bindings: those to its groups, and what it must not overlook.
//!
//! A binding to another group matters where one to a given group would decide without it: its user would be charged to
//! that. Such a binding is sent without its group, under a name that no group has. All others are left out: who has
//! none is charged to the group `default`, which is not given either, or else everyone's binding matters.

use tidegate_proto::{NOT_GIVEN, v1};

use super::{Identity, Scope};
use crate::definitions::bindings::{Bindings, Principal};
use crate::definitions::events::{Event, EventKind, Rebound};
use crate::name::GroupName;

/// The bindings that a caller is sent; all of them by default.
#[derive(Clone, Debug, Default)]
pub(crate) struct Narrowed(Scope);

impl Narrowed {
    /// What this caller is sent.
    pub(crate) fn to(identity: Option<&Identity>) -> Self {
        Self(identity.and_then(|identity| identity.scope.clone()))
    }

    /// Whether it is sent all of them.
    pub(crate) fn is_whole(&self) -> bool {
        self.0.is_none()
    }

    /// Whether a group is given.
    pub(crate) fn gives(&self, group: &GroupName) -> bool {
        self.0.as_ref().is_none_or(|given| given.contains(group))
    }

    /// A binding of a snapshot, as it is sent.
    pub(crate) fn binding(
        &self,
        bindings: &Bindings,
        principal: &Principal,
        group: &GroupName,
    ) -> Option<v1::Binding> {
        let shown = self.shown(principal, Some(group), || bindings.below(principal))?;
        Some(message(principal, shown))
    }

    /// A change of a binding, as it is sent. It is enough unless the event [begins again](Self::begins_again).
    pub(crate) fn change(&self, change: &Rebound) -> Option<v1::BindingChange> {
        let Rebound { principal, before, after, below, .. } = change;
        let below = || below.each_ref().map(Option::as_ref);
        let shown = self.shown(principal, after.as_ref(), below);
        let is_known = || self.is_whole() || self.shown(principal, before.as_ref(), below).is_some();
        match shown {
            None if !is_known() => None,
            shown => Some(v1::BindingChange {
                removed: shown.is_none(),
                binding: Some(message(principal, shown.unwrap_or_default())),
            }),
        }
    }

    /// Whether a change decides which bindings of others matter, so that a new snapshot is due.
    pub(crate) fn begins_again(&self, event: &Event) -> bool {
        let changes = || {
            event.kinds.iter().filter_map(|kind| match kind {
                EventKind::Bound(change) => Some(change),
                _ => None,
            })
        };
        let among_users =
            || changes().any(|change| matches!(change.principal, Principal::UserInTenant { .. }));
        let turns = |group: &Option<GroupName>| group.as_ref().is_some_and(|group| self.gives(group));
        // Where the default group is given, everyone's binding matters at all times.
        !self.gives(&GroupName::default_group())
            && changes().any(|change| {
                !matches!(change.principal, Principal::UserInTenant { .. })
                    && turns(&change.before) != turns(&change.after)
                    && (change.has_users || among_users())
            })
    }

    /// The name of its group under which a binding is sent; `None` for one that is not.
    fn shown<'g>(
        &self,
        principal: &Principal,
        group: Option<&'g GroupName>,
        below: impl FnOnce() -> [Option<&'g GroupName>; 2],
    ) -> Option<&'g str> {
        let group = group?;
        if self.gives(group) {
            return Some(group.as_str());
        }
        let matters = match principal {
            // Of whichever tenant the user is, that tenant's group would be charged.
            Principal::User(_) => true,
            Principal::Tenant(_) => self.gives(&GroupName::default_group()),
            Principal::UserInTenant { .. } => {
                let without = below().into_iter().flatten().any(|group| self.gives(group));
                without || self.gives(&GroupName::default_group())
            }
        };
        matters.then_some(NOT_GIVEN)
    }
}

fn message(principal: &Principal, group: &str) -> v1::Binding {
    v1::Binding {
        tenant: principal.tenant().to_owned(),
        user: principal.user().to_owned(),
        group: group.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;

    use rand::rngs::StdRng;
    use rand::{RngExt as _, SeedableRng as _};

    use super::*;

    const GROUPS: [&str; 4] = ["default", "a", "b", "c"];
    const NAMES: [&str; 3] = ["", "x", "y"];

    fn group(name: &str) -> GroupName {
        GroupName::parse(name).unwrap()
    }

    fn one<T: Copy>(random: &mut StdRng, of: &[T]) -> T {
        of[random.random_range(0..of.len())]
    }

    fn principal(random: &mut StdRng) -> Principal {
        loop {
            if let Ok(principal) = Principal::parse(one(random, &NAMES), one(random, &NAMES)) {
                return principal;
            }
        }
    }

    /// What a node knows from what it is sent.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct Known(BTreeMap<(String, String), String>);

    impl Known {
        fn snapshot(narrowed: &Narrowed, bindings: &Bindings) -> Self {
            let shown = bindings.iter().filter_map(|(of, group)| narrowed.binding(bindings, of, group));
            Self(shown.map(|of| ((of.tenant, of.user), of.group)).collect())
        }

        fn hear(&mut self, narrowed: &Narrowed, event: &Event) {
            for kind in &event.kinds {
                let EventKind::Bound(change) = kind else { continue };
                match narrowed.change(change) {
                    Some(v1::BindingChange { binding: Some(of), removed: true }) => {
                        assert!(self.0.remove(&(of.tenant, of.user)).is_some(), "a name for nothing");
                    }
                    Some(v1::BindingChange { binding: Some(of), .. }) => {
                        self.0.insert((of.tenant, of.user), of.group);
                    }
                    _ => {}
                }
            }
        }

        /// As a node resolves, in the order that it has.
        fn charged(&self, tenant: &str, user: &str) -> &str {
            let keys = [(tenant, user), ("", user), (tenant, "")];
            let bound = |(tenant, user): &(&str, &str)| self.0.get(&((*tenant).into(), (*user).into()));
            keys.iter().filter(|key| **key != ("", "")).find_map(bound).map_or("default", String::as_str)
        }
    }

    /// Changes of one or a few bindings at once, in force in `bindings`.
    fn change(random: &mut StdRng, bindings: &mut Bindings) -> Event {
        let edits: BTreeMap<_, _> = (0..random.random_range(1..4))
            .map(|_| {
                let goes = random.random_range(0..3) == 0;
                (principal(random), (!goes).then(|| group(one(random, &GROUPS))))
            })
            .collect();
        let kinds = edits.iter().map(|(of, to)| EventKind::Bound(Rebound::from(bindings, of, to.as_ref())));
        let mut kinds: Vec<_> = kinds.collect();
        if random.random_range(0..2) == 0 {
            kinds.reverse();
        }
        for (of, to) in edits {
            match to {
                Some(group) => drop(bindings.bind(of, group)),
                None => drop(bindings.unbind(&of)),
            }
        }
        Event { revision: 1, kinds }
    }

    #[test]
    fn a_node_with_groups_charges_whom_the_whole_would_or_nobody() {
        let (mut refused, mut charged, mut again) = (0, 0, 0);
        for seed in 0..400 {
            let mut random = StdRng::seed_from_u64(seed);
            let given: BTreeSet<_> =
                GROUPS.iter().filter(|_| random.random_range(0..3) == 0).map(|name| group(name)).collect();
            let narrowed = Narrowed(Some(Arc::new(given)));
            let mut bindings = Bindings::default();
            let mut known = Known::default();
            for step in 0..60 {
                let event = change(&mut random, &mut bindings);
                if narrowed.begins_again(&event) {
                    known = Known::snapshot(&narrowed, &bindings);
                    again += 1;
                } else {
                    known.hear(&narrowed, &event);
                }
                let at = format!("seed {seed}, step {step}: {narrowed:?} of {bindings:?}");
                assert_eq!(known, Known::snapshot(&narrowed, &bindings), "{at}");
                for (tenant, user) in NAMES.iter().flat_map(|tenant| NAMES.map(|user| (*tenant, user))) {
                    let whole = bindings.resolve(tenant, user).0;
                    let found = known.charged(tenant, user);
                    if narrowed.gives(&whole) {
                        assert_eq!(found, whole.as_str(), "{tenant}/{user}, {at}");
                        charged += 1;
                    } else {
                        assert!(!narrowed.gives(&group(found)), "{tenant}/{user} to {found}, {at}");
                        refused += 1;
                    }
                }
            }
        }
        assert!(refused > 1_000 && charged > 1_000 && again > 100, "{refused} {charged} {again}");
    }

    #[test]
    fn who_concerns_no_given_group_is_not_named() {
        let mut bindings = Bindings::default();
        for (tenant, user, to) in [
            ("shop-co", "", "shop"),
            ("shop-co", "ann", "audits"),
            ("shop-co", "bob", "shop"),
            ("other-co", "", "other"),
            ("other-co", "eve", "other"),
            ("other-co", "till", "shop"),
            ("", "root", "other"),
        ] {
            bindings.bind(Principal::parse(tenant, user).unwrap(), group(to));
        }
        let narrowed = Narrowed(Some(Arc::new([group("shop")].into())));
        let sent = Known::snapshot(&narrowed, &bindings).0;
        let sent: Vec<_> = sent.iter().map(|((t, u), g)| (t.as_str(), u.as_str(), g.as_str())).collect();
        assert_eq!(
            sent,
            [
                ("", "root", NOT_GIVEN),
                ("other-co", "till", "shop"),
                ("shop-co", "", "shop"),
                ("shop-co", "ann", NOT_GIVEN),
                ("shop-co", "bob", "shop"),
            ]
        );
        let whole = Known::snapshot(&Narrowed::default(), &bindings).0;
        assert_eq!(whole.len(), bindings.len());
        assert!(whole.values().all(|group| group != NOT_GIVEN));
    }
}
