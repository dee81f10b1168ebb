//! The login.

use maud::{Markup, html};

use crate::frame::page;
use crate::link::Link;

/// The field with the token.
pub const TOKEN: &str = "token";
/// The field with the page to go on to.
pub const NEXT: &str = "next";

/// The form; `fault` says why the last try failed.
pub fn login(next: &str, fault: Option<&str>) -> Markup {
    let content = html! {
        @if let Some(fault) = fault { p.notice.bad role="alert" { (fault) } }
        form.card method="post" action=(Link::to(&["login"])) {
            input type="hidden" name=(NEXT) value=(next);
            label for="token" { "Token, or JWT of your identity provider" }
            input #token type="password" name=(TOKEN) required autofocus autocomplete="current-password" spellcheck="false";
            p.hint { "An admin makes tokens: " code { "tidegate token create NAME --role viewer" } }
            button.main type="submit" { "Log in" }
        }
    };
    page("Log in", None, None, &content)
}
