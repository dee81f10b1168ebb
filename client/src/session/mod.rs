//! The session task: keeps one grant stream to a controller open, renews the groups that are due in one message,
//! and applies what comes back.
//!
//! A lost stream costs no lease: groups spend what they hold until it ends, while the task tries the endpoints in
//! turn. At most ten messages a second are sent, acknowledgements of lowered leases apart.

pub(crate) mod convert;
mod inbound;
mod outbound;
#[cfg(test)]
#[cfg(not(shuttle))]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::units::{Span, Time};
use tidegate_proto::{PROTOCOL_VERSIONS, v1};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::StreamExt as _;

use crate::backoff::Backoff;
use crate::cell::Notice;
use crate::clock::{span, within};
use crate::groups::GroupCell;
use crate::hub::Hub;
use crate::transport::{Inbound, Transport, is_about_to_lead};

/// At most one `Renew` in this time, so ten a second.
const SEND_INTERVAL: Span = Span::millis(100);
/// The same while a group asks for the first time: that happens once for each, and its operations wait.
const FIRST_CONTACT_INTERVAL: Span = Span::millis(5);
/// Reports that no renewal carried are sent after this.
const REPORT_INTERVAL: Span = Span::secs(1);
/// A controller that answers nothing for this long is as good as gone; where answers take longer, for as many of them.
const SILENCE: Span = Span::secs(3);
const SILENT_ANSWERS: u64 = 2;
/// Opening a stream and being welcomed may take this long: two round trips of several seconds.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// Messages not yet taken by the transport; more means that the controller does not read.
const OUTBOUND: usize = 256;
/// Requests without an answer that are remembered.
const MAX_PENDING: usize = 64;
/// Bytes kept of what a controller says of itself.
const MAX_STANDING: usize = 256;
/// Entries in one `Renew` when the controller names no limit.
const MAX_ENTRIES: usize = 1_000;

/// Asks the session to end: sends `Goodbye` and answers when the controller has everything on disk.
pub(crate) type Farewell = oneshot::Sender<()>;

/// The session's task.
pub(crate) struct Session {
    hub: Arc<Hub>,
    transport: Arc<dyn Transport>,
    endpoints: Vec<String>,
    agent: String,
    orders: mpsc::Receiver<Farewell>,
    /// Sequence number of the newest message.
    seq: u64,
    /// Newest leadership epoch seen; older ones are ignored.
    epoch: u64,
    /// The standing of the controller of that epoch, to be shown to the next one.
    standing: Vec<u8>,
    leaving: Option<Farewell>,
    /// When the node's totals were sent.
    stats_sent: Option<Time>,
}

/// An open stream.
struct Stream {
    inbound: Inbound<v1::ServerMessage>,
    outbound: mpsc::Sender<v1::ClientMessage>,
    max_entries: usize,
    /// Requests without an answer.
    pending: BTreeMap<u64, Pending>,
    last_sent: Option<Time>,
    /// When reports were last looked at: what an earlier stream or start left behind is reported at once.
    last_look: Option<Time>,
    /// When the controller was last heard.
    last_heard: Time,
    /// A lowered lease waits to be acknowledged.
    urgent: bool,
    /// The `Goodbye` that waits for its `Farewell`.
    goodbye: Option<u64>,
    /// How long it took to open, which is a round trip at least.
    opening: Span,
}

/// A `Renew` under way.
struct Pending {
    sent: Time,
    groups: BTreeMap<String, Arc<GroupCell>>,
}

/// How a stream ended.
enum End {
    /// The controller confirmed the end.
    Farewell,
    /// Anything else, in words.
    Lost(String),
}

/// Why a stream was not opened.
struct Refusal {
    reason: String,
    /// The controller is about to lead, and takes the same call then.
    is_about_to_lead: bool,
}

impl Refusal {
    fn of(status: &tonic::Status) -> Self {
        Self { reason: said(status), is_about_to_lead: is_about_to_lead(status) }
    }
}

impl From<String> for Refusal {
    fn from(reason: String) -> Self {
        Self { reason, is_about_to_lead: false }
    }
}

/// The next event of a session.
enum Event {
    Heard(Option<Result<v1::ServerMessage, tonic::Status>>),
    Order(Option<Farewell>),
    Send,
    Silence,
    Look,
}

impl Session {
    pub(crate) fn new(
        hub: Arc<Hub>,
        transport: Arc<dyn Transport>,
        endpoints: Vec<String>,
        agent: String,
        orders: mpsc::Receiver<Farewell>,
    ) -> Self {
        Self {
            hub,
            transport,
            endpoints,
            agent,
            orders,
            seq: 0,
            epoch: 0,
            standing: Vec::new(),
            leaving: None,
            stats_sent: None,
        }
    }

