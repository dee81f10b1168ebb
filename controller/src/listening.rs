//! Both listeners over real sockets and driven time: requests that are refused, and the answers to them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tidegate_listener::{BACKLOG, Bodies, Door, Failures, Hosts, Surface, open};
use tidegate_tls::{Authority, Clients, Name, Purpose, Request, Server, ServerFiles};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::clock::{Clock, duration};
use crate::definitions::bindings::Principal;
use crate::limits::{DRAIN_WITHIN, READ_WITHIN};
use crate::metrics::Metrics;
use crate::service::{Service, ServiceConfig};
use crate::store::records::{StoredBinding, put_json};
use crate::store::{RedbStore, Store as _, Table, Write};

/// A listener, and its metrics.
struct Site {
    address: SocketAddr,
    metrics: Arc<Metrics>,
    bodies: Arc<Bodies>,
    failures: Arc<Failures>,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
    _folder: tempfile::TempDir,
}

impl Site {
    fn open(surface: Surface, most: usize) -> Self {
        Self::holding(surface, most, &[])
    }

    /// The same under TLS.
    fn secure(surface: Surface, most: usize, tls: Arc<Server>) -> Self {
        Self::made(surface, most, &[], Some(tls))
    }

    /// The same, with rows in its store.
    fn holding(surface: Surface, most: usize, rows: &[Write]) -> Self {
        Self::made(surface, most, rows, None)
    }

