//! Who may see the console: by a session, or by what the guard knows of the request; and the login.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Form;
use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tidegate_console::link::{Link, ROOT};
use tidegate_console::{frame, login};
use tidegate_listener::Surface;

use super::visitor::Visitor;
use super::{Web, reply};
use crate::identity::guard::Denied;
use crate::identity::matrix::Call;

/// The cookie. Only pages of the console send it, and only to the console.
const COOKIE: &str = "tidegate-console";

/// What pages ask for by themselves.
const LIVE: &str = "/console/live";

/// Lets a request in, or answers why not.
pub(super) async fn admit(State(web): State<Arc<Web>>, mut request: Request, next: Next) -> Response {
    let authority = request.uri().authority().map(ToString::to_string);
    if let Some(foreign) = foreign(request.method(), request.headers(), authority.as_deref()) {
        let page = reply::page(frame::error("Refused", foreign, None));
        return reply::guarded((StatusCode::FORBIDDEN, page).into_response());
    }
    let Some(guard) = &web.guard else { return reply::guarded(next.run(request).await) };
    let method = request.method().clone();
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let path = matched.as_ref().map_or("", MatchedPath::as_str);
    // What a page does by itself keeps no session open.
    let uses = path != LIVE;
    let session = secret(request.headers())
        .and_then(|secret| web.sessions.find(web.service.clock().now(), secret, uses));
    if let Some(session) = session {
        request.extensions_mut().insert(Arc::clone(&session.shown));
        request.extensions_mut().insert(session);
    }
    let denied = match guard.admit(Surface::Rest, Call::Rest(method.as_str(), path), &mut request) {
        Ok(()) => return reply::guarded(next.run(request).await),
        Err(denied) => denied,
    };
    tokio::time::sleep(denied.later).await;
    reply::guarded(turned_away(&request, &denied))
}

/// The answer to a request that is not let in: a person is asked to log in, and comes back to the page.
fn turned_away(request: &Request, denied: &Denied) -> Response {
    if request.uri().path() == LIVE {
        // To a script, every error of a stream is one that may pass.
        return ([(header::CONTENT_TYPE, "text/event-stream")], "event: gone\ndata: -\n\n").into_response();
    }
    let is_page = request.method() == Method::GET;
    if denied.is_unknown && is_page {
        let next = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
        return reply::on_to(Link::to(&["login"]).with(login::NEXT, next));
    }
    let (status, title) = match denied.is_unknown {
        true => (StatusCode::UNAUTHORIZED, "Log in first"),
        false => (StatusCode::FORBIDDEN, "Your role may not do this"),
    };
    (status, reply::page(frame::error(title, &denied.message, None))).into_response()
}

/// Why a change is not taken: browsers say from where it comes.
fn foreign(method: &Method, headers: &HeaderMap, authority: Option<&str>) -> Option<&'static str> {
    if method.is_safe() {
        return None;
    }
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let is_ours = match (text("sec-fetch-site"), text("origin")) {
        (Some(site), _) => site == "same-origin",
        (None, Some(origin)) => {
            // Over HTTP/2 the name stands in the address.
            let host = text("host").or(authority).unwrap_or_default();
            origin.split_once("://").is_some_and(|(_, of)| of == host)
        }
        // No browser: the form's key decides.
        (None, None) => true,
    };
    (!is_ours).then_some("the form was sent by another site")
}

/// The secret in the request's cookie.
fn secret(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    cookies
        .flat_map(|value| value.split(';'))
        .find_map(|cookie| cookie.trim().strip_prefix(COOKIE)?.strip_prefix('='))
}

/// The form of the login.
#[derive(Deserialize)]
pub(super) struct Login {
    token: String,
    #[serde(default)]
    next: String,
}

/// Opens a session for who shows a token or a JWT.
pub(super) async fn log_in(
    State(web): State<Arc<Web>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request_headers: HeaderMap,
    Form(form): Form<Login>,
) -> Response {
    let next = if is_page(&form.next) { form.next.as_str() } else { ROOT };
    let Some(guard) = &web.guard else { return reply::on_to(next) };
    let shown = match guard.log_in(form.token.trim(), peer) {
        Ok(shown) => shown,
        Err(denied) => {
            tokio::time::sleep(denied.later).await;
            let page = reply::page(login::login(next, Some(&denied.message)));
            return (StatusCode::UNAUTHORIZED, page).into_response();
        }
    };
    let former = secret(&request_headers);
    former.into_iter().for_each(|secret| web.sessions.end(secret));
    let secret = web.sessions.begin(web.service.clock().now(), shown);
    let cookie = format!("{COOKIE}={secret}{}", attributes(web.is_secure));
    ([(header::SET_COOKIE, cookie)], reply::on_to(next)).into_response()
}

/// Ends the session.
pub(super) async fn log_out(
    State(web): State<Arc<Web>>,
    visitor: Visitor,
    headers: HeaderMap,
    Form(form): Form<super::changing::Key>,
) -> Response {
    if let Err(error) = visitor.sent(&form.form_key) {
        return reply::refused(&error, &visitor.viewer);
    }
    secret(&headers).into_iter().for_each(|secret| web.sessions.end(secret));
    let cookie = format!("{COOKIE}={}; Max-Age=0", attributes(web.is_secure));
    ([(header::SET_COOKIE, cookie)], reply::on_to(Link::to(&["login"]))).into_response()
}

