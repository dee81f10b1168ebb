//! Statements that the gateway answers itself: TiDB's SQL for resource groups, and what one statement cost.

use std::sync::Arc;

use tidegate_cost_model::SqlDialect;
use tidegate_sql::{Answer, Column, Context, Kind, SessionChange, SqlError, Statement, Table, Value};

use super::denied::Denied;
use super::governor::Governor;
use super::running::Ended;
use super::subject::Subject;
use crate::clock;

impl Governor {
    /// Does a statement of ours on behalf of a session. A change of the session is the caller's to apply.
    pub(crate) async fn answer(
        self: Arc<Self>,
        subject: Subject,
        dialect: SqlDialect,
        statement: Arc<Statement>,
    ) -> Result<Answer, Denied> {
        let controller = self.controller();
        let token = controller.bearer().await.map_err(SqlError::from)?;
        let context = Context {
            group: subject.group().name().to_string(),
            tenant: subject.login.tenant.clone(),
            user: subject.login.user.clone(),
            dialect,
            is_admin: subject.is_admin,
            may_switch: subject.may_switch,
            now_unix_ms: clock::wall_ms(),
            token,
        };
        Ok(tidegate_sql::execute(controller.channel(), &statement, &context).await?)
    }

    /// Applies a change to a session.
    pub(crate) fn apply(&self, change: &SessionChange, subject: &mut Subject) {
        let SessionChange::SetGroup(name) = change;
        subject.chosen = self.group(name);
    }
}

/// A statement of ours, if the text is one.
pub(crate) fn parse_own(text: &[u8], dialect: SqlDialect) -> Result<Option<Statement>, Denied> {
    if !tidegate_sql::may_be_ours(text) {
        return Ok(None);
    }
    // Ours are UTF-8; what is not goes to the database, which knows its encoding.
    let Ok(text) = std::str::from_utf8(text) else { return Ok(None) };
    Ok(Statement::parse(text, dialect)?)
}

/// How many rows [`explained`] has.
pub(crate) const EXPLAINED_ROWS: u32 = 5;

/// The columns of [`explained`].
pub(crate) fn explained_columns() -> Vec<Column> {
    let column = |name: &str, kind| Column { name: name.to_owned(), kind };
    vec![column("part", Kind::Text), column("ru", Kind::Float), column("used", Kind::Text)]
}

/// What a statement cost, part by part, as `EXPLAIN RU` shows it.
pub(crate) fn explained(ended: &Ended) -> Table {
    let (charged, usage) = (&ended.charged, &ended.usage);
    let cpu = format!("{:.3} ms of CPU", usage.cpu_ns as f64 / 1e6);
    let read = format!("{} bytes in {} requests", usage.read_bytes, usage.read_requests);
    let write = format!("{} bytes, {} rows", usage.write_bytes, usage.write_requests);
    let network = format!("{} bytes in, {} bytes out", usage.net_in_bytes, usage.net_out_bytes);
    let source = if ended.estimated { "estimated" } else { "counted by the kernel" };
    let elapsed = ended.elapsed.as_secs_f64() * 1e3;
    let total = format!(
        "in group {}, {source}; took {elapsed:.3} ms, waited {:.3} ms",
        ended.group,
        ended.waited.as_secs_f64() * 1e3
    );
    let row = |part: &str, micro: i64, used: String| {
        vec![Value::Text(part.to_owned()), Value::Float(micro as f64 / 1e6), Value::Text(used)]
    };
    let rows = vec![
        row("cpu", charged.cpu.0, cpu),
        row("read", charged.read.0, read),
        row("write", charged.write.0, write),
        row("network", charged.network.0, network),
        row("total", charged.total().0, total),
    ];
    Table { columns: explained_columns(), rows, notes: Vec::new() }
}
