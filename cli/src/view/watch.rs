//! Watched statements.

use tidegate_proto::v1;

use crate::clock::utc_text;
use crate::table::{Column, Table};

/// Many watches, a line each.
pub(crate) fn watches(watches: &[v1::Watch]) -> Table {
    let mut table = Table::new([
        Column::number("ID"),
        Column::name("GROUP"),
        Column::word("MATCH").leaves(3),
        Column::name("DIGEST").leaves(2),
        Column::text("ACTION"),
        Column::word("UNTIL (UTC)").leaves(1),
        Column::text("SOURCE").leaves(5),
        Column::text("RULE").leaves(4),
        Column::text("STATEMENT"),
    ]);
    for watch in watches {
        table.row([
            watch.id.to_string(),
            watch.group.clone(),
            watch.r#match.clone(),
            watch.digest.clone(),
            done(&watch.action, &watch.switch_group),
            until(watch),
            watch.source.clone(),
            watch.rule.clone(),
            watch.text.clone(),
        ]);
    }
    table
}

/// When it ends.
pub(crate) fn until(watch: &v1::Watch) -> String {
    if watch.end_unix_ms == 0 { "for ever".to_owned() } else { utc_text(watch.end_unix_ms) }
}

/// What is done about a runaway, in a word.
pub(super) fn done(action: &str, switch_group: &str) -> String {
    match (action, switch_group) {
        ("", _) => "as the group says".to_owned(),
        (action, "") => action.to_owned(),
        (_, group) => format!("switch to {group}"),
    }
}