/// No script reads it, no other site sends it, and under TLS it never goes in plain text.
fn attributes(is_secure: bool) -> String {
    let secure = if is_secure { "; Secure" } else { "" };
    format!("; Path={ROOT}; HttpOnly; SameSite=Strict{secure}")
}

/// Whether an address is one of the console's pages: nobody is sent elsewhere after a login.
fn is_page(next: &str) -> bool {
    let rest = next.strip_prefix(ROOT);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']))
        && !next.contains(['\\', '\r', '\n'])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::body::Body;
    use axum::http;
    use tidegate_listener::Failures;
    use tokio::sync::watch as flag;
    use tokio::time::Instant;
    use tower::ServiceExt as _;

    use super::*;
    use crate::clock::Clock;
    use crate::config::Access;
    use crate::identity::guard::Guard;
    use crate::service::{Service, ServiceConfig};
    use crate::store::RedbStore;

    fn headers(of: &[(&'static str, &'static str)]) -> HeaderMap {
        of.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn changes_from_other_sites_are_refused() {
        let refuses = |method: Method, of: &[(&'static str, &'static str)]| {
            foreign(&method, &headers(of), None).is_some()
        };
        assert!(!refuses(Method::GET, &[("sec-fetch-site", "cross-site")]), "a link may lead here");
        assert!(!refuses(Method::POST, &[("sec-fetch-site", "same-origin")]));
        assert!(!refuses(Method::POST, &[("origin", "https://a:7421"), ("host", "a:7421")]));
        assert!(!refuses(Method::POST, &[]));
        for site in ["cross-site", "same-site", "none"] {
            assert!(refuses(Method::POST, &[("sec-fetch-site", site)]), "{site}");
        }
        assert!(refuses(Method::POST, &[("origin", "https://b"), ("host", "a:7421")]));
        assert!(refuses(Method::POST, &[("origin", "null"), ("host", "a:7421")]));
        // Over HTTP/2 there is no header for it.
        let over_http2 = |authority| {
            foreign(&Method::POST, &headers(&[("origin", "https://a:7421")]), Some(authority)).is_some()
        };
        assert!(!over_http2("a:7421") && over_http2("b:7421"));
    }

    /// Else the console would be the way to try tokens by.
    #[tokio::test(start_paused = true)]
    async fn who_shows_tokens_that_are_none_hears_of_it_later() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(RedbStore::open(&folder.path().join("store")).unwrap());
        let service = Arc::new(Service::load(store, ServiceConfig::default(), Clock::start()).unwrap());
        let guard = Guard::new(Access::default(), Arc::clone(&service), Arc::new(Failures::default()));
        let web = Web::new(service, Some(Arc::clone(&guard)), false, flag::channel(false).1);
        let console = crate::web::router(&web);
        let peer = |text: &str| text.parse::<SocketAddr>().unwrap();
        for (beside, from, is_login) in [
            (peer("192.0.2.1:1"), peer("192.0.2.2:1"), false),
            (peer("192.0.2.3:1"), peer("192.0.2.4:1"), true),
        ] {
            let mut latest = Duration::ZERO;
            for _ in 0..30 {
                let usual = guard.log_in("tdg_1.0", beside).unwrap_err().later;
                let begun = Instant::now();
                let request = if is_login {
                    let form = http::Request::post("/console/login")
                        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
                    form.body(Body::from("token=tdg_1.0"))
                } else {
                    let page = http::Request::get("/console");
                    page.header(header::AUTHORIZATION, "Bearer tdg_1.0").body(Body::empty())
                };
                let mut request = request.unwrap();
                *request.extensions_mut() = guard.greeting()(None, from);
                request.extensions_mut().insert(ConnectInfo(from));
                let answer = console.clone().oneshot(request).await.unwrap();
                assert!([303, 401].contains(&answer.status().as_u16()), "{answer:?}");
                // A wait ends at the next millisecond.
                latest = begun.elapsed();
                assert!(
                    (usual..usual + Duration::from_millis(3)).contains(&latest),
                    "{latest:?} for {usual:?}"
                );
            }
            assert!(latest > Duration::from_millis(100), "{latest:?}");
        }
    }

    #[test]
    fn the_secret_is_that_of_the_cookie_of_this_name() {
        let of = |text| secret(&headers(&[("cookie", text)])).map(str::to_owned);
        assert_eq!(of("a=1; tidegate-console=s3; b=2").as_deref(), Some("s3"));
        assert_eq!(of("xtidegate-console=s3"), None);
        assert_eq!(of("tidegate-console-x=s3"), None);
    }

    #[test]
    fn after_the_login_nobody_is_sent_elsewhere() {
        for next in ["/console", "/console/groups?q=a", "/console?hide=a"] {
            assert!(is_page(next), "{next}");
        }
        for next in [
            "",
            "/",
            "//evil.example",
            "https://evil.example/console",
            "/consoleevil",
            "/console/\\x",
            "/v1/groups",
        ] {
            assert!(!is_page(next), "{next}");
        }
    }
}
