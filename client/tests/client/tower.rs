//! The tower layer around axum and tonic services.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::routing::{get, post};
use axum::{Extension, Router};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use tidegate_client::tower::{Estimate, GovernLayer, Subject, UsageRecorder};
use tidegate_client::{Client, Ru, Usage};
use tidegate_core::group::GroupSpec;
use tidegate_core::units::Rate;
use tokio::time::Instant;
use tokio_stream::wrappers::TcpListenerStream;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tower::{Layer as _, Service, ServiceExt as _};

use crate::fake::{Fake, eventually, piped};

async fn governed(fake: &Fake, rate: Rate) -> Client {
    fake.group("default", GroupSpec::capped(rate));
    fake.group("acme", GroupSpec::capped(Rate::whole(1_000)));
    fake.bind("acme", "", "acme");
    let client = piped(fake).connect().await.unwrap();
    client.resolve("", "").await.unwrap();
    client.resolve("acme", "").await.unwrap();
    client
}

fn ru(headers: &HeaderMap, name: &str) -> f64 {
    headers.get(name).unwrap_or_else(|| panic!("no {name} in {headers:?}")).to_str().unwrap().parse().unwrap()
}

fn consumed(client: &Client, tenant: &str) -> tidegate_client::Total {
    client.resolve_now(tenant, "").unwrap().consumption()
}

#[tokio::test(start_paused = true)]
async fn an_axum_request_is_metered_and_charged_to_its_tenant() {
    let fake = Fake::new();
    let client = governed(&fake, Rate::whole(1_000)).await;
    let read = |Extension(recorder): Extension<UsageRecorder>| async move {
        recorder.add(&Usage { read_requests: 2, read_bytes: 128 * 1024, ..Usage::default() });
        "x".repeat(1_000)
    };
    let routes = Router::new()
        .route("/", get(read))
        .route("/up", post(|body: String| async move { body.len().to_string() }))
        .layer(GovernLayer::new(client.clone()));
    let request = Request::get("/").header("x-tenant", "acme").body(Body::empty()).unwrap();
    let response = routes.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let told = ru(response.headers(), "x-ru-charge");
    assert!(told > 0.0 && ru(response.headers(), "x-ru-remaining") > 0.0);
    assert_eq!(consumed(&client, "acme").operations, 0, "settled when the body ends");
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes().len(), 1_000);
    let total = consumed(&client, "acme");
    assert_eq!((total.operations, total.usage.net_out_bytes, total.usage.read_bytes), (1, 1_000, 128 * 1024));
    assert!(total.usage.cpu_ns > 0 && total.ru().0 as f64 / 1e6 >= told, "{total:?} {told}");
    assert_eq!(consumed(&client, "").operations, 0);

    let request = Request::post("/up").body(Body::from("y".repeat(500))).unwrap();
    let response = routes.oneshot(request).await.unwrap();
    drop(response);
    let total = consumed(&client, "");
    // Dropped before the body was read: charged for what was used until then.
    assert_eq!((total.operations, total.usage.net_in_bytes, total.usage.net_out_bytes), (1, 500, 0));
}

#[tokio::test(start_paused = true)]
async fn a_request_takes_its_estimate_and_gives_back_what_it_did_not_need() {
    let fake = Fake::new();
    let client = governed(&fake, Rate::whole(1_000)).await;
    let group = client.resolve_now("", "").unwrap();
    let layer = GovernLayer::new(client.clone()).estimate(Estimate::Fixed(Ru::whole(40)));
    let routes = Router::new().route("/", get(|| async { "ran" })).layer(layer);
    let all = group.state().available;
    let response = routes.oneshot(Request::new(Body::empty())).await.unwrap();
    assert_eq!(group.state().available, all - Ru::whole(40));
    response.into_body().collect().await.unwrap();
    let charged = group.consumption().ru().clamped();
    assert!(charged.is_positive() && charged < Ru::whole(40), "{charged}");
    assert_eq!(group.state().available, all - charged);
}

/// A request over a limit in shadow took nothing, so that its end gives nothing back, also once the limit is enforced.
#[tokio::test(start_paused = true)]
async fn a_request_over_a_limit_in_shadow_gives_nothing_back() {
    let fake = Fake::new();
    let client = governed(&fake, Rate::whole(1_000)).await;
    fake.group("default", GroupSpec { shadow: true, ..GroupSpec::capped(Rate::whole(1_000)) });
    let group = client.resolve_now("", "").unwrap();
    eventually("the limit is in shadow", || group.state().shadow).await;
    let layer = GovernLayer::new(client.clone()).estimate(Estimate::Fixed(Ru::whole(40)));
    let routes = Router::new().route("/", get(|| async { "ran" })).layer(layer);
    let _paid = group.try_acquire(group.state().available).unwrap();
    let before = group.state().available;
    let response = routes.oneshot(Request::new(Body::empty())).await.unwrap();
    response.into_body().collect().await.unwrap();
    assert_eq!((group.state().available, group.consumption().throttled), (before, 1));
}

/// Serves only as tower's contract has it: the one that was polled ready, and each time once.
struct Once {
    is_ready: bool,
}

