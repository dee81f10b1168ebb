//! The spans of a statement whose trace is recorded: the statement, its admission, and its run at the database.
//!
//! *Source:* the semantic conventions of OpenTelemetry for database calls; what they have no name for begins with
//! `tidegate.`. A text is never in a span: its template is, which has no literals.

use std::sync::Arc;
use std::time::Duration;

use tidegate_client::{GroupName, Ru};
use tidegate_cost_model::{SqlDialect, StatementKind, Template};
use tidegate_traces::{Kind, Open, Span, TraceId};
use tokio::time::Instant;

use super::denied::Denied;
use super::known::fingerprint;
use super::running::Ended;
use super::subject::Login;
use crate::clock::{self, micros};
use crate::metrics::units;

/// Longest summary, in bytes. *Source:* the conventions.
const MAX_SUMMARY: usize = 255;

/// A statement whose trace is recorded.
pub(super) struct Traced {
    /// Until it has ended.
    open: Option<Open>,
    began: Instant,
    dialect: SqlDialect,
    login: Arc<Login>,
    template: Arc<Template>,
    summary: String,
    estimate: Ru,
    /// When its run began, once it was admitted.
    admitted: Option<Duration>,
}

/// How a statement ran, beside what it cost.
#[derive(Clone, Debug)]
pub(super) struct Ran {
    pub(super) payer: GroupName,
    pub(super) sent_rows: u64,
    pub(super) changed_rows: u64,
    pub(super) failed: bool,
    /// What was done about a runaway.
    pub(super) action: Option<&'static str>,
}

impl Traced {
    /// A statement of this login asks for admission now.
    pub(super) fn new(
        open: Open,
        dialect: SqlDialect,
        login: &Arc<Login>,
        template: &Arc<Template>,
    ) -> Box<Self> {
        Box::new(Self {
            open: Some(open),
            began: clock::now(),
            dialect,
            login: Arc::clone(login),
            template: Arc::clone(template),
            summary: summary(dialect, template),
            estimate: Ru::ZERO,
            admitted: None,
        })
    }

    /// Its trace.
    pub(super) fn trace(&self) -> Option<TraceId> {
        self.open.as_ref().map(Open::trace)
    }

    /// It was admitted by this group for an estimate, after such a wait; or let through on debt.
    pub(super) fn admitted(&mut self, group: &GroupName, estimate: Ru, waited: Duration, owes: bool) {
        self.estimate = estimate;
        self.admitted = Some(waited);
        let outcome = if owes { "owed" } else { "admitted" };
        self.end_admission(Self::admission(group, estimate).with("tidegate.admission", outcome), waited);
    }

    /// It was not admitted by this group.
    pub(super) fn denied(mut self, group: &GroupName, estimate: Ru, denied: &Denied) {
        let waited = self.began.elapsed();
        let class = self.status(denied);
        let admission = Self::admission(group, estimate).with("tidegate.admission", "denied");
        self.end_admission(admission.failed(&class, denied.message.clone()), waited);
        let span = self
            .statement(group)
            .with("tidegate.ru.estimated", units(estimate))
            .with("tidegate.wait", waited.as_secs_f64())
            .with("db.response.status_code", class.as_str())
            .failed(&class, denied.message.clone());
        self.end(span, waited);
    }

    /// It has ended.
    pub(super) fn ended(mut self, ended: &Ended, ran: &Ran) {
        let Ended { group, charged, elapsed, waited, estimated, .. } = ended;
        let run = self
            .common(Kind::Client)
            .with("db.response.returned_rows", ran.sent_rows)
            .with("tidegate.rows.changed", ran.changed_rows);
        let mut span = self
            .statement(group)
            .with("tidegate.ru.estimated", units(self.estimate))
            .with("tidegate.ru.charged", units(charged.total()))
            .with("tidegate.ru.cpu", units(charged.cpu))
            .with("tidegate.ru.read", units(charged.read))
            .with("tidegate.ru.write", units(charged.write))
            .with("tidegate.ru.network", units(charged.network))
            .with("tidegate.usage.estimated", *estimated)
            .with("tidegate.wait", waited.as_secs_f64())
            .with("db.response.returned_rows", ran.sent_rows)
            .with("tidegate.rows.changed", ran.changed_rows);
        if ran.payer != *group {
            span = span.with("tidegate.payer", &*ran.payer);
        }
        if let Some(action) = ran.action {
            span = span.with("tidegate.runaway.action", action);
        }
        let judged =
            |span: Span| if ran.failed { span.failed("_OTHER", "the statement failed") } else { span };
        self.end_run(judged(run), *waited, *elapsed);
        self.end(judged(span), waited.saturating_add(*elapsed));
    }

    fn end_admission(&self, span: Span, waited: Duration) {
        if let Some(open) = &self.open {
            open.child(open.began()).end(span, micros(waited));
        }
    }

