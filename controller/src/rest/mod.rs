//! REST adapter: the admin API as JSON, its OpenAPI document, and `/metrics`.
//!
//! Every handler is: decode, one call of the service, encode. Errors are `{"error":{"code","message","field"?}}` with
//! the fitting status. Routes and document come from the same declarations, so that neither can lack what the other
//! has.

mod apply;
mod bindings;
mod cluster;
mod costs;
mod decode;
mod document;
mod error;
mod extract;
mod groups;
mod proposals;
mod shapes;
mod statements;
mod system;
mod tokens;
mod usage;
mod watches;

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use axum::{Extension, Json, Router};
use serde_json::{Value, json};
use tidegate_listener::{Surface, exposition};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::AdminError;
use crate::identity::guard::Guard;
use crate::identity::matrix::Call;
use crate::limits::MAX_MESSAGE_BYTES;
use crate::service::Service;
use crate::spans;

use error::ApiError;

#[derive(OpenApi)]
#[openapi(info(
    title = "tidegate controller",
    description = "Resource groups, bindings, cost tables, consumption and statements. Rates are decimal text in RU/s and amounts \
                   decimal text in RU, exact to a millionth. State who you are in the header x-tidegate-actor."
))]
struct Document;

/// The routes of one controller, of those that [`described`] returns.
pub(crate) fn router(described: Router, service: Arc<Service>) -> Router {
    described.layer(Extension(service))
}

/// The routes of any controller, with the document of them.
pub(crate) fn described() -> Router {
    let (routes, document) = api().split_for_parts();
    let document = Arc::new(document::complete(&document));
    let routes =
        plain(document).into_iter().fold(routes, |routes, (path, handler)| routes.route(path, handler));
    routes
        .fallback(|| async {
            ApiError::new(StatusCode::NOT_FOUND, "not_found", "no such path; see /openapi.json")
        })
        .method_not_allowed_fallback(|| async {
            let message = "this path does not take this method; see /openapi.json";
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
        })
        .layer(DefaultBodyLimit::max(MAX_MESSAGE_BYTES))
}

/// The routes behind a guard, if there is one.
pub(crate) fn guarded(routes: Router, guard: Option<&Arc<Guard>>) -> Router {
    match guard {
        Some(guard) => routes.layer(from_fn_with_state(Arc::clone(guard), admit)),
        None => routes,
    }
}

async fn admit(State(guard): State<Arc<Guard>>, mut request: Request, next: Next) -> Response {
    let method = request.method().clone();
    // A path that is none of a route's has no row, either.
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let path = matched.as_ref().map_or("", MatchedPath::as_str);
    let denied = match guard.admit(Surface::Rest, Call::Rest(method.as_str(), path), &mut request) {
        Ok(()) => return next.run(request).await,
        Err(denied) => denied,
    };
    tokio::time::sleep(denied.later).await;
    match denied.is_unknown {
        true => ApiError::new(StatusCode::UNAUTHORIZED, "unauthenticated", denied.message).into_response(),
        false => ApiError::new(StatusCode::FORBIDDEN, "denied", denied.message).into_response(),
    }
}

/// The routes beside the API's, all of them for GET.
fn plain(document: Arc<Value>) -> [(&'static str, MethodRouter); 4] {
    [
        ("/metrics", get(metrics)),
        ("/healthz", get(|| async { Json(json!({"status": "ok"})) })),
        ("/readyz", get(ready)),
        ("/openapi.json", get(move || async move { Json((*document).clone()) })),
    ]
}

fn api() -> OpenApiRouter {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(groups::list, groups::create))
        .routes(routes!(groups::read, groups::alter, groups::delete))
        .routes(routes!(bindings::list, bindings::bind, bindings::unbind))
        .routes(routes!(bindings::resolve))
        .routes(routes!(apply::apply))
        .routes(routes!(costs::list))
        .routes(routes!(costs::put, costs::drop_role))
        .routes(routes!(usage::usage))
        .routes(routes!(usage::history))
        .routes(routes!(usage::what_if))
        .routes(routes!(proposals::proposal, proposals::propose, proposals::withdraw))
        .routes(routes!(proposals::apply))
        .routes(routes!(proposals::list))
        .routes(routes!(usage::clients))
        .routes(routes!(usage::forget))
        .routes(routes!(usage::leases))
        .routes(routes!(system::status))
        .routes(routes!(system::audit))
        .routes(routes!(cluster::list))
        .routes(routes!(cluster::drain))
        .routes(routes!(cluster::forget))
        .routes(routes!(tokens::list, tokens::create))
        .routes(routes!(tokens::revoke))
        .routes(routes!(statements::list, statements::reset))
        .routes(routes!(watches::list, watches::add, watches::remove))
        .routes(routes!(watches::runaways))
}

