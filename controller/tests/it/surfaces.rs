//! The services for other tools: reflection of both versions, and readiness.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use tidegate_controller::{Config, Controller, inside};
use tidegate_core::units::Span;
use tokio::time::{Instant, timeout};
use tokio_stream::once;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tower::ServiceExt as _;

use crate::support::{Faulty, Lab, MemoryStore, PATIENCE, config, started};

/// The names of all services, by one version of reflection.
macro_rules! services {
    ($lab:expr, $version:ident) => {{
        use tonic_reflection::pb::$version::ServerReflectionRequest;
        use tonic_reflection::pb::$version::server_reflection_client::ServerReflectionClient;
        use tonic_reflection::pb::$version::server_reflection_request::MessageRequest;
        use tonic_reflection::pb::$version::server_reflection_response::MessageResponse;
        let request = ServerReflectionRequest {
            host: String::new(),
            message_request: Some(MessageRequest::ListServices(String::new())),
        };
        let mut client = ServerReflectionClient::new($lab.channel().await);
        let mut answers = client.server_reflection_info(once(request)).await.unwrap().into_inner();
        let answer = timeout(PATIENCE, answers.message()).await.unwrap().unwrap().unwrap();
        let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
            panic!("a list was expected: {answer:?}")
        };
        let mut names: Vec<String> = list.service.into_iter().map(|service| service.name).collect();
        names.sort();
        names
    }};
}

#[tokio::test]
async fn tools_of_before_and_after_v1_find_the_services() {
    let lab = Lab::start().await;
    let names = services!(lab, v1);
    for name in ["grpc.health.v1.Health", "tidegate.v1.Admin", "tidegate.v1.Grants", "tidegate.v1.Statements"]
    {
        assert!(names.iter().any(|found| found == name), "{name}: {names:?}");
    }
    let before = services!(lab, v1alpha);
    assert!(before.iter().any(|name| name == "tidegate.v1.Admin"), "{before:?}");
}

/// A controller that falls silent while its disk is full.
async fn fenced() -> (Lab, Arc<Faulty>) {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Faulty::over(Arc::new(MemoryStore::default())));
    let config = Config { fence: Some(Span::secs(1)), ..config(&folder) };
    let running = Controller::start_with(config, Arc::clone(&store) as _).await.unwrap();
    (Lab { folder, running }, store)
}

#[tokio::test]
async fn who_may_grant_nothing_is_not_ready_and_says_why() {
    let (lab, store) = fenced().await;
    let begun = Instant::now();
    let ready = async |wanted: u16| loop {
        let (status, body) = lab.http("GET", "/readyz", None).await;
        if status == wanted {
            return body;
        }
        assert!(begun.elapsed() < PATIENCE, "{wanted}: {status} {body}");
    };
    ready(200).await;
    store.full.store(true, Ordering::SeqCst);
    let said = ready(503).await;
    let message = said["error"]["message"].as_str().unwrap();
    assert!(said["error"]["code"] == "unavailable" && message.starts_with("nothing is granted: "), "{said}");
    assert_eq!(lab.http("GET", "/healthz", None).await.0, 200, "the process serves");
    store.full.store(false, Ordering::SeqCst);
    ready(200).await;
}

/// It answers on while its last streams end, and its successor grants by then.
#[tokio::test]
async fn who_has_left_its_leases_to_the_next_one_is_not_ready_any_more() {
    let service = Arc::new(started(&Arc::new(MemoryStore::default()), &Arc::default()));
    let asked = async |path: &str| {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let said = inside::rest(Arc::clone(&service)).oneshot(request).await.unwrap();
        let status = said.status().as_u16();
        (status, String::from_utf8(to_bytes(said.into_body(), 1 << 20).await.unwrap().to_vec()).unwrap())
    };
    assert_eq!(asked("/readyz").await.0, 200);
    service.shut_down().unwrap();
    let (status, body) = asked("/readyz").await;
    let why = format!("nothing is granted: {}", service.silence().unwrap());
    assert!(status == 503 && body.contains(&why), "{status} {body}: {why}");
    assert_eq!(asked("/healthz").await.0, 200, "the process serves");
}

/// Balancers ask for it in place of `/readyz`.
#[tokio::test]
async fn the_health_of_grants_goes_and_comes_back_with_the_store() {
    let (lab, store) = fenced().await;
    let mut health = HealthClient::new(lab.channel().await);
    let begun = Instant::now();
    let mut until = async |wanted: ServingStatus| loop {
        let service = "tidegate.v1.Grants".to_owned();
        let found = health.check(HealthCheckRequest { service }).await.unwrap().into_inner().status();
        if found == wanted {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{wanted:?}: {found:?}");
    };
    until(ServingStatus::Serving).await;
    store.full.store(true, Ordering::SeqCst);
    until(ServingStatus::NotServing).await;
    store.full.store(false, Ordering::SeqCst);
    until(ServingStatus::Serving).await;
}
