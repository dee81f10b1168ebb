//! The form of a group: made from the list of a definition's fields, so that a new field needs nothing here.

use std::collections::BTreeMap;

use maud::{Markup, html};

use crate::frame::{self, Place, form_key};
use crate::link::Link;
use crate::quantity::grouped;
use crate::viewer::Viewer;
use crate::what_if::{self, Past, Replay};

/// The field with the revision that the viewer saw.
pub const REVISION: &str = "expected_revision";
/// The button that only checks.
pub const CHECK: &str = "check";
/// The button that proposes the change, to be compared with what is in force.
pub const PROPOSE: &str = "propose";

/// How a field is filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// A text, with the largest number of characters.
    Text(usize),
    /// One of these words.
    Choice(&'static [&'static str]),
}

/// A field of the form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    /// Its name in the definition.
    pub name: &'static str,
    /// What it takes, for people.
    pub about: &'static str,
    /// How it is filled in.
    pub control: Control,
}

/// Values as they were typed, by field.
pub type Values = BTreeMap<String, String>;

/// A field whose value changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The field.
    pub field: String,
    /// Its value as stored; empty for a new group.
    pub before: String,
    /// Its value from then on.
    pub after: String,
}

/// What saving would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// What is wrong, by field; an empty field is the whole.
    pub faults: Vec<(String, String)>,
    /// What would change.
    pub changed: Vec<Changed>,
    /// What an operator should know.
    pub warnings: Vec<String>,
    /// Minutes of the history in which the group used more than the new limit, and of how many.
    pub above: Option<(usize, usize)>,
    /// The same change by the command line and by SQL; empty when nothing changes.
    pub command: String,
    /// See `command`.
    pub sql: String,
}

impl Effect {
    /// The fragment beside the form.
    pub fn markup(&self) -> Markup {
        html! {
            (faults(&self.faults))
            @if self.faults.is_empty() {
                @if self.changed.is_empty() { p { "Nothing changes." } } @else { (changes(&self.changed)) }
                @if let Some((above, of)) = self.above {
                    p.warn[above > 0] { "In " b { (grouped(above as u128)) } " of the last " (grouped(of as u128))
                        " minutes with use, it and the groups below used more than the new limit." }
                }
                (frame::warnings(&self.warnings))
                @if !self.command.is_empty() {
                    p { "The same by the command line and by SQL:" }
                    pre.command tabindex="0" { (self.command) }
                    pre.command tabindex="0" { (self.sql) }
                }
            }
        }
    }

    /// What is wrong with a field.
    fn fault(&self, field: &str) -> Option<&str> {
        self.faults.iter().find(|(of, _)| of == field).map(|(_, message)| message.as_str())
    }
}

/// Fields with their values now and then.
pub(crate) fn changes(changed: &[Changed]) -> Markup {
    html! {
        table { caption { "What changes" }
            thead { tr { th scope="col" { "Field" } th scope="col" { "Now" } th scope="col" { "Then" } } }
            tbody { @for changed in changed { tr {
                th scope="row" { code { (changed.field) } } td { bdi { (shown(&changed.before)) } } td { bdi { (shown(&changed.after)) } }
            } } }
        }
    }
}

/// What is wrong, with the way to the field; an empty field is the whole.
pub(crate) fn faults(faults: &[(String, String)]) -> Markup {
    html! {
        @for (_, message) in faults.iter().filter(|(field, _)| field.is_empty()) { p.notice.bad { (message) } }
        @for (field, message) in faults.iter().filter(|(field, _)| !field.is_empty()) {
            p.notice.bad { a href={ "#field-" (field) } { code { (field) } } ": " (message) }
        }
    }
}

/// A value, or a dash for none.
pub(crate) fn shown(value: &str) -> &str {
    if value.is_empty() { "–" } else { value }
}

