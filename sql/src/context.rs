//! On whose behalf a statement is done, and what they may.

use tidegate_cost_model::SqlDialect;
use tonic::metadata::{Ascii, MetadataValue};

/// A session, as far as statements depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// The tenant, which is the database of the session; may be empty.
    pub tenant: String,
    /// The user, whom the audit log names.
    pub user: String,
    /// The group that is charged now.
    pub group: String,
    /// How texts are printed.
    pub dialect: SqlDialect,
    /// May do everything. Others may show groups and, with `may_switch`, change their session's.
    pub is_admin: bool,
    /// May change the session's group.
    pub may_switch: bool,
    /// The wall clock, in milliseconds since 1970: to a controller of an earlier build watches end at a moment.
    pub now_unix_ms: u64,
    /// What shows a token to the controller; sensitive, so that it shows itself to nobody else.
    pub token: Option<MetadataValue<Ascii>>,
}

impl Context {
    /// The actor in the audit log.
    pub(crate) fn actor(&self) -> String {
        if self.tenant.is_empty() { self.user.clone() } else { format!("{}@{}", self.user, self.tenant) }
    }
}
