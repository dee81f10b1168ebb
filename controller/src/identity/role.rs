//! What an identity may do, as one word.

use std::fmt;

/// What an identity may do; [`super::matrix`] says which calls that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Everything, under any client id.
    Admin,
    /// Definitions, bindings, prices and watches, and all that a viewer reads.
    Operator,
    /// Reads everything but the store itself.
    Viewer,
    /// Reads the groups that its tenant is bound to, what they consume and what their statements cost.
    Tenant,
    /// Leases, under its own name.
    Node,
    /// A node that also follows the rules of statements, convicts and reports statements.
    Gateway,
    /// Reads the page of metrics.
    Metrics,
}

impl Role {
    /// All roles, from the most powerful on.
    pub const ALL: [Self; 7] =
        [Self::Admin, Self::Operator, Self::Viewer, Self::Tenant, Self::Node, Self::Gateway, Self::Metrics];
    /// Their words.
    pub const NAMES: [&'static str; 7] =
        ["admin", "operator", "viewer", "tenant", "node", "gateway", "metrics"];

    /// The role of this word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == word)
    }

    /// Its word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Operator => "operator",
            Self::Viewer => "viewer",
            Self::Tenant => "tenant",
            Self::Node => "node",
            Self::Gateway => "gateway",
            Self::Metrics => "metrics",
        }
    }

    /// Whether an identity of this role is a node, whose calls carry a client id.
    pub const fn is_node(self) -> bool {
        matches!(self, Self::Node | Self::Gateway)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_has_one_word() {
        assert_eq!(Role::ALL.map(Role::name), Role::NAMES);
        assert!(Role::ALL.into_iter().all(|role| Role::parse(role.name()) == Some(role)));
        assert_eq!((Role::parse("Admin"), Role::parse("")), (None, None));
    }
}
