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
