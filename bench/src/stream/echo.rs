//! A server of the grant stream that decides nothing: each renewal is answered with a grant for as many groups.

use std::net::SocketAddr;

use tidegate_proto::v1;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};
use v1::client_message::Kind as Ask;
use v1::grants_server::{Grants, GrantsServer};
use v1::server_message::Kind as Answer;

use crate::error::{BenchError, failed};
use crate::messages;

/// Answers waiting for a node that reads slowly; as many as the controller keeps.
const QUEUE: usize = 64;

/// The server and its thread.
pub(crate) struct Echo {
    address: SocketAddr,
    _runtime: Runtime,
}

impl Echo {
    pub(crate) fn start() -> Result<Self, BenchError> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(failed("start a runtime"))?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).map_err(failed("listen"))?;
        let address = listener.local_addr().map_err(failed("listen"))?;
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let server = Server::builder().add_service(GrantsServer::new(Bare));
        runtime.spawn(async move {
            if let Err(error) = server.serve_with_incoming(incoming).await {
                eprintln!("bench: the echo server ended: {error}");
            }
        });
        Ok(Self { address, _runtime: runtime })
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// Answers without state.
struct Bare;

type Answers<T> = ReceiverStream<Result<T, Status>>;

#[tonic::async_trait]
impl Grants for Bare {
    type SessionStream = Answers<v1::ServerMessage>;
    type WatchStream = Answers<v1::WatchEvent>;

    async fn session(
        &self,
        request: Request<Streaming<v1::ClientMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let mut asks = request.into_inner();
        let (answers, received) = mpsc::channel(QUEUE);
        tokio::spawn(async move {
            let mut prepared = v1::Granted::default();
            while let Ok(Some(ask)) = asks.message().await {
                let answer = match ask.kind {
                    Some(Ask::Renew(renew)) => {
                        if prepared.entries.len() != renew.entries.len() {
                            prepared = messages::granted(renew.seq, renew.entries.len());
                        }
                        Answer::Granted(v1::Granted { seq: renew.seq, ..prepared.clone() })
                    }
                    _ => Answer::Welcome(v1::Welcome::default()),
                };
                if answers.send(Ok(v1::ServerMessage { kind: Some(answer) })).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(received)))
    }

    async fn watch(&self, _: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("an echo has nothing to watch"))
    }
}
