//! Costs of statements: the reports of gateways, lists and the reset.
//!
//! A mutex of their own guards the rows, so that sorting them never holds up a renewal. It is taken before that of the
//! state, never after.

use tidegate_cost_model::Fingerprint;

use crate::answers::page_limit;
use crate::definitions::audit::{Actor, Change};
use crate::definitions::change::{Edit, Plan};
use crate::error::{AdminError, InField};
use crate::excerpt::excerpt;
use crate::limits::MAX_STATEMENT_PAGE;
use crate::name::GroupName;
use crate::quantity::cut;
use crate::statements::{Order, Range, StatementCalls, StatementList, StatementReport, StatementRow, Sums};
use tidegate_proto::v1;

/// Statements in an answer when the request names no limit.
const STATEMENT_PAGE: u32 = 100;

impl StatementCalls<'_> {
    /// Adds up a gateway's report. Rows of groups that do not exist are left out.
    pub fn report_statements(&self, mut report: StatementReport) {
        let mut statements = self.service.statistics();
        let before = report.rows.len();
        {
            let state = self.service.lock();
            report.rows.retain(|row| state.definitions.catalog().id(&row.group).is_some());
        }
        (report.rows.len()..before).for_each(|_| self.service.metrics.refuse("unknown_group"));
        let evicted = statements.evicted();
        statements.report(report, self.service.clock().unix_ms());
        self.service.metrics.statements_evicted.inc_by(statements.evicted().saturating_sub(evicted));
    }

    /// The statements of one group or of all, in the order asked for. A long list cuts the templates.
    pub fn list_statements(&self, wish: &v1::ListStatementsRequest) -> Result<StatementList, AdminError> {
        let most = page_limit(wish.limit, STATEMENT_PAGE, MAX_STATEMENT_PAGE)?;
        self.find_statements(wish, "", (0, most))
    }

    /// The same of those whose template has this text, whatever its case; a page that begins behind `skip` others, of
    /// at most `most`.
    pub(crate) fn find_statements(
        &self,
        wish: &v1::ListStatementsRequest,
        text: &str,
        (skip, most): (usize, usize),
    ) -> Result<StatementList, AdminError> {
        let text = text.to_lowercase();
        let group = self.known_group(&wish.group)?;
        let order = Order::parse(&wish.order)?;
        let last = Range::parse(&wish.last)?.map(|range| (range, self.service.clock().unix_ms()));
        let seen = self.service.lock().definitions.seen(self.sight);
        let is_wanted = |group: &GroupName, template: &str| {
            seen.has(group) && (text.is_empty() || template.to_lowercase().contains(&text))
        };
        let mut list = self.service.statistics().list(group.as_ref(), last, (order, skip, most), is_wanted);
        if self.sight.tenant().is_some() {
            // It counts the rows of all.
            list.evicted = 0;
        }
        let rows = list.rows.len();
        for row in &mut list.rows {
            let shown = excerpt(&row.template, rows);
            if shown.len() < row.template.len() {
                row.template = shown.into();
            }
        }
        Ok(list)
    }

    /// One statement, with all of its template and its sums within a range or since counting began; and its sums in the
    /// last hour, or the day that was asked for, by the start of their minutes or hours.
    pub(crate) fn statement(
        &self,
        group: &str,
        fingerprint: &str,
        last: Option<Range>,
    ) -> Result<(StatementRow, Vec<(u64, Sums)>), AdminError> {
        let missing = || AdminError::NotFound {
            what: format!("a statement {} of group {}", cut(fingerprint), cut(group)),
        };
        let group = self.known_group(group)?.ok_or_else(missing)?;
        let fingerprint = Fingerprint(u64::from_str_radix(fingerprint, 16).map_err(|_| missing())?);
        let unix_ms = self.service.clock().unix_ms();
        let statistics = self.service.statistics();
        let mut row = statistics.get(&group, fingerprint).ok_or_else(missing)?;
        let history = |range| statistics.history(&group, fingerprint, (range, unix_ms));
        if let Some(range) = last {
            row.sums = history(range).iter().fold(Sums::default(), |sum, (_, more)| sum.plus(more));
        }
        Ok((row, history(if last == Some(Range::Day) { Range::Day } else { Range::Hour })))
    }

    /// Restarts the counts, for one group or for all; returns the number of rows dropped.
    pub fn reset_statements(&self, actor: &Actor, group: &str) -> Result<usize, AdminError> {
        let group = self.known_group(group)?;
        let subject = group.as_ref().map_or_else(|| "all".to_owned(), |group| format!("group {group}"));
        self.service.definitions().change(actor, |_| {
            let change = Change { action: "reset statements", subject, ..Change::default() };
            Ok(Plan { edits: vec![Edit::Note], changes: vec![change], reply: () })
        })?;
        Ok(self.service.statistics().reset(group.as_ref(), self.service.clock().unix_ms()))
    }

    fn known_group(&self, group: &str) -> Result<Option<GroupName>, AdminError> {
        let group = (!group.is_empty()).then(|| GroupName::parse(group).in_field("group")).transpose()?;
        if let Some(group) = &group {
            self.service.lock().definitions.require(self.sight, group)?;
        }
        Ok(group)
    }
}

#[cfg(test)]
mod tests;