    fn end_run(&self, span: Span, waited: Duration, elapsed: Duration) {
        if let Some(open) = &self.open {
            open.child(open.began().saturating_add(micros(waited))).end(span, micros(elapsed));
        }
    }

    fn end(&mut self, span: Span, took: Duration) {
        if let Some(open) = self.open.take() {
            open.end(span, micros(took));
        }
    }

    fn admission(group: &GroupName, estimate: Ru) -> Span {
        Span::new("admission", Kind::Internal)
            .with("tidegate.group", &**group)
            .with("tidegate.ru.estimated", units(estimate))
    }

    fn statement(&self, group: &GroupName) -> Span {
        self.common(Kind::Server).with("tidegate.group", &**group)
    }

    /// What the conventions ask of either side of a call.
    fn common(&self, kind: Kind) -> Span {
        let mut span = Span::new(self.summary.as_str(), kind).with("db.system.name", system(self.dialect));
        if !self.login.tenant.is_empty() {
            span = span.with("db.namespace", self.login.tenant.as_str());
        }
        if let Some(operation) = operation(&self.template) {
            span = span.with("db.operation.name", operation);
        }
        if let [table] = self.template.tables() {
            span = span.with("db.collection.name", table.as_str());
        }
        span =
            span.with("db.query.summary", self.summary.as_str()).with("db.query.text", self.template.text());
        if let Some(fingerprint) = fingerprint(&self.template) {
            span = span.with("tidegate.fingerprint", fingerprint);
        }
        span
    }

    /// The error that its client reads.
    fn status(&self, denied: &Denied) -> String {
        match self.dialect {
            SqlDialect::MySql => denied.code.mysql.to_string(),
            _ => denied.code.postgres_state.to_owned(),
        }
    }
}

impl Drop for Traced {
    /// Its client is gone, or has cancelled it: its end was not seen.
    fn drop(&mut self) {
        if self.open.is_some() {
            let span = self
                .common(Kind::Server)
                .with("tidegate.ru.estimated", units(self.estimate))
                .with("tidegate.wait", self.admitted.unwrap_or_else(|| self.began.elapsed()).as_secs_f64())
                .failed("abandoned", "its client or the database went away before its end");
            self.end(span, self.began.elapsed());
        }
    }
}

/// What the conventions call a database.
fn system(dialect: SqlDialect) -> &'static str {
    match dialect {
        SqlDialect::MySql => "mysql",
        SqlDialect::PostgreSql => "postgresql",
        _ => "other_sql",
    }
}

/// The statement's verb; `None` where the text was not understood, and its first word could be anything.
fn operation(template: &Template) -> Option<String> {
    match template.kind() {
        StatementKind::Unknown => None,
        kind @ (StatementKind::Select
        | StatementKind::Insert
        | StatementKind::Update
        | StatementKind::Delete
        | StatementKind::Copy
        | StatementKind::Call) => Some(kind.name().to_ascii_uppercase()),
        _ => {
            let verb = template.text().split(|c: char| !c.is_ascii_alphabetic()).next()?;
            Some(verb.to_ascii_uppercase()).filter(|verb| !verb.is_empty())
        }
    }
}

/// Verb and tables, of which there are few, so that spans of one sort have one name.
fn summary(dialect: SqlDialect, template: &Template) -> String {
    let Some(mut summary) = operation(template) else { return system(dialect).to_owned() };
    for table in template.tables() {
        if summary.len().saturating_add(table.len()) >= MAX_SUMMARY {
            break;
        }
        summary.push(' ');
        summary.push_str(table);
    }
    summary
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_of_verbs_and_tables() {
        for (text, expected) in [
            ("select a from t where b = 'secret'", "SELECT t"),
            ("with x as (select 1) select * from x join s.u on true", "SELECT s.u"),
            ("insert into t select * from u", "INSERT t u"),
            ("begin", "BEGIN"),
            ("create table t (a int)", "CREATE t"),
            ("selekt secret", "postgresql"),
            ("", "postgresql"),
        ] {
            let template = Template::new(SqlDialect::PostgreSql, text);
            assert_eq!(summary(SqlDialect::PostgreSql, &template), expected, "{text}");
        }
        let tables: Vec<String> = (0..32).map(|number| format!("a_rather_long_name_{number}")).collect();
        let shown = |text: &str| summary(SqlDialect::MySql, &Template::new(SqlDialect::MySql, text));
        let many = shown(&format!("select 1 from {}", tables.join(", ")));
        assert!((200..=MAX_SUMMARY).contains(&many.len()));
        assert!(many.split(' ').skip(1).all(|table| tables.iter().any(|whole| whole == table)), "{many}");
        // A table fits or is left out, however it is written.
        let long = ["1", "2", "3"].map(|end| format!("`{}{end}`", "ä".repeat(55)));
        let [one, two, _] = &long;
        assert_eq!(shown(&format!("select 1 from t, {}", long.join(", "))), format!("SELECT t {one} {two}"));
    }
}
