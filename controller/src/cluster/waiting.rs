//! What a standby answers: who leads. It takes no other call, and holds no state that one could read.
//!
//! Streams of nodes are parked while the leader's beat is late or says that the leader leaves, since this controller may
//! lead in a moment; they end when that is decided, and nodes connect again: here, if this is the one.

use std::fmt;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Request, Response, StatusCode, header};
use axum::response::IntoResponse as _;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;
use tidegate_listener::exposition;
use tidegate_proto::ABOUT_TO_LEAD;
use tidegate_proto::v1::admin_server::AdminServer;
use tidegate_proto::v1::grants_server::GrantsServer;
use tidegate_proto::v1::statements_server::StatementsServer;
use tokio::sync::watch as flag;
use tonic::Status;
use tonic::metadata::MetadataValue;
use tonic::service::Routes;
use tonic_health::server::health_reporter;

use crate::grpc::{AdminAdapter, GrantsAdapter, StatementsAdapter};
use crate::metrics::Metrics;

/// The streams of nodes.
const STREAMS: [&str; 2] = ["/tidegate.v1.Grants/Session", "/tidegate.v1.Grants/Watch"];

/// What a standby knows of its cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// The name of this controller.
    pub(crate) name: String,
    /// Who leads, in words, with its address: if somebody does.
    pub(crate) leader: Option<String>,
    /// Whether this controller has looked who leads.
    pub(crate) has_looked: bool,
    /// Whether this controller may lead in a moment.
    pub(crate) is_open: bool,
    /// Why the cluster cannot be seen.
    pub(crate) trouble: Option<String>,
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "controller {} is a standby", self.name)?;
        match (&self.trouble, &self.leader) {
            (Some(trouble), _) => write!(f, ", and cannot see its cluster: {trouble}"),
            (None, Some(leader)) => write!(f, " of {leader}; call that one"),
            (None, None) if !self.has_looked => f.write_str(", and has not seen yet who leads; call again"),
            (None, None) => f.write_str(", and no controller leads yet; call again"),
        }
    }
}

/// What the handlers share.
#[derive(Clone)]
pub(crate) struct Waiting {
    view: flag::Receiver<View>,
    metrics: Arc<Metrics>,
}

impl Waiting {
    pub(crate) fn new(view: flag::Receiver<View>, metrics: Arc<Metrics>) -> Self {
        Self { view, metrics }
    }

    /// The routes of the gRPC listener. Health checks find the process alive, and none of its services.
    pub(crate) async fn grpc(&self) -> Router {
        let waiting = self.clone();
        let (reporter, health) = health_reporter();
        reporter.set_not_serving::<GrantsServer<GrantsAdapter>>().await;
        reporter.set_not_serving::<AdminServer<AdminAdapter>>().await;
        reporter.set_not_serving::<StatementsServer<StatementsAdapter>>().await;
        Routes::new(health)
            .prepare()
            .into_axum_router()
            .fallback(move |request| grpc(waiting.clone(), request))
    }

    /// The routes of the REST listener.
    pub(crate) fn rest(&self) -> Router {
        Router::new()
            .route("/healthz", get(|| async { Json(json!({"status": "ok"})) }))
            .route("/metrics", get(metrics))
            .fallback(rest)
            .with_state(self.clone())
    }

    /// What is known once this controller has looked, or could not: at its start that takes one read.
    async fn known(&mut self) -> View {
        let known = self.view.wait_for(|view| view.has_looked || view.trouble.is_some()).await;
        // An error means that this is no standby any more.
        let known = known.map(|view| view.clone()).ok();
        known.unwrap_or_else(|| self.view.borrow().clone())
    }
}

async fn grpc(mut waiting: Waiting, request: Request<Body>) -> Response<Body> {
    if STREAMS.contains(&request.uri().path()) && waiting.view.wait_for(|view| !view.is_open).await.is_err() {
        let name = waiting.view.borrow().name.clone();
        let reason = format!("controller {name} is no standby any more, and is about to lead; call again");
        let mut status = Status::unavailable(reason);
        status.metadata_mut().insert(ABOUT_TO_LEAD, MetadataValue::from_static("1"));
        return status.into_http();
    }
    Status::unavailable(waiting.known().await.to_string()).into_http()
}

async fn rest(State(mut waiting): State<Waiting>) -> Response<Body> {
    let body = json!({"error": {"code": "standby", "message": waiting.known().await.to_string()}});
    (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], Json(body)).into_response()
}

