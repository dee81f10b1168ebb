//! Which tenants and users are charged to which group, as the controller's watch sends it.
//!
//! A user within a tenant comes before the user anywhere, then the tenant, then the group `default`.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use foldhash::fast::RandomState;
use tidegate_proto::v1;

use crate::groups::GroupCell;
use crate::names::{GroupName, NameError};

/// Most bindings kept; a larger snapshot is cut off here.
pub(crate) const MAX_BINDINGS: usize = 1_000_000;
/// The group for everyone without a binding.
pub(crate) const DEFAULT_GROUP: &str = "default";

/// A group that someone is bound to, found in the registry once.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) name: GroupName,
    pub(crate) cell: OnceLock<Arc<GroupCell>>,
}

/// The bindings at one revision.
#[derive(Debug, Default)]
pub(crate) struct Bindings {
    /// User, then tenant; the empty tenant is any.
    users: HashMap<String, HashMap<String, Bound, RandomState>, RandomState>,
    tenants: HashMap<String, Bound, RandomState>,
    count: usize,
}

impl Bindings {
    /// The group that pays for `user` of `tenant`; `None` is the default group.
    pub(crate) fn resolve(&self, tenant: &str, user: &str) -> Option<&Bound> {
        let of_user =
            self.users.get(user).and_then(|tenants| tenants.get(tenant).or_else(|| tenants.get("")));
        of_user.or_else(|| self.tenants.get(tenant))
    }

    /// Number of bindings.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Adds or replaces one. A binding with neither tenant nor user, or one more than the limit, is ignored.
    pub(crate) fn put(&mut self, binding: v1::Binding) -> Result<(), NameError> {
        let group = Bound { name: GroupName::new(&binding.group)?, cell: OnceLock::new() };
        let is_full = self.count >= MAX_BINDINGS && !self.has(&binding);
        if is_full || (binding.tenant.is_empty() && binding.user.is_empty()) {
            return Ok(());
        }
        let replaced = if binding.user.is_empty() {
            self.tenants.insert(binding.tenant, group)
        } else {
            self.users.entry(binding.user).or_default().insert(binding.tenant, group)
        };
        if replaced.is_none() {
            self.count = self.count.saturating_add(1);
        }
        Ok(())
    }

    /// Whether there is one of this tenant and user.
    fn has(&self, binding: &v1::Binding) -> bool {
        if binding.user.is_empty() {
            return self.tenants.contains_key(&binding.tenant);
        }
        self.users.get(&binding.user).is_some_and(|tenants| tenants.contains_key(&binding.tenant))
    }

