//! How a controller of a cluster ends its roles: the listeners of a standby, and a leadership that is left or lost.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tidegate_consensus::etcd::Written;
use tidegate_consensus::model::{Fault, Model};
use tidegate_consensus::{Step, Transaction};
use tidegate_core::group::GroupId;
use tidegate_proto::v1;
use tidegate_proto::v1::admin_client::AdminClient;
use tidegate_tls::{Clients, ServerFiles};
use tokio::task::yield_now;
use tonic::transport::Channel;

use super::*;
use crate::store::records::group_key;
use crate::store::replicated::Follower;
use crate::store::replicated::tests::memory::{Memory, Rows};
use crate::store::replicated::tests::owner;
use crate::store::replicated::tests::way::{Over, Way};
use crate::store::{Store as _, Table, Write};

/// Between two beats of such a fence, nothing is noticed.
const LONG: Span = Span::secs(3_600);

/// A controller that has taken the log.
struct Successor {
    model: Arc<Model>,
    place: Arc<Memory>,
    store: ReplicatedStore,
    turns: Turns,
    stopping: flag::Sender<bool>,
    sockets: Sockets,
    _folder: TempDir,
}

fn log_settings() -> Settings {
    // One attempt of each call.
    Settings::new(Clock::start(), Span(0))
}

fn taken(model: &Arc<Model>, place: &Arc<Memory>, name: &str) -> ReplicatedStore {
    let consensus = Arc::<Model>::clone(model);
    let place = Arc::<Memory>::clone(place);
    let follower = Follower::follow(consensus, "t/", place, log_settings(), false).unwrap();
    let seen = follower.look().unwrap();
    follower.take(&seen, &owner(name)).unwrap()
}

/// Another controller takes the log over, between two beats.
fn depose(model: &Arc<Model>) {
    let consensus = Arc::<Model>::clone(model);
    let mut follower = Follower::follow(consensus, "t/", Memory::new(), log_settings(), false).unwrap();
    loop {
        let seen = follower.look().unwrap();
        match follower.take(&seen, &owner("b")) {
            Ok(_) => return,
            Err(not) => follower = not.follower,
        }
    }
}

fn record(name: &str) -> MemberRecord {
    MemberRecord {
        controller: name.to_owned(),
        instance: 1,
        addresses: Vec::new(),
        version: "1".to_owned(),
        unix_ms: 0,
    }
}

impl Successor {
    fn new(fence: Span) -> Self {
        let (model, place, folder) = (Arc::<Model>::default(), Memory::new(), tempfile::tempdir().unwrap());
        let config = Config {
            store: folder.path().join("a"),
            grpc_listen: "127.0.0.1:0".parse().unwrap(),
            http_listen: "127.0.0.1:0".parse().unwrap(),
            fence: Some(fence),
            ..Config::default()
        };
        let nowhere = Written { endpoints: vec!["http://127.0.0.1:1".to_owned()], ..Written::default() };
        let cluster = ClusterSettings {
            name: "a".to_owned(),
            prefix: "t/".to_owned(),
            address: None,
            seed: false,
            strict: false,
            etcd: nowhere.check().unwrap(),
        };
        let sockets = Sockets::open(&config).unwrap();
        let members = Members::new(Arc::<Model>::clone(&model), "t/", log_settings()).unwrap();
        // Its clock stands still, and so nobody is gone.
        let roster = Arc::new(Roster::new("a", members, Clock::driven(Arc::default())));
        let (stopping, stopped) = flag::channel(false);
        let consensus = Arc::<Model>::clone(&model);
        let turns = Turns { config, cluster, consensus, stopped, before: None, roster, record: record("a") };
        let store = taken(&model, &place, "a");
        Self { model, place, store, turns, stopping, sockets, _folder: folder }
    }

