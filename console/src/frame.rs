//! What all pages have around them: head, navigation, who looks, and the live part.

use maud::{DOCTYPE, Markup, html};

use crate::assets::{ICON, SCRIPT, STYLE};
use crate::link::Link;
use crate::present::Present;
use crate::viewer::{Proof, Viewer};

/// The field of forms that carries [`Viewer::form_key`].
pub const FORM_KEY: &str = "form_key";

/// The places of the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// What happens now.
    Overview,
    /// Groups and their bindings.
    Groups,
    /// What statements cost, watches and runaways.
    Statements,
    /// Nodes and leases.
    Nodes,
    /// Cost tables.
    Prices,
    /// Who changed what.
    Audit,
}

impl Place {
    const ALL: [Self; 6] =
        [Self::Overview, Self::Groups, Self::Statements, Self::Nodes, Self::Prices, Self::Audit];

    const fn name(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Groups => "Groups",
            Self::Statements => "Statements",
            Self::Nodes => "Nodes",
            Self::Prices => "Prices",
            Self::Audit => "Audit",
        }
    }

    /// Where it is.
    pub fn link(self) -> Link {
        match self {
            Self::Overview => Link::to(&[]),
            Self::Groups => Link::to(&["groups"]),
            Self::Statements => Link::to(&["statements"]),
            Self::Nodes => Link::to(&["nodes"]),
            Self::Prices => Link::to(&["prices"]),
            Self::Audit => Link::to(&["audit"]),
        }
    }

    /// Whether it shows something to this viewer.
    const fn is_open_to(self, viewer: &Viewer) -> bool {
        match self {
            Self::Overview | Self::Groups | Self::Statements => true,
            Self::Nodes | Self::Prices | Self::Audit => viewer.may_see_all,
        }
    }
}

/// A whole page.
pub fn page(title: &str, place: Option<Place>, viewer: Option<&Viewer>, content: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · tidegate" }
                link rel="icon" href=(ICON.path());
                link rel="stylesheet" href=(STYLE.path());
                script src=(SCRIPT.path()) defer {}
            }
            body {
                a.skip href="#content" { "Skip to the content" }
                header {
                    a.brand href=(Place::Overview.link()) { "tidegate" }
                    @if let Some(viewer) = viewer { (navigation(place, viewer)) (who(viewer)) }
                }
                main #content tabindex="-1" { h1 { bdi { (title) } } (content)
                    // The script fills it.
                    nav #as-csv aria-label="Tables of this page as CSV" hidden {} }
            }
        }
    }
}

fn navigation(place: Option<Place>, viewer: &Viewer) -> Markup {
    html! {
        nav aria-label="Pages" {
            ul {
                @for of in Place::ALL.into_iter().filter(|of| of.is_open_to(viewer)) {
                    li { a href=(of.link()) aria-current=[(place == Some(of)).then_some("page")] { (of.name()) } }
                }
            }
        }
    }
}

fn who(viewer: &Viewer) -> Markup {
    html! {
        div.who {
            span { (viewer.label) }
            @if viewer.proof == Proof::Login {
                form method="post" action=(Link::to(&["logout"])) {
                    (form_key(viewer))
                    button type="submit" { "Log out" }
                }
            }
        }
    }
}

/// The hidden field that every form has.
pub fn form_key(viewer: &Viewer) -> Markup {
    html! { input type="hidden" name=(FORM_KEY) value=(viewer.form_key); }
}

/// A part that the script replaces once a second with what the controller sends of this page.
pub fn live(link: &Link, content: &Markup) -> Markup {
    html! {
        div.pulse {
            span #age role="status" { "Live" }
            button #pause type="button" aria-pressed="false" hidden { "Pause" }
        }
        div #live data-live=(link.live()) { (content) }
    }
}

/// A page that says what went wrong, and the remedy.
pub fn error(title: &str, message: &str, viewer: Option<&Viewer>) -> Markup {
    let content = html! {
        p.notice.bad role="alert" { (message) }
        p { a href=(Place::Overview.link()) { "To the overview" } }
    };
    page(title, None, viewer, &content)
}

/// Something a person should know, if there is something.
pub fn warnings(texts: &[String]) -> Markup {
    html! {
        @if !texts.is_empty() {
            ul.notice.warn role="status" { @for text in texts { li { (text) } } }
        }
    }
}

/// That figures of some groups are missing, if they are.
pub fn partial(present: &Present) -> Markup {
    html! {
        @if present.is_partial {
            p.hint { "More groups are in use than one answer holds: what those of later names use, and whether they wait, is not \
                counted here." }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn viewer(may_change: bool, may_see_all: bool) -> Viewer {
        let label = "ann (operator)".to_owned();
        Viewer { label, proof: Proof::Login, may_change, may_see_all, form_key: "key-of-the-form".to_owned() }
    }

    #[test]
    fn what_a_viewer_may_not_see_is_not_in_the_navigation() {
        let of = |viewer: &Viewer| page("T", Some(Place::Groups), Some(viewer), &html! {}).into_string();
        let all = of(&viewer(true, true));
        assert!(all.contains("/console/audit") && all.contains("/console/nodes"));
        let tenant = of(&viewer(false, false));
        assert!(!tenant.contains("/console/audit") && !tenant.contains("/console/prices"));
        assert_eq!(all.matches("aria-current=\"page\"").count(), 1);
    }

    #[test]
    fn a_page_has_no_script_and_no_style_of_its_own() {
        let text = page("<T>", None, Some(&viewer(true, true)), &html! { p { "<script>" } }).into_string();
        assert_eq!(text.matches("<script").count(), 1, "the one file");
        assert!(!text.contains("<style") && !text.contains(" style=") && !text.contains(" on"), "{text}");
    }
}
