//! The way between one process and the controller: as far as it is told, held up in either direction, or broken.
//!
//! Messages keep their order, as on a connection. What is held up arrives later; what is on its way when the way breaks
//! is lost, and both ends hear of it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tidegate_client::transport::{Inbound, Opening, Transport};
use tidegate_proto::v1::grants_client::GrantsClient;
use tidegate_proto::v1::server_message::Kind;
use tidegate_proto::v1::{ClientMessage, ServerMessage, WatchEvent, WatchRequest};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::Status;

use crate::center::Center;

/// Messages that a connection takes before its sender has to wait.
const QUEUE: usize = 1_024;

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// To the controller.
    Up,
    /// To the node.
    Down,
}

/// How the road is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    /// The time that a message takes in one direction.
    pub(crate) delay: Duration,
    /// Nothing arrives at the controller.
    pub(crate) up_held: bool,
    /// Nothing arrives at the node.
    pub(crate) down_held: bool,
    /// How often all connections broke.
    breaks: u64,
}

/// The road of one process.
#[derive(Clone)]
pub(crate) struct Road {
    state: watch::Sender<State>,
    center: Arc<Center>,
    /// Entries that the controller is said to take in one message; as many as it says itself unless set.
    max_entries: Option<u32>,
}

impl Road {
    pub(crate) fn new(center: &Arc<Center>, delay: Duration, max_entries: Option<u32>) -> Self {
        let state = watch::Sender::new(State { delay, up_held: false, down_held: false, breaks: 0 });
        Self { state, center: Arc::clone(center), max_entries }
    }

    /// Changes how it is.
    pub(crate) fn set(&self, change: impl FnOnce(&mut State)) {
        self.state.send_modify(change);
    }

    /// Breaks all connections.
    pub(crate) fn break_off(&self) {
        self.set(|state| state.breaks += 1);
    }

    /// Nothing passes any more: the process is gone, or its machine is.
    pub(crate) fn close(&self) {
        self.set(|state| (state.up_held, state.down_held) = (true, true));
    }

    fn now(&self) -> State {
        *self.state.borrow()
    }

    async fn open(&self, way: Way) {
        let open = |state: &State| match way {
            Way::Up => !state.up_held,
            Way::Down => !state.down_held,
        };
        self.state.subscribe().wait_for(open).await.unwrap();
    }

    async fn broken_since(&self, breaks: u64) {
        self.state.subscribe().wait_for(|state| state.breaks > breaks).await.unwrap();
    }

    /// The first packet there and back.
    async fn connect(&self) -> Result<GrantsClient<axum::Router>, Status> {
        for way in [Way::Up, Way::Down] {
            sleep_until(Instant::now() + self.now().delay).await;
            self.open(way).await;
        }
        let routes = self.center.routes().ok_or_else(|| Status::unavailable("nobody listens"))?;
        self.center.tick();
        Ok(GrantsClient::new(routes))
    }

    /// Carries messages until the sender has no more, the receiver wants none, or the connection breaks, of which
    /// the receiver hears `broken`.
    async fn carry<T>(self, way: Way, from: impl Stream<Item = T>, to: mpsc::Sender<T>, broken: Option<T>) {
        let breaks = self.now().breaks;
        let (road, mut under_way) = mpsc::unbounded_channel();
        let mut from = pin!(from);
        let sending = async {
            while let Some(message) = from.next().await {
                road.send((Instant::now() + self.now().delay, message)).unwrap_or_default();
            }
            drop(road);
        };
        let arriving = async {
            while let Some((at, message)) = under_way.recv().await {
                sleep_until(at).await;
                self.open(way).await;
                self.center.tick();
                if to.send(message).await.is_err() {
                    return;
                }
            }
            self.open(way).await;
        };
        let hung_up = async {
            to.closed().await;
            self.open(Way::Up).await;
        };
        tokio::select! {
            _ = async { tokio::join!(sending, arriving) } => {}
            () = hung_up => {}
            () = self.broken_since(breaks) => if let Some(broken) = broken {
                to.send(broken).await.unwrap_or_default();
            },
        }
        self.center.tick();
    }

    fn down<T: Send + 'static>(
        &self,
        answers: impl Stream<Item = Result<T, Status>> + Send + 'static,
    ) -> Inbound<T> {
        let (to, arrived) = mpsc::channel(QUEUE);
        let broken = Some(Err(Status::unavailable("the connection broke")));
        tokio::spawn(self.clone().carry(Way::Down, answers, to, broken));
        Box::pin(ReceiverStream::new(arrived))
    }
}

impl Transport for Road {
    fn session(&self, _: &str, outbound: mpsc::Receiver<ClientMessage>) -> Opening<ServerMessage> {
        let road = self.clone();
        Box::pin(async move {
            let mut client = road.connect().await?;
            let (to, arrived) = mpsc::channel(QUEUE);
            tokio::spawn(road.clone().carry(Way::Up, ReceiverStream::new(outbound), to, None));
            let answers = client.session(ReceiverStream::new(arrived)).await?.into_inner();
            let max_entries = road.max_entries;
            let answers = answers.map(move |answer| {
                answer.map(|mut message| {
                    if let (Some(most), Some(Kind::Welcome(welcome))) = (max_entries, &mut message.kind) {
                        welcome.max_entries = most;
                    }
                    message
                })
            });
            Ok(road.down(answers))
        })
    }

    fn watch(&self, _: &str, request: WatchRequest) -> Opening<WatchEvent> {
        let road = self.clone();
        Box::pin(async move {
            let mut client = road.connect().await?;
            Ok(road.down(client.watch(request).await?.into_inner()))
        })
    }
}