    /// Leads, and returns what came of it, once all parts have let go of the store.
    async fn lead(self) -> Result<Option<Sockets>, EndError> {
        let doors = self.turns.open(&self.sockets).await.unwrap();
        let taken = Taken { store: self.store, kept: None, silent: true };
        let described = Described::new().unwrap();
        let led = self.turns.lead(1, taken, described, doors, self.sockets).await;
        is_free(&self.place.store());
        led
    }

    /// The changes of the log's owner and of its beats, in words, from the first announcement or end on.
    fn ends(model: &Model) -> Vec<&'static str> {
        let says = |value: &[u8], what: &str| String::from_utf8_lossy(value).contains(what);
        let end = |key: &[u8], value: &[u8]| match key {
            b"t/beat/0" if says(value, " leaves") => Some("announced"),
            b"t/own/0" if says(value, "\"clean\":true") => Some("left"),
            _ => None,
        };
        let changes = model.changes();
        changes.iter().filter_map(|change| end(&change.key, change.value.as_deref()?)).collect()
    }
}

/// Nothing but its place and the caller holds the local store.
fn is_free(rows: &Arc<Rows>) {
    assert_eq!(Arc::strong_count(rows), 2, "something goes on with the store");
}

/// A leader whose service is loaded, and which does not notice what befalls its log.
async fn running(scene: Successor) -> (Running, Leadership, Arc<ReplicatedStore>, Sockets) {
    let (store, clock, config) = (Arc::new(scene.store), Clock::start(), scene.turns.config.clone());
    let leadership = Leadership::begin(&store, clock.clone(), LONG, false, flag::Sender::new(false)).unwrap();
    let succession = Succession::Cluster { silent: true };
    let settings = ServiceConfig { instance: Some(1), succession, ..settings(&config) };
    let loaded = Arc::clone(&store);
    let load = move || Service::load_with(loaded, settings, clock, None);
    let open = |service: &Arc<Service>| leadership.keeps_open(service);
    let running =
        Controller::begin(config, &scene.sockets, Described::new().unwrap(), load, open).await.unwrap();
    (running, leadership, store, scene.sockets)
}

/// Listeners of which there is one, which does this.
fn doors<S: Future<Output = ()> + Send + 'static>(
    serve: impl FnOnce(flag::Receiver<View>, flag::Receiver<bool>) -> S,
) -> Doors {
    let (view, (closing, closed)) = (flag::Sender::new(View::default()), flag::channel(false));
    let server = tokio::spawn(serve(view.subscribe(), closed));
    Doors { view, closing, servers: vec![server] }
}

