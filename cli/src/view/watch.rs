//! Watched statements.

use serde::Serialize;
use tidegate_proto::v1;

use crate::clock::utc_text;
use crate::table::{Column, Table};

/// A statement that is convicted before it runs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct WatchView {
    pub(crate) id: u64,
    pub(crate) group: String,
    #[serde(rename = "match")]
    pub(crate) matching: String,
    pub(crate) digest: String,
    pub(crate) text: String,
    /// Empty is what the group's query limit says.
    pub(crate) action: String,
    pub(crate) switch_group: String,
    pub(crate) start_unix_ms: u64,
    /// 0 is for ever.
    pub(crate) end_unix_ms: u64,
    pub(crate) source: String,
    pub(crate) rule: String,
}

impl From<v1::Watch> for WatchView {
    fn from(watch: v1::Watch) -> Self {
        Self {
            id: watch.id,
            group: watch.group,
            matching: watch.r#match,
            digest: watch.digest,
            text: watch.text,
            action: watch.action,
            switch_group: watch.switch_group,
            start_unix_ms: watch.start_unix_ms,
            end_unix_ms: watch.end_unix_ms,
            source: watch.source,
            rule: watch.rule,
        }
    }
}

impl WatchView {
    /// Many watches, a line each.
    pub(crate) fn table(watches: &[Self]) -> Table {
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
                watch.matching.clone(),
                watch.digest.clone(),
                done(&watch.action, &watch.switch_group),
                watch.until(),
                watch.source.clone(),
                watch.rule.clone(),
                watch.text.clone(),
            ]);
        }
        table
    }

    /// When it ends.
    pub(crate) fn until(&self) -> String {
        if self.end_unix_ms == 0 { "for ever".to_owned() } else { utc_text(self.end_unix_ms) }
    }
}

/// What is done about a runaway, in a word.
pub(super) fn done(action: &str, switch_group: &str) -> String {
    match (action, switch_group) {
        ("", _) => "as the group says".to_owned(),
        (action, "") => action.to_owned(),
        (_, group) => format!("switch to {group}"),
    }
}
