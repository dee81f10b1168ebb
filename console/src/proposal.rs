//! A proposed change of a group: what it is, and what it would have meant since, beside what is in force.

use maud::{Markup, html};
use tidegate_proto::v1;

use crate::form::{Changed, Form, changes};
use crate::frame::{self, Place, form_key};
use crate::link::Link;
use crate::quantity::moment;
use crate::viewer::Viewer;
use crate::what_if;

/// The field with the number of the proposal that the viewer saw.
pub const SEEN: &str = "expected_id";
/// The buttons of the decision.
pub const DECISION: &str = "decision";
/// The one that makes the change.
pub const APPLY: &str = "apply";
/// The one that ends the proposal.
pub const WITHDRAW: &str = "withdraw";

/// Where the proposal of a group is.
pub fn link(group: &str) -> Link {
    Link::to(&["groups", group, "proposal"])
}

/// What its page shows.
#[derive(Clone, Debug)]
pub struct Proposal<'p> {
    /// The group.
    pub group: &'p str,
    /// What is proposed; `None` if nothing is.
    pub proposed: Option<&'p v1::Proposal>,
    /// The fields that it would change, from what is in force.
    pub changed: &'p [Changed],
    /// What was recorded since, under both settings.
    pub comparison: Option<&'p v1::WhatIfReply>,
    /// What bears on the comparison, or why there is none.
    pub notes: &'p [String],
    /// Why the last decision was refused.
    pub fault: Option<&'p str>,
}

impl Proposal<'_> {
    /// The page.
    pub fn page(&self, viewer: &Viewer) -> Markup {
        let content = html! {
            nav.way aria-label="Groups above" { a href=(Place::Groups.link()) { "All groups" } " / " a href=(Link::group(self.group)) { (self.group) } }
            @if let Some(fault) = self.fault { p.notice.bad role="alert" { (fault) } }
            @match self.proposed {
                Some(proposed) => (self.proposed(proposed, viewer)),
                None => {
                    p.empty { "Nothing is proposed for " (self.group) "." }
                    @if viewer.may_change { p.hint { "Change its form, and choose " b { "Propose" } ": "
                        a href=(Form::link(Some(self.group))) { "the form" } ". Or " code { "tidegate group propose " (self.group) " --rate 500" } "." } }
                }
            }
        };
        let title = format!("Proposed change of {}", self.group);
        frame::page(&title, Some(Place::Groups), Some(viewer), &content)
    }

    fn proposed(&self, proposed: &v1::Proposal, viewer: &Viewer) -> Markup {
        let at = |unix_s: u64| moment(unix_s.saturating_mul(1_000));
        html! {
            p { "Proposed " (at(proposed.proposed_unix_s)) ", and not in force. Compared since " (at(proposed.since_unix_s)) "." }
            section.card aria-label="What is proposed" { (changes(self.changed)) }
            section aria-labelledby="compared" {
                h2 #compared { "Beside what is in force" }
                @for note in self.notes { p.notice.warn { (note) } }
                @if let Some(comparison) = self.comparison { (what_if::comparison(comparison, "Proposed")) }
            }
            @if viewer.may_change {
                form.buttons method="post" action=(link(self.group)) {
                    (form_key(viewer))
                    input type="hidden" name=(SEEN) value=(proposed.id);
                    button.main type="submit" name=(DECISION) value=(APPLY) { "Apply" }
                    button type="submit" name=(DECISION) value=(WITHDRAW) { "Withdraw" }
                    a href=(Link::group(self.group)) { "Leave it" }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::tests::viewer;

    fn page(proposed: Option<&v1::Proposal>, may_change: bool) -> String {
        let changed =
            [Changed { field: "quota".to_owned(), before: String::new(), after: "<5> per day".to_owned() }];
        let reply = v1::WhatIfReply { groups: 1, ..v1::WhatIfReply::default() };
        let page = Proposal {
            group: "shop",
            proposed,
            changed: &changed,
            comparison: proposed.map(|_| &reply),
            notes: &["changed & begun again".to_owned()],
            fault: Some("<no>"),
        };
        page.page(&viewer(may_change, true)).into_string()
    }

    #[test]
    fn it_stands_beside_what_is_in_force_with_its_decision() {
        let proposed = v1::Proposal { id: 77, since_unix_s: 60, ..v1::Proposal::default() };
        let text = page(Some(&proposed), true);
        for part in [
            "&lt;5&gt; per day",
            "&lt;no&gt;",
            "changed &amp; begun again",
            ">Proposed</th>",
            "value=\"77\"",
            "value=\"apply\"",
            "key-of-the-form",
            "1970-01-01T00:01:00Z",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("As typed"), "{text}");
        let proposed = v1::Proposal { proposed_unix_s: 30, ..proposed };
        let times = ["00:00:30Z", "00:01:00Z"].map(|at| format!("<time datetime=\"1970-01-01T{at}\">"));
        let text = page(Some(&proposed), true);
        let (before, after) = text.split_once(", and not in force. Compared since ").unwrap();
        let before = before.rsplit("Proposed ").next().unwrap();
        assert!(before.starts_with(&times[0]) && after.starts_with(&times[1]), "{text}");
        assert!(!page(Some(&proposed), false).contains("<form method=\"post\" action=\"/console/groups"));
    }

    #[test]
    fn without_one_it_says_how_to_propose() {
        let text = page(None, true);
        assert!(
            text.contains("Nothing is proposed for shop") && text.contains("tidegate group propose shop")
        );
        assert!(!text.contains("value=\"apply\""), "{text}");
    }
}
