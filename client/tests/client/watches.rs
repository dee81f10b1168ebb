//! The watch stream, event by event, and refusals to open either stream.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_client::transport::{Grpc, Inbound, Opening, Transport};
use tidegate_client::{Client, Token};
use tidegate_core::group::GroupSpec;
use tidegate_core::units::Rate;
use tidegate_proto::v1;
use tidegate_proto::v1::watch_event::Kind;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};

use crate::fake::{Fake, Pipe, client_and_group, eventually};

const SECOND: Duration = Duration::from_secs(1);

fn usual() -> GroupSpec {
    GroupSpec::capped(Rate::whole(1_000))
}

type Events = mpsc::Sender<Result<v1::WatchEvent, Status>>;

/// Has the sessions of a fake, and watch streams that say what a test says.
#[derive(Clone)]
struct Scripted {
    fake: Fake,
    asked: Arc<Mutex<Vec<v1::WatchRequest>>>,
    streams: Arc<Mutex<Vec<Events>>>,
}

impl Scripted {
    fn new() -> Self {
        Self { fake: Fake::new(), asked: Arc::default(), streams: Arc::default() }
    }

    fn client(&self) -> Client {
        Client::builder(["pipe"], "node-1").transport(self.clone()).start().unwrap()
    }

    fn streams(&self) -> usize {
        self.streams.lock().unwrap().len()
    }

    /// Says it on the newest stream.
    fn say(&self, revision: u64, instance: u64, kind: Kind) {
        let event = v1::WatchEvent { revision, instance, kind: Some(kind) };
        self.streams.lock().unwrap().last().unwrap().try_send(Ok(event)).unwrap();
    }
}

impl Transport for Scripted {
    fn session(
        &self,
        endpoint: &str,
        outbound: mpsc::Receiver<v1::ClientMessage>,
    ) -> Opening<v1::ServerMessage> {
        Pipe(self.fake.clone()).session(endpoint, outbound)
    }

    fn watch(&self, _endpoint: &str, request: v1::WatchRequest) -> Opening<v1::WatchEvent> {
        self.asked.lock().unwrap().push(request);
        let (sender, receiver) = mpsc::channel(100);
        self.streams.lock().unwrap().push(sender);
        Box::pin(async move { Ok(Box::pin(ReceiverStream::new(receiver)) as Inbound<v1::WatchEvent>) })
    }
}

fn bound(group: &str) -> Kind {
    let binding = v1::Binding { tenant: "acme".into(), user: String::new(), group: group.into() };
    Kind::Binding(v1::BindingChange { binding: Some(binding), removed: false })
}