    fn made(surface: Surface, most: usize, rows: &[Write], tls: Option<Arc<Server>>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(RedbStore::open(&folder.path().join("store")).unwrap());
        if !rows.is_empty() {
            // A first start makes it a controller's store.
            let first = Service::load(Arc::clone(&store) as _, ServiceConfig::default(), Clock::start());
            first.unwrap().shut_down().unwrap();
            store.commit(rows).unwrap();
        }
        let service = Arc::new(Service::load(store, ServiceConfig::default(), Clock::start()).unwrap());
        let (stop, stopped) = watch::channel(false);
        let router: Router = match surface {
            Surface::Rest => crate::inside::rest(Arc::clone(&service)),
            Surface::Grpc => crate::inside::grpc(&service, stopped.clone()),
        };
        let listener = open("127.0.0.1:0".parse().unwrap(), BACKLOG).unwrap();
        let address = listener.local_addr().unwrap();
        let (metrics, bodies) = (Arc::clone(&service.metrics), Arc::new(Bodies::default()));
        let failures: Arc<Failures> = Arc::default();
        let door = Door {
            surface,
            router,
            tally: Arc::clone(&metrics) as _,
            bodies: Arc::clone(&bodies),
            hosts: Hosts::of(address, &["rates.example".to_owned()], Some("http_hosts")),
            most,
            other: Some("127.0.0.1:99".parse().unwrap()),
            tls,
            failures: Arc::clone(&failures),
            greeting: None,
        };
        let serving = tokio::spawn(door.serve(listener, stopped));
        Self { address, metrics, bodies, failures, stop, serving, _folder: folder }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends bytes on a new connection, and reads until the listener ends it.
    async fn say(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect().await;
        stream.write_all(bytes).await.unwrap();
        rest_of(&mut stream).await
    }

    fn turned_away(&self, surface: Surface, reason: &str) -> bool {
        let name = surface.name();
        let line = format!("tidegate_turned_away_total{{surface=\"{name}\",reason=\"{reason}\"}} ");
        self.metrics.page(&[]).unwrap().contains(&line)
    }

    async fn close(self) {
        self.stop.send_replace(true);
        self.serving.await.unwrap();
    }
}

async fn rest_of(stream: &mut TcpStream) -> String {
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    String::from_utf8_lossy(&rest).into_owned()
}

fn get(host: &str) -> String {
    format!("GET /healthz HTTP/1.1\r\nhost: {host}\r\n\r\n")
}

#[tokio::test(start_paused = true)]
async fn what_is_not_finished_in_time_is_cut_and_counted() {
    let site = Site::open(Surface::Rest, 99);
    for (sent, reason) in [
        ("", "silent"),
        ("GE", "silent"),
        ("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-slow: ", "slow_head"),
        (&get("localhost"), "idle"),
    ] {
        let said = site.say(sent.as_bytes()).await;
        assert_eq!(said.contains("200 OK"), reason == "idle", "{reason}: {said}");
        assert!(site.turned_away(Surface::Rest, reason), "{reason}");
    }
    let head = "POST /v1/groups HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{";
    let said = site.say(head.as_bytes()).await;
    assert!(said.contains("408 ") && said.contains("was not there within 30 s"), "{said}");
    assert!(site.turned_away(Surface::Rest, "slow_body"));
    site.close().await;

    let site = Site::open(Surface::Grpc, 99);
    let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    assert!(site.say(b"").await.is_empty() && site.turned_away(Surface::Grpc, "silent"));
    // Settings, and the head of a request that does not end; the test answers no pings.
    let half = b"\0\0\0\x04\0\0\0\0\0\0\0\x01\x01\0\0\0\0\x01\x83";
    site.say(&[preface.as_bytes(), half].concat()).await;
    site.close().await;
}

/// A server's certificate of an authority that nobody keeps.
fn tls(folder: &tempfile::TempDir) -> Arc<Server> {
    let path = |name: &str| folder.path().join(name);
    let put = |made: &tidegate_tls::Issued, certificate: &str, key: &str| {
        tidegate_tls::write(&path(certificate), &made.certificate, false, false).unwrap();
        tidegate_tls::write(&path(key), &made.key, true, false).unwrap();
    };
    put(&Authority::create(None, 9).unwrap(), "ca.pem", "ca-key.pem");
    let request = Request {
        subject: "c".to_owned(),
        names: vec![Name::Dns("localhost".to_owned())],
        purpose: Purpose { server: true, client: false },
        days: 9,
    };
    put(
        &Authority::read(&path("ca.pem"), &path("ca-key.pem")).unwrap().issue(&request).unwrap(),
        "c.pem",
        "c-key.pem",
    );
    let files = ServerFiles {
        certificate: path("c.pem"),
        key: path("c-key.pem"),
        clients: Clients::Anonymous,
        revoked: None,
    };
    Server::load(files, &tidegate_listener::PROTOCOLS).unwrap()
}

#[tokio::test(start_paused = true)]
async fn who_is_silent_in_the_handshake_gives_its_place_back_and_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let tls = tls(&folder);
    for surface in [Surface::Grpc, Surface::Rest] {
        let site = Site::secure(surface, 2, Arc::clone(&tls));
        // A hello that says it is longer than what comes.
        let half = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
        for (sent, reason) in [
            (&b""[..], "silent"),
            (&half[..1], "silent"),
            (&half, "slow_handshake"),
            (&[0x16, 3, 1, 0, 4, 9, 9, 9, 9], "handshake"),
        ] {
            let began = Instant::now();
            // One address has one of two places.
            let mut held = site.connect().await;
            held.write_all(sent).await.unwrap();
            let said = rest_of(&mut held).await;
            assert!(!said.contains("HTTP") && site.turned_away(surface, reason), "{reason}: {said}");
            assert!(began.elapsed() <= Duration::from_secs(11), "{reason}: {:?}", began.elapsed());
        }
        let said = site.say(get("localhost").as_bytes()).await;
        assert!(said.starts_with("HTTP/1.1 400 ") && said.contains("speaks TLS; use https://"), "{said}");
        let said = site.say(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        assert!(said.contains("speaks TLS; use https://") && !said.contains("HTTP/1.1"), "{said}");
        assert!(site.turned_away(surface, "wrong_protocol"));
        site.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_keeps_failing_in_the_handshake_finds_the_door_closed_and_open_connections_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::secure(Surface::Rest, 99, tls(&folder));
    let mut before = site.connect().await;
    let broken = [0x16, 3, 1, 0, 4, 9, 9, 9, 9];
    let peer = before.local_addr().unwrap().ip();
    for _ in 0..200 {
        site.say(&broken).await;
    }
    assert!(site.failures.is_closed_to(peer) && site.turned_away(Surface::Rest, "failing"));
    let handshakes = "tidegate_turned_away_total{surface=\"rest\",reason=\"handshake\"} ";
    let page = site.metrics.page(&[]).unwrap();
    let made = page.split_once(handshakes).unwrap().1.lines().next().unwrap().parse::<u32>().unwrap();
    // A lost second of a slow machine is paid debt.
    assert!((60..100).contains(&made), "{made} of 200 handshakes were made");
    // One that was open before is heard, though its handshake fails in the end.
    before.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    assert!(rest_of(&mut before).await.contains("speaks TLS; use https://"));
    tokio::time::advance(Duration::from_secs(91)).await;
    assert!(site.say(b"GET / HTTP/1.1\r\n\r\n").await.contains("speaks TLS; use https://"));
    site.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_listener_says_what_it_is_to_a_caller_who_meant_another() {
    let grpc = Site::open(Surface::Grpc, 99);
    for sent in [get("localhost").as_bytes(), b"POST /v1/groups HTTP/1.0\r\n\r\n"] {
        let said = grpc.say(sent).await;
        assert!(
            said.starts_with("HTTP/1.1 421 ") && said.contains("REST is at http://127.0.0.1:99"),
            "{said}"
        );
    }
    let hello = [0x16, 3, 1, 2, 0, 1, 0, 1];
    assert!(grpc.say(&hello).await.contains("does not speak TLS"));
    assert!(grpc.turned_away(Surface::Grpc, "wrong_protocol"));
    grpc.close().await;
    let rest = Site::open(Surface::Rest, 99);
    assert!(rest.say(&hello).await.contains("does not speak TLS"));
    let channel = tonic::transport::Channel::from_shared(format!("http://{}", rest.address)).unwrap();
    let mut admin = tidegate_proto::v1::admin_client::AdminClient::new(channel.connect_lazy());
    let error = admin.status(tidegate_proto::v1::StatusRequest {}).await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::Unimplemented);
    assert!(
        error.message().contains("REST listener")
            && error.message().contains("gRPC is at http://127.0.0.1:99")
    );
    drop(admin);
    rest.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_not_the_listeners_own_is_refused() {
    let site = Site::open(Surface::Rest, 99);
    for (host, served) in [
        ("localhost:1", true),
        ("127.0.0.1", true),
        ("rates.example", true),
        ("evil.example", false),
        ("", false),
    ] {
        let request = get(host).replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
        let said = site.say(request.as_bytes()).await;
        assert_eq!(said.contains(" 200 OK"), served, "{host}: {said}");
        assert!(served || said.contains("421 ") && said.contains("http_hosts"), "{host}: {said}");
    }
    let said = site.say(b"GET /v1/groups HTTP/1.0\r\n\r\n").await;
    assert!(said.contains("421 ") && said.contains("no host"), "{said}");
    site.close().await;
}

#[tokio::test(start_paused = true)]
async fn beyond_its_places_a_listener_says_so_and_closes() {
    for surface in [Surface::Rest, Surface::Grpc] {
        let site = Site::open(surface, 4);
        let mut held = Vec::new();
        for _ in 0..2 {
            held.push(site.connect().await);
        }
        let said = site.say(b"").await;
        assert!(said.contains("too many connections"), "{said:?}");
        assert!(site.turned_away(surface, "full"));
        drop(held);
        // Their places become free once the listener notices that they are gone.
        loop {
            let mut stream = site.connect().await;
            stream.write_all(b"x").await.unwrap();
            if !rest_of(&mut stream).await.contains("too many") {
                break;
            }
        }
        site.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn large_bodies_that_are_held_take_no_more_than_their_budget() {
    let site = Site::open(Surface::Rest, 999);
    let length = 3_900_000;
    let head = format!(
        "POST /v1/groups HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    let part = vec![b' '; length - 1];
    let mut held = Vec::new();
    let mut refused = 0;
    for _ in 0..24 {
        let mut stream = site.connect().await;
        stream.write_all(head.as_bytes()).await.unwrap();
        // The listener does not read on after a refusal.
        if stream.write_all(&part).await.is_err() {
            refused += 1;
            continue;
        }
        held.push(stream);
    }
    for mut stream in held {
        let said = rest_of(&mut stream).await;
        refused += usize::from(said.contains("503 ") && said.contains("large requests hold all"));
    }
    assert!(refused >= 7, "{refused}");
    assert!(site.turned_away(Surface::Rest, "bodies"));
    assert_eq!(site.bodies.held(), 0);
    site.close().await;
}

/// A frame of HTTP/2: its length, its kind, its flags, its stream.
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
    [&[0], &length[..], &[kind, flags, 0, 0, 0, stream], payload].concat()
}

/// A call with an empty message on a connection whose streams may send nothing: their windows are 0.
fn unread_call(path: &str) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let block = [
        &[0x83, 0x86, 0x04][..],
        &text(path),
        &[0x01],
        &text("localhost"),
        &[0x0f, 0x10],
        &text("application/grpc"),
        &[0x00],
        &text("te"),
        &text("trailers"),
    ];
    let window_of_none = frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let head = frame(1, 4, 1, &block.concat());
    [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &window_of_none, &head, &frame(0, 1, 1, &[0; 5])].concat()
}

/// Answers the pings of a peer until it ends the connection.
async fn stay_alive(mut stream: TcpStream) {
    let mut head = [0; 9];
    while stream.read_exact(&mut head).await.is_ok() {
        let [a, b, c, kind, flags, ..] = head;
        assert_ne!(kind, 0, "nothing may be sent");
        let mut payload = vec![0; usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c)];
        // The connection may be cut in the middle of a frame.
        let heard = stream.read_exact(&mut payload).await.is_ok();
        if heard && kind == 6 && flags & 1 == 0 {
            let _ = stream.write_all(&frame(6, 1, 0, &payload)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_not_read_is_ended_in_time_and_counted() {
    // More than the transport buffers for a peer that reads nothing.
    let rows: Vec<Write> = (0..1_000)
        .map(|number| {
            let principal =
                Principal::Tenant(format!("a-tenant-with-a-name-of-the-usual-length-{number:06}"));
            let key = principal.key();
            put_json(Table::Bindings, key, &StoredBinding { principal, group: "default".into() }).unwrap()
        })
        .collect();
    let site = Site::holding(Surface::Grpc, 99, &rows);
    let began = Instant::now();
    let mut stream = site.connect().await;
    stream.write_all(&unread_call("/tidegate.v1.Grants/Watch")).await.unwrap();
    timeout(10 * duration(READ_WITHIN), stay_alive(stream)).await.unwrap();
    let took = began.elapsed();
    assert!(site.turned_away(Surface::Grpc, "unread"), "{took:?}");
    assert_eq!(site.metrics.watchers_dropped.get(), 1);
    let (least, most) = (duration(READ_WITHIN), duration(READ_WITHIN) + 2 * duration(DRAIN_WITHIN));
    assert!((least..most).contains(&took), "{took:?}");
    site.close().await;
}

#[tokio::test]
async fn a_burst_of_connections_waits_in_the_queue_of_a_listener_that_is_busy() {
    let system = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
    let burst = system.trim().parse::<usize>().unwrap().min(400);
    // The listener accepts none of them.
    let listener = open("127.0.0.1:0".parse().unwrap(), BACKLOG).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while waiting.len() < burst {
        // Beyond the queue the kernel drops the first packet, and the client sends it again a second later.
        let connected = timeout(Duration::from_millis(900), TcpStream::connect(address)).await;
        waiting.push(connected.unwrap_or_else(|_| panic!("{} fit the queue", waiting.len())).unwrap());
    }
}
