//! One grant stream: Hello and Welcome, then renewals and pushes until either side ends it.
//!
//! A malformed message ends this stream with INVALID_ARGUMENT, and nothing else; a newer stream of the node ends it
//! with ABORTED. The answer to Goodbye comes when the last reports are on disk.

use std::sync::Arc;

use tidegate_core::units::Time;
use tidegate_proto::{PROTOCOL_VERSIONS, v1};
use tokio::time::{interval, timeout};
use tonic::{Status, Streaming};
use v1::client_message::Kind as Ask;
use v1::server_message::Kind as Answer;

use super::reader::Reader;
use super::{Stopping, check_own, convert, session_status};
use crate::clock::duration;
use crate::identity::Identity;
use crate::leasing::standing::MAX_STANDING_BYTES;
use crate::limits::{FLUSH_EVERY, HELLO_WITHIN, MAX_AGENT, MAX_ENTRIES};
use crate::name;
use crate::service::{Push, Seen, Service, Session, SessionError};
use crate::spans;

type Peer = Reader<v1::ServerMessage>;

/// Runs a stream to its end.
pub(super) async fn serve(
    mut stopping: Stopping,
    service: Arc<Service>,
    mut asks: Streaming<v1::ClientMessage>,
    peer: Peer,
    identity: Option<Identity>,
) {
    let accepted = tokio::select! {
        accepted = accept(&service, &mut asks, identity.as_ref()) => accepted,
        ended = stopping.requested() => Err(ended.unwrap_or_else(stopped)),
    };
    let (mut session, welcome) = match accepted {
        Ok(accepted) => accepted,
        Err(status) => return peer.end(status).await,
    };
    let (client, number) = (session.client, session.session);
    let result = match send(&peer, Answer::Welcome(welcome)).await {
        Ok(()) => run(&service, &mut stopping, &mut asks, &peer, &mut session).await,
        Err(status) => Err(status),
    };
    service.leasing().disconnect(client, number);
    if let Err(status) = result {
        tracing::debug!(client = client.0, %status, "a grant stream ended");
        peer.end(status).await;
    }
}

/// Waits for a Hello that can be accepted.
async fn accept(
    service: &Arc<Service>,
    asks: &mut Streaming<v1::ClientMessage>,
    identity: Option<&Identity>,
) -> Result<(Session, v1::Welcome), Status> {
    let first = timeout(duration(HELLO_WITHIN), asks.message()).await;
    let first = first.map_err(|_| Status::deadline_exceeded(format!("no hello within {HELLO_WITHIN}")))??;
    let Some(v1::ClientMessage { kind: Some(Ask::Hello(hello)) }) = first else {
        return Err(Status::invalid_argument("the first message of a session must be a hello"));
    };
    let protocol = negotiate(hello.protocol_min, hello.protocol_max)?;
    let client =
        name::client_id(&hello.client_id).map_err(|error| Status::invalid_argument(error.to_string()))?;
    check_own(identity, &client)?;
    if hello.incarnation == 0 {
        return Err(Status::invalid_argument(
            "incarnation: 0 is out of range; use a number that grows with every start",
        ));
    }
    let agent: String = hello.agent.chars().filter(|c| !c.is_control()).take(MAX_AGENT).collect();
    heed(service, &client, Seen { epoch: hello.seen_epoch, standing: hello.seen_standing }).await?;
    let session = service
        .leasing()
        .hello(&client, hello.incarnation, &agent)
        .map_err(|error| session_status(&error))?;
    if let Some(scope) = identity.and_then(|identity| identity.scope.clone()) {
        service.leasing().confine(session.client, session.session, scope);
    }
    let welcome = v1::Welcome {
        protocol,
        epoch: session.epoch,
        recovery_us: session.recovery.0,
        server: concat!("tidegate-controller/", env!("CARGO_PKG_VERSION")).to_owned(),
        max_entries: u32::try_from(MAX_ENTRIES).unwrap_or(u32::MAX),
        standing: session.standing.clone(),
    };
    Ok((session, welcome))
}

/// Takes in what a node has seen of other controllers. News are stored first.
async fn heed(service: &Arc<Service>, client: &str, seen: Seen) -> Result<(), Status> {
    if seen.standing.len() > MAX_STANDING_BYTES {
        let length = seen.standing.len();
        return Err(Status::invalid_argument(format!(
            "seen_standing: {length} bytes are too many: at most {MAX_STANDING_BYTES}; send it as it was received"
        )));
    }
    if !service.leasing().is_news(&seen) {
        return Ok(());
    }
    let (heeding, client) = (Arc::clone(service), client.to_owned());
    let heeded = tokio::task::spawn_blocking(move || heeding.leasing().heed(&client, &seen)).await;
    let heeded = heeded.map_err(|error| Status::internal(format!("the call did not finish: {error}")))?;
    heeded.map_err(|error| session_status(&error))
}

/// The newest version that both sides speak.
fn negotiate(min: u32, max: u32) -> Result<u32, Status> {
    let (oldest, newest) = (*PROTOCOL_VERSIONS.start(), *PROTOCOL_VERSIONS.end());
    let common = max.min(newest);
    if min <= max && min <= common && oldest <= common {
        return Ok(common);
    }
    Err(Status::failed_precondition(format!(
        "no common protocol version: the node speaks {min} to {max}, the controller {oldest} to {newest}"
    )))
}

