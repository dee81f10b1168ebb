//! From words to an identity: the checks that rules, certificates and tokens have in common.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidegate_proto::NOT_GIVEN;

use super::{Identity, Kind, Role, Scope};
use crate::name::{GroupName, NameError, principal_part};
use crate::quantity::cut;

/// Why words are no identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartError {
    /// The role.
    #[error("{0:?} is no role; write one of {list}", list = Role::NAMES.join(", "))]
    Role(String),
    /// The name is too long, or has other characters.
    #[error(transparent)]
    Name(NameError),
    /// A full stop ends a node's name in a client id.
    #[error(
        "{0:?} has a full stop, which ends the name of a node in a client id (NAME.anything is NAME's own): write a name \
         without one"
    )]
    Stop(String),
    /// A group.
    #[error(transparent)]
    Group(NameError),
    /// The word for the groups that are not given.
    #[error("{NOT_GIVEN} is no group: it stands for those that a node was not given; name others")]
    NotGiven,
    /// Groups of one that has none.
    #[error("only a node and a gateway can be confined to groups, and the role is {0}")]
    NoNode(Role),
    /// An empty list.
    #[error("is empty; name at least one, or leave groups out for all of them")]
    NoGroup,
    /// The tenant has other characters.
    #[error(transparent)]
    Tenant(NameError),
    /// A viewer of no tenant.
    #[error("is missing; the role tenant needs the tenant whose groups it sees")]
    NoTenant,
    /// A tenant of one that sees all.
    #[error("only the role tenant has one, and the role is {0}")]
    NoViewer(Role),
}

impl PartError {
    /// The part that is wrong.
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Role(_) => "role",
            Self::Name(_) | Self::Stop(_) => "name",
            Self::Group(_) | Self::NotGiven | Self::NoNode(_) | Self::NoGroup => "groups",
            Self::Tenant(_) | Self::NoTenant | Self::NoViewer(_) => "tenant",
        }
    }
}

/// The role of this word.
pub(super) fn role(word: &str) -> Result<Role, PartError> {
    Role::parse(word).ok_or_else(|| PartError::Role(cut(word)))
}

/// The identity of this role and name; with `groups`, of a node or a gateway for them alone; of a viewer of `tenant`.
pub(super) fn identity(
    kind: Kind,
    role: Role,
    name: &str,
    groups: Option<&[String]>,
    tenant: Option<&str>,
) -> Result<Identity, PartError> {
    let (scope, tenant) = reach(role, groups, tenant)?;
    Ok(Identity { kind, name: checked(role, name)?, role, scope, tenant })
}

/// The groups that a role is confined to, and the tenant whose groups it sees.
pub(super) fn reach(
    role: Role,
    groups: Option<&[String]>,
    tenant: Option<&str>,
) -> Result<(Scope, Option<Arc<str>>), PartError> {
    let scope = groups.map(|groups| scope(role, groups)).transpose()?.flatten();
    let tenant = match (role, tenant) {
        (Role::Tenant, None) => return Err(PartError::NoTenant),
        (Role::Tenant, Some(tenant)) => {
            Some(principal_part("tenant", tenant).map_err(PartError::Tenant)?.into())
        }
        (_, Some(_)) => return Err(PartError::NoViewer(role)),
        (_, None) => None,
    };
    Ok((scope, tenant))
}

fn scope(role: Role, groups: &[String]) -> Result<Scope, PartError> {
    if !role.is_node() {
        return Err(PartError::NoNode(role));
    }
    if groups.is_empty() {
        return Err(PartError::NoGroup);
    }
    let names: Result<BTreeSet<_>, _> = groups.iter().map(|group| GroupName::parse(group)).collect();
    let names = names.map_err(PartError::Group)?;
    if names.contains(NOT_GIVEN) {
        return Err(PartError::NotGiven);
    }
    Ok(Some(Arc::new(names)))
}

/// The name, if one in this role can have it.
pub(super) fn checked(role: Role, name: &str) -> Result<String, PartError> {
    let name = principal_part("name of an identity", name).map_err(PartError::Name)?;
    if !role.is_node() {
        return Ok(name);
    }
    if name.contains('.') {
        return Err(PartError::Stop(name));
    }
    crate::name::client_id(&name).map_err(PartError::Name)
}
