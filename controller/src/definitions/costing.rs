//! Cost tables: putting a version in a role, and reading them.

use std::sync::Arc;

use tidegate_proto::v1;

use crate::definitions::DefinitionCalls;
use crate::definitions::audit::{Actor, Change};
use crate::definitions::change::{Edit, Plan};
use crate::definitions::cost_tables::{CostTables, Role, parse, shape};
use crate::error::AdminError;

impl DefinitionCalls<'_> {
    /// Gives a table a role. `None` removes the shadow.
    pub fn put_cost_table(
        &self,
        actor: &Actor,
        role: &str,
        table: Option<v1::CostTable>,
    ) -> Result<Arc<CostTables>, AdminError> {
        let role = Role::parse(role)?;
        let table = table.map(parse).transpose()?;
        self.change(actor, |state| {
            let after = Arc::new(state.definitions.costs.with(role, table.clone())?);
            if after.roles() == state.definitions.costs.roles() {
                return Ok(Plan::nothing(Arc::clone(&state.definitions.costs)));
            }
            let (action, before) = match role {
                Role::Active => ("activate cost table", state.definitions.costs.active()),
                Role::Shadow => ("shadow cost table", state.definitions.costs.shadow()),
            };
            let json = |table| serde_json::to_string(&shape(table)).unwrap_or_default();
            let change = Change {
                action,
                subject: table.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string),
                before: before.map(json).unwrap_or_default(),
                after: table.as_ref().map(json).unwrap_or_default(),
            };
            Ok(Plan { edits: vec![Edit::Costs(Arc::clone(&after))], changes: vec![change], reply: after })
        })
    }

    /// All tables and their roles.
    pub fn cost_tables(&self) -> Arc<CostTables> {
        Arc::clone(&self.service.lock().definitions.costs)
    }
}
