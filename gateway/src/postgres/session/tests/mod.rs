//! Sessions with a controller and no database: the tests say what a server would say.

mod answers;
mod cancelled;
mod gone;
mod held;
mod killed;
mod logging_in;
mod names;

use std::sync::Arc;
use std::time::Duration;

use tidegate_client::{Group, Ru, RuParts};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::super::serve::Shared;
use super::begin;
use crate::govern::Login;
use crate::govern::tests::{PATIENCE, Stage, eventually};
use crate::metrics::Sample;
use crate::postgres::cancel::{CODE, Cancels};
use crate::seats::Seats;
use crate::session::tests::{LATER, listening, narrow, soon};
use crate::session::{End, Listening};
use crate::stream::Stream;

/// The key of the server's process, which is none of this machine.
const KEY: &[u8] = b"\x7f\xff\xff\xffkeys";
/// What a server says behind the last of a unit.
const READY: &[u8] = b"Z\0\0\0\x05I";

/// A controller, and a place for a server.
struct Scene {
    stage: Stage,
    group: Group,
    shared: Arc<Shared>,
    listener: TcpListener,
    closing: watch::Sender<bool>,
}

/// A session, and both of its ends.
struct Talk {
    client: TcpStream,
    server: TcpStream,
    session: JoinHandle<Option<End>>,
}

/// A message.
fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[kind][..], &length.to_be_bytes(), body].concat()
}

/// A simple query.
fn query(text: &str) -> Vec<u8> {
    message(b'Q', &[text.as_bytes(), b"\0"].concat())
}

/// The end of a statement of this tag, and of its unit.
fn done(tag: &str) -> Vec<u8> {
    [message(b'C', &[tag.as_bytes(), b"\0"].concat()), READY.to_vec()].concat()
}

/// Reads exactly this.
async fn hears(stream: &mut TcpStream, expected: &[u8]) {
    let mut heard = vec![0; expected.len()];
    soon("it is heard", stream.read_exact(&mut heard)).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&heard), String::from_utf8_lossy(expected));
}

/// All up to the end of the connection.
async fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    drop(soon("the connection ends", stream.read_to_end(&mut rest)).await);
    rest
}

/// All up to the end of a unit.
async fn unit(stream: &mut TcpStream) -> Vec<u8> {
    let mut heard = Vec::new();
    while !heard.ends_with(READY) {
        assert_ne!(soon("the unit ends", stream.read_buf(&mut heard)).await.unwrap(), 0, "{heard:?}");
    }
    heard
}

impl Scene {
    /// With a group of this rule, which a session is in.
    async fn new(rule: &str, kills_abandoned: bool) -> Self {
        Self::with(rule, |listening| listening.kills_abandoned = kills_abandoned).await
    }

    async fn with(rule: &str, change: impl FnOnce(&mut Listening)) -> Self {
        Self::on(Stage::new().await, rule, change).await
    }

    async fn on(stage: Stage, rule: &str, change: impl FnOnce(&mut Listening)) -> Self {
        let group = stage.group("own", rule).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream = format!("postgres://{}", listener.local_addr().unwrap());
        let (closing, closed) = watch::channel(false);
        let mut listening = listening(&stage, &upstream, closed);
        change(&mut listening);
        let shared = Arc::new(Shared { listening, cancels: Cancels::default() });
        Self { stage, group, shared, listener, closing }
    }

    /// A session that has logged in.
    async fn talk(&self) -> Talk {
        self.welcomed(&message(b'K', KEY)).await
    }

    /// One to which the server says this before it is ready.
    async fn welcomed(&self, said: &[u8]) -> Talk {
        let mut talk = self.begun(&Arc::new(Seats::new(1))).await;
        let welcome = [&message(b'R', &[0; 4])[..], said, READY].concat();
        talk.server.write_all(&welcome).await.unwrap();
        hears(&mut talk.client, &welcome).await;
        talk
    }

    /// One that the server has not answered yet. The client's socket holds little.
    async fn begun(&self, seats: &Arc<Seats>) -> Talk {
        self.begun_as("/*+ RESOURCE_GROUP(own) */", seats).await
    }

    /// One that calls itself so.
    async fn begun_as(&self, application: &str, seats: &Arc<Seats>) -> Talk {
        let (client, near) = narrow().await;
        let (to_server, server) = tokio::join!(self.shared.connect(), self.listener.accept());
        let ends = (Stream::Tcp(near), to_server.unwrap());
        let login = Login { tenant: "shop".into(), user: "root".into(), application: application.into() };
        let (seat, _) = seats.enter().unwrap();
        let mut session = begin(Arc::clone(&self.shared), ends, login, b"startup", Arc::new(seat));
        let session = tokio::spawn(async move { session.run().await.ok() });
        let mut talk = Talk { client, server: server.unwrap().0, session };
        hears(&mut talk.server, b"startup").await;
        talk
    }

    /// The group owes more than it has for hours.
    async fn owes(&self) {
        self.owes_ru(100_000_000).await;
    }

    async fn owes_ru(&self, ru: i64) {
        self.group.charge_ru(RuParts::flat(Ru::whole(ru)));
        eventually("it owes", || self.group.remaining().is_some_and(|left| !left.is_positive())).await;
    }

    /// The next request to interrupt what the server is at; its connection is the server's to close.
    async fn interrupt(&self) -> TcpStream {
        let (mut asks, _) =
            soon("the server is asked to interrupt it", self.listener.accept()).await.unwrap();
        hears(&mut asks, &[&16_u32.to_be_bytes()[..], &CODE.to_be_bytes(), KEY].concat()).await;
        asks
    }

    /// Statements that ended so, by the page of metrics.
    fn ended(&self, outcome: &str) -> u64 {
        let page = self.stage.governor.metrics().page(Sample { sessions: 0, connected: true }).unwrap();
        let name = format!("tidegate_gateway_statements_total{{outcome=\"{outcome}\"}} ");
        let line = page.lines().find_map(|line| line.strip_prefix(&name));
        line.map_or(0, |count| count.parse().unwrap())
    }
}

impl Talk {
    /// The client sends this, and the server gets it.
    async fn asks(&mut self, said: &[u8]) {
        self.client.write_all(said).await.unwrap();
        hears(&mut self.server, said).await;
    }

    /// How the session ended.
    async fn end(session: JoinHandle<Option<End>>) -> Option<End> {
        soon("the session ends", session).await.unwrap()
    }
}
