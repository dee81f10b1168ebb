//! Bindings: the groups that users, tenants, and users within a tenant are charged to.
//!
//! The most specific binding wins: user in tenant, then user, then tenant, then the group `default`. A look-up takes
//! three steps in an ordered map; a second index lists the principals of each group for deletion.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::error::{AdminError, InField};
use crate::name::{GroupName, principal_part};
use serde::{Deserialize, Serialize};

/// A tenant, a user, or a user within a tenant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Principal {
    /// All users of a tenant.
    Tenant(String),
    /// A user of any tenant.
    User(String),
    /// A user of one tenant.
    UserInTenant {
        /// The tenant.
        tenant: String,
        /// The user.
        user: String,
    },
}

impl Principal {
    /// From two texts of which at least one is not empty.
    pub fn parse(tenant: &str, user: &str) -> Result<Self, AdminError> {
        let part = |kind, text| principal_part(kind, text).in_field(kind);
        match (tenant, user) {
            ("", "") => Err(AdminError::invalid("user", "neither tenant nor user is set; set one or both")),
            (tenant, "") => part("tenant", tenant).map(Self::Tenant),
            ("", user) => part("user", user).map(Self::User),
            (tenant, user) => {
                Ok(Self::UserInTenant { tenant: part("tenant", tenant)?, user: part("user", user)? })
            }
        }
    }

    /// Key in the store. Names hold no zero byte, so that no two principals share one.
    pub fn key(&self) -> Vec<u8> {
        [self.tenant().as_bytes(), b"\0", self.user().as_bytes()].concat()
    }

    /// The tenant, or an empty text.
    pub fn tenant(&self) -> &str {
        match self {
            Self::Tenant(tenant) | Self::UserInTenant { tenant, .. } => tenant,
            Self::User(_) => "",
        }
    }

    /// The user, or an empty text.
    pub fn user(&self) -> &str {
        match self {
            Self::User(user) | Self::UserInTenant { user, .. } => user,
            Self::Tenant(_) => "",
        }
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tenant(tenant) => write!(f, "tenant {tenant}"),
            Self::User(user) => write!(f, "user {user}"),
            Self::UserInTenant { tenant, user } => write!(f, "user {user} in tenant {tenant}"),
        }
    }
}

/// The kind of binding that decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matched {
    /// A user within a tenant.
    UserInTenant,
    /// A user.
    User,
    /// A tenant.
    Tenant,
    /// No binding: the group `default`.
    Default,
}

impl Matched {
    /// The spelling of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UserInTenant => "user in tenant",
            Self::User => "user",
            Self::Tenant => "tenant",
            Self::Default => "default",
        }
    }
}

/// All bindings.
#[derive(Clone, Debug, Default)]
pub struct Bindings {
    groups: BTreeMap<Principal, GroupName>,
    principals: BTreeMap<GroupName, BTreeSet<Principal>>,
}

impl Bindings {
    /// Number of bindings.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The group of a principal's own binding.
    pub fn get(&self, principal: &Principal) -> Option<&GroupName> {
        self.groups.get(principal)
    }

    /// Binds a principal, and returns the group bound before.
    pub fn bind(&mut self, principal: Principal, group: GroupName) -> Option<GroupName> {
        let previous = self.unbind(&principal);
        self.principals.entry(group.clone()).or_default().insert(principal.clone());
        self.groups.insert(principal, group);
        previous
    }

    /// Removes a binding, and returns its group.
    pub fn unbind(&mut self, principal: &Principal) -> Option<GroupName> {
        let group = self.groups.remove(principal)?;
        if let Some(principals) = self.principals.get_mut(&group) {
            principals.remove(principal);
            if principals.is_empty() {
                self.principals.remove(&group);
            }
        }
        Some(group)
    }

    /// The group that is charged for an operation of `user` of `tenant`; either may be empty.
    pub fn resolve(&self, tenant: &str, user: &str) -> (GroupName, Matched) {
        let steps = [
            (!tenant.is_empty() && !user.is_empty(), Matched::UserInTenant),
            (!user.is_empty(), Matched::User),
            (!tenant.is_empty(), Matched::Tenant),
        ];
        for (applies, matched) in steps {
            let principal = match matched {
                Matched::UserInTenant => Principal::UserInTenant { tenant: tenant.into(), user: user.into() },
                Matched::User => Principal::User(user.into()),
                Matched::Tenant | Matched::Default => Principal::Tenant(tenant.into()),
            };
            if let Some(group) = self.get(&principal).filter(|_| applies) {
                return (group.clone(), matched);
            }
        }
        (GroupName::default_group(), Matched::Default)
    }

