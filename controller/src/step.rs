//! The steps of one change as text: what stands as it is said here, and what goes.
//!
//! A step that defines something defines all of it: what is left out is the default, as in a new one. Field names equal
//! those of `tidegate.v1.Step`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::cost_tables::TableShape;
use crate::group_text::GroupText;
use crate::watches::WatchText;

/// One step of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Step {
    /// The group is as said here, created or altered. A field that is empty is refused where the group says something.
    Group(Box<GroupText>),
    /// The principal is bound to this group.
    Binding(BindingText),
    /// The table is stored and has this role.
    CostTable(RoleText),
    /// The statement is watched as an operator's watch.
    Watch(Box<WatchText>),
    /// The group is gone.
    DeleteGroup(DeleteGroupText),
    /// The principal has no binding.
    DeleteBinding(PrincipalText),
    /// The watch has ended.
    DeleteWatch(WatchId),
}

/// Who is charged to which group. At least one of tenant and user is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = Binding)]
pub struct BindingText {
    /// The tenant, or nothing.
    pub tenant: String,
    /// The user, or nothing.
    pub user: String,
    /// The group.
    pub group: String,
}

/// A cost table and what it is used for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = CostTableRole)]
pub struct RoleText {
    /// "active" or "shadow".
    pub role: String,
    /// Left out with role "shadow": no table is priced in parallel.
    pub table: Option<TableShape>,
}

/// A group that is to go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = DeleteGroup)]
pub struct DeleteGroupText {
    /// The group.
    pub name: String,
    /// Takes its bindings and children, and what is switched to it.
    pub force_to: String,
    /// Refuse unless the group is still at this revision; 0 does not check.
    pub expected_revision: u64,
    /// A missing group is success.
    pub if_exists: bool,
}

/// A tenant, a user, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = Principal)]
pub struct PrincipalText {
    /// The tenant, or nothing.
    pub tenant: String,
    /// The user, or nothing.
    pub user: String,
}

/// The number of a watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = WatchId)]
pub struct WatchId {
    /// From 1.
    pub id: u64,
}

/// What goes because no step names it: operators' definitions only, and never the group `default`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Prune {
    /// Groups.
    pub groups: bool,
    /// Bindings.
    pub bindings: bool,
    /// Watches that an operator added.
    pub watches: bool,
    /// Only groups below this one, and bindings and watches of it and of those; empty for all.
    pub under: String,
}

impl Prune {
    /// Whether anything is pruned.
    pub fn is_any(&self) -> bool {
        self.groups || self.bindings || self.watches
    }
}

impl Step {
    /// The name of the step's kind, as fields of faults spell it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Group(_) => "group",
            Self::Binding(_) => "binding",
            Self::CostTable(_) => "cost_table",
            Self::Watch(_) => "watch",
            Self::DeleteGroup(_) => "delete_group",
            Self::DeleteBinding(_) => "delete_binding",
            Self::DeleteWatch(_) => "delete_watch",
        }
    }
}