/// What stands beside a form.
#[derive(Clone, Copy, Debug, Default)]
pub struct Beside<'f> {
    /// What saving would do, once that was asked.
    pub effect: Option<&'f Effect>,
    /// What the recorded demand would have met, once that was asked.
    pub replay: Option<&'f Replay>,
    /// The time that is chosen for it.
    pub past: Past,
    /// Somebody changed the group in the meantime: who, and what.
    pub conflict: Option<&'f str>,
}

/// The form.
#[derive(Clone, Debug)]
pub struct Form<'f> {
    /// The group; `None` for a new one.
    pub group: Option<&'f str>,
    /// Its fields, in order.
    pub inputs: &'f [Input],
    /// What stands in them.
    pub values: &'f Values,
    /// The revision that the viewer saw.
    pub revision: u64,
    /// See there.
    pub beside: &'f Beside<'f>,
}

impl Form<'_> {
    /// Where the form of a group is, or that of a new one.
    pub fn link(group: Option<&str>) -> Link {
        match group {
            Some(group) => Link::to(&["groups", group, "edit"]),
            None => Link::to(&["groups", "new"]),
        }
    }

    /// The page.
    pub fn page(&self, viewer: &Viewer) -> Markup {
        let title = self.group.map_or_else(|| "New group".to_owned(), |group| format!("Change {group}"));
        let content = html! {
            @if let Some(conflict) = self.beside.conflict { p.notice.warn role="alert" { (conflict) } }
            div.beside {
                form.card #definition method="post" action=(Self::link(self.group)) data-check=(Link::to(&["check"])) data-replay=(Link::to(&["what-if"])) {
                    (form_key(viewer))
                    input type="hidden" name=(REVISION) value=(self.revision);
                    @if self.group.is_none() {
                        (self.field(&Input { name: "name", about: "1 to 64 of a-z 0-9 . _ -, beginning with a letter or a digit", control: Control::Text(64) }))
                    } @else {
                        input type="hidden" name="name" value=(self.group.unwrap_or_default());
                    }
                    @for input in self.inputs { (self.field(input)) }
                    p.hint { "Rules against runaway statements stay as they are; "
                        code { "tidegate group alter NAME --query-limit …" } " changes them." }
                    div.buttons {
                        button.main type="submit" { @if self.group.is_some() { "Save" } @else { "Create" } }
                        button type="submit" name=(CHECK) value="1" { "Only check" }
                        @if self.group.is_some() { button type="submit" name=(PROPOSE) value="1" { "Propose" } }
                        a href=(self.group.map_or_else(|| Place::Groups.link(), Link::group)) { "Cancel" }
                    }
                }
                div.asides {
                    aside #effect aria-live="polite" aria-label="What saving would do" {
                        @match self.beside.effect { Some(effect) => (effect.markup()), None => p.hint { "Here stands what saving would do." } }
                    }
                    // A new group has no history.
                    @if self.group.is_some() { (what_if::section(self.beside.replay, self.beside.past)) }
                }
            }
        };
        frame::page(&title, Some(Place::Groups), Some(viewer), &content)
    }

    fn field(&self, input: &Input) -> Markup {
        let value = self.values.get(input.name).map_or("", String::as_str);
        let id = format!("field-{}", input.name);
        let fault = self.beside.effect.and_then(|effect| effect.fault(input.name));
        let about = format!("about-{}", input.name);
        html! {
            div.field {
                label for=(id) { (input.name) }
                @match input.control {
                    Control::Text(most) => {
                        input id=(id) name=(input.name) value=(value) maxlength=(most) autocomplete="off" spellcheck="false"
                            aria-describedby=(about) aria-invalid=[fault.map(|_| "true")];
                    }
                    Control::Choice(words) => {
                        select id=(id) name=(input.name) aria-describedby=(about) {
                            @for word in words { option value=(word) selected[*word == value] { (word) } }
                        }
                    }
                }
                p.hint id=(about) { @if let Some(fault) = fault { span.bad { (fault) } } @else { (input.about) } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::tests::viewer;

    const INPUTS: [Input; 2] = [
        Input { name: "ru_per_sec", about: "RU/s", control: Control::Text(64) },
        Input { name: "priority", about: "low or high", control: Control::Choice(&["low", "high"]) },
    ];

    #[test]
    fn what_was_typed_stays_beside_what_is_wrong_with_it() {
        let values: Values = [("ru_per_sec", "\"<many>"), ("priority", "high")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into();
        let effect =
            Effect { faults: vec![("ru_per_sec".to_owned(), "no rate".to_owned())], ..Effect::default() };
        let form = Form {
            group: Some("shop"),
            inputs: &INPUTS,
            values: &values,
            revision: 7,
            beside: &Beside { effect: Some(&effect), ..Beside::default() },
        };
        let text = form.page(&viewer(true, true)).into_string();
        assert!(
            text.contains("value=\"&quot;&lt;many&gt;\"") && text.contains("aria-invalid=\"true\""),
            "{text}"
        );
        assert!(text.contains("<option value=\"high\" selected>") && text.contains("value=\"7\""), "{text}");
        assert!(text.contains("key-of-the-form") && text.contains("href=\"#field-ru_per_sec\""), "{text}");
        assert!(
            text.contains("form=\"definition\"") && text.contains("<option value=\"1h\" selected>"),
            "{text}"
        );
        let new = Form { group: None, ..form }.page(&viewer(true, true)).into_string();
        assert!(!new.contains("form=\"definition\""), "a new group has no history: {new}");
        // What is not there yet has a name that is typed, and is not proposed.
        for (is_there, part) in [
            (true, "action=\"/console/groups/shop/edit\""),
            (true, "<input type=\"hidden\" name=\"name\" value=\"shop\">"),
            (true, "name=\"propose\""),
            (true, "<a href=\"/console/groups/shop\">Cancel</a>"),
            (false, "action=\"/console/groups/new\""),
            (false, "<input id=\"field-name\" name=\"name\""),
            (false, "<a href=\"/console/groups\">Cancel</a>"),
        ] {
            assert_eq!((text.contains(part), new.contains(part)), (is_there, !is_there), "{part}");
        }
    }

    #[test]
    fn the_effect_says_what_changes_and_how_often_the_new_limit_was_passed() {
        let changed =
            Changed { field: "ru_per_sec".to_owned(), before: "100".to_owned(), after: "50".to_owned() };
        let effect = Effect {
            changed: vec![changed],
            above: Some((12, 1_440)),
            command: "tidegate group alter shop --rate 50".to_owned(),
            ..Effect::default()
        };
        let text = effect.markup().into_string();
        assert!(text.contains("<b>12</b>") && text.contains("1,440") && text.contains("--rate 50"), "{text}");
        assert!(
            text.contains("<b>12</b> of the last 1,440 minutes") && text.contains("<p class=\"warn\">"),
            "{text}"
        );
        let row = "<code>ru_per_sec</code></th><td><bdi>100</bdi></td><td><bdi>50</bdi></td>";
        assert!(text.contains(row), "{text}");
        let warnings = vec!["<w>".to_owned()];
        let never = Effect { above: Some((0, 9)), warnings, sql: "ALTER …;".to_owned(), ..effect.clone() };
        let text = never.markup().into_string();
        assert!(text.contains("<b>0</b> of the last 9") && !text.contains("class=\"warn\""), "{text}");
        assert!(text.contains("<li>&lt;w&gt;</li>") && text.contains("ALTER …;"), "{text}");
        // Beside what is wrong nothing says that it would be done.
        let wrong = Effect { faults: vec![(String::new(), "<no>".to_owned())], ..never };
        let text = wrong.markup().into_string();
        assert!(text.contains("&lt;no&gt;") && !text.contains("#field-"), "{text}");
        assert!(
            !text.contains("--rate 50") && !text.contains("of the last") && !text.contains("What changes"),
            "{text}"
        );
        assert!(Effect::default().markup().into_string().contains("Nothing changes"));
    }
}
