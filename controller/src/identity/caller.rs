//! A proven identity.
//!
//! A node's client ids are its name, or its name, a full stop and anything: no name of a node has a full stop, so that
//! no identity can be under two names.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Role;
use crate::name::GroupName;

/// How an identity is proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It is not.
    Anonymous,
    /// By a certificate that the handshake verified.
    Certificate,
    /// By a token that the controller made.
    Token,
    /// By a JWT of the provider of this name.
    Jwt(Arc<str>),
}

impl Kind {
    /// Its word in the audit log.
    pub fn word(&self) -> String {
        match self {
            Self::Anonymous => "anonymous".to_owned(),
            Self::Certificate => "certificate".to_owned(),
            Self::Token => "token".to_owned(),
            // Two providers may give one name to two people.
            Self::Jwt(provider) => format!("jwt of {provider}"),
        }
    }
}

/// The groups that a node was given; `None` where it may ask for all.
pub type Scope = Option<Arc<BTreeSet<GroupName>>>;

/// Who calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// How it is proven.
    pub kind: Kind,
    /// Its name; empty when it is anonymous.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// The groups that it was given.
    pub scope: Scope,
    /// The tenant whose groups it sees, in the role of a tenant.
    pub tenant: Option<Arc<str>>,
}

impl Identity {
    /// A caller without a certificate, in the role that such callers have.
    pub fn anonymous(role: Role) -> Self {
        Self { kind: Kind::Anonymous, name: String::new(), role, scope: None, tenant: None }
    }

    /// Whether it may call itself so: an admin may be any client, a node is itself.
    pub fn may_be(&self, client: &str) -> bool {
        match client.strip_prefix(&self.name) {
            _ if !self.role.is_node() => self.role == Role::Admin,
            // Nobody is a node without a name.
            Some(rest) => !self.name.is_empty() && (rest.is_empty() || rest.starts_with('.')),
            None => false,
        }
    }

    /// Whether it was given this group, by the name as it is defined.
    pub fn is_given(&self, group: &str) -> bool {
        self.scope.as_ref().is_none_or(|given| given.contains(group))
    }

    /// How errors and the log call it.
    pub fn label(&self) -> String {
        match &self.kind {
            Kind::Anonymous => "a caller without a certificate or a token".to_owned(),
            Kind::Token => format!("the token of {} {:?}", self.role, self.name),
            Kind::Jwt(provider) => format!("the JWT of {} {:?} by {provider}", self.role, self.name),
            Kind::Certificate => format!("the certificate of {} {:?}", self.role, self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(role: Role, name: &str) -> Identity {
        Identity { kind: Kind::Certificate, name: name.to_owned(), role, scope: None, tenant: None }
    }

    #[test]
    fn a_node_is_itself_and_what_is_below_its_name() {
        for role in [Role::Node, Role::Gateway] {
            let node = named(role, "node-1");
            for own in ["node-1", "node-1.", "node-1.host-77", "node-1.a.b"] {
                assert!(node.may_be(own), "{own}");
            }
            for other in ["node-12", "node-1-x", "node", "node-2", "", "xnode-1", "Node-1", ".node-1"] {
                assert!(!node.may_be(other), "{other}");
            }
        }
        assert!(named(Role::Admin, "root").may_be("node-1"));
        for role in [Role::Operator, Role::Viewer] {
            assert!(!named(role, "ann").may_be("ann"), "{role}");
        }
    }

    #[test]
    fn who_has_no_name_is_no_node() {
        for role in [Role::Node, Role::Gateway] {
            let nobody = Identity::anonymous(role);
            assert!(!nobody.may_be("") && !nobody.may_be("a") && !nobody.may_be(".a"));
        }
    }

    #[test]
    fn a_scope_names_all_that_is_given() {
        let mut node = named(Role::Node, "n");
        assert!(node.is_given("any"));
        node.scope = Some(Arc::new([GroupName::parse("shop").unwrap()].into()));
        assert!(node.is_given("shop") && !node.is_given("shop2") && !node.is_given("default"));
    }
}