    /// Runs until the client ends.
    pub(crate) async fn run(mut self) {
        let mut backoff = Backoff::of(self.endpoints.len());
        let mut turn = 0_usize;
        loop {
            let place = turn.checked_rem(self.endpoints.len()).unwrap_or_default();
            let Some(endpoint) = self.endpoints.get(place).cloned() else {
                return;
            };
            turn = turn.wrapping_add(1);
            let mut opened = self.open(&endpoint).await;
            if opened.as_ref().is_err_and(|refusal| refusal.is_about_to_lead) {
                opened = self.open(&endpoint).await;
            }
            let lost = match opened {
                Ok(stream) => {
                    let opened = self.hub.shared.clock.now();
                    let end = self.serve(stream).await;
                    backoff.lasted(self.hub.shared.clock.now().since(opened));
                    match end {
                        End::Farewell => return,
                        End::Lost(reason) => reason,
                    }
                }
                Err(refusal) => refusal.reason,
            };
            self.lost(&endpoint, lost);
            let pause = self.hub.shared.clock.now().after(span(backoff.pause()));
            tokio::select! {
                () = self.hub.shared.clock.sleep_until(pause) => {}
                order = self.orders.recv(), if self.leaving.is_none() => match order {
                    Some(farewell) => self.leaving = Some(farewell),
                    None => return,
                },
            }
        }
    }

    /// Opens a stream and waits to be welcomed.
    async fn open(&mut self, endpoint: &str) -> Result<Stream, Refusal> {
        self.hub.link.send_modify(|link| endpoint.clone_into(&mut link.endpoint));
        let (outbound, receiver) = mpsc::channel(OUTBOUND);
        let hello = v1::Hello {
            protocol_min: *PROTOCOL_VERSIONS.start(),
            protocol_max: *PROTOCOL_VERSIONS.end(),
            client_id: self.hub.identity.to_string(),
            incarnation: self.hub.incarnation,
            agent: self.agent.clone(),
            seen_epoch: self.epoch,
            seen_standing: self.standing.clone(),
        };
        send(&outbound, v1::client_message::Kind::Hello(hello))?;
        let began = self.hub.shared.clock.now();
        let opening = self.transport.session(endpoint, receiver);
        let welcomed = within(OPEN_TIMEOUT, async {
            let mut inbound = opening.await.map_err(|status| Refusal::of(&status))?;
            match inbound.next().await {
                Some(Ok(v1::ServerMessage { kind: Some(v1::server_message::Kind::Welcome(welcome)) })) => {
                    Ok((inbound, welcome))
                }
                Some(Ok(_)) => Err("the controller's first message is no welcome".to_owned().into()),
                Some(Err(status)) => Err(Refusal::of(&status)),
                None => Err("the controller ended the stream without a welcome".to_owned().into()),
            }
        });
        let (inbound, welcome) =
            welcomed.await.ok_or_else(|| format!("no welcome within {OPEN_TIMEOUT:?}"))??;
        if !PROTOCOL_VERSIONS.contains(&welcome.protocol) {
            let reason =
                format!("the controller chose protocol {}, unknown to this client", welcome.protocol);
            return Err(reason.into());
        }
        if welcome.epoch < self.epoch {
            self.hub.shared.counters.old_epochs.add();
            let reason = format!("the controller leads epoch {}, but {} was seen", welcome.epoch, self.epoch);
            return Err(reason.into());
        }
        self.welcomed(endpoint, &welcome);
        let now = self.hub.shared.clock.now();
        let max_entries = usize::try_from(welcome.max_entries).unwrap_or(MAX_ENTRIES);
        Ok(Stream {
            inbound,
            outbound,
            max_entries: if max_entries == 0 { MAX_ENTRIES } else { max_entries },
            pending: BTreeMap::new(),
            last_sent: None,
            last_look: None,
            last_heard: now,
            urgent: false,
            goodbye: None,
            opening: now.since(began),
        })
    }

    fn welcomed(&mut self, endpoint: &str, welcome: &v1::Welcome) {
        self.epoch = welcome.epoch;
        self.keep(&welcome.standing);
        self.hub.shared.counters.sessions.add();
        tracing::info!(endpoint, server = %welcome.server, epoch = welcome.epoch, "session open");
        self.hub.link.send_modify(|link| {
            link.connected = true;
            link.server.clone_from(&welcome.server);
            (link.epoch, link.protocol) = (welcome.epoch, welcome.protocol);
            link.last_error.clear();
        });
    }

