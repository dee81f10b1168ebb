//! What the operator of a gateway decides: waits, privileges, hints.

use std::time::Duration;

/// What a statement inside an open transaction does when its group has no tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InTransaction {
    /// It runs, and the group owes the cost, as long as the group pays what it owes already within
    /// [`Policy::max_debt`]; beyond that the statement waits like any other. The end of the transaction does not wait.
    #[default]
    OweSome,
    /// It runs, and the group owes the cost without limit: a statement that waits for the transaction's locks never
    /// waits for tokens of another group, and the group exceeds its rate for as long.
    Owe,
    /// It waits like any other.
    Wait,
}

/// Names of users, alone or as `user@tenant`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Principals(Vec<Principal>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Principal {
    user: String,
    tenant: Option<String>,
}

/// A list of principals that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// An entry without a user.
    #[error("{entry:?} names no user; write `user` or `user@tenant`")]
    NoUser {
        /// The entry.
        entry: String,
    },
    /// There are too many principals.
    #[error("{count} principals are too many: at most {max}", max = Principals::MAX)]
    TooMany {
        /// How many there are.
        count: usize,
    },
}

impl Principals {
    /// Most entries of a list, which is searched at every login.
    pub const MAX: usize = 1_000;

    /// Reads `user` and `user@tenant` entries. A user name may hold an `@`: the last one separates.
    pub fn parse<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<Self, PolicyError> {
        let mut list = Vec::new();
        for entry in entries {
            let (user, tenant) = match entry.rsplit_once('@') {
                Some((user, tenant)) => (user, Some(tenant.to_owned())),
                None => (entry, None),
            };
            if user.is_empty() {
                return Err(PolicyError::NoUser { entry: entry.to_owned() });
            }
            list.push(Principal { user: user.to_owned(), tenant });
        }
        if list.len() > Self::MAX {
            return Err(PolicyError::TooMany { count: list.len() });
        }
        Ok(Self(list))
    }

    /// Whether `user` of `tenant` is in the list.
    pub fn contains(&self, tenant: &str, user: &str) -> bool {
        self.0.iter().any(|entry| {
            entry.user == user && entry.tenant.as_deref().is_none_or(|allowed| allowed == tenant)
        })
    }
}

/// How statements are governed.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Longest wait of a statement for admission.
    pub max_wait: Duration,
    /// Statements inside a transaction.
    pub in_transaction: InTransaction,
    /// How much a group may owe on this gateway when a statement inside a transaction is admitted, as the time in which
    /// the group pays that.
    pub max_debt: Duration,
    /// Let statements run unmetered in advance while no lease can be had; they are charged all the same. Otherwise
    /// they wait and fail.
    pub admit_without_lease: bool,
    /// Users who may define groups, bind users and read all statistics over SQL.
    pub admins: Principals,
    /// Users who may choose a group by `SET RESOURCE GROUP` or a hint; admins may, too.
    pub switchers: Principals,
    /// Every user may choose a group.
    pub anybody_switches: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_wait: Duration::from_secs(10),
            in_transaction: InTransaction::default(),
            // As much as the default burst of a group. With half of it small transactions begin to wait while they hold
            // locks; twice as much is felt by neighbours.
            max_debt: Duration::from_secs(1),
            admit_without_lease: false,
            admins: Principals::default(),
            switchers: Principals::default(),
            anybody_switches: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn principals_are_users_or_users_of_a_tenant() {
        let list = Principals::parse(["root", "ann@shop", "bob@mail@shop"]).unwrap();
        assert!(
            list.contains("any", "root") && list.contains("shop", "ann") && list.contains("shop", "bob@mail")
        );
        assert!(!list.contains("other", "ann") && !list.contains("shop", "bob"));
        assert_eq!(Principals::parse(["@shop"]), Err(PolicyError::NoUser { entry: "@shop".into() }));
        let many = vec!["u"; Principals::MAX + 1];
        assert_eq!(Principals::parse(many), Err(PolicyError::TooMany { count: Principals::MAX + 1 }));
    }

    #[test]
    fn a_list_may_be_as_long_as_it_is_said() {
        let most = vec!["u"; Principals::MAX];
        assert!(Principals::parse(most).is_ok_and(|list| list.contains("any", "u")));
    }
}