#[tokio::test(start_paused = true)]
async fn streams_at_a_standby_end_first_and_what_else_is_open_has_time_to() {
    let (done, ended) = flag::channel(false);
    let doors = doors(|mut view, mut closed| async move {
        assert!(view.wait_for(|_| false).await.is_err(), "streams see that it is no standby any more");
        closed.wait_for(|closed| *closed).await.unwrap();
        sleep(duration(Span(CLOSE_WITHIN.0 - 1_000))).await;
        done.send_replace(true);
    });
    doors.close().await;
    assert!(*ended.borrow());
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_does_not_end_is_cut_off() {
    let held = Arc::new(());
    let holds = Arc::clone(&held);
    let begun = Instant::now();
    let doors = doors(|_, _| async move {
        std::future::pending::<()>().await;
        drop(holds);
    });
    doors.close().await;
    assert_eq!(begun.elapsed().as_millis(), u128::from(CLOSE_WITHIN.0 / 1_000));
    for _ in 0..10 {
        yield_now().await;
    }
    assert_eq!(Arc::strong_count(&held), 1);
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_stops_waits_until_its_listeners_have_ended() {
    let (scene, (done, ended)) = (Successor::new(LONG), flag::channel(false));
    let doors = doors(|_, mut closed| async move {
        closed.wait_for(|closed| *closed).await.unwrap();
        sleep(duration(Span(CLOSE_WITHIN.0 / 2))).await;
        done.send_replace(true);
    });
    scene.stopping.send_replace(true);
    scene.turns.live(doors, scene.sockets).await.unwrap();
    assert!(*ended.borrow());
}

#[tokio::test(start_paused = true)]
async fn an_end_is_announced_a_look_ahead_where_another_one_runs() {
    let fence = Span::secs(60);
    for others in [false, true] {
        let (scene, begun) = (Successor::new(fence), Instant::now());
        for changed in (1..=2).filter(|_| others) {
            scene.turns.roster.saw(None, vec![(record("b"), changed)]);
        }
        let model = Arc::clone(&scene.model);
        scene.stopping.send_replace(true);
        assert!(scene.lead().await.unwrap().is_none());
        let expected: &[_] = if others { &["announced", "left"] } else { &["left"] };
        assert_eq!(Successor::ends(&model), expected);
        assert_eq!(begun.elapsed() >= duration(look_every(fence)), others, "{:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn a_leader_that_is_deposed_while_it_loads_stands_by_and_one_whose_rows_are_wrong_ends() {
    let scene = Successor::new(LONG);
    depose(&scene.model);
    assert!(scene.lead().await.unwrap().is_some());
    let scene = Successor::new(LONG);
    scene.store.commit(&[Write::Put(Table::Groups, group_key(GroupId(2)), b"?".to_vec())]).unwrap();
    let ended = scene.lead().await.map(drop);
    assert!(matches!(ended, Err(EndError::Start(StartError::Load { .. }))), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_deposed_stops_all_that_it_does_and_stands_by() {
    let scene = Successor::new(Span::secs(1));
    let (model, [grpc, _]) = (Arc::clone(&scene.model), scene.sockets.addresses());
    let leading = tokio::spawn(scene.lead());
    let channel = Channel::from_shared(format!("http://{grpc}")).unwrap().connect_lazy();
    let mut admin = AdminClient::new(channel);
    while admin.status(v1::StatusRequest {}).await.is_err() {
        sleep(Duration::from_millis(10)).await;
    }
    drop(admin);
    depose(&model);
    assert!(leading.await.unwrap().unwrap().is_some());
}

#[tokio::test]
async fn what_could_not_be_saved_is_no_clean_stop_unless_a_successor_has_it() {
    let scene = Successor::new(LONG);
    let model = Arc::clone(&scene.model);
    let (leads, leadership, store, _sockets) = running(scene).await;
    model.plan(std::iter::repeat_n(Some(Fault::Away), 10_000));
    let stopped = hand_over(leads, leadership, Arc::clone(&store), false).await;
    assert!(matches!(stopped, Err(EndError::Stop(StopError::Store(_)))), "{stopped:?}");
    assert!(!store.has_left());

    let scene = Successor::new(LONG);
    let model = Arc::clone(&scene.model);
    let (leads, leadership, store, _sockets) = running(scene).await;
    depose(&model);
    hand_over(leads, leadership, store, false).await.unwrap();
}

#[tokio::test]
async fn one_whose_own_store_failed_at_its_end_did_not_stop_cleanly() {
    let scene = Successor::new(LONG);
    let place = Arc::clone(&scene.place);
    let (leads, leadership, store, _sockets) = running(scene).await;
    place.fail(true);
    store.commit(&[Write::Put(Table::Bindings, b"b".to_vec(), b"b".to_vec())]).unwrap_err();
    let stopped = hand_over(leads, leadership, store, false).await;
    assert!(matches!(stopped, Err(EndError::Stop(StopError::Store(_)))), "{stopped:?}");
}

/// A shared store in which something happens as the log is left.
struct AtTheEnd {
    model: Arc<Model>,
    happens: Box<dyn Fn(&Model) + Send + Sync>,
}

impl Way for AtTheEnd {
    fn model(&self) -> &Model {
        &self.model
    }

    fn before_transaction(&self, transaction: &Transaction) {
        let says_so = |value: &[u8]| String::from_utf8_lossy(value).contains("\"clean\":true");
        let leaves =
            |step: &Step| matches!(step, Step::Put(key, value) if key == b"t/own/0" && says_so(value));
        if transaction.then.iter().any(leaves) {
            (self.happens)(&self.model);
        }
    }
}

impl Successor {
    /// The same with a shared store in which this happens as it leaves the log.
    fn with_end(self, happens: impl Fn(&Model) + Send + Sync + 'static) -> Self {
        let (model, happens) = (Arc::clone(&self.model), Box::new(happens));
        let consensus = Arc::new(Over(Arc::new(AtTheEnd { model, happens })));
        let place = Arc::<Memory>::clone(&self.place);
        let follower = Follower::follow(consensus, "t/", place, log_settings(), false).unwrap();
        let seen = follower.look().unwrap();
        let store = follower.take(&seen, &owner("a")).unwrap();
        Self { store, ..self }
    }
}

#[tokio::test]
async fn a_stop_is_clean_also_if_the_answer_to_its_last_batch_was_lost() {
    let scene = Successor::new(LONG).with_end(|model| model.plan([Some(Fault::Lost)]));
    let model = Arc::clone(&scene.model);
    let (leads, leadership, store, _sockets) = running(scene).await;
    hand_over(leads, leadership, Arc::clone(&store), false).await.unwrap();
    assert!(store.has_left() && !store.is_deposed());
    assert_eq!(Successor::ends(&model), ["left"]);
}

#[tokio::test(start_paused = true)]
async fn one_that_has_left_the_log_rests_while_a_successor_loads() {
    for (has_successor, has_log, rests) in [(true, true, true), (false, true, false), (true, false, false)] {
        let scene = Successor::new(LONG);
        let model = Arc::clone(&scene.model);
        let (leads, leadership, store, _sockets) = running(scene).await;
        if !has_log {
            depose(&model);
        }
        let began = Instant::now();
        hand_over(leads, leadership, store, has_successor).await.unwrap();
        assert_eq!(began.elapsed() >= duration(SUCCESSOR_LOADS), rests, "{has_successor} {has_log}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_connects_to_a_leader_that_stops_is_refused_while_that_goes_on() {
    let scene = Successor::new(LONG);
    let (refused, addresses) = (Arc::new(AtomicBool::new(false)), scene.sockets.addresses());
    let noted = Arc::clone(&refused);
    // Its listeners close beside this. With open sockets that would never be seen.
    let scene = scene.with_end(move |_| {
        let until = Instant::now() + Duration::from_secs(20);
        let is_refused = |address: &SocketAddr| {
            let connected = TcpStream::connect_timeout(address, Duration::from_secs(1));
            connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
        };
        while !noted.load(Ordering::Relaxed) && Instant::now() < until {
            noted.store(addresses.iter().all(is_refused), Ordering::Relaxed);
            std::thread::yield_now();
        }
    });
    scene.stopping.send_replace(true);
    assert!(scene.lead().await.unwrap().is_none());
    assert!(refused.load(Ordering::Relaxed), "nodes wait here for a controller that is gone");
}

#[tokio::test]
async fn addresses_that_others_are_told_say_whether_they_take_tls() {
    let mut scene = Successor::new(LONG);
    let plain = scene.turns.address();
    assert!(plain.starts_with("http://127.0.0.1:"), "{plain}");
    let (certificate, key) = ("cert.pem".into(), "key.pem".into());
    let files = ServerFiles { certificate, key, clients: Clients::Anonymous, revoked: None };
    scene.turns.config.tls = Some(files);
    assert_eq!(scene.turns.address(), plain.replace("http:", "https:"));
    scene.turns.cluster.address = Some("https://a.example:7420".to_owned());
    assert_eq!(scene.turns.address(), "https://a.example:7420");
}
