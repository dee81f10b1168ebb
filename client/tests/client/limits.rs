//! What callers of a governed service read in `RateLimit-Policy` and `RateLimit`, over HTTP/1.1 in paused time.

use std::time::Duration;

use axum::routing::get;
use axum::serve::Listener;
use axum::{Extension, Router};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use tidegate_client::tower::{Estimate, GovernLayer, UsageRecorder};
use tidegate_client::{Client, LeaseState, QuotaUnit, Ru, Usage};
use tidegate_core::group::GroupSpec;
use tidegate_core::units::{Rate, Span};
use tidegate_proto::v1;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::sync::mpsc;

use crate::fake::{Fake, eventually, piped};
use crate::fields::{Item, Value, list};

/// Connections of one process.
struct Wires(mpsc::Receiver<DuplexStream>);

impl Listener for Wires {
    type Io = DuplexStream;
    type Addr = ();

    async fn accept(&mut self) -> (DuplexStream, ()) {
        match self.0.recv().await {
            Some(wire) => (wire, ()),
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A server, reached over connections in memory, so that time can be paused.
struct Server(mpsc::Sender<DuplexStream>);

impl Server {
    fn start(routes: Router) -> Self {
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(async { axum::serve(Wires(receiver), routes).await });
        Self(sender)
    }

    async fn get(&self, path: &str) -> (StatusCode, HeaderMap) {
        let (mut wire, server) = duplex(4_096);
        self.0.send(server).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n");
        wire.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        wire.read_to_string(&mut answer).await.unwrap();
        let (head, _) = answer.split_once("\r\n\r\n").unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let field = |line: &str| {
            let (name, value) = line.split_once(':').unwrap();
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            (name, HeaderValue::from_str(value.trim()).unwrap())
        };
        let mut headers = HeaderMap::new();
        lines.map(field).for_each(|(name, value)| {
            headers.append(name, value);
        });
        (status, headers)
    }
}

/// A field as a recipient joins its lines.
fn read(headers: &HeaderMap, name: &str) -> Vec<Item> {
    let lines: Vec<_> = headers.get_all(name).iter().map(|line| line.to_str().unwrap()).collect();
    if lines.is_empty() { Vec::new() } else { list(&lines.join(", ")) }
}

fn one(headers: &HeaderMap, name: &str) -> Item {
    let mut items = read(headers, name);
    assert_eq!(items.len(), 1, "{headers:?}");
    items.remove(0)
}

/// What is left, and the time to the next window.
fn limit(headers: &HeaderMap) -> (i64, Option<i64>) {
    let item = one(headers, "ratelimit");
    assert_eq!(item.name, "default");
    (item.integer("r").unwrap(), item.integer("t"))
}

fn has_no_limits(headers: &HeaderMap) -> bool {
    read(headers, "ratelimit").is_empty() && read(headers, "ratelimit-policy").is_empty()
}

fn has_used_up(client: &Client) -> bool {
    let left = client.resolve_now("", "").unwrap().quota_left().map(|quota| quota.left);
    left.is_none_or(|left| left < Ru::whole(3))
}

/// A client of the group `default`, for which a read costs 1 RU and nothing else costs anything.
pub(crate) async fn client(fake: &Fake, spec: GroupSpec) -> Client {
    let active = v1::CostTable {
        name: "reads".into(),
        version: 1,
        replicas: 1,
        ru_per_unit: [("read_requests".to_owned(), "1".to_owned())].into(),
    };
    fake.set_cost_tables(v1::CostTables { active: Some(active), shadow: None });
    fake.group("default", spec);
    let client = piped(fake).connect().await.unwrap();
    eventually("the prices are in force", || client.stats().cost_table.0 == "reads").await;
    client
}

/// `/3` costs 3 RU, as estimated; `/7` costs 7.
fn routes(layer: GovernLayer) -> Router {
    let reads = |count| {
        move |Extension(recorder): Extension<UsageRecorder>| async move {
            recorder.add(&Usage { read_requests: count, ..Usage::default() });
            "read"
        }
    };
    let routes = Router::new().route("/3", get(reads(3))).route("/7", get(reads(7)));
    routes.layer(layer.estimate(Estimate::Fixed(Ru::whole(3))))
}

const MINUTE: Span = Span::secs(60);

fn quota(amount: i64) -> GroupSpec {
    GroupSpec { quota: Some(Ru::whole(amount)), ..GroupSpec::capped(Rate::whole(1_000)) }
}

/// A server of a group with a quota of 10 RU a minute, 20 s of which have passed.
async fn of_ten(fake: &Fake) -> (Client, Server) {
    let client = client(fake, quota(10)).await;
    fake.open_quota("default", Span::secs(40), MINUTE);
    client.resolve("", "").await.unwrap();
    let server = Server::start(routes(GovernLayer::new(client.clone())));
    (client, server)
}

#[tokio::test(start_paused = true)]
async fn each_answer_says_what_is_left_of_a_quota_until_it_is_used_up_and_begins_again() {
    let fake = Fake::new();
    let (_client, server) = of_ten(&fake).await;
    for left in [7, 4, 1] {
        let (status, headers) = server.get("/3").await;
        assert_eq!(status, StatusCode::OK);
        let policy = one(&headers, "ratelimit-policy");
        let unit = Value::String("request-units".to_owned());
        assert_eq!(policy.name, "default");
        let expected = [("q", Value::Integer(10)), ("qu", unit), ("w", Value::Integer(60))];
        assert_eq!(policy.parameters, expected.map(|(key, value)| (key.to_owned(), value)));
        let (r, t) = limit(&headers);
        assert_eq!(r, left);
        assert!((30..=40).contains(&t.unwrap()), "{headers:?}");
        assert!(headers.get("retry-after").is_none());
    }
    let (status, headers) = server.get("/3").await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    let pause: i64 = headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert_eq!(limit(&headers), (1, Some(pause)), "{headers:?}");
    assert_eq!(one(&headers, "ratelimit-policy").integer("q"), Some(10));

    let window = Duration::from_secs(u64::try_from(pause).unwrap());
    let opens = tokio::time::Instant::now() + window;
    tokio::time::sleep_until(opens).await;
    fake.open_quota("default", MINUTE, MINUTE);
    let (status, headers) = server.get("/3").await;
    assert_eq!(status, StatusCode::OK, "who waits as long as the fields say is served");
    let (r, t) = limit(&headers);
    assert_eq!(r, 7);
    assert!((50..=60).contains(&t.unwrap()), "{headers:?}");
}

#[tokio::test(start_paused = true)]
async fn a_quota_of_requests_says_so_and_counts_each_whatever_it_costs() {
    let fake = Fake::new();
    let client = client(&fake, GroupSpec { quota_unit: QuotaUnit::Requests, ..quota(3) }).await;
    fake.open_quota("default", Span::secs(40), MINUTE);
    client.resolve("", "").await.unwrap();
    let server = Server::start(routes(GovernLayer::new(client.clone())));
    for (path, left) in [("/3", 2), ("/7", 1), ("/3", 0)] {
        let (status, headers) = server.get(path).await;
        assert_eq!(status, StatusCode::OK);
        let policy = one(&headers, "ratelimit-policy");
        let unit = Value::String("requests".to_owned());
        let expected = [("q", Value::Integer(3)), ("qu", unit), ("w", Value::Integer(60))];
        assert_eq!(policy.parameters, expected.map(|(key, value)| (key.to_owned(), value)));
        assert_eq!(limit(&headers).0, left);
    }
    let quota = client.resolve_now("", "").unwrap().quota_left().unwrap();
    assert_eq!((quota.unit, quota.amount, quota.left), (QuotaUnit::Requests, Ru::whole(3), Ru::ZERO));
    let (status, headers) = server.get("/3").await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    let pause: i64 = headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert_eq!(limit(&headers), (0, Some(pause)), "{headers:?}");
    let refused = client.resolve_now("", "").unwrap().try_acquire(Ru::ZERO).unwrap_err().to_string();
    assert!(refused.contains("has used up its quota of requests"), "{refused}");
}

/// The quota counts when an operation begins, and what never ran is given back.
#[tokio::test(start_paused = true)]
async fn a_cancelled_request_can_begin_again() {
    let fake = Fake::new();
    let client = client(&fake, GroupSpec { quota_unit: QuotaUnit::Requests, ..quota(2) }).await;
    fake.open_quota("default", Span::secs(40), MINUTE);
    let group = client.resolve("", "").await.unwrap();
    let patience = Duration::from_secs(5);
    group.acquire(Ru::ZERO, patience).await.unwrap().settle(&Usage::default());
    // Its clock ticks: what began in the moment in which the share came is never given back.
    tokio::time::sleep(Duration::from_millis(50)).await;
    for _ in 0..5 {
        group.acquire(Ru::whole(1), patience).await.unwrap().cancel();
    }
    group.acquire(Ru::whole(1), patience).await.unwrap().into_owned().settle(&Usage::default());
    let refused = group.acquire(Ru::ZERO, patience).await.unwrap_err().to_string();
    assert!(refused.contains("quota of requests"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn what_a_request_cost_beyond_its_estimate_is_not_left() {
    let fake = Fake::new();
    let (_client, server) = of_ten(&fake).await;
    assert_eq!(limit(&server.get("/7").await.1).0, 3);
    assert_eq!(limit(&server.get("/7").await.1).0, 0, "owed, and not less than nothing");
}

#[tokio::test(start_paused = true)]
async fn what_others_used_is_known_from_the_last_renewal() {
    let fake = Fake::new();
    let (client, server) = of_ten(&fake).await;
    let other = piped_as(&fake, "node-2").await;
    let group = other.resolve("", "").await.unwrap();
    let permit = group.acquire(Ru::whole(4), Duration::from_secs(5)).await.unwrap();
    permit.settle(&Usage { read_requests: 4, ..Usage::default() });
    let left = || client.resolve_now("", "").unwrap().quota_left().map(|quota| quota.left);
    eventually("the other's use is heard of", || left() == Some(Ru::whole(6))).await;
    assert_eq!(limit(&server.get("/3").await.1).0, 3);
}

async fn piped_as(fake: &Fake, identity: &str) -> Client {
    let pipe = crate::fake::Pipe(fake.clone());
    Client::builder(["pipe"], identity).transport(pipe).connect().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_refusal_for_the_rate_says_what_is_left_and_no_window() {
    let fake = Fake::new();
    let spec = GroupSpec { rate: Some(Rate::whole(1)), burst: Some(Ru::whole(3)), ..quota(1_000) };
    let client = client(&fake, spec).await;
    fake.open_quota("default", MINUTE, MINUTE);
    client.resolve("", "").await.unwrap();
    let patient = routes(GovernLayer::new(client.clone()).wait(Duration::from_secs(10)));
    assert_eq!(Server::start(patient).get("/3").await.0, StatusCode::OK);
    let hasty = routes(GovernLayer::new(client).wait(Duration::ZERO));
    let (status, headers) = Server::start(hasty).get("/3").await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    let pause: i64 = headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!(pause < 40, "{headers:?}");
    assert_eq!(limit(&headers), (997, None));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_said_without_a_quota_without_a_lease_or_where_it_is_off() {
    let fake = Fake::new();
    let rate_only = client(&fake, GroupSpec::capped(Rate::whole(4))).await;
    rate_only.resolve("", "").await.unwrap();
    let server = Server::start(routes(GovernLayer::new(rate_only).wait(Duration::ZERO)));
    let answers = [server.get("/3").await, server.get("/3").await, server.get("/3").await];
    assert!(answers.iter().any(|(status, _)| *status == StatusCode::TOO_MANY_REQUESTS));
    assert!(answers.iter().all(|(_, headers)| has_no_limits(headers)), "{answers:?}");

    let fake = Fake::new();
    let (client, server) = of_ten(&fake).await;
    let quiet = Server::start(routes(GovernLayer::new(client.clone()).rate_limit_headers(false)));
    let answers =
        [quiet.get("/3").await, quiet.get("/3").await, quiet.get("/3").await, quiet.get("/3").await];
    assert!(answers.iter().any(|(status, _)| *status == StatusCode::TOO_MANY_REQUESTS));
    assert!(answers.iter().all(|(_, headers)| has_no_limits(headers)), "{answers:?}");
    let (status, headers) = server.get("/3").await;
    assert_eq!((status, limit(&headers).0), (StatusCode::TOO_MANY_REQUESTS, 1));

    fake.open_quota("default", MINUTE, MINUTE);
    eventually("the next window is heard of", || !has_used_up(&client)).await;
    fake.go_down();
    let group = client.resolve_now("", "").unwrap();
    eventually("the lease ends", || group.state().lease == LeaseState::Expired).await;
    let (status, headers) = server.get("/3").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(has_no_limits(&headers), "{headers:?}");
}

#[tokio::test(start_paused = true)]
async fn fields_of_the_service_stay_and_an_earlier_controller_says_no_length() {
    let fake = Fake::new();
    fake.state().tamper = Some(Box::new(|granted: &mut v1::Granted| {
        let shares = granted.entries.iter_mut().filter_map(|entry| entry.allowance.as_mut());
        shares.for_each(|share| share.window_us = 0);
    }));
    let client = client(&fake, quota(10)).await;
    fake.open_quota("default", MINUTE, MINUTE);
    client.resolve("", "").await.unwrap();
    let own = [("ratelimit-policy", r#""own";q=5;w=1"#), ("ratelimit", r#""own";r=4"#)];
    let layer = GovernLayer::new(client).estimate(Estimate::Fixed(Ru::whole(3)));
    let server =
        Server::start(Router::new().route("/", get(move || async move { (own, "own") })).layer(layer));
    let (_, headers) = server.get("/").await;
    let policies = read(&headers, "ratelimit-policy");
    let names = |items: &[Item]| items.iter().map(|item| item.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&policies), ["own", "default"]);
    assert_eq!(names(&read(&headers, "ratelimit")), ["own", "default"]);
    let policy = policies.iter().find(|policy| policy.name == "default").unwrap();
    assert_eq!((policy.integer("q"), policy.integer("w")), (Some(10), None));
}