async fn run(
    service: &Arc<Service>,
    stopping: &mut Stopping,
    asks: &mut Streaming<v1::ClientMessage>,
    peer: &Peer,
    session: &mut Session,
) -> Result<(), Status> {
    loop {
        let answer = tokio::select! {
            // Orders to lower go first: others wait for what they free.
            biased;
            ended = stopping.requested() => return Err(ended.unwrap_or_else(stopped)),
            push = session.pushes.recv() => match push {
                Some(Push::Lower(lowers)) => lower(service.epoch(), lowers),
                None => return Err(replaced()),
            },
            ask = asks.message() => match ask?.map(|message| message.kind) {
                None => return Ok(()),
                Some(Some(Ask::Renew(renew))) => {
                    let came = service.clock().now();
                    let request = convert::renew(renew).map_err(|error| Status::invalid_argument(error.to_string()))?;
                    let renewed = spans::renew(service, session.client, session.session, request);
                    let renewed = renewed.map_err(|error| session_status(&error))?;
                    tokio::select! {
                        confirmed = confirmed(service, came) => confirmed?,
                        // Beats may end before the next one.
                        ended = stopping.requested() => return Err(ended.unwrap_or_else(stopped)),
                    }
                    Answer::Granted(convert::granted(renewed))
                }
                Some(Some(Ask::Goodbye(goodbye))) => {
                    let farewell = farewell(service, stopping, peer, session, goodbye).await?;
                    return send(peer, farewell).await;
                }
                Some(Some(Ask::Hello(_))) => return Err(Status::invalid_argument("a session has one hello only")),
                Some(None) => return Err(Status::invalid_argument("a message of an unknown kind")),
            },
        };
        send(peer, answer).await?;
    }
}

/// Waits until a beat shows that what came in then may be answered, where answers wait for one.
async fn confirmed(service: &Service, came: Time) -> Result<(), Status> {
    let Some(gate) = service.beside().gate.get() else { return Ok(()) };
    gate.passed(came).await.map_err(|silence| session_status(&silence.into()))
}

fn lower(epoch: u64, lowers: Vec<(name::GroupName, tidegate_core::units::Rate)>) -> Answer {
    let entries = lowers
        .into_iter()
        .map(|(group, rate)| v1::LowerEntry { group: group.to_string(), rate_at_most: rate.0 });
    Answer::Lower(v1::Lower { epoch, entries: entries.collect() })
}

/// Counts the last reports and waits until they are on disk, as long as the node waits.
async fn farewell(
    service: &Arc<Service>,
    stopping: &mut Stopping,
    peer: &Peer,
    session: &Session,
    goodbye: v1::Goodbye,
) -> Result<Answer, Status> {
    let seq = goodbye.seq;
    let reports =
        convert::reports(goodbye.reports).map_err(|error| Status::invalid_argument(error.to_string()))?;
    let refused =
        service.leasing().goodbye(session.client, session.session, seq, &reports).ok_or_else(replaced)?;
    let refused = convert::refused(refused);
    let mut again = interval(duration(FLUSH_EVERY));
    // The first tick is at once.
    again.tick().await;
    loop {
        let flushing = Arc::clone(service);
        if let Ok(Ok(())) = tokio::task::spawn_blocking(move || flushing.upkeep().flush()).await {
            return Ok(Answer::Farewell(v1::Farewell { seq, refused }));
        }
        tokio::select! {
            biased;
            () = peer.closed() => return Err(Status::cancelled("the node went away")),
            // Another controller may own the store: the node reports to that one.
            ended = stopping.requested() => return Err(ended.unwrap_or_else(stopped)),
            _ = again.tick() => {}
        }
    }
}

fn stopped() -> Status {
    Status::unavailable("the controller is shutting down; leases stay valid until they end, connect again")
}

fn replaced() -> Status {
    session_status(&SessionError::Replaced)
}

async fn send(peer: &Peer, kind: Answer) -> Result<(), Status> {
    peer.tell(v1::ServerMessage { kind: Some(kind) }).await
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, Bytes};
    use prost::Message as _;
    use tokio::sync::watch as flag;
    use tonic::Extensions;
    use tonic::codec::Codec as _;
    use tonic_prost::ProstCodec;

    use super::*;
    use crate::grpc::testing::hello;
    use crate::statements::testing::Stage;

    /// What a node says that begins, and then nothing more.
    fn beginning() -> Streaming<v1::ClientMessage> {
        let message = hello().encode_to_vec();
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        let body = Body::from(Bytes::from([&[0][..], &length, &message].concat()));
        let decoder = ProstCodec::<v1::ServerMessage, _>::default().decoder();
        Streaming::new_request(decoder, body, None, None)
    }

    #[tokio::test]
    async fn a_node_that_goes_before_it_is_welcomed_is_not_taken_for_connected() {
        let service = Arc::new(Stage::new().service);
        let (peer, welcome) = Reader::of(&Extensions::new(), &service.metrics);
        drop(welcome);
        let (_running, stopped) = flag::channel(false);
        serve(Stopping::new(stopped), Arc::clone(&service), beginning(), peer, None).await;
        let (clients, _) = service.leasing().clients();
        let connected: Vec<bool> = clients.iter().map(|client| client.connected).collect();
        assert_eq!((connected, service.lock().leasing.clients().connected()), (vec![false], 0));
    }

    #[test]
    fn the_newest_common_version_is_chosen() {
        assert_eq!(negotiate(1, 1).unwrap(), 1);
        assert_eq!(negotiate(0, 9).unwrap(), 1);
        for (min, max) in [(2, 3), (0, 0), (3, 1)] {
            let status = negotiate(min, max).unwrap_err();
            assert_eq!(status.code(), tonic::Code::FailedPrecondition);
            assert!(
                status.message().contains(&format!("{min} to {max}")) && status.message().contains("1 to 1")
            );
        }
    }
}
