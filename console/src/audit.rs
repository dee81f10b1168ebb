//! The audit log.

use maud::{Markup, html};
use tidegate_proto::v1;

use crate::csv;
use crate::form::{Changed, shown};
use crate::frame::{self, Place};
use crate::link::Link;
use crate::quantity::{grouped, moment, utc};
use crate::viewer::Viewer;

/// Entries of a page.
pub const PAGE: u32 = 50;
/// Characters of a state that are shown at first; all of it is there when it is opened.
const MOST_STATE: usize = 80;

/// An entry, with what it changed in the definition of a group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry {
    /// What the log has.
    pub entry: v1::AuditEntry,
    /// The fields that a group was made with or that were altered; `None` where the log has no whole definition, or the
    /// entry is of something else.
    pub changed: Option<Vec<Changed>>,
    /// The revision of the definition from then on; 0 where there is none.
    pub revision: u64,
}

/// The page.
#[derive(Clone, Debug)]
pub struct Log<'l> {
    /// Newest first.
    pub entries: &'l [Entry],
    /// Whether there are older ones.
    pub more: bool,
    /// The id that they are older than; 0 for the newest.
    pub before: u64,
    /// The group that they are of; empty for all.
    pub group: &'l str,
}

impl Log<'_> {
    /// The entries of a group, or all.
    pub fn link(group: &str) -> Link {
        Place::Audit.link().with("group", group)
    }

    /// The page.
    pub fn page(&self, viewer: &Viewer) -> Markup {
        let link = Self::link(self.group);
        let before = if self.before == 0 { String::new() } else { self.before.to_string() };
        let content = html! {
            form.filters method="get" action=(Place::Audit.link()) {
                label { "Definition of group " input name="group" value=(self.group) maxlength="64" size="24" autocomplete="off" spellcheck="false"; }
                button type="submit" { "Show" }
                @if !self.group.is_empty() { a href=(Place::Audit.link()) { "All changes" } }
                a href=(link.clone().with("before", before).with("as", "csv")) { "CSV" }
            }
            @match (self.entries.is_empty(), self.group.is_empty()) {
                (true, _) if self.before != 0 => p.empty { "The log has nothing older." },
                (true, true) => p.empty { "Nothing was changed yet." },
                (true, false) => p.empty { "The log has no change of a group " bdi { (self.group) } "." },
                _ => (table(self.entries)),
            }
            nav.pages aria-label="Pages of the log" {
                @if self.before != 0 { a href=(link.clone()) { "Newest" } }
                (older(&link, self.entries, self.more))
            }
        };
        frame::page("Audit", Some(Place::Audit), Some(viewer), &content)
    }
}

/// The way to older entries, if there are some.
fn older(link: &Link, entries: &[Entry], more: bool) -> Markup {
    let oldest = entries.last().filter(|_| more);
    html! { @if let Some(oldest) = oldest { a href=(link.clone().with("before", oldest.entry.id)) rel="next" { "Older" } } }
}

/// The newest changes of a group's definition, and the way to the others.
pub(crate) fn history(group: &str, entries: &[Entry], more: bool) -> Markup {
    html! {
        @if entries.is_empty() { p.empty { "None that the log still has." } } @else { (table(entries)) }
        p { (older(&Log::link(group), entries, more)) }
    }
}

fn table(entries: &[Entry]) -> Markup {
    html! {
        div.scrolls tabindex="0" role="group" aria-label="Entries of the audit log" { table {
            thead { tr { th scope="col" { "When" } th scope="col" { "Who" } th scope="col" { "Did" } th scope="col" { "What changed" } } }
            tbody { @for Entry { entry, changed, revision } in entries { tr {
                td { (moment(entry.unix_ms)) }
                td { bdi { (who(entry)) } @if !entry.comment.is_empty() && !entry.identity.is_empty() { br; small { bdi { (entry.comment) } } } }
                td { (entry.action) " " bdi { (entry.subject) } @if *revision > 0 { br; small { "revision " (grouped((*revision).into())) } } }
                td.text {
                    @match changed {
                        Some(changed) => (fields(entry, changed)),
                        None => { (state("before", &entry.before)) (state("after", &entry.after)) }
                    }
                }
            } } }
        } }
    }
}

