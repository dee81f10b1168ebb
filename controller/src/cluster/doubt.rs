//! A leader that is cut off from the shared store may have a successor: what it knows of definitions, usage and nodes may
//! be older than what another one has acknowledged. It answers no call about them but for its status, and says why. One that
//! has left its leases to the next one has a successor, and would store nothing of what it is told, of statements either.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use serde_json::json;
use tonic::Status;

use crate::leasing::fence::{Silence, silence_of_a_member};
use crate::service::Service;

/// Says why the controller is silent, if it is.
type Ask = Arc<dyn Fn() -> Option<Silence> + Send + Sync>;

/// The silence of a controller of a cluster; a controller alone has no successor.
pub(crate) fn of(service: &Arc<Service>) -> Ask {
    let service = Arc::clone(service);
    Arc::new(move || silence_of_a_member(&service))
}

/// The routes of the gRPC listener, with `Admin` closed while the controller may have a successor.
pub(crate) fn grpc(routes: Router, ask: Ask) -> Router {
    routes.layer(from_fn_with_state(ask, async |State(ask): State<Ask>, request: Request, next: Next| {
        let path = request.uri().path();
        let is_about = path.starts_with("/tidegate.v1.Admin/") && !path.ends_with("/Status");
        let may_store = is_about || path.starts_with("/tidegate.v1.Statements/");
        match may_store.then(|| doubt(&ask, is_about)).flatten() {
            Some(why) => Status::unavailable(why).into_http(),
            None => next.run(request).await,
        }
    }))
}

/// The routes of the REST listener, with the API and the console closed while the controller may have a successor.
pub(crate) fn rest(routes: Router, ask: Ask) -> Router {
    routes.layer(from_fn_with_state(ask, async |State(ask): State<Ask>, request: Request, next: Next| {
        let path = request.uri().path();
        let is_page = path.starts_with("/console") && !path.starts_with("/console/assets/");
        let is_about = is_page || path.starts_with("/v1/") && path != "/v1/status";
        match is_about.then(|| doubt(&ask, true)).flatten() {
            // Its reader is a person.
            Some(why) if is_page => (StatusCode::SERVICE_UNAVAILABLE, why).into_response(),
            Some(why) => closed(&why),
            None => next.run(request).await,
        }
    }))
}

fn closed(why: &str) -> Response {
    let body = json!({"error": {"code": "unavailable", "message": why}});
    (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response()
}

fn doubt(ask: &Ask, is_about: bool) -> Option<String> {
    let closes = |why: &Silence| why.may_have_successor() && (is_about || *why == Silence::Left);
    ask().filter(closes).map(|why| why.to_string())
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::routing::any;
    use tidegate_core::units::Span;
    use tonic::Code;
    use tower::ServiceExt as _;

    use super::*;

    fn asking(silence: Option<Silence>) -> Ask {
        Arc::new(move || silence)
    }

    async fn answer(routes: Router, path: &str) -> Response {
        routes.oneshot(Request::builder().uri(path).body(Body::empty()).unwrap()).await.unwrap()
    }

    #[tokio::test]
    async fn a_leader_that_may_have_a_successor_tells_its_status_and_nothing_else() {
        let routes = || Router::new().fallback(any(async || "known"));
        let cut_off = || asking(Some(Silence::CutOff(Span::secs(1))));
        for (path, is_closed) in [
            ("/tidegate.v1.Admin/ListGroups", true),
            ("/tidegate.v1.Admin/Status", false),
            ("/tidegate.v1.Grants/Session", false),
            ("/tidegate.v1.Statements/Report", false),
        ] {
            let said = answer(grpc(routes(), cut_off()), path).await;
            let code = Status::from_header_map(said.headers()).map(|status| status.code());
            assert_eq!(code == Some(Code::Unavailable), is_closed, "{path}");
        }
        for (path, is_closed) in [
            ("/v1/groups", true),
            ("/v1/status", false),
            ("/metrics", false),
            ("/console", true),
            ("/console/bind", true),
            ("/console/live", true),
            ("/console/assets/page.css", false),
        ] {
            let said = answer(rest(routes(), cut_off()), path).await;
            assert_eq!(said.status() == StatusCode::SERVICE_UNAVAILABLE, is_closed, "{path}");
        }
    }

    #[tokio::test]
    async fn one_that_has_left_takes_nothing_that_it_would_have_to_store() {
        for (path, is_closed) in [
            ("/tidegate.v1.Admin/ListGroups", true),
            ("/tidegate.v1.Statements/Report", true),
            ("/tidegate.v1.Admin/Status", false),
            ("/grpc.health.v1.Health/Check", false),
        ] {
            let routes = Router::new().fallback(any(async || "known"));
            let said = answer(grpc(routes, asking(Some(Silence::Left))), path).await;
            let code = Status::from_header_map(said.headers()).map(|status| status.code());
            assert_eq!(code == Some(Code::Unavailable), is_closed, "{path}");
        }
    }

    #[tokio::test]
    async fn one_that_leads_or_waits_for_its_predecessor_answers() {
        for silence in [None, Some(Silence::Predecessor(Span::secs(1)))] {
            let routes = Router::new().fallback(any(async || "known"));
            let said = answer(grpc(routes, asking(silence)), "/tidegate.v1.Admin/ListGroups").await;
            assert!(Status::from_header_map(said.headers()).is_none(), "{silence:?}");
        }
    }
}
