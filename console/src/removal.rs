//! Deleting a group: what hangs on it, and where that goes.

use maud::{Markup, html};

use crate::form::REVISION;
use crate::frame::{self, Place, form_key};
use crate::link::Link;
use crate::viewer::Viewer;

/// Where the form is.
pub fn link(group: &str) -> Link {
    Link::to(&["groups", group, "delete"])
}

/// The form. `fault` says why the last try was refused.
pub fn removal(group: &str, revision: u64, force_to: &str, fault: Option<&str>, viewer: &Viewer) -> Markup {
    let content = html! {
        @if let Some(fault) = fault { p.notice.bad role="alert" { (fault) } }
        form.card method="post" action=(link(group)) {
            (form_key(viewer))
            input type="hidden" name=(REVISION) value=(revision);
            p { "Its leases end, and its definition is gone. What it consumed stays in the audit log and in backups alone." }
            div.field {
                label for="force_to" { "Move bindings, groups below, rules and watches to" }
                input #force_to name="force_to" value=(force_to) maxlength="64" autocomplete="off" spellcheck="false" aria-describedby="about-force_to";
                p.hint id="about-force_to" { "A group. Left empty, a group that something hangs on is not deleted." }
            }
            div.buttons { button.main.bad type="submit" { "Delete " (group) } a href=(Link::group(group)) { "Cancel" } }
        }
    };
    frame::page(&format!("Delete {group}"), Some(Place::Groups), Some(viewer), &content)
}