async fn metrics(State(waiting): State<Waiting>, headers: HeaderMap) -> Response<Body> {
    match waiting.metrics.page(&[]) {
        Ok(page) => {
            let (content_type, page) = exposition::shaped(&headers, page);
            ([(header::CONTENT_TYPE, content_type)], page).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use tower::ServiceExt as _;

    use super::*;

    fn waiting(view: View) -> (flag::Sender<View>, Waiting) {
        let sender = flag::Sender::new(View { name: "c2".to_owned(), ..view });
        let waiting = Waiting::new(sender.subscribe(), Arc::new(Metrics::new()));
        (sender, waiting)
    }

    fn led() -> View {
        View { leader: Some("c1 at http://127.0.0.1:7420".to_owned()), has_looked: true, ..View::default() }
    }

    fn asked(path: &str) -> Request<Body> {
        Request::builder().uri(path).body(Body::empty()).unwrap()
    }

    fn poll<F: Future>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
        future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    async fn text(response: Response<Body>) -> String {
        let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn calls_are_answered_with_who_leads() {
        let (_sender, waiting) = waiting(led());
        let rest = waiting.rest().oneshot(asked("/v1/groups")).await.unwrap();
        assert_eq!((rest.status().as_u16(), rest.headers()["retry-after"].to_str().unwrap()), (503, "1"));
        let said = "controller c2 is a standby of c1 at http://127.0.0.1:7420; call that one";
        assert_eq!(text(rest).await, json!({"error": {"code": "standby", "message": said}}).to_string());
        let grpc = waiting.grpc().await.oneshot(asked("/tidegate.v1.Admin/Status")).await.unwrap();
        assert_eq!(Status::from_header_map(grpc.headers()).unwrap().code(), tonic::Code::Unavailable);
        assert_eq!(Status::from_header_map(grpc.headers()).unwrap().message(), said);
        assert_eq!(waiting.rest().oneshot(asked("/healthz")).await.unwrap().status(), 200);
        assert_eq!(waiting.rest().oneshot(asked("/readyz")).await.unwrap().status(), 503);
        let page = text(waiting.rest().oneshot(asked("/metrics")).await.unwrap()).await;
        assert!(page.contains("\ntidegate_leads 0\n"), "{page}");
    }

    #[tokio::test]
    async fn streams_of_nodes_wait_for_the_decision_while_the_leader_is_late() {
        let (sender, waiting) = waiting(View { is_open: true, ..led() });
        let routes = waiting.grpc().await;
        let mut session = Box::pin(routes.clone().oneshot(asked("/tidegate.v1.Grants/Session")));
        assert!(poll(&mut session).is_pending());
        let other = routes.clone().oneshot(asked("/tidegate.v1.Admin/Status")).await.unwrap();
        assert!(Status::from_header_map(other.headers()).is_some(), "nobody else waits");
        sender.send_modify(|view| view.is_open = false);
        let Poll::Ready(Ok(ended)) = poll(&mut session) else { panic!("the decision ends the wait") };
        assert_eq!(Status::from_header_map(ended.headers()).unwrap().code(), tonic::Code::Unavailable);
        assert!(!ended.headers().contains_key(ABOUT_TO_LEAD), "another one leads");
        // So does the end of standing by.
        sender.send_modify(|view| view.is_open = true);
        let mut session = Box::pin(routes.oneshot(asked("/tidegate.v1.Grants/Watch")));
        assert!(poll(&mut session).is_pending());
        drop(sender);
        let Poll::Ready(Ok(ended)) = poll(&mut session) else { panic!("so does the end of standing by") };
        assert!(ended.headers().contains_key(ABOUT_TO_LEAD));
    }

    #[tokio::test]
    async fn a_standby_says_why_it_knows_no_leader() {
        let (_sender, mut nobody) = waiting(View { has_looked: true, ..View::default() });
        assert!(nobody.known().await.to_string().ends_with("and no controller leads yet; call again"));
        let trouble = Some("etcd is away".to_owned());
        let (_sender, mut blind) = waiting(View { trouble, ..View::default() });
        assert!(blind.known().await.to_string().ends_with("and cannot see its cluster: etcd is away"));
        let (sender, mut gone) = waiting(View::default());
        drop(sender);
        assert!(gone.known().await.to_string().ends_with("and has not seen yet who leads; call again"));
    }

    #[tokio::test]
    async fn no_call_is_answered_before_the_first_look() {
        let (sender, waiting) = waiting(View::default());
        let mut rest = Box::pin(waiting.rest().oneshot(asked("/v1/groups")));
        let mut grpc = Box::pin(waiting.grpc().await.oneshot(asked("/tidegate.v1.Admin/Status")));
        assert!(poll(&mut rest).is_pending() && poll(&mut grpc).is_pending());
        sender.send_modify(|view| *view = View { name: view.name.clone(), ..led() });
        assert!(text(rest.await.unwrap()).await.contains("c2 is a standby of c1"));
        let said = grpc.await.unwrap();
        assert!(Status::from_header_map(said.headers()).unwrap().message().contains("c2 is a standby of c1"));
    }
}
