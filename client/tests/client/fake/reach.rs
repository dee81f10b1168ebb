//! Ways to reach the fake: in-memory channels and gRPC; and what the tests wait with.

use std::time::Duration;

use tidegate_client::transport::{Inbound, Opening, Transport};
use tidegate_client::{Client, ClientBuilder, Group};
use tidegate_core::group::GroupSpec;
use tidegate_proto::v1;
use tidegate_proto::v1::grants_server::{Grants, GrantsServer};
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};

use super::Fake;

/// Reaches the fake without sockets, so that time can be paused.
pub(crate) struct Pipe(pub Fake);

impl Transport for Pipe {
    fn session(
        &self,
        _endpoint: &str,
        outbound: mpsc::Receiver<v1::ClientMessage>,
    ) -> Opening<v1::ServerMessage> {
        let fake = self.0.clone();
        Box::pin(async move {
            if fake.state().down {
                return Err(Status::unavailable("down"));
            }
            let (sender, receiver) = mpsc::channel(1_000);
            tokio::spawn(fake.serve(ReceiverStream::new(outbound).map(Ok), sender));
            Ok(Box::pin(ReceiverStream::new(receiver)) as Inbound<v1::ServerMessage>)
        })
    }

    fn watch(&self, _endpoint: &str, request: v1::WatchRequest) -> Opening<v1::WatchEvent> {
        let fake = self.0.clone();
        Box::pin(async move {
            let stream = fake.state().watch(request)?;
            Ok(Box::pin(stream) as Inbound<v1::WatchEvent>)
        })
    }
}

#[tonic::async_trait]
impl Grants for Fake {
    type SessionStream = ReceiverStream<Result<v1::ServerMessage, Status>>;
    type WatchStream = ReceiverStream<Result<v1::WatchEvent, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<v1::ClientMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        if self.state().down {
            return Err(Status::unavailable("down"));
        }
        let (sender, receiver) = mpsc::channel(1_000);
        tokio::spawn(self.clone().serve(request.into_inner(), sender));
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        self.state().watch(request.into_inner()).map(Response::new)
    }
}

/// Serves the fake on a free port; returns its endpoint.
pub(crate) async fn listen(fake: &Fake) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let server = tonic::transport::Server::builder().add_service(GrantsServer::new(fake.clone()));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    endpoint
}

/// A client of the fake over channels.
pub(crate) fn piped(fake: &Fake) -> ClientBuilder {
    Client::builder(["pipe"], "node-1").transport(Pipe(fake.clone()))
}

/// A connected client and the group `g` with this definition.
pub(crate) async fn client_and_group(fake: &Fake, spec: GroupSpec) -> (Client, Group) {
    fake.group("g", spec);
    let client = piped(fake).connect().await.unwrap();
    let group = client.group("g").await.unwrap();
    (client, group)
}

/// Waits until a state of the client holds, looking again every millisecond.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let mut looks = tokio::time::interval(Duration::from_millis(1));
    let wait = async {
        while !condition() {
            looks.tick().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}
