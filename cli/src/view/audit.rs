//! An entry of the audit log.

use serde::Serialize;
use serde_json::Value;
use tidegate_proto::v1;

/// Which actor changed what and when.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct AuditView {
    pub(crate) id: u64,
    pub(crate) unix_ms: u64,
    pub(crate) actor: String,
    /// How the actor proved who it is; `anonymous` when it did not.
    pub(crate) kind: String,
    /// The proven name.
    pub(crate) identity: String,
    pub(crate) role: String,
    pub(crate) peer: String,
    /// What the actor stated of itself.
    pub(crate) comment: String,
    pub(crate) action: String,
    pub(crate) subject: String,
    /// `null` when there was none.
    pub(crate) before: Value,
    /// `null` when there is none.
    pub(crate) after: Value,
    /// Entries of one change share it.
    pub(crate) change: u64,
}

impl From<v1::AuditEntry> for AuditView {
    fn from(entry: v1::AuditEntry) -> Self {
        Self {
            id: entry.id,
            unix_ms: entry.unix_ms,
            actor: entry.actor,
            kind: entry.kind,
            identity: entry.identity,
            role: entry.role,
            peer: entry.peer,
            comment: entry.comment,
            action: entry.action,
            subject: entry.subject,
            before: state(entry.before),
            after: state(entry.after),
            change: entry.change,
        }
    }
}

/// A state as JSON; one that was cut by the controller is shown as text.
fn state(text: String) -> Value {
    if text.is_empty() {
        return Value::Null;
    }
    serde_json::from_str(&text).unwrap_or(Value::String(text))
}

impl AuditView {
    /// Who it was: beside a proven name stands how it is known.
    pub(crate) fn who(&self) -> String {
        if self.identity.is_empty() { self.actor.clone() } else { format!("{} {}", self.role, self.actor) }
    }

    /// The fields that differ, as `field: before -> after`.
    pub(crate) fn difference(&self) -> String {
        let (Value::Object(before), Value::Object(after)) = (&self.before, &self.after) else {
            return String::new();
        };
        // A field that is left out is none.
        let fields = after.keys().chain(before.keys().filter(|key| !after.contains_key(*key)));
        let changed = fields.filter_map(|key| {
            let [old, new] = [before, after].map(|state| state.get(key).unwrap_or(&Value::Null));
            (old != new && key != "revision").then(|| format!("{key}: {} -> {}", plain(old), plain(new)))
        });
        changed.collect::<Vec<_>>().join(", ")
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "none".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::follow::Shown as _;

    #[test]
    fn the_difference_names_what_changed() {
        let entry = v1::AuditEntry {
            before: r#"{"ru_per_sec":"10","weight":1,"revision":1}"#.into(),
            after: r#"{"ru_per_sec":"20","weight":1,"revision":2}"#.into(),
            ..v1::AuditEntry::default()
        };
        assert_eq!(AuditView::from(entry).difference(), "ru_per_sec: 10 -> 20");
        let entry = v1::AuditEntry {
            before: r#"{"query_limit":{"rows":1}}"#.into(),
            after: r#"{"parent":"p"}"#.into(),
            ..v1::AuditEntry::default()
        };
        assert_eq!(
            AuditView::from(entry).difference(),
            "parent: none -> p, query_limit: {\"rows\":1} -> none"
        );
        assert_eq!(AuditView::from(v1::AuditEntry::default()).difference(), "");
        // What was made or deleted has no difference, and neither has a text that was cut.
        for (before, after) in [("", r#"{"a":1}"#), (r#"{"a":1}"#, ""), (r#"{"a":1"#, r#"{"a":2}"#)] {
            let (before, after) = (before.to_owned(), after.to_owned());
            let entry = v1::AuditEntry { before, after, ..v1::AuditEntry::default() };
            assert_eq!(AuditView::from(entry).difference(), "");
        }
    }

    #[test]
    fn an_entry_is_shown_with_everything_that_is_known_of_it() {
        let entry = v1::AuditEntry {
            id: 9,
            unix_ms: 951_827_696_000,
            actor: "ann".into(),
            action: "alter group".into(),
            subject: "shop".into(),
            before: r#"{"weight":1}"#.into(),
            after: r#"{"weight":2}"#.into(),
            change: 8,
            kind: "certificate".into(),
            identity: "spiffe://tidegate/admin/ann".into(),
            role: "admin".into(),
            peer: "10.0.0.7:5".into(),
            comment: "bob at home".into(),
        };
        let stranger = v1::AuditEntry { identity: String::new(), after: "cut of".into(), ..entry.clone() };
        let views: Vec<AuditView> = [entry, stranger].map(AuditView::from).into();
        let json = serde_json::json!({
            "id": 9, "unix_ms": 951_827_696_000_u64, "actor": "ann", "kind": "certificate",
            "identity": "spiffe://tidegate/admin/ann", "role": "admin", "peer": "10.0.0.7:5",
            "comment": "bob at home", "action": "alter group", "subject": "shop", "before": {"weight": 1},
            "after": {"weight": 2}, "change": 8,
        });
        assert_eq!(serde_json::to_value(&views[0]).unwrap(), json);
        assert_eq!(serde_json::to_value(&views[1]).unwrap()["after"], "cut of");
        let expected = [
            "ID TIME (UTC) ACTOR ACTION SUBJECT CHANGE",
            "9 2000-02-29 12:34:56Z admin ann alter group shop weight: 1 -> 2",
            "9 2000-02-29 12:34:56Z ann alter group shop -",
        ];
        assert_eq!(views.page().words(), expected);
        assert_eq!(views.names(), ["9", "9"]);
    }
}