impl Clone for Once {
    fn clone(&self) -> Self {
        Self { is_ready: false }
    }
}

impl Service<Request<Body>> for Once {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        assert!(std::mem::take(&mut self.is_ready), "it was not polled ready");
        ready(Ok(http::Response::new(Body::empty())))
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_polled_ready_serves_also_who_had_to_wait() {
    let fake = Fake::new();
    let client = governed(&fake, Rate::whole(10)).await;
    let layer = GovernLayer::new(client.clone()).estimate(Estimate::Fixed(Ru::whole(8)));
    let mut governed = layer.wait(Duration::from_secs(5)).layer(Once { is_ready: false });
    let group = client.resolve_now("", "").unwrap();
    for _ in 0..2 {
        drop(group.acquire(Ru::whole(8), Duration::from_secs(5)).await.unwrap());
        let began = Instant::now();
        let response = governed.ready().await.unwrap().call(Request::new(Body::empty())).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert!(began.elapsed() > Duration::from_millis(100), "{:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn refused_http_requests_get_their_status_and_never_run() {
    let fake = Fake::new();
    let client = governed(&fake, Rate::whole(10)).await;
    let serve = |layer: GovernLayer| Router::new().route("/", get(|| async { "ran" })).layer(layer);
    let layer = GovernLayer::new(client.clone()).wait(Duration::ZERO);
    let ask = |routes: Router, tenant: &'static str| {
        let request = Request::get("/");
        let request = if tenant.is_empty() { request } else { request.header("x-tenant", tenant) };
        routes.oneshot(request.body(Body::empty()).unwrap())
    };
    let dear = serve(layer.clone().estimate(Estimate::Fixed(Ru::whole(1_000))));
    let response = ask(dear, "").await.unwrap();
    assert_eq!(response.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert!(response.headers().get("retry-after").is_none());
    // What the service says of a request is no guess of the layer, which would be cut to what fits.
    let told = serve(layer.clone().estimate(Estimate::By(Arc::new(|_| Ru::whole(1_000)))));
    assert_eq!(ask(told, "").await.unwrap().status(), StatusCode::UNPROCESSABLE_ENTITY);

    let group = client.resolve_now("", "").unwrap();
    drop(group.acquire(Ru::whole(8), Duration::from_secs(5)).await.unwrap());
    let routes = serve(layer.clone().estimate(Estimate::Fixed(Ru::whole(9))));
    let response = ask(routes, "").await.unwrap();
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(ru(response.headers(), "retry-after") >= 1.0);
    assert_eq!(ru(response.headers(), "x-ru-charge"), 0.0);
    assert!((0.0..9.0).contains(&ru(response.headers(), "x-ru-remaining")), "{:?}", response.headers());
    let text = response.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&text).contains("group default is throttled"), "{text:?}");

    let unknown = serve(layer.clone().subject(|_| Subject { tenant: "gone".into(), user: String::new() }));
    fake.bind("gone", "", "no-such-group");
    eventually("the binding arrives", || client.stats().bindings == 2).await;
    let patient = Router::new().route("/", get(|| async { "ran" })).layer(
        layer
            .clone()
            .wait(Duration::from_secs(5))
            .subject(|_| Subject { tenant: "gone".into(), user: String::new() }),
    );
    assert_eq!(ask(patient, "").await.unwrap().status(), StatusCode::FORBIDDEN);
    assert_eq!(ask(unknown, "").await.unwrap().status(), StatusCode::FORBIDDEN);

    fake.go_down();
    let acme = client.resolve_now("acme", "").unwrap();
    eventually("the lease ends", || acme.state().lease == tidegate_client::LeaseState::Expired).await;
    let response = ask(serve(layer), "acme").await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(response.headers().get("retry-after").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_request_given_up_half_way_is_charged_for_that_half() {
    let fake = Fake::new();
    let client = governed(&fake, Rate::whole(1_000)).await;
    let slow = tower::service_fn(|_: Request<Body>| async {
        std::future::pending::<()>().await;
        Ok::<_, Infallible>(http::Response::new(Body::empty()))
    });
    let service = GovernLayer::new(client.clone()).layer(slow);
    let call = service.oneshot(Request::new(Body::empty()));
    assert!(tokio::time::timeout(Duration::from_secs(1), call).await.is_err());
    let total = consumed(&client, "");
    assert_eq!(total.operations, 1);
    assert!(total.usage.cpu_ns > 0);
    assert_eq!(client.shutdown().await.open_permits, 0);
}

/// What it used until it failed is used.
#[tokio::test(start_paused = true)]
async fn a_request_whose_service_fails_is_charged_whether_it_waited_or_not() {
    let fake = Fake::new();
    let client = governed(&fake, Rate::whole(10)).await;
    let fails = tower::service_fn(|request: Request<Body>| async move {
        request
            .extensions()
            .get::<UsageRecorder>()
            .unwrap()
            .add(&Usage { read_bytes: 4_096, ..Usage::default() });
        Err::<http::Response<Body>, _>(std::io::Error::other("the service failed"))
    });
    let layer = GovernLayer::new(client.clone()).estimate(Estimate::Fixed(Ru::whole(8)));
    let mut governed = layer.wait(Duration::from_secs(5)).layer(fails);
    let group = client.resolve_now("", "").unwrap();
    for _ in 0..2 {
        let before = group.consumption();
        let error = governed.ready().await.unwrap().call(Request::new(Body::empty())).await.unwrap_err();
        assert_eq!(error.to_string(), "the service failed");
        let charged = group.consumption().minus(&before).unwrap();
        assert_eq!((charged.operations, charged.usage.read_bytes), (1, 4_096));
        // The next one has to wait.
        drop(group.acquire(Ru::whole(8), Duration::from_secs(5)).await.unwrap());
    }
    assert_eq!(client.shutdown().await.open_permits, 0);
}

#[tokio::test(start_paused = true)]
async fn the_adaptive_estimate_learns_and_never_grows_past_what_fits() {
    let fake = Fake::new();
    let client = governed(&fake, Rate::whole(100)).await;
    let layer = GovernLayer::new(client.clone())
        .estimate(Estimate::Adaptive(Ru::whole(1_000_000)))
        .wait(Duration::from_secs(60));
    let routes = Router::new().route("/", get(|| async { "ran" })).layer(layer);
    for _ in 0..3 {
        let response = routes.clone().oneshot(Request::new(Body::empty())).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        response.into_body().collect().await.unwrap();
    }
    assert_eq!(consumed(&client, "").operations, 3);
}

/// Serves gRPC health checks behind `layer` on a free port.
async fn health(layer: GovernLayer) -> HealthClient<tonic::transport::Channel> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (_reporter, service) = tonic_health::server::health_reporter();
    let server = tonic::transport::Server::builder().layer(layer).add_service(service);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let channel = tonic::transport::Endpoint::from_shared(endpoint).unwrap().connect().await.unwrap();
    HealthClient::new(channel)
}

#[tokio::test]
async fn a_tonic_service_is_governed_and_refuses_with_grpc_codes() {
    let fake = Fake::new();
    let client = governed(&fake, Rate::whole(1_000)).await;
    let mut stub = health(GovernLayer::new(client.clone()).wait(Duration::from_secs(20))).await;
    let mut request = tonic::Request::new(HealthCheckRequest::default());
    request.metadata_mut().insert("x-tenant", "acme".parse().unwrap());
    let response = stub.check(request).await.unwrap();
    assert!(response.metadata().get("x-ru-charge").is_some(), "{:?}", response.metadata());
    assert!(response.metadata().get("x-ru-remaining").is_some());
    eventually("settled", || consumed(&client, "acme").operations == 1).await;
    assert!(consumed(&client, "acme").usage.net_out_bytes > 0);

    let layer = GovernLayer::new(client.clone()).wait(Duration::ZERO);
    let mut dear = health(layer.clone().estimate(Estimate::Fixed(Ru::whole(1_000_000)))).await;
    let status = dear.check(HealthCheckRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::OutOfRange, "{status:?}");

    let mut greedy = health(layer.estimate(Estimate::Fixed(Ru::whole(990)))).await;
    let mut statuses = Vec::new();
    for _ in 0..2 {
        statuses.extend(greedy.check(HealthCheckRequest::default()).await.err());
    }
    let status = statuses.first().expect("one of two cannot be covered");
    assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{status:?}");
    assert!(status.message().contains("group default"), "{status:?}");
    for header in ["retry-after", "retry-after-ms"] {
        assert!(status.metadata().get(header).is_some(), "{:?}", status.metadata());
    }
}

#[tokio::test(start_paused = true)]
async fn a_malformed_header_is_refused_or_charged_to_a_group_of_ones_choice_and_never_to_default() {
    let fake = Fake::new();
    let client = governed(&fake, Rate::whole(1_000)).await;
    let layer = GovernLayer::new(client.clone());
    let serve = |layer: GovernLayer| Router::new().route("/", get(|| async { "ran" })).layer(layer);
    let long = "x".repeat(65);
    let cases: [&[(&str, &[u8])]; 6] = [
        &[("x-tenant", b"ac\xffme")],
        &[("x-tenant", b"")],
        &[("x-tenant", b"acme"), ("x-tenant", b"default")],
        &[("x-tenant", long.as_bytes())],
        &[("x-tenant", b"acme"), ("x-user", b"\x80")],
        &[("x-user", b"")],
    ];
    for headers in cases {
        let request = || {
            let request = Request::get("/");
            let request =
                headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
            request.body(Body::empty()).unwrap()
        };
        let response = serve(layer.clone()).oneshot(request()).await.unwrap();
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{headers:?}");
        let before = consumed(&client, "acme").operations;
        let response = serve(layer.clone().otherwise("acme")).oneshot(request()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{headers:?}");
        drop(response);
        assert_eq!(consumed(&client, "acme").operations, before + 1, "{headers:?}");
    }
    assert_eq!(consumed(&client, "").operations, 0);
    // A closure may say so, too.
    let none = serve(layer.subject(|_| None::<Subject>));
    let response = none.oneshot(Request::get("/").body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
}
