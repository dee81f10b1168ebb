//! The definition of a resource group.

use tidegate_core::units::Span;
use tidegate_proto::v1;
use tidegate_sql::query_limit_text;

use crate::table::{Column, Table};

/// Many groups, a line each.
pub(crate) fn groups(groups: &[v1::Group]) -> Table {
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
            bursting(group),
            group.priority.clone(),
            group.weight.to_string(),
            Span(group.ttl_us).to_string(),
            Span(group.renew_us).to_string(),
            group.fallback.clone(),
            group.fallback_total.clone(),
            group.max_debt.clone(),
            max_wait(group),
            group.revision.to_string(),
            rule(group),
            group.comment.clone(),
        ]);
    }
    table
}

/// One group, a line per setting.
pub(crate) fn group(group: &v1::Group) -> Table {
    let mut table = Table::new([Column::word("SETTING"), Column::prose("VALUE")]);
    let mut line = |setting: &str, value: String| table.row([setting.to_owned(), value]);
    line("group", group.name.clone());
    line("parent", group.parent.clone());
    line("rate (RU/s)", unlimited(&group.ru_per_sec));
    line("burst (RU)", burst(&group.burst, &group.ru_per_sec));
    line("burstable", bursting(group));
    line("priority", group.priority.clone());
    line("weight", group.weight.to_string());
    line("ttl", Span(group.ttl_us).to_string());
    line("renewal", Span(group.renew_us).to_string());
    line("fallback (RU/s per node)", group.fallback.clone());
    line("fallback of all nodes (RU/s)", group.fallback_total.clone());
    line("max debt (RU per node)", group.max_debt.clone());
    line("comment", group.comment.clone());
    line("query limit", rule(group));
    line("max wait at a gateway", max_wait(group));
    line("revision", group.revision.to_string());
    table
}

fn rule(group: &v1::Group) -> String {
    group.query_limit.as_ref().map(query_limit_text).unwrap_or_default()
}

/// Empty for the gateway's own.
fn max_wait(group: &v1::Group) -> String {
    if group.max_wait_us == 0 { String::new() } else { Span(group.max_wait_us).to_string() }
}

fn bursting(group: &v1::Group) -> String {
    if group.burstable == "moderated" && !group.burst_ru_per_sec.is_empty() {
        return format!("moderated, to {} RU/s", group.burst_ru_per_sec);
    }
    group.burstable.clone()
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