#[tokio::test(start_paused = true)]
async fn a_controller_without_definitions_is_heard_by_its_heartbeat() {
    let scripted = Scripted::new();
    scripted.fake.group("default", usual());
    let client = scripted.client();
    eventually("it watches", || scripted.streams() == 1).await;
    scripted.say(0, 1, Kind::Heartbeat(v1::Heartbeat::default()));
    let resolved = client.resolve("acme", "").await.unwrap();
    assert_eq!(&**resolved.group().name(), "default");
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_past_changes_nothing_and_the_next_stream_goes_on_from_the_newest() {
    let scripted = Scripted::new();
    let client = scripted.client();
    eventually("it watches", || scripted.streams() == 1).await;
    let pays = || client.resolve_now("acme", "").unwrap().name().to_string();
    scripted.say(7, 41, Kind::Snapshot(v1::Snapshot::default()));
    scripted.say(8, 41, bound("new"));
    eventually("it is bound", || pays() == "new").await;
    let events = client.counts().watch_events;
    scripted.say(7, 42, bound("old"));
    scripted.say(9, 41, bound("no/name"));
    eventually("all is heard", || client.stats().revision == 9).await;
    let counts = client.counts();
    assert_eq!((pays(), counts.watch_events, counts.watch_refused), ("new".into(), events + 1, 1));
    scripted.streams.lock().unwrap().clear();
    eventually("it watches again", || scripted.streams() == 1).await;
    let asked = scripted.asked.lock().unwrap();
    let have: Vec<_> = asked.iter().map(|asked| (asked.have_revision, asked.have_instance)).collect();
    assert_eq!(have, [(0, 0), (9, 41)]);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_broke_off_leaves_nothing_in_the_next() {
    let scripted = Scripted::new();
    let client = scripted.client();
    eventually("it watches", || scripted.streams() == 1).await;
    let ended = v1::Binding { tenant: "acme".into(), user: String::new(), group: "ended".into() };
    let part = v1::Snapshot { bindings: vec![ended], more: true, ..v1::Snapshot::default() };
    let heard = client.counts().watch_events;
    scripted.say(7, 41, Kind::Snapshot(part));
    eventually("a part is heard", || client.counts().watch_events > heard).await;
    scripted.streams.lock().unwrap().clear();
    eventually("it watches again", || scripted.streams() == 1).await;
    scripted.say(8, 41, Kind::Snapshot(v1::Snapshot::default()));
    eventually("it has the whole", || client.stats().revision == 8).await;
    assert_eq!(client.stats().bindings, 0);
    assert_eq!(&**client.resolve_now("acme", "").unwrap().name(), "default");
}

/// Another controller begins to say all it has; what is here is still what the one before said.
#[tokio::test(start_paused = true)]
async fn half_a_snapshot_leaves_the_controller_before_as_the_one_that_was_heard() {
    let scripted = Scripted::new();
    let client = scripted.client();
    eventually("it watches", || scripted.streams() == 1).await;
    scripted.say(7, 41, Kind::Snapshot(v1::Snapshot::default()));
    eventually("it is heard", || client.stats().revision == 7).await;
    let events = client.counts().watch_events;
    scripted.say(7, 42, Kind::Snapshot(v1::Snapshot { more: true, ..v1::Snapshot::default() }));
    eventually("the half is heard", || client.counts().watch_events > events).await;
    scripted.streams.lock().unwrap().clear();
    eventually("it watches again", || scripted.streams() == 1).await;
    let asked = *scripted.asked.lock().unwrap().last().unwrap();
    assert_eq!((asked.have_revision, asked.have_instance), (7, 41));
}

#[tokio::test(start_paused = true)]
async fn a_group_whose_definition_changed_is_asked_for_at_once() {
    let fake = Fake::new();
    let (_client, _group) = client_and_group(&fake, usual()).await;
    for _ in 0..5 {
        sleep(Duration::from_millis(1_370)).await;
        let renews = fake.state().renews.len();
        let changed = fake.state().now();
        fake.group("g", GroupSpec::capped(Rate::whole(500)));
        fake.until("it asks", |state| state.renews.len() > renews).await;
        let after = fake.state().renews[renews].0.since(changed);
        assert!(after.0 <= 110_000, "{after}");
    }
}

/// Refuses all streams, for no reason that calls for another attempt at once.
#[derive(Clone, Default)]
struct Refusing {
    sessions: Arc<Mutex<u64>>,
    watched: Arc<Mutex<Vec<Instant>>>,
}

impl Transport for Refusing {
    fn session(&self, _: &str, _: mpsc::Receiver<v1::ClientMessage>) -> Opening<v1::ServerMessage> {
        *self.sessions.lock().unwrap() += 1;
        Box::pin(async { Err(Status::unavailable("a standby")) })
    }

    fn watch(&self, _: &str, _: v1::WatchRequest) -> Opening<v1::WatchEvent> {
        self.watched.lock().unwrap().push(Instant::now());
        Box::pin(async { Err(Status::unavailable("a standby")) })
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_refuses_is_called_once_before_each_pause() {
    let refusing = Refusing::default();
    let client = Client::builder(["nowhere"], "node-1").transport(refusing.clone()).start().unwrap();
    sleep(120 * SECOND).await;
    let failures = client.counts().session_failures;
    assert!(failures >= 20, "{failures}");
    assert_eq!(*refusing.sessions.lock().unwrap(), failures);
    let mut watched = refusing.watched.lock().unwrap().clone();
    let calls = watched.len();
    watched.dedup();
    // A pause may be shorter than the clock can tell.
    assert!(calls >= 20 && watched.len() + 2 >= calls, "{calls} calls at {} times", watched.len());
}

#[tokio::test]
async fn no_transport_shows_a_token_where_others_can_read_it() {
    let grpc = Grpc { token: Some(Token::text("tdg_1.00")), ..Grpc::default() };
    let (_outbound, receiver) = mpsc::channel(1);
    let session = grpc.session("http://rates.invalid:7420", receiver).await.err().unwrap();
    let watch = grpc.watch("http://rates.invalid:7420", v1::WatchRequest::default()).await.err().unwrap();
    for refused in [session, watch] {
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        assert!(refused.message().contains("without TLS"), "{refused}");
    }
}