/// The fields that changed, with the whole states behind them.
fn fields(entry: &v1::AuditEntry, changed: &[Changed]) -> Markup {
    let is_new = entry.before.is_empty();
    html! {
        ul.changed {
            @for of in changed { li { code { (of.field) } ": "
                @if !is_new { bdi { (shown(&of.before)) } " → " } bdi { (shown(&of.after)) } } }
            @if changed.is_empty() { li { "No field." } }
        }
        details { summary { "Whole definition" } (whole("before", &entry.before)) (whole("after", &entry.after)) }
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

fn whole(name: &str, text: &str) -> Markup {
    html! { @if !text.is_empty() { p { (name) ": " code { (text) } } } }
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
        let log: Vec<_> = (2..52).rev().map(entry).collect();
        let entries: Vec<_> =
            log.iter().map(|entry| Entry { entry: entry.clone(), ..Entry::default() }).collect();
        let page = |group, more| {
            let log = Log { entries: &entries, more, before: 0, group };
            log.page(&viewer(true, true)).into_string()
        };
        let text = page("", true);
        assert!(text.contains("ann (token of operator, 127.0.0.1:1)") && text.contains("before=2"), "{text}");
        assert!(text.contains("<details>") && !text.contains("<b>x"), "{text}");
        assert!(!page("", false).contains("Older"));
        assert!(page("shop", true).contains("audit?group=shop&amp;before=2"), "{}", page("shop", true));
        assert_eq!(csv(&log).lines().count(), 51);
        let log = Log { entries: &entries, more: true, before: 52, group: "shop" };
        let older = log.page(&viewer(true, true)).into_string();
        assert!(
            older.contains("audit?group=shop&amp;before=52&amp;as=csv"),
            "a table is of what is shown: {older}"
        );
    }

    #[test]
    fn an_empty_page_says_of_what_there_is_nothing() {
        let of = |before, group| {
            let log = Log { entries: &[], more: false, before, group };
            log.page(&viewer(true, true)).into_string()
        };
        let says = [
            "Nothing was changed yet.",
            "The log has no change of a group <bdi>&lt;g&gt;</bdi>.",
            "The log has nothing older.",
        ];
        for (before, group, said) in [(0, "", 0), (0, "<g>", 1), (7, "", 2), (7, "<g>", 2)] {
            let text = of(before, group);
            for (at, words) in says.iter().enumerate() {
                assert_eq!(text.contains(words), at == said, "{words}: {text}");
            }
            assert_eq!(text.contains(">Newest<"), before != 0, "{text}");
            assert_eq!(text.contains(">All changes<"), !group.is_empty(), "{text}");
        }
    }

    #[test]
    fn the_file_has_each_field_of_an_entry_and_the_page_who_it_was() {
        let text = |text: &str| text.to_owned();
        let entry = v1::AuditEntry {
            id: 1,
            unix_ms: 951_782_400_999,
            actor: text("console of ann"),
            kind: text("token"),
            identity: text("ann"),
            role: text("operator"),
            peer: text("127.0.0.1:1"),
            comment: text("=why"),
            action: text("alter group"),
            subject: text("shop"),
            before: text("{\"a\":1}"),
            after: text("{}"),
            change: 9,
        };
        let names = "id,time,actor,kind,identity,role,peer,comment,action,subject,before,after,change";
        let cells = "1,2000-02-29T00:00:00Z,console of ann,token,ann,operator,127.0.0.1:1,'=why,alter group,shop,\
                     \"{\"\"a\"\":1}\",{},9";
        assert_eq!(csv(std::slice::from_ref(&entry)), format!("{names}\r\n{cells}\r\n"));
        let table = |entry| table(&[Entry { entry, ..Entry::default() }]).into_string();
        let named = table(entry.clone());
        assert!(
            named.contains("<bdi>ann (token of operator, 127.0.0.1:1)</bdi><br><small><bdi>=why</bdi>"),
            "{named}"
        );
        assert!(named.contains("<td>alter group <bdi>shop</bdi></td>"), "{named}");
        assert!(
            named.contains("before: <code>{&quot;a&quot;:1}</code>")
                && named.contains("after: <code>{}</code>"),
            "{named}"
        );
        // Of an entry without a name, the comment is part of the actor.
        let unnamed = table(v1::AuditEntry { identity: String::new(), ..entry });
        assert!(unnamed.contains("<td><bdi>console of ann</bdi></td>"), "{unnamed}");
    }

    #[test]
    fn a_definition_shows_which_fields_changed() {
        let changed = |before: &str| Changed {
            field: "comment".to_owned(),
            before: before.to_owned(),
            after: "<i>".to_owned(),
        };
        let entry = v1::AuditEntry {
            id: 7,
            action: "alter group".to_owned(),
            before: "{}".to_owned(),
            after: "{}".to_owned(),
            ..v1::AuditEntry::default()
        };
        let text = |entry: v1::AuditEntry, before: &str| {
            let entries = [Entry { entry, changed: Some(vec![changed(before)]), revision: 1_234 }];
            history("shop", &entries, true).into_string()
        };
        let altered = text(entry.clone(), "");
        let shown = "<code>comment</code>: <bdi>–</bdi> → <bdi>&lt;i&gt;</bdi>";
        assert!(altered.contains(shown) && altered.contains("revision 1,234"), "{altered}");
        assert!(altered.contains("/console/audit?group=shop&amp;before=7"), "{altered}");
        let made = text(v1::AuditEntry { before: String::new(), ..entry }, "");
        assert!(made.contains("<code>comment</code>: <bdi>&lt;i&gt;</bdi>"), "{made}");
        assert!(history("shop", &[], false).into_string().contains("None that the log still has"));
    }
}
