//! The page of metrics, over HTTP.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tidegate_listener::{Bodies, Door, Hosts, Surface, exposition};

use crate::govern::Governor;
use crate::metrics::{Metrics, Sample};
use crate::seats::Seats;

/// Connections at a time: of scrapers, which take one or two each, and of people. Half of it is still more than anybody
/// has; each is a descriptor that a session cannot have.
const MOST_CONNECTIONS: usize = 64;

/// The figures that the page shows.
pub(crate) struct Page {
    pub(crate) governor: Arc<Governor>,
    pub(crate) seats: Arc<Seats>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Page {
    /// The listener at this address that serves it.
    pub(crate) fn door(self, address: SocketAddr) -> Door {
        let tally = Arc::clone(&self.metrics) as _;
        let page = Arc::new(self);
        let router = Router::new()
            .route("/metrics", get(move |headers: HeaderMap| std::future::ready(page.answer(&headers))))
            .fallback(|| std::future::ready((StatusCode::NOT_FOUND, "no such path; see /metrics\n")));
        Door {
            surface: Surface::Rest,
            router,
            tally,
            bodies: Arc::new(Bodies::default()),
            hosts: Hosts::of(address, &[], None),
            most: MOST_CONNECTIONS,
            other: None,
            tls: None,
            failures: Arc::default(),
            greeting: None,
        }
    }

    fn answer(&self, headers: &HeaderMap) -> Response {
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