    /// Removes one.
    pub(crate) fn remove(&mut self, binding: &v1::Binding) {
        let removed = if binding.user.is_empty() {
            self.tenants.remove(&binding.tenant)
        } else if let Some(tenants) = self.users.get_mut(&binding.user) {
            let removed = tenants.remove(&binding.tenant);
            if tenants.is_empty() {
                self.users.remove(&binding.user);
            }
            removed
        } else {
            None
        };
        if removed.is_some() {
            self.count = self.count.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn binding(tenant: &str, user: &str, group: &str) -> v1::Binding {
        v1::Binding { tenant: tenant.into(), user: user.into(), group: group.into() }
    }

    #[test]
    fn the_narrowest_binding_wins() {
        let mut bindings = Bindings::default();
        for (tenant, user, group) in
            [("t", "", "tenant"), ("", "u", "user"), ("t", "u", "both"), ("", "", "nobody")]
        {
            bindings.put(binding(tenant, user, group)).unwrap();
        }
        let resolve = |b: &Bindings, t: &str, u: &str| b.resolve(t, u).map(|bound| bound.name.to_string());
        for (tenant, user, group) in [
            ("t", "u", Some("both")),
            ("t", "other", Some("tenant")),
            ("other", "u", Some("user")),
            ("", "u", Some("user")),
            ("t", "", Some("tenant")),
            ("other", "other", None),
            ("", "", None),
        ] {
            assert_eq!(resolve(&bindings, tenant, user).as_deref(), group, "{tenant} {user}");
        }
        bindings.remove(&binding("t", "u", ""));
        bindings.remove(&binding("t", "u", ""));
        assert_eq!(resolve(&bindings, "t", "u").as_deref(), Some("user"));
        bindings.remove(&binding("", "u", ""));
        assert_eq!(resolve(&bindings, "t", "u").as_deref(), Some("tenant"));
        assert_eq!(bindings.len(), 1);
        assert!(bindings.put(binding("t", "", "")).is_err());
    }

    /// Each set of bindings that can matter for one, with those of others beside it: the same user elsewhere, and others
    /// of the tenant.
    #[test]
    fn whatever_else_is_bound_the_narrowest_of_ones_own_counts() {
        for set in 0..64_u32 {
            let all = [
                ("t", "u", "both"),
                ("", "u", "user"),
                ("t", "", "tenant"),
                ("elsewhere", "u", "another tenant's"),
                ("t", "other", "another user's"),
                ("elsewhere", "", "another tenant"),
            ];
            let mut bindings = Bindings::default();
            let put = (0_u32..).zip(all).filter(|(place, _)| set & (1 << place) > 0).map(|(_, of)| of);
            for (tenant, user, group) in put.clone() {
                bindings.put(binding(tenant, user, &group.replace([' ', '\''], "-"))).unwrap();
            }
            let counts =
                put.map(|(.., group)| group).find(|group| ["both", "user", "tenant"].contains(group));
            let found = bindings.resolve("t", "u").map(|bound| bound.name.to_string());
            assert_eq!(found.as_deref(), counts, "{set:b}");
        }
    }

    #[test]
    fn one_more_than_the_limit_is_ignored_and_those_that_there_are_still_change() {
        let group =
            |bindings: &Bindings, user| bindings.resolve("t", user).map(|bound| bound.name.to_string());
        let mut bindings = Bindings { count: MAX_BINDINGS - 2, ..Bindings::default() };
        for (tenant, user) in [("t", "u"), ("t", ""), ("t", "one-more"), ("one-more", "")] {
            bindings.put(binding(tenant, user, "a")).unwrap();
        }
        assert_eq!((bindings.len(), group(&bindings, "u").as_deref()), (MAX_BINDINGS, Some("a")));
        assert!(!bindings.users.contains_key("one-more") && !bindings.tenants.contains_key("one-more"));
        for (tenant, user) in [("t", "u"), ("t", "")] {
            bindings.put(binding(tenant, user, "b")).unwrap();
        }
        let found = ["u", "other"].map(|user| group(&bindings, user));
        assert_eq!((bindings.len(), found), (MAX_BINDINGS, [Some("b".to_owned()), Some("b".to_owned())]));
        // What goes makes room for another.
        bindings.remove(&binding("t", "u", ""));
        bindings.put(binding("t", "one-more", "c")).unwrap();
        assert_eq!((bindings.len(), group(&bindings, "one-more").as_deref()), (MAX_BINDINGS, Some("c")));
    }

    /// Users come and go as long as a node runs.
    #[test]
    fn nothing_stays_of_a_user_who_is_bound_no_more() {
        let mut bindings = Bindings::default();
        for user in (0..100).map(|number| format!("user-{number}")) {
            bindings.put(binding("t", &user, "a")).unwrap();
            bindings.put(binding("", &user, "a")).unwrap();
            bindings.remove(&binding("t", &user, ""));
            assert!(bindings.resolve("t", &user).is_some(), "the other binding stays");
            bindings.remove(&binding("", &user, ""));
        }
        assert_eq!((bindings.len(), bindings.users.len(), bindings.tenants.len()), (0, 0, 0));
    }

    proptest! {
        /// Beside a plain map of all bindings, of which the narrowest is looked for one by one.
        #[test]
        fn whatever_is_bound_and_unbound_the_rest_stays(
            changes in prop::collection::vec((0_usize..3, 0_usize..3, prop::option::of(0_u8..3)), 1..30),
        ) {
            let (tenants, users) = (["", "t", "s"], ["", "u", "v"]);
            let (mut bindings, mut all) = (Bindings::default(), BTreeMap::new());
            for (tenant, user, group) in changes {
                let (tenant, user) = (tenants[tenant], users[user]);
                match group.map(|group| format!("g{group}")) {
                    Some(group) => {
                        bindings.put(binding(tenant, user, &group)).unwrap();
                        if (tenant, user) != ("", "") {
                            all.insert((tenant, user), group);
                        }
                    }
                    None => {
                        bindings.remove(&binding(tenant, user, ""));
                        all.remove(&(tenant, user));
                    }
                }
                prop_assert_eq!(bindings.len(), all.len());
                for (tenant, user) in tenants.iter().flat_map(|tenant| users.map(|user| (*tenant, user))) {
                    let narrowest = [(tenant, user), ("", user), (tenant, "")];
                    let expected = narrowest.iter().find_map(|bound| all.get(bound));
                    let found = bindings.resolve(tenant, user).map(|bound| bound.name.to_string());
                    prop_assert_eq!(found.as_ref(), expected, "{} {}", tenant, user);
                }
            }
        }
    }
}
