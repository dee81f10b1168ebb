//! Doors over real sockets and driven time, before handlers of no use: what peers hear, and what is counted.

use std::convert::Infallible;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::routing::get;
use http_body::{Body as HttpBody, Frame};
use tidegate_tls::{
    Authority, Change, ClientFiles, Clients, Dial, Material, Name, Purpose, Request, ServerFiles,
    Watched as _, write,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tower::ServiceExt as _;

use super::*;

/// What a listener counted, in order.
#[derive(Default)]
struct Heard(Mutex<Vec<&'static str>>);

impl Heard {
    fn all(&self) -> Vec<&'static str> {
        self.0.lock().unwrap().clone()
    }
}

impl Tally for Heard {
    fn turned_away(&self, _: Surface, reason: &'static str) {
        self.0.lock().unwrap().push(reason);
    }

    fn requested(&self, _: Surface, outcome: &'static str) {
        self.0.lock().unwrap().push(outcome);
    }
}

fn door(surface: Surface, tls: Option<Arc<Server>>) -> (Door, Arc<Heard>) {
    let heard = Arc::<Heard>::default();
    let door = Door {
        surface,
        router: Router::new().fallback(std::future::pending::<()>),
        tally: Arc::clone(&heard) as _,
        bodies: Arc::default(),
        hosts: Hosts::Any,
        most: 9,
        other: Some("127.0.0.1:99".parse().unwrap()),
        tls,
        failures: Arc::default(),
        greeting: None,
    };
    (door, heard)
}

/// A door that is open.
struct Site {
    address: SocketAddr,
    heard: Arc<Heard>,
    stop: flag::Sender<bool>,
    serving: JoinHandle<()>,
}

impl Site {
    fn open(surface: Surface, tls: Option<Arc<Server>>) -> Self {
        Self::of(door(surface, tls))
    }

    fn of((door, heard): (Door, Arc<Heard>)) -> Self {
        let listener = open("127.0.0.1:0".parse().unwrap(), BACKLOG).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = flag::channel(false);
        Self { address, heard, stop, serving: tokio::spawn(door.serve(listener, stopped)) }
    }

    /// Sends bytes, and reads until these words came or the listener ends the connection.
    async fn say(&self, bytes: &[u8], until: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        read_until(&mut stream, until).await
    }

    async fn close(self) -> Vec<&'static str> {
        self.stop.send_replace(true);
        self.serving.await.unwrap();
        self.heard.all()
    }
}