    /// The groups that may be charged for a user in a tenant without a binding of its own, the first that is there: of
    /// the user, and of the tenant. None for other principals.
    pub fn below(&self, principal: &Principal) -> [Option<&GroupName>; 2] {
        match principal {
            Principal::UserInTenant { tenant, user } => {
                [Principal::User(user.clone()), Principal::Tenant(tenant.clone())].map(|of| self.get(&of))
            }
            Principal::Tenant(_) | Principal::User(_) => [None, None],
        }
    }

    /// Every binding, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Principal, &GroupName)> {
        self.groups.iter()
    }

    /// Bindings after `after`, in order.
    pub fn after(&self, after: Option<&Principal>) -> impl Iterator<Item = (&Principal, &GroupName)> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        self.groups.range((from, Unbounded))
    }

    /// The bindings of a tenant and of its users, in order.
    pub fn of_tenant(&self, tenant: &str) -> impl Iterator<Item = (&Principal, &GroupName)> {
        let own = self.groups.get_key_value(&Principal::Tenant(tenant.to_owned()));
        let from = Principal::UserInTenant { tenant: tenant.to_owned(), user: String::new() };
        let users = self.groups.range(from..);
        own.into_iter().chain(users.take_while(move |(principal, _)| principal.tenant() == tenant))
    }

    /// The principals bound to a group, in order.
    pub fn of_group(&self, group: &GroupName) -> impl Iterator<Item = &Principal> {
        self.principals.get(group).into_iter().flatten()
    }

    /// Whether users of a tenant have bindings within it.
    pub fn has_users(&self, tenant: &str) -> bool {
        self.of_tenant(tenant).any(|(principal, _)| matches!(principal, Principal::UserInTenant { .. }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principal(tenant: &str, user: &str) -> Principal {
        Principal::parse(tenant, user).unwrap()
    }

    fn g(number: u32) -> GroupName {
        GroupName::parse(&format!("g{number}")).unwrap()
    }

    #[test]
    fn the_most_specific_binding_wins() {
        let mut bindings = Bindings::default();
        assert_eq!(bindings.resolve("t", "u"), (GroupName::default_group(), Matched::Default));
        bindings.bind(principal("t", ""), g(2));
        assert_eq!(bindings.resolve("t", "u"), (g(2), Matched::Tenant));
        bindings.bind(principal("", "u"), g(3));
        assert_eq!(bindings.resolve("t", "u"), (g(3), Matched::User));
        bindings.bind(principal("t", "u"), g(4));
        assert_eq!(bindings.resolve("t", "u"), (g(4), Matched::UserInTenant));
        assert_eq!(bindings.resolve("x", "u"), (g(3), Matched::User));
        assert_eq!(bindings.resolve("t", ""), (g(2), Matched::Tenant));
        assert_eq!(bindings.resolve("", ""), (GroupName::default_group(), Matched::Default));
    }

    #[test]
    fn rebinding_moves_the_principal_between_groups() {
        let mut bindings = Bindings::default();
        let ann = principal("", "ann");
        assert_eq!(bindings.bind(ann.clone(), g(2)), None);
        assert_eq!(bindings.bind(ann.clone(), g(3)), Some(g(2)));
        assert_eq!(bindings.of_group(&g(2)).count(), 0);
        assert_eq!(bindings.of_group(&g(3)).collect::<Vec<_>>(), [&ann]);
        assert_eq!(bindings.unbind(&ann), Some(g(3)));
        assert_eq!(bindings.unbind(&ann), None);
        assert!(bindings.is_empty());
    }

    #[test]
    fn principals_are_checked() {
        assert_eq!(Principal::parse("", "").unwrap_err().field(), Some("user"));
        assert_eq!(Principal::parse("a b", "u").unwrap_err().field(), Some("tenant"));
        assert_eq!(Principal::parse("t", "ü").unwrap_err().field(), Some("user"));
    }
}
