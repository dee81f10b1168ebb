//! The audit log.

use maud::{Markup, html};
use tidegate_proto::v1;

use crate::csv;
use crate::frame::{self, Place};
use crate::quantity::{moment, utc};
use crate::viewer::Viewer;

/// Entries of a page.
pub const PAGE: u32 = 50;
/// Characters of a state that are shown at first; all of it is there when it is opened.
const MOST_STATE: usize = 80;

/// The page; `before` is the id that the entries are older than, 0 for the newest.
pub fn page(entries: &[v1::AuditEntry], before: u64, viewer: &Viewer) -> Markup {
    let oldest = entries.last().map_or(0, |entry| entry.id);
    let link = Place::Audit.link();
    let is_full = entries.len() >= usize::try_from(PAGE).unwrap_or(usize::MAX);
    let content = html! {
        form.filters { a href=(link.clone().with("before", if before == 0 { String::new() } else { before.to_string() }).with("as", "csv")) { "CSV" } }
        @if entries.is_empty() { p.empty { "Nothing was changed yet." } } @else { (table(entries)) }
        nav.pages aria-label="Pages of the log" {
            @if before != 0 { a href=(link) { "Newest" } }
            @if is_full && oldest > 1 { a href=(link.with("before", oldest)) rel="next" { "Older" } }
        }
    };
    frame::page("Audit", Some(Place::Audit), Some(viewer), &content)
}

/// Entries as a table.
pub(crate) fn table(entries: &[v1::AuditEntry]) -> Markup {
    html! {
        div.scrolls tabindex="0" role="group" aria-label="Entries of the audit log" { table {
            thead { tr { th scope="col" { "When" } th scope="col" { "Who" } th scope="col" { "Did" } th scope="col" { "Before and after" } } }
            tbody { @for entry in entries { tr {
                td { (moment(entry.unix_ms)) }
                td { bdi { (who(entry)) } @if !entry.comment.is_empty() && !entry.identity.is_empty() { br; small { bdi { (entry.comment) } } } }
                td { (entry.action) " " bdi { (entry.subject) } }
                td.text { (state("before", &entry.before)) (state("after", &entry.after)) }
            } } }
        } }
    }
}

fn who(entry: &v1::AuditEntry) -> String {
    if entry.identity.is_empty() {
        return entry.actor.clone();
    }
    format!("{} ({} of {}, {})", entry.identity, entry.kind, entry.role, entry.peer)
}

fn state(name: &str, text: &str) -> Markup {
    html! {
        @if !text.is_empty() {
            @match text.char_indices().nth(MOST_STATE) {
                None => p { (name) ": " code { (text) } },
                Some((at, _)) => details { summary { (name) ": " code { (text.get(..at).unwrap_or_default()) "…" } } code { (text) } },
            }
        }
    }
}

/// The entries as CSV.
pub fn csv(entries: &[v1::AuditEntry]) -> String {
    let names = [
        "id", "time", "actor", "kind", "identity", "role", "peer", "comment", "action", "subject", "before",
        "after", "change",
    ];
    let rows = entries.iter().map(|entry| {
        vec![
            entry.id.to_string(),
            utc(entry.unix_ms),
            entry.actor.clone(),
            entry.kind.clone(),
            entry.identity.clone(),
            entry.role.clone(),
            entry.peer.clone(),
            entry.comment.clone(),
            entry.action.clone(),
            entry.subject.clone(),
            entry.before.clone(),
            entry.after.clone(),
            entry.change.to_string(),
        ]
    });
    csv::text(&names, rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::tests::viewer;

    #[test]
    fn who_did_what_is_shown_with_the_way_to_older_entries() {
        let entry = |id: u64| v1::AuditEntry {
            id,
            identity: "ann".to_owned(),
            kind: "token".to_owned(),
            role: "operator".to_owned(),
            peer: "127.0.0.1:1".to_owned(),
            action: "alter group".to_owned(),
            after: format!("{{\"comment\":\"<b>{}\"}}", "x".repeat(200)),
            ..v1::AuditEntry::default()
        };
        let entries: Vec<_> = (2..52).rev().map(entry).collect();
        let text = page(&entries, 0, &viewer(true, true)).into_string();
        assert!(text.contains("ann (token of operator, 127.0.0.1:1)") && text.contains("before=2"), "{text}");
        assert!(text.contains("<details>") && !text.contains("<b>x"), "{text}");
        assert!(!page(&entries[..3], 0, &viewer(true, true)).into_string().contains("Older"));
        assert_eq!(csv(&entries).lines().count(), 51);
    }
}