async fn read_until(stream: &mut (impl AsyncRead + Unpin), words: &str) -> String {
    let (mut all, mut part) = (Vec::new(), [0; 1_024]);
    loop {
        let read = stream.read(&mut part).await.unwrap_or(0);
        all.extend_from_slice(&part[..read]);
        let said = String::from_utf8_lossy(&all).into_owned();
        if read == 0 || said.contains(words) {
            return said;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_come_is_given_up_and_counted() {
    let site = Site::open(Surface::Rest, None);
    let began = Instant::now();
    let said = site.say(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n", "\0").await;
    assert!(said.starts_with("HTTP/1.1 503 ") && said.contains("no answer within 60 s"), "{said}");
    assert_eq!(began.elapsed().as_secs(), 60);
    assert_eq!(site.close().await, ["slow_answer", "failed"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_without_grpc_is_told_where_the_other_listener_is() {
    let site = Site::open(Surface::Grpc, None);
    let call = [
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
        &[0, 0, 0, 4, 0, 0, 0, 0, 0],
        // A POST to / without a body.
        &[0, 0, 6, 1, 5, 0, 0, 0, 1, 0x83, 0x86, 0x84, 0x41, 1, b'a'],
    ];
    let said = site.say(&call.concat(), "REST is at http://127.0.0.1:99").await;
    assert!(said.contains("misdirected") && said.contains("REST is at http://127.0.0.1:99"), "{said}");
    assert_eq!(site.close().await, ["refused"]);
}

/// The body of an answer that comes as it is sent.
struct Sent(UnboundedReceiver<&'static str>);

impl HttpBody for Sent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0
            .poll_recv(context)
            .map(|part| part.map(|part| Ok(Frame::data(Bytes::from_static(part.as_bytes())))))
    }
}

/// A door whose answers come as they are sent: those of `/` at once.
fn telling() -> (Site, UnboundedSender<&'static str>) {
    let (send, sent) = unbounded_channel();
    let sent = Mutex::new(Some(sent));
    let long = move || std::future::ready(Body::new(Sent(sent.lock().unwrap().take().unwrap())));
    let sent = Arc::new(long);
    let router =
        Router::new().route("/", get(|| std::future::ready("at once"))).route("/long", get(move || sent()));
    let (door, heard) = door(Surface::Rest, None);
    (Site::of((Door { router, ..door }, heard)), send)
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_not_idle_while_an_answer_goes_on_and_a_stop_waits_for_its_end() {
    let (site, send) = telling();
    let connect = || TcpStream::connect(site.address);
    let mut peer = connect().await.unwrap();
    peer.write_all(b"GET /long HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    for word in ["one", "two"] {
        send.send(word).unwrap();
        read_until(&mut peer, word).await;
        sleep(Duration::from_secs(600)).await;
    }
    let mut resting = connect().await.unwrap();
    resting.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    read_until(&mut resting, "at once").await;
    let began = Instant::now();
    site.stop.send_replace(true);
    assert_eq!(read_until(&mut resting, "\0").await, "");
    assert_eq!(began.elapsed(), Duration::ZERO, "who asks for nothing keeps nobody waiting");
    sleep(Duration::from_secs(50)).await;
    send.send("three").unwrap();
    drop(send);
    assert!(read_until(&mut peer, "\0").await.contains("three"));
    assert_eq!(site.close().await, ["ok", "ok"]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_an_end_is_cut_off_a_minute_after_a_stop() {
    let (site, send) = telling();
    let mut peer = TcpStream::connect(site.address).await.unwrap();
    peer.write_all(b"GET /long HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    send.send("one").unwrap();
    read_until(&mut peer, "one").await;
    let began = Instant::now();
    site.stop.send_replace(true);
    assert_eq!(read_until(&mut peer, "\0").await, "");
    assert_eq!(began.elapsed().as_secs(), 60);
    assert_eq!(site.close().await, ["ok"]);
}

/// What a request is for is its target where that names a host, and the field otherwise.
#[tokio::test(start_paused = true)]
async fn the_host_of_a_target_counts_more_than_the_field() {
    let ((door, heard), router) = (door(Surface::Rest, None), Router::new().fallback(async || "served"));
    let hosts = Hosts::Own { configured: Vec::new(), setting: None };
    let site = Site::of((Door { hosts, router, ..door }, heard));
    for (target, field, is_served) in [
        ("/", "localhost", true),
        ("/", "evil.example", false),
        ("http://evil.example/", "localhost", false),
        ("http://localhost/", "localhost", true),
    ] {
        let request = format!("GET {target} HTTP/1.1\r\nhost: {field}\r\nconnection: close\r\n\r\n");
        let said = site.say(request.as_bytes(), "\0").await;
        assert_eq!(said.starts_with("HTTP/1.1 200 "), is_served, "{target} {field}: {said}");
        assert_eq!(said.starts_with("HTTP/1.1 421 "), !is_served, "{target} {field}: {said}");
    }
    assert_eq!(site.close().await, ["ok", "refused", "refused", "ok"]);
}

/// Files of an authority, and of a server and a client that it signed.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        files.put(&Authority::create(None, 9).unwrap(), "ca");
        for (subject, server) in [("server", true), ("client", false)] {
            let names = vec![Name::Ip([127, 0, 0, 1].into())];
            let purpose = Purpose { server, client: !server };
            let request = Request { subject: subject.to_owned(), names, purpose, days: 9 };
            files.put(&files.authority().issue(&request).unwrap(), subject);
        }
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn put(&self, made: &tidegate_tls::Issued, name: &str) {
        write(&self.path(&format!("{name}.pem")), &made.certificate, false, false).unwrap();
        write(&self.path(&format!("{name}-key.pem")), &made.key, true, false).unwrap();
    }

    fn authority(&self) -> Authority {
        Authority::read(&self.path("ca.pem"), &self.path("ca-key.pem")).unwrap()
    }

    /// Writes the list of revoked certificates.
    fn revoke(&self, names: &[&str]) {
        let read =
            |name: &&str| Material::read(&self.path(&format!("{name}.pem"))).unwrap().valid_now().unwrap();
        let revoked: Vec<Certificate> = names.iter().map(read).collect();
        let (text, _) = self.authority().revoke(&self.path("crl.pem"), &revoked).unwrap();
        write(&self.path("crl.pem"), &text, false, true).unwrap();
    }

    fn server(&self, clients: Clients, revoked: Option<PathBuf>) -> Arc<Server> {
        let (certificate, key) = (self.path("server.pem"), self.path("server-key.pem"));
        Server::load(ServerFiles { certificate, key, clients, revoked }, &PROTOCOLS).unwrap()
    }

    /// A client that trusts the authority, and shows what it has.
    fn dial(&self) -> Dial {
        let identity = Some((self.path("client.pem"), self.path("client-key.pem")));
        let files = ClientFiles { authorities: Some(self.path("ca.pem")), identity };
        Dial::new(files, Duration::from_secs(5)).speaking_http1()
    }
}

/// The lists that a handshake was judged by are old when the peer's first bytes come.
#[tokio::test(start_paused = true)]
async fn a_peer_that_is_revoked_before_it_speaks_is_not_served() {
    let files = Files::new();
    files.revoke(&[]);
    let server = files.server(Clients::Required(files.path("ca.pem")), Some(files.path("crl.pem")));
    let site = Site::open(Surface::Rest, Some(Arc::clone(&server)));
    let mut peer = files
        .dial()
        .oneshot(format!("https://{}", site.address).parse().unwrap())
        .await
        .unwrap()
        .into_inner();
    files.revoke(&["client"]);
    assert_eq!(server.look(), Change::Renewed);
    peer.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    assert_eq!(read_until(&mut peer, "\0").await, "");
    assert_eq!(site.close().await, ["revoked"]);
}

#[tokio::test(start_paused = true)]
async fn who_sends_nothing_or_no_grpc_after_the_handshake_is_turned_away() {
    let files = Files::new();
    let site = Site::open(Surface::Grpc, Some(files.server(Clients::Anonymous, None)));
    let dial = files.dial();
    let place = format!("https://{}", site.address);
    let connect = || dial.clone().oneshot(place.parse().unwrap());
    let mut stream = connect().await.unwrap().into_inner();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let said = read_until(&mut stream, "\0").await;
    assert!(said.starts_with("HTTP/1.1 421 ") && said.contains("REST is at https://127.0.0.1:99"), "{said}");
    let began = Instant::now();
    let mut silent = connect().await.unwrap().into_inner();
    assert_eq!(read_until(&mut silent, "\0").await, "");
    assert!(began.elapsed() <= Duration::from_secs(11), "{:?}", began.elapsed());
    drop((stream, silent));
    assert_eq!(site.close().await, ["wrong_protocol", "silent"]);
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_can_accept_nothing_pauses_and_says_so_now_and_then() {
    let ((door, heard), mut starved) = (door(Surface::Rest, None), Starved::default());
    let began = Instant::now();
    for of_the_peer in
        [io::ErrorKind::ConnectionAborted, io::ErrorKind::ConnectionReset, io::ErrorKind::ConnectionRefused]
    {
        door.pause(&of_the_peer.into(), &mut starved).await;
    }
    assert!(began.elapsed().is_zero() && heard.all().is_empty() && starved.said.is_none());
    // EMFILE.
    let full = io::Error::from_raw_os_error(24);
    let mut lines = Vec::new();
    for _ in 0..=100 {
        let at = began.elapsed();
        door.pause(&full, &mut starved).await;
        assert_eq!(began.elapsed() - at, PAUSE);
        lines.extend(starved.said.map(|said| (said - began).as_secs()));
    }
    assert_eq!(heard.all(), vec!["not_accepted"; 101]);
    lines.dedup();
    assert_eq!(lines, [0, 10]);
}

#[tokio::test(start_paused = true)]
async fn upkeep_goes_on_after_a_look_that_broke() {
    let (stop, stopped) = flag::channel(false);
    let (said, mut heard) = unbounded_channel();
    let looks = AtomicUsize::new(0);
    let keeping = tokio::spawn(every(Duration::from_secs(2), stopped, move || {
        let look = looks.fetch_add(1, Ordering::Relaxed);
        said.send(look).unwrap();
        assert_ne!(look, 0, "the first one breaks");
    }));
    for look in 0..3 {
        assert_eq!(heard.recv().await, Some(look));
    }
    stop.send_replace(true);
    keeping.await.unwrap();
}
