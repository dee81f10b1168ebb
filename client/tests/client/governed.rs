//! What the tower layer counts and answers beside the usual.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::routing::{get, post};
use axum::{Extension, Router};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt as _;
use tidegate_client::meter::CpuTimer;
use tidegate_client::tower::{Estimate, GovernLayer, Subject, UsageRecorder};
use tidegate_client::{Client, Ru, Usage};
use tidegate_core::group::GroupSpec;
use tidegate_core::units::Rate;
use tower::{Layer as _, ServiceExt as _};

use crate::fake::Fake;
use crate::limits;

/// A client of the group `default`, for which a read costs 1 RU, and which knows the group already.
async fn client(fake: &Fake) -> Client {
    let client = limits::client(fake, GroupSpec::capped(Rate::whole(1_000))).await;
    client.resolve("", "").await.unwrap();
    client
}

#[tokio::test(start_paused = true)]
async fn the_adaptive_estimate_comes_an_eighth_nearer_with_each_request() {
    let fake = Fake::new();
    let client = client(&fake).await;
    let group = client.resolve_now("", "").unwrap();
    let read = |Extension(recorder): Extension<UsageRecorder>| async move {
        recorder.add(&Usage { read_requests: 3, ..Usage::default() });
    };
    let layer = GovernLayer::new(client.clone()).estimate(Estimate::Adaptive(Ru::whole(11)));
    let routes = Router::new().route("/", get(read)).layer(layer);
    for estimate in [Ru::whole(11), Ru::whole(10), Ru(9_125_000)] {
        let all = group.state().available;
        let response = routes.clone().oneshot(Request::new(Body::empty())).await.unwrap();
        assert_eq!(all - group.state().available, estimate);
        response.into_body().collect().await.unwrap();
        assert_eq!(all - group.state().available, Ru::whole(3));
    }
}

/// A body of one part whose making takes a while of the processor.
struct Made {
    left: usize,
    made: u64,
    /// What it says of its length.
    says: fn(u64) -> SizeHint,
}

impl http_body::Body for Made {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let timer = CpuTimer::begin();
        while timer.elapsed_ns() < self.made {
            std::hint::spin_loop();
        }
        let part = vec![b'x'; std::mem::take(&mut self.left)];
        Poll::Ready(Some(Ok(Frame::data(part.into()))))
    }

    fn size_hint(&self) -> SizeHint {
        (self.says)(self.left as u64)
    }
}

/// Of a stream whose parts are made one after the other.
fn nothing(_: u64) -> SizeHint {
    SizeHint::default()
}

fn most(length: u64) -> SizeHint {
    let mut hint = SizeHint::default();
    hint.set_upper(length);
    hint
}

#[tokio::test(start_paused = true)]
async fn what_the_making_of_a_body_takes_of_the_processor_is_counted_where_it_is_long() {
    let exactly: fn(u64) -> SizeHint = SizeHint::with_exact;
    // One that does not say how long it is may be long.
    for (length, says, is_counted) in [
        (16_384, exactly, false),
        (16_385, exactly, true),
        (100, nothing as fn(u64) -> SizeHint, true),
        (100, most, true),
    ] {
        let fake = Fake::new();
        let client = client(&fake).await;
        let made = tower::service_fn(move |_: Request<Body>| async move {
            Ok::<_, Infallible>(Response::new(Made { left: length, made: 20_000_000, says }))
        });
        let service = GovernLayer::new(client.clone()).layer(made);
        let response = service.oneshot(Request::new(Body::empty())).await.unwrap();
        let (told, meant) = (response.body().size_hint(), says(length as u64));
        assert_eq!((told.lower(), told.upper()), (meant.lower(), meant.upper()));
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes().len(), length);
        let total = client.resolve_now("", "").unwrap().consumption();
        assert_eq!((total.operations, total.usage.net_out_bytes), (1, length as u128));
        assert_eq!(total.usage.cpu_ns >= 20_000_000, is_counted, "{total:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_comes_in_parts_is_as_long_as_the_request_says() {
    let fake = Fake::new();
    let client = client(&fake).await;
    let routes = Router::new()
        .route("/", post(|body: String| async move { body.len().to_string() }))
        .layer(GovernLayer::new(client.clone()));
    let parts = [[b'y'; 200], [b'y'; 200]].map(|part| Ok::<_, Infallible>(Bytes::from(part.to_vec())));
    let body = Body::from_stream(tokio_stream::iter(parts));
    let request = Request::post("/").header("content-length", "400").body(body).unwrap();
    drop(routes.oneshot(request).await.unwrap());
    assert_eq!(client.resolve_now("", "").unwrap().consumption().usage.net_in_bytes, 400);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_one_of_http_unless_the_request_is_one_of_grpc() {
    let fake = Fake::new();
    let client = client(&fake).await;
    let routes = Router::new().route("/", post(|| async { "ran" })).layer(GovernLayer::new(client.clone()));
    for (kind, status) in [
        ("application/json", StatusCode::BAD_REQUEST),
        ("application/grpc", StatusCode::OK),
        ("application/grpc+proto", StatusCode::OK),
    ] {
        let request = Request::post("/").header("content-type", kind).header("x-tenant", "");
        let response = routes.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), status, "{kind}");
        assert_eq!(response.headers().contains_key("grpc-status"), status == StatusCode::OK, "{kind}");
        let text = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(text.is_empty(), status == StatusCode::OK, "{kind}: {text:?}");
    }
}

#[test]
fn a_name_of_64_bytes_is_taken_and_a_longer_one_is_not() {
    for (length, taken) in [(1, true), (64, true), (65, false)] {
        let request = Request::get("/").header("x-tenant", "t".repeat(length)).body(()).unwrap();
        assert_eq!(Subject::from_headers(&request.into_parts().0).is_some(), taken, "{length} bytes");
    }
}
