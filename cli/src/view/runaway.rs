//! Records of runaways.

use serde::Serialize;
use tidegate_proto::v1;

use super::watch::done;
use crate::clock::utc_text;
use crate::table::{Table, one_line};

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
    pub(crate) fn table(records: &[Self]) -> String {
        let headers = [
            "LAST (UTC)",
            ">TIMES",
            "GROUP",
            "MATCH",
            "ACTION",
            "RULE",
            "TENANT",
            "USER",
            "GATEWAY",
            "FINGERPRINT",
            "STATEMENT",
        ];
        let mut table = Table::new(&headers);
        for record in records {
            table.row([
                utc_text(record.last_unix_ms),
                record.repeats.to_string(),
                record.group.clone(),
                record.found.clone(),
                done(&record.action, &record.switch_group),
                one_line(&record.rule),
                one_line(&record.tenant),
                one_line(&record.user),
                record.gateway.clone(),
                record.fingerprint.clone(),
                one_line(&record.template),
            ]);
        }
        table.text()
    }
}