async fn metrics(Extension(service): Extension<Arc<Service>>, headers: HeaderMap) -> Response {
    match service.metrics_page() {
        Ok(page) => {
            let (content_type, page) = exposition::shaped(&headers, page);
            ([(header::CONTENT_TYPE, content_type)], page).into_response()
        }
        Err(error) => ApiError::from(AdminError::Internal(error.to_string())).into_response(),
    }
}

/// Whether nodes are granted anything: a controller that is silent answers, and must get no traffic.
async fn ready(Extension(service): Extension<Arc<Service>>) -> Response {
    match service.silence() {
        None => Json(json!({"status": "ok"})).into_response(),
        Some(silence) => {
            let message = format!("nothing is granted: {silence}");
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message).into_response()
        }
    }
}

/// Runs a call that waits for the disk on a thread that may block.
async fn blocking<T: Send + 'static>(
    service: Arc<Service>,
    call: impl FnOnce(&Service) -> Result<T, AdminError> + Send + 'static,
) -> Result<T, ApiError> {
    match tokio::task::spawn_blocking(spans::carried(move || call(&service))).await {
        Ok(result) => result.map_err(ApiError::from),
        Err(error) => Err(AdminError::Internal(format!("the call did not finish: {error}")).into()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::identity::matrix;

    #[test]
    fn every_route_has_a_row_in_the_matrix_and_every_row_a_route() {
        let document = serde_json::to_value(api().split_for_parts().1).unwrap();
        let paths = document["paths"].as_object().unwrap().iter();
        let mut routes: BTreeSet<(String, String)> = paths
            .flat_map(|(path, of)| of.as_object().unwrap().keys().map(|by| (by.to_uppercase(), path.clone())))
            .collect();
        let plain = plain(Arc::new(Value::Null)).map(|(path, _)| ("GET".to_owned(), path.to_owned()));
        routes.extend(plain);
        let rows = matrix::REST.map(|(by, path, _)| (by.to_owned(), path.to_owned()));
        assert_eq!(routes, rows.into());
    }

    #[test]
    fn the_document_lists_every_path_with_its_errors() {
        let document = serde_json::to_value(api().split_for_parts().1).unwrap();
        let paths = document["paths"].as_object().unwrap();
        let expected = [
            ("/v1/groups", vec!["get", "post"]),
            ("/v1/groups/{name}", vec!["get", "patch", "delete"]),
            ("/v1/groups/{name}/what-if", vec!["get"]),
            ("/v1/groups/{name}/proposal", vec!["get", "put", "delete"]),
            ("/v1/groups/{name}/proposal/apply", vec!["post"]),
            ("/v1/proposals", vec!["get"]),
            ("/v1/bindings", vec!["get", "put", "delete"]),
            ("/v1/resolve", vec!["get"]),
            ("/v1/apply", vec!["post"]),
            ("/v1/cost-tables", vec!["get"]),
            ("/v1/cost-tables/{role}", vec!["put", "delete"]),
            ("/v1/usage", vec!["get"]),
            ("/v1/usage/{group}/history", vec!["get"]),
            ("/v1/clients", vec!["get"]),
            ("/v1/clients/{name}", vec!["delete"]),
            ("/v1/leases", vec!["get"]),
            ("/v1/status", vec!["get"]),
            ("/v1/audit", vec!["get"]),
            ("/v1/controllers", vec!["get"]),
            ("/v1/controllers/drain", vec!["post"]),
            ("/v1/controllers/{name}", vec!["delete"]),
            ("/v1/tokens", vec!["get", "post"]),
            ("/v1/tokens/{id}", vec!["delete"]),
            ("/v1/statements", vec!["get", "delete"]),
            ("/v1/watches", vec!["get", "post", "delete"]),
            ("/v1/runaways", vec!["get"]),
        ];
        assert_eq!(paths.len(), expected.len());
        for (path, methods) in expected {
            for method in methods {
                assert!(paths[path][method]["responses"]["200"].is_object(), "{method} {path}");
            }
        }
        for schema in ["Group", "QueryLimit", "Statement", "Watch", "Runaway"] {
            assert!(document["components"]["schemas"][schema].is_object(), "{schema}");
        }
    }
}
