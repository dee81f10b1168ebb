//! Answers of the console: pages, with the headers that keep others out of them, and errors as pages.

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use tidegate_console::viewer::Viewer;
use tidegate_console::{Markup, frame};

use crate::error::{AdminError, ErrorKind};

/// What a page may do: its own script, style and connections, and nothing of others.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// Sets the headers that every answer of the console has.
pub(super) fn guarded(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value: &'static str| {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    };
    set(header::CONTENT_SECURITY_POLICY, POLICY);
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::REFERRER_POLICY, "same-origin");
    set(header::CACHE_CONTROL, "no-store");
    response
}

/// A page.
pub(super) fn page(markup: Markup) -> Response {
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], markup.into_string()).into_response()
}

/// A table, to be kept as a file.
pub(super) fn csv(name: &str, text: String) -> Response {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/csv; charset=utf-8"));
    let disposition = format!("attachment; filename=\"tidegate-{name}.csv\"");
    if let Ok(value) = HeaderValue::from_str(&disposition) {
        headers.insert(header::CONTENT_DISPOSITION, value);
    }
    (headers, text).into_response()
}

/// On to another page, by GET.
pub(super) fn on_to(link: impl ToString) -> Response {
    Redirect::to(&link.to_string()).into_response()
}

/// A refusal as a page.
pub(super) fn refused(error: &AdminError, viewer: &Viewer) -> Response {
    let (status, title) = said_as(error);
    (status, page(frame::error(title, &error.to_string(), Some(viewer)))).into_response()
}

/// The status of a form that is shown again because of an error: `usual`, unless nothing is wrong with the form.
pub(super) fn status_of_form(error: &AdminError, usual: StatusCode) -> StatusCode {
    match error.kind() {
        ErrorKind::Unavailable | ErrorKind::Internal => said_as(error).0,
        _ => usual,
    }
}

/// The status and the title of an error.
fn said_as(error: &AdminError) -> (StatusCode, &'static str) {
    match error.kind() {
        ErrorKind::Invalid => (StatusCode::BAD_REQUEST, "This cannot be"),
        ErrorKind::NotFound => (StatusCode::NOT_FOUND, "Not here"),
        ErrorKind::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "Not now"),
        ErrorKind::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "A defect of the controller"),
        ErrorKind::AlreadyExists
        | ErrorKind::InUse
        | ErrorKind::Refused
        | ErrorKind::Full
        | ErrorKind::Revision => (StatusCode::CONFLICT, "Refused"),
    }
}
