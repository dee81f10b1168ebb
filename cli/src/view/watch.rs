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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Page;

    #[test]
    fn each_figure_of_a_watch_is_shown_as_what_it_is() {
        let watch = v1::Watch {
            id: 7,
            group: "shop".into(),
            r#match: "similar".into(),
            digest: "00ff".into(),
            text: "SELECT ?".into(),
            action: "switch_group".into(),
            switch_group: "slow".into(),
            start_unix_ms: 1_000,
            end_unix_ms: 951_827_696_000,
            source: "gw-1".into(),
            rule: "RU=5".into(),
        };
        let killed = v1::Watch { action: "kill".into(), switch_group: String::new(), ..watch.clone() };
        let usual = v1::Watch { action: String::new(), end_unix_ms: 0, ..killed.clone() };
        let shown = Page::from(watches(&[watch, killed, usual])).words();
        let (begin, end) = ("7 shop similar 00ff", "gw-1 RU=5 SELECT ?");
        let expected = [
            "ID GROUP MATCH DIGEST ACTION UNTIL (UTC) SOURCE RULE STATEMENT".to_owned(),
            format!("{begin} switch to slow 2000-02-29 12:34:56Z {end}"),
            format!("{begin} kill 2000-02-29 12:34:56Z {end}"),
            format!("{begin} as the group says for ever {end}"),
        ];
        assert_eq!(shown, expected);
    }
}
