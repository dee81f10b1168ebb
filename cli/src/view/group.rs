//! The definition of a resource group.

use serde_json::Value;
use tidegate_controller::group_fields::{Field, Takes, fields};
use tidegate_core::units::Span;
use tidegate_proto::v1;
use tidegate_sql::query_limit_text;

use crate::table::{Column, Table};

/// Many groups, a line each.
pub(crate) fn groups(groups: &[v1::Group]) -> Table {
    // What goes on for long stands last, the comment, which every table has, behind all.
    let (mut long, short): (Vec<&Field>, Vec<_>) =
        shown().partition(|field| matches!(field.takes, Takes::Text(_) | Takes::Rule));
    long.sort_by_key(|field| field.name == "comment");
    let columns = |fields: &[&Field]| fields.iter().map(|field| column(field.name)).collect::<Vec<_>>();
    let mut titles = vec![Column::name("GROUP")];
    titles.extend(columns(&short));
    titles.push(Column::number("REVISION").wide());
    titles.extend(columns(&long));
    let mut table = Table::new(titles);
    for group in groups {
        let json = serde_json::to_value(group).unwrap_or_default();
        let texts =
            |fields: &[&Field]| fields.iter().map(|field| text(field, group, &json)).collect::<Vec<_>>();
        let (short, long) = (texts(&short), texts(&long));
        table.row([vec![group.name.clone()], short, vec![group.revision.to_string()], long].concat());
    }
    table
}

/// One group, a line per setting.
pub(crate) fn group(group: &v1::Group) -> Table {
    let mut table = Table::new([Column::word("SETTING"), Column::prose("VALUE")]);
    let mut line = |setting: &str, value: String| table.row([setting.to_owned(), value]);
    let json = serde_json::to_value(group).unwrap_or_default();
    line("group", group.name.clone());
    shown().for_each(|field| line(&setting(field.name), text(field, group, &json)));
    line("revision", group.revision.to_string());
    table
}

/// The fields that are shown by themselves.
fn shown() -> impl Iterator<Item = &'static Field> {
    fields().iter().filter(|field| field.name != "burst_ru_per_sec")
}

/// What a field is called in the lines of one group.
fn setting(name: &str) -> String {
    let otherwise = match name {
        "ru_per_sec" => "rate (RU/s)",
        "burst" => "burst (RU)",
        "ttl_us" => "ttl",
        "renew_us" => "renewal",
        "fallback" => "fallback (RU/s per node)",
        "fallback_total" => "fallback of all nodes (RU/s)",
        "max_debt" => "max debt (RU per node)",
        "quota" => "quota",
        "max_wait_us" => "max wait at a gateway",
        "demote_to" => "demotes to",
        name => return name.replace('_', " "),
    };
    otherwise.to_owned()
}

/// The column of a field among many groups.
fn column(name: &str) -> Column {
    match name {
        "parent" => Column::name("PARENT").leaves(1),
        "ru_per_sec" => Column::number("RU/s"),
        "burst" => Column::number("BURST (RU)").leaves(3),
        "burstable" => Column::text("BURSTABLE").leaves(2),
        "priority" => Column::word("PRIORITY").leaves(4),
        "weight" => Column::number("WEIGHT").leaves(5),
        "ttl_us" => Column::number("TTL").leaves(6),
        "renew_us" => Column::number("RENEWAL").wide(),
        "fallback" => Column::number("FALLBACK (RU/s per node)").wide(),
        "fallback_total" => Column::number("FALLBACK OF ALL (RU/s)").wide(),
        "max_debt" => Column::number("MAX DEBT (RU per node)").wide(),
        "max_wait_us" => Column::number("MAX WAIT").wide(),
        "comment" => Column::text("COMMENT"),
        name => Column::text(&setting(name).to_uppercase()).wide(),
    }
}

/// The value of a field.
fn text(field: &Field, group: &v1::Group, json: &Value) -> String {
    match (field.name, json.get(field.name)) {
        ("ru_per_sec", _) => unlimited(&group.ru_per_sec),
        ("burst", _) => burst(&group.burst, &group.ru_per_sec),
        ("burstable", _) => bursting(group),
        ("query_limit", _) => group.query_limit.as_ref().map(query_limit_text).unwrap_or_default(),
        (_, Some(Value::String(text))) => text.clone(),
        (_, Some(number)) if matches!(field.takes, Takes::Micros(..)) => {
            number.as_u64().filter(|us| *us > 0).map(|us| Span(us).to_string()).unwrap_or_default()
        }
        (_, Some(value)) => value.to_string(),
        (_, None) => String::new(),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_shown_in_a_line_and_a_column() {
        let mut json =
            serde_json::to_value(v1::Group { parent: "p".into(), ..v1::Group::default() }).unwrap();
        for (number, (name, value)) in (1_u64..).zip(json.as_object_mut().unwrap()) {
            *value =
                if value.is_number() { (number * 1_000_000).into() } else { format!("its {name}").into() };
        }
        let full: v1::Group = serde_json::from_value(json.clone()).unwrap();
        let full = v1::Group { burstable: "moderated".into(), ..full };
        let text = |table: Table| {
            let laid = table.laid(None, true);
            let lines = laid.head.into_iter().chain(laid.rows.into_iter().flatten());
            lines.flatten().map(|span| span.text).collect::<String>()
        };
        let (many, one) = (text(groups(std::slice::from_ref(&full))), text(group(&full)));
        for (name, value) in json.as_object().unwrap().iter().filter(|(name, _)| *name != "burstable") {
            let value = match value.as_u64() {
                Some(us) if name.ends_with("_us") => Span(us).to_string(),
                Some(number) => number.to_string(),
                None => value.as_str().unwrap().to_owned(),
            };
            assert!(many.contains(&value) && one.contains(&value), "{name}: {value}: {many}{one}");
        }
        assert!(one.contains("moderated, to its burst_ru_per_sec RU/s"), "{one}");
        assert!(many.trim_end().ends_with("its comment"), "{many}");
    }
}