    /// Keeps what the controller says of itself. One that says nothing, or more than any does, leaves nothing to keep.
    fn keep(&mut self, standing: &[u8]) {
        let kept = if standing.len() <= MAX_STANDING { standing } else { &[] };
        self.standing = kept.to_vec();
    }

    fn lost(&self, endpoint: &str, reason: String) {
        tracing::warn!(endpoint, %reason, "no session; leases are spent until they end");
        self.hub.shared.counters.session_failures.add();
        self.hub.shared.keep_known(self.hub.shared.clock.now(), true);
        self.hub.reports().session_lost();
        for cell in self.hub.agenda.awake.all() {
            cell.heed(Notice::SessionLost);
        }
        self.hub.link.send_modify(|link| {
            link.connected = false;
            link.last_error = format!("{endpoint}: {reason}");
        });
    }

    /// Serves the stream until it ends.
    async fn serve(&mut self, mut stream: Stream) -> End {
        loop {
            if let Err(reason) = self.say_goodbye(&mut stream) {
                return End::Lost(reason);
            }
            let done = match self.next(&mut stream).await {
                Event::Heard(Some(Ok(message))) => {
                    stream.last_heard = self.hub.shared.clock.now();
                    if self.hear(&mut stream, message) {
                        return End::Farewell;
                    }
                    Ok(())
                }
                Event::Heard(Some(Err(status))) => Err(said(&status)),
                Event::Heard(None) => Err("the controller ended the stream".to_owned()),
                Event::Order(Some(farewell)) => {
                    self.leaving = Some(farewell);
                    Ok(())
                }
                // The client is gone, and with it everyone who could want more.
                Event::Order(None) => return End::Farewell,
                Event::Send => self.renew(&mut stream),
                Event::Silence => {
                    Err(format!("the controller has answered nothing for {}", self.silence(&stream)))
                }
                Event::Look => Ok(()),
            };
            if let Err(reason) = done {
                return End::Lost(reason);
            }
        }
    }

    async fn next(&mut self, stream: &mut Stream) -> Event {
        let clock = self.hub.shared.clock;
        let send_at = if stream.goodbye.is_some() { Time(u64::MAX) } else { self.send_at(stream) };
        let oldest = stream.pending.first_key_value().map(|(_, pending)| pending.sent.max(stream.last_heard));
        let silent_at = oldest.map_or(Time(u64::MAX), |at| at.after(self.silence(stream)));
        tokio::select! {
            biased;
            heard = stream.inbound.next() => Event::Heard(heard),
            order = self.orders.recv(), if self.leaving.is_none() => Event::Order(order),
            () = clock.sleep_until(send_at) => Event::Send,
            () = clock.sleep_until(silent_at) => Event::Silence,
            () = self.hub.agenda.due.added() => Event::Look,
        }
    }

    /// A controller that answers nothing for this long is as good as gone.
    fn silence(&self, stream: &Stream) -> Span {
        let usual = self.hub.shared.round_trip().nearly_all().max(stream.opening);
        Span(usual.0.saturating_mul(SILENT_ANSWERS)).max(SILENCE)
    }

    /// When the next message should go out.
    fn send_at(&self, stream: &Stream) -> Time {
        if self.hub.agenda.due.is_empty() {
            stream.last_look.map_or(Time(0), |at| at.after(REPORT_INTERVAL))
        } else if stream.urgent {
            Time(0)
        } else {
            let first = self.hub.agenda.due.has_first_contact();
            let interval = if first { FIRST_CONTACT_INTERVAL } else { SEND_INTERVAL };
            stream.last_sent.map_or(Time(0), |at| at.after(interval))
        }
    }
}

/// Hands a message to the transport.
fn send(outbound: &mpsc::Sender<v1::ClientMessage>, kind: v1::client_message::Kind) -> Result<(), String> {
    outbound.try_send(v1::ClientMessage { kind: Some(kind) }).map_err(|error| match error {
        mpsc::error::TrySendError::Full(_) => {
            format!("{OUTBOUND} messages wait; the controller does not read")
        }
        mpsc::error::TrySendError::Closed(_) => "the controller closed the stream".to_owned(),
    })
}

/// A status in words.
fn said(status: &tonic::Status) -> String {
    // Only a status that was made on this side has a cause.
    let cause = std::error::Error::source(status).map(tidegate_tls::root_cause);
    format!("{:?}: {}", status.code(), cause.as_deref().unwrap_or(status.message()))
}
