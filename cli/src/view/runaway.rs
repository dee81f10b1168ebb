//! Records of runaways.

use serde::Serialize;
use tidegate_proto::v1;

use super::watch::done;
use crate::clock::utc_text;
use crate::table::{Column, Table};

/// Equal convictions; what is said is that of the last.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RunawayView {
    pub(crate) group: String,
    /// "identify": it broke a limit; "watch": it was on the list.
    #[serde(rename = "match")]
    pub(crate) found: String,
    pub(crate) action: String,
    pub(crate) switch_group: String,
    pub(crate) rule: String,
    pub(crate) fingerprint: String,
    pub(crate) template: String,
    pub(crate) text_sha256: String,
    pub(crate) gateway: String,
    pub(crate) tenant: String,
    pub(crate) user: String,
    pub(crate) first_unix_ms: u64,
    pub(crate) last_unix_ms: u64,
    pub(crate) repeats: u64,
}

impl From<v1::Runaway> for RunawayView {
    fn from(record: v1::Runaway) -> Self {
        let conviction = record.conviction.unwrap_or_default();
        Self {
            group: conviction.group,
            found: conviction.r#match,
            action: conviction.action,
            switch_group: conviction.switch_group,
            rule: conviction.rule,
            fingerprint: conviction.fingerprint,
            template: conviction.template,
            text_sha256: conviction.text_sha256,
            gateway: conviction.gateway,
            tenant: conviction.tenant,
            user: conviction.user,
            first_unix_ms: record.first_unix_ms,
            last_unix_ms: record.last_unix_ms,
            repeats: record.repeats,
        }
    }
}

impl RunawayView {
    /// Many records, a line each.
    pub(crate) fn table(records: &[Self]) -> Table {
        let mut table = Table::new([
            Column::word("LAST (UTC)").leaves(4),
            Column::number("TIMES"),
            Column::name("GROUP"),
            Column::word("MATCH").leaves(5),
            Column::text("ACTION"),
            Column::text("RULE").leaves(2),
            Column::name("TENANT").leaves(3),
            Column::name("USER").leaves(3),
            Column::name("GATEWAY").leaves(6),
            Column::word("FINGERPRINT").leaves(1),
            Column::text("STATEMENT"),
        ]);
        for record in records {
            table.row([
                utc_text(record.last_unix_ms),
                record.repeats.to_string(),
                record.group.clone(),
                record.found.clone(),
                done(&record.action, &record.switch_group),
                record.rule.clone(),
                record.tenant.clone(),
                record.user.clone(),
                record.gateway.clone(),
                record.fingerprint.clone(),
                record.template.clone(),
            ]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runaway_is_shown_with_who_ran_it_and_what_was_done() {
        let conviction = v1::ConvictRequest {
            group: "shop".into(),
            r#match: "identify".into(),
            action: "switch_group".into(),
            switch_group: "slow".into(),
            rule: "RU=5".into(),
            fingerprint: "00ff".into(),
            template: "SELECT ?".into(),
            text_sha256: "abcd".into(),
            gateway: "gw-1".into(),
            tenant: "acme".into(),
            user: "ann".into(),
        };
        let record = v1::Runaway {
            conviction: Some(conviction),
            first_unix_ms: 1_000,
            last_unix_ms: 951_827_696_000,
            repeats: 7,
        };
        let view = RunawayView::from(record);
        assert_eq!((view.first_unix_ms, view.text_sha256.as_str()), (1_000, "abcd"));
        let line = |view: RunawayView| {
            let laid = RunawayView::table(&[view]).laid(None, true);
            let text: String = laid.rows.into_iter().flatten().flatten().map(|span| span.text).collect();
            text.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let begin = "2000-02-29 12:34:56Z 7 shop identify";
        let end = "RU=5 acme ann gw-1 00ff SELECT ?";
        assert_eq!(line(view.clone()), format!("{begin} switch to slow {end}"));
        let killed = RunawayView { action: "kill".into(), switch_group: String::new(), ..view };
        assert_eq!(line(killed), format!("{begin} kill {end}"));
    }
}
