//! Who pays for a session: the group its login is bound to, or one it has chosen.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tidegate_client::{Group, Resolved};
use tidegate_cost_model::{SqlDialect, Template};

/// A login at a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Login {
    /// The database.
    pub(crate) tenant: String,
    pub(crate) user: String,
    /// What the client calls itself; may hold a hint at a group, as a statement may.
    pub(crate) application: String,
}

/// A session's side of the governor.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) login: Arc<Login>,
    /// Follows the bindings, so that a live session is moved at its next statement.
    pub(crate) bound: Resolved,
    /// The group chosen by a hint in the client's name.
    pub(crate) named: Option<Group>,
    /// The group chosen by `SET RESOURCE GROUP`.
    pub(crate) chosen: Option<Group>,
    pub(crate) is_admin: bool,
    pub(crate) may_switch: bool,
    /// Its last statement was let through because it ended a transaction: the next one is not, as a unit of the
    /// protocol may have more behind its first.
    pub(crate) ended: Arc<AtomicBool>,
}

impl Login {
    /// The group that the client's name hints at: `reports /*+ RESOURCE_GROUP(batch) */`.
    pub(super) fn hint(&self) -> Option<String> {
        let hint = self.application.get(self.application.find("/*+")?..)?;
        // Read by the same code that reads hints in statements.
        let template = Template::new(SqlDialect::Generic, format!("SELECT {hint} 1"));
        template.resource_group().map(str::to_owned)
    }
}

impl Subject {
    /// The group that pays for the next statement without a hint.
    pub(crate) fn group(&self) -> Group {
        self.chosen.as_ref().or(self.named.as_ref()).cloned().unwrap_or_else(|| self.bound.group())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_s_name_may_hint_at_a_group() {
        let hint = |name: &str| Login { application: name.to_owned(), ..Login::default() }.hint();
        assert_eq!(hint("reports /*+ RESOURCE_GROUP(batch) */").as_deref(), Some("batch"));
        assert_eq!(hint("/*+ resource_group(`b`) */").as_deref(), Some("b"));
        assert_eq!(
            (hint("psql"), hint(""), hint("x /*+"), hint("RESOURCE_GROUP(b)")),
            (None, None, None, None)
        );
    }
}
