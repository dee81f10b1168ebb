//! How the client reaches a controller. The default is gRPC over TCP; TLS, other sockets and tests bring their own.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tidegate_proto::v1::grants_client::GrantsClient;
use tidegate_proto::v1::{ClientMessage, ServerMessage, WatchEvent, WatchRequest};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

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

/// gRPC over TCP without TLS.
#[derive(Clone, Copy, Debug)]
pub struct Grpc {
    /// Give up a connection attempt after this long.
    pub connect_timeout: Duration,
    /// Probe a silent connection this often; it counts as lost when a probe goes unanswered for five times as long: so
    /// long round trips may be, and so late a process on a busy machine.
    pub keep_alive: Duration,
}

impl Default for Grpc {
    fn default() -> Self {
        Self { connect_timeout: Duration::from_secs(4), keep_alive: Duration::from_secs(2) }
    }
}

impl Grpc {
    async fn connect(self, endpoint: String) -> Result<GrantsClient<Channel>, Status> {
        let refused = |error: tonic::transport::Error| Status::unavailable(format!("{endpoint}: {error}"));
        let channel = Endpoint::from_shared(endpoint.clone())
            .map_err(refused)?
            .connect_timeout(self.connect_timeout)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(self.keep_alive)
            .keep_alive_timeout(self.keep_alive.saturating_mul(5))
            .keep_alive_while_idle(true)
            .connect()
            .await
            .map_err(refused)?;
        Ok(GrantsClient::new(channel))
    }
}

impl Transport for Grpc {
    fn session(&self, endpoint: &str, outbound: mpsc::Receiver<ClientMessage>) -> Opening<ServerMessage> {
        let (grpc, endpoint) = (*self, endpoint.to_owned());
        Box::pin(async move {
            let mut client = grpc.connect(endpoint).await?;
            let stream = client.session(ReceiverStream::new(outbound)).await?.into_inner();
            Ok(Box::pin(stream) as Inbound<ServerMessage>)
        })
    }

    fn watch(&self, endpoint: &str, request: WatchRequest) -> Opening<WatchEvent> {
        let (grpc, endpoint) = (*self, endpoint.to_owned());
        Box::pin(async move {
            let mut client = grpc.connect(endpoint).await?;
            let stream = client.watch(request).await?.into_inner();
            Ok(Box::pin(stream) as Inbound<WatchEvent>)
        })
    }
}
