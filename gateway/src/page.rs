//! The page of metrics, over HTTP.

use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;

use crate::govern::Governor;
use crate::metrics::Sample;
use crate::seats::Seats;

const TEXT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the page shows.
pub(crate) struct Page {
    pub(crate) governor: Arc<Governor>,
    pub(crate) seats: Arc<Seats>,
}

impl Page {
    /// Answers until aborted.
    pub(crate) async fn serve(self, listener: TcpListener) {
        let page = Arc::new(self);
        let router = Router::new()
            .route("/metrics", get(move || std::future::ready(page.answer())))
            .fallback(|| std::future::ready((StatusCode::NOT_FOUND, "no such path; see /metrics\n")));
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, "the page of metrics is no longer served");
        }
    }

    fn answer(&self) -> Response {
        let sample = Sample { sessions: self.seats.taken(), connected: self.governor.is_connected() };
        match self.governor.metrics().page(sample) {
            Ok(page) => ([(header::CONTENT_TYPE, TEXT)], page).into_response(),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        }
    }
}
