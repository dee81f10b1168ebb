//! How the client reaches a controller. The default is gRPC over TCP, under TLS where the endpoint begins with
//! `https://`; other sockets and tests bring their own.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tidegate_proto::ABOUT_TO_LEAD;
use tidegate_proto::v1::grants_client::GrantsClient;
use tidegate_proto::v1::{ClientMessage, ServerMessage, WatchEvent, WatchRequest};
use tidegate_tls::{ClientFiles, Dial, root_cause};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use crate::token::{Token, TokenError};

/// Messages from the controller, until the stream ends.
pub type Inbound<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;
/// An attempt to open a stream.
pub type Opening<T> = Pin<Box<dyn Future<Output = Result<Inbound<T>, Status>> + Send>>;

/// Opens the two streams of the grants protocol. `endpoint` is one of those the client was given.
pub trait Transport: Send + Sync + 'static {
    /// The grant stream; what is put into `outbound` is sent.
    fn session(&self, endpoint: &str, outbound: mpsc::Receiver<ClientMessage>) -> Opening<ServerMessage>;
    /// The stream of bindings and cost tables.
    fn watch(&self, endpoint: &str, request: WatchRequest) -> Opening<WatchEvent>;
}

/// Whether the controller that refused this is about to lead, and takes the same call then.
pub(crate) fn is_about_to_lead(refused: &Status) -> bool {
    refused.metadata().contains_key(ABOUT_TO_LEAD)
}

/// gRPC over TCP; under TLS for endpoints that begin with `https://`.
#[derive(Clone, Debug)]
pub struct Grpc {
    /// Give up a connection attempt after this long.
    pub connect_timeout: Duration,
    /// Probe a silent connection this often; it counts as lost when a probe goes unanswered for five times as long: so
    /// long round trips may be, and so late a process on a busy machine.
    pub keep_alive: Duration,
    /// Whom the client trusts under TLS, and what it shows; read again for each connection.
    pub tls: ClientFiles,
    /// What the client shows in place of a certificate; read again for each connection.
    pub token: Option<Token>,
}

impl Default for Grpc {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(4),
            keep_alive: Duration::from_secs(2),
            tls: ClientFiles::default(),
            token: None,
        }
    }
}

/// A connection of its own for one stream.
struct Connected {
    client: GrantsClient<Channel>,
    dial: Dial,
    bearer: Option<MetadataValue<Ascii>>,
}

impl Grpc {
    async fn connect(self, endpoint: String) -> Result<Connected, Status> {
        let bearer = match self.token {
            Some(token) => Some(bearer(token, &endpoint).await?),
            None => None,
        };
        let dial = Dial::new(self.tls, self.connect_timeout);
        let refused = |error: tonic::transport::Error| Status::unavailable(root_cause(&error));
        let channel = Endpoint::from_shared(endpoint)
            .map_err(refused)?
            .connect_timeout(self.connect_timeout)
            .http2_keep_alive_interval(self.keep_alive)
            .keep_alive_timeout(self.keep_alive.saturating_mul(5))
            .keep_alive_while_idle(true)
            .connect_with_connector(dial.clone())
            .await
            .map_err(refused)?;
        Ok(Connected { client: GrantsClient::new(channel), dial, bearer })
    }
}

/// What shows the token to the controller there.
async fn bearer(token: Token, endpoint: &str) -> Result<MetadataValue<Ascii>, Status> {
    let unusable = |error: TokenError| Status::failed_precondition(error.to_string());
    Token::check_endpoint(endpoint).map_err(unusable)?;
    let read = tokio::task::spawn_blocking(move || token.bearer()).await;
    read.map_err(|error| Status::internal(error.to_string()))?.map_err(unusable)
}

impl Connected {
    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(bearer) = &self.bearer {
            request.metadata_mut().insert("authorization", bearer.clone());
        }
        request
    }
}

/// The status of a call, with what the server said as it ended the connection.
fn said(status: Status, dial: &Dial) -> Status {
    dial.refused().map_or(status, Status::unavailable)
}

impl Transport for Grpc {
    fn session(&self, endpoint: &str, outbound: mpsc::Receiver<ClientMessage>) -> Opening<ServerMessage> {
        let (grpc, endpoint) = (self.clone(), endpoint.to_owned());
        Box::pin(async move {
            let mut to = grpc.connect(endpoint).await?;
            let request = to.request(ReceiverStream::new(outbound));
            let stream =
                to.client.session(request).await.map_err(|status| said(status, &to.dial))?.into_inner();
            Ok(Box::pin(stream) as Inbound<ServerMessage>)
        })
    }

    fn watch(&self, endpoint: &str, request: WatchRequest) -> Opening<WatchEvent> {
        let (grpc, endpoint) = (self.clone(), endpoint.to_owned());
        Box::pin(async move {
            let mut to = grpc.connect(endpoint).await?;
            let request = to.request(request);
            let stream =
                to.client.watch(request).await.map_err(|status| said(status, &to.dial))?.into_inner();
            Ok(Box::pin(stream) as Inbound<WatchEvent>)
        })
    }
}
