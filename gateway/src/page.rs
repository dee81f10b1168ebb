//! The page of metrics, over HTTP: for all who reach it, or for those who show a token.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tidegate_listener::{Bodies, Door, Failures, Hosts, Surface, Tally as _, exposition};
use tidegate_tls::{Server, Watched};
use tokio::time::sleep;

use crate::govern::Governor;
use crate::metrics::{Metrics, Sample};
use crate::page_token::PageToken;
use crate::seats::Seats;

/// Connections at a time: of scrapers, which take one or two each, and of people. Half of it is still more than anybody
/// has; each is a descriptor that a session cannot have.
const MOST_CONNECTIONS: usize = 64;

/// How a caller without the token is answered.
const NEEDED: &str =
    "this page needs the token of metrics_token_file, as the header `authorization: Bearer TOKEN`\n";

/// The figures that the page shows, and to whom.
pub(crate) struct Page {
    pub(crate) governor: Arc<Governor>,
    pub(crate) seats: Arc<Seats>,
    pub(crate) metrics: Arc<Metrics>,
    /// Certificates whose ends are shown, by the label of the series.
    pub(crate) certificates: Vec<(&'static str, Arc<dyn Watched>)>,
    /// The token of callers, where they have to show one.
    pub(crate) token: Option<Arc<PageToken>>,
    /// Who keeps showing others.
    pub(crate) failures: Arc<Failures>,
}

impl Page {
    /// The listener at this address that serves it.
    pub(crate) fn door(self, address: SocketAddr, tls: Option<Arc<Server>>) -> Door {
        let (tally, failures) = (Arc::clone(&self.metrics) as _, Arc::clone(&self.failures));
        let page = Arc::new(self);
        let answer = move |ConnectInfo(peer): ConnectInfo<SocketAddr>, headers: HeaderMap| {
            let page = Arc::clone(&page);
            async move {
                match page.refusal(peer, &headers).await {
                    Some(refusal) => refusal,
                    None => page.answer(&headers),
                }
            }
        };
        let router = Router::new()
            .route("/metrics", get(answer))
            .fallback(|| std::future::ready((StatusCode::NOT_FOUND, "no such path; see /metrics\n")));
        Door {
            surface: Surface::Rest,
            router,
            tally,
            bodies: Arc::new(Bodies::default()),
            hosts: Hosts::of(address, &[], None),
            most: MOST_CONNECTIONS,
            other: None,
            tls,
            failures,
            greeting: None,
        }
    }

    /// The answer to a caller that has to show the token and does not: the later, the more often its address failed.
    async fn refusal(&self, peer: SocketAddr, headers: &HeaderMap) -> Option<Response> {
        let token = self.token.as_ref()?;
        let shown = headers.get(header::AUTHORIZATION).map(|value| value.to_str().unwrap_or_default());
        let shown = shown.map(|value| value.strip_prefix("Bearer ").unwrap_or_default().trim());
        if shown.is_some_and(|shown| token.is(shown)) {
            self.failures.proved(peer.ip());
            return None;
        }
        if shown.is_some() {
            let later = self.failures.failed(peer.ip());
            if let Some(left_out) = self.failures.say() {
                tracing::info!(%peer, left_out, "a caller of the page of metrics showed a wrong token");
            }
            sleep(later).await;
        }
        let reason = if shown.is_some() { "bad_token" } else { "unauthenticated" };
        self.metrics.turned_away(Surface::Rest, reason);
        Some((StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], NEEDED).into_response())
    }

    fn answer(&self, headers: &HeaderMap) -> Response {
        for (certificate, files) in &self.certificates {
            for expiry in files.expiries() {
                self.metrics.tls.expires(certificate, expiry.not_after);
            }
        }
        let sample = Sample { sessions: self.seats.taken(), connected: self.governor.is_connected() };
        match self.metrics.page(sample) {
            Ok(page) => {
                let (content_type, page) = exposition::shaped(headers, page);
                ([(header::CONTENT_TYPE, content_type)], page).into_response()
            }
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        }
    }
}
