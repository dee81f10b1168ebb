//! The definition of a resource group.

use serde::Serialize;
use tidegate_core::units::Span;
use tidegate_proto::v1;
use tidegate_sql::query_limit_text;

use crate::table::{Column, Table};

/// A group, field by field as the API spells it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct GroupView {
    pub(crate) name: String,
    pub(crate) parent: String,
    pub(crate) ru_per_sec: String,
    pub(crate) burst: String,
    pub(crate) burstable: String,
    pub(crate) burst_ru_per_sec: String,
    pub(crate) priority: String,
    pub(crate) weight: u32,
    pub(crate) ttl_us: u64,
    pub(crate) renew_us: u64,
    pub(crate) fallback: String,
    /// Empty for none.
    pub(crate) fallback_total: String,
    pub(crate) max_debt: String,
    pub(crate) comment: String,
    pub(crate) revision: u64,
    /// `null` for none.
    pub(crate) query_limit: Option<QueryLimitView>,
    /// 0 is the gateway's own.
    pub(crate) max_wait_us: u64,
}

/// A rule against runaway statements, field by field as the API spells it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct QueryLimitView {
    pub(crate) exec_elapsed_us: u64,
    pub(crate) ru: String,
    pub(crate) rows: u64,
    pub(crate) action: String,
    pub(crate) switch_group: String,
    pub(crate) watch: String,
    pub(crate) watch_us: u64,
    /// The rule as `--query-limit` reads it.
    pub(crate) text: String,
}

impl From<v1::QueryLimit> for QueryLimitView {
    fn from(limit: v1::QueryLimit) -> Self {
        Self {
            text: query_limit_text(&limit),
            exec_elapsed_us: limit.exec_elapsed_us,
            ru: limit.ru,
            rows: limit.rows,
            action: limit.action,
            switch_group: limit.switch_group,
            watch: limit.watch,
            watch_us: limit.watch_us,
        }
    }
}

impl From<v1::Group> for GroupView {
    fn from(group: v1::Group) -> Self {
        Self {
            name: group.name,
            parent: group.parent,
            ru_per_sec: group.ru_per_sec,
            burst: group.burst,
            burstable: group.burstable,
            burst_ru_per_sec: group.burst_ru_per_sec,
            priority: group.priority,
            weight: group.weight,
            ttl_us: group.ttl_us,
            renew_us: group.renew_us,
            fallback: group.fallback,
            fallback_total: group.fallback_total,
            max_debt: group.max_debt,
            comment: group.comment,
            revision: group.revision,
            query_limit: group.query_limit.map(Into::into),
            max_wait_us: group.max_wait_us,
        }
    }
}

impl GroupView {
    /// Many groups, a line each.
    pub(crate) fn table(groups: &[Self]) -> Table {
        let mut table = Table::new([
            Column::name("GROUP"),
            Column::name("PARENT").leaves(1),
            Column::number("RU/s"),
            Column::number("BURST (RU)").leaves(3),
            Column::text("BURSTABLE").leaves(2),
            Column::word("PRIORITY").leaves(4),
            Column::number("WEIGHT").leaves(5),
            Column::number("TTL").leaves(6),
            Column::number("RENEWAL").wide(),
            Column::number("FALLBACK (RU/s per node)").wide(),
            Column::number("FALLBACK OF ALL (RU/s)").wide(),
            Column::number("MAX DEBT (RU per node)").wide(),
            Column::number("MAX WAIT").wide(),
            Column::number("REVISION").wide(),
            Column::text("QUERY LIMIT").wide(),
            Column::text("COMMENT"),
        ]);
        for group in groups {
            table.row([
                group.name.clone(),
                group.parent.clone(),
                unlimited(&group.ru_per_sec),
                burst(&group.burst, &group.ru_per_sec),
                group.bursting(),
                group.priority.clone(),
                group.weight.to_string(),
                Span(group.ttl_us).to_string(),
                Span(group.renew_us).to_string(),
                group.fallback.clone(),
                group.fallback_total.clone(),
                group.max_debt.clone(),
                group.max_wait(),
                group.revision.to_string(),
                group.rule(),
                group.comment.clone(),
            ]);
        }
        table
    }

    /// One group, a line per setting.
    pub(crate) fn sheet(&self) -> Table {
        let mut table = Table::new([Column::word("SETTING"), Column::prose("VALUE")]);
        let mut line = |setting: &str, value: String| table.row([setting.to_owned(), value]);
        line("group", self.name.clone());
        line("parent", self.parent.clone());
        line("rate (RU/s)", unlimited(&self.ru_per_sec));
        line("burst (RU)", burst(&self.burst, &self.ru_per_sec));
        line("burstable", self.bursting());
        line("priority", self.priority.clone());
        line("weight", self.weight.to_string());
        line("ttl", Span(self.ttl_us).to_string());
        line("renewal", Span(self.renew_us).to_string());
        line("fallback (RU/s per node)", self.fallback.clone());
        line("fallback of all nodes (RU/s)", self.fallback_total.clone());
        line("max debt (RU per node)", self.max_debt.clone());
        line("comment", self.comment.clone());
        line("query limit", self.rule());
        line("max wait at a gateway", self.max_wait());
        line("revision", self.revision.to_string());
        table
    }

    fn rule(&self) -> String {
        self.query_limit.as_ref().map(|limit| limit.text.clone()).unwrap_or_default()
    }

    /// Empty for the gateway's own.
    fn max_wait(&self) -> String {
        if self.max_wait_us == 0 { String::new() } else { Span(self.max_wait_us).to_string() }
    }

    fn bursting(&self) -> String {
        if self.burstable == "moderated" && !self.burst_ru_per_sec.is_empty() {
            return format!("moderated, to {} RU/s", self.burst_ru_per_sec);
        }
        self.burstable.clone()
    }
}

fn unlimited(rate: &str) -> String {
    if rate.is_empty() { "unlimited".to_owned() } else { rate.to_owned() }
}

fn burst(burst: &str, rate: &str) -> String {
    match (burst, rate) {
        ("", "" | "unlimited") => "-".to_owned(),
        ("", _) => "1 s of rate".to_owned(),
        _ => burst.to_owned(),
    }
}
