//! Lists by pages.

use maud::{Markup, html};

use crate::link::Link;
use crate::quantity::grouped;

/// Rows of a page. With half of them people page through a small installation; twice of them are more than anybody
/// reads, once a second.
pub const PAGE: usize = 100;
/// The parameter of the rows on the pages before.
const SKIP: &str = "skip";

/// The address of a list, from a row on.
pub(crate) fn from(link: Link, skip: usize) -> Link {
    link.with(SKIP, if skip == 0 { String::new() } else { skip.to_string() })
}

/// The ways to the pages before and after this one of `rows` in all, and what is said of the list.
pub(crate) fn pages(link: &Link, skip: usize, rows: usize, said: &Markup) -> Markup {
    let last = rows.min(skip.saturating_add(PAGE));
    html! {
        nav.pages aria-label="Pages of the list" {
            @if skip > 0 {
                a #before href=(from(link.clone(), skip.saturating_sub(PAGE))) rel="prev" { "Before" }
            }
            span { (grouped(skip.saturating_add(1) as u128)) " to " (grouped(last as u128)) " of " (grouped(rows as u128)) (said) }
            @if last < rows { a #after href=(from(link.clone(), last)) rel="next" { "After" } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_leads_to_those_beside_it_and_never_beyond_the_ends() {
        for (skip, rows, before, said, after) in [
            (0, 1, None, "1 to 1 of 1", None),
            (0, 100, None, "1 to 100 of 100", None),
            (0, 101, None, "1 to 100 of 101", Some("?skip=100")),
            (100, 200, Some(""), "101 to 200 of 200", None),
            (100, 1_201, Some(""), "101 to 200 of 1,201", Some("?skip=200")),
            (250, 1_201, Some("?skip=150"), "251 to 350 of 1,201", Some("?skip=350")),
            (50, 60, Some(""), "51 to 60 of 60", None),
        ] {
            let text = pages(&Link::to(&[]), skip, rows, &html! { "; said" }).into_string();
            assert!(text.contains(&format!("<span>{said}; said</span>")), "{text}");
            for (id, to) in [("before", before), ("after", after)] {
                let link = to.map(|query| format!("<a id=\"{id}\" href=\"/console{query}\""));
                assert_eq!(text.contains(&format!("id=\"{id}\"")), link.is_some(), "{text}");
                assert!(link.is_none_or(|link| text.contains(&link)), "{id} of {skip} of {rows}: {text}");
            }
        }
    }
}
