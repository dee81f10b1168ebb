//! The `Grants` service: the grant stream and the watch stream.

use std::pin::Pin;
use std::sync::Arc;

use tidegate_proto::v1;
use tidegate_proto::v1::grants_server::Grants;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::reader::Reader;
use super::{Stopping, session, watch};
use crate::identity::{Narrowed, guard};
use crate::service::Service;

/// The answers of one stream.
pub(crate) type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The adapter.
pub(crate) struct GrantsAdapter {
    pub(super) service: Arc<Service>,
    pub(super) stopping: Stopping,
}

#[tonic::async_trait]
impl Grants for GrantsAdapter {
    type SessionStream = Answers<v1::ServerMessage>;
    type WatchStream = Answers<v1::WatchEvent>;

    async fn session(
        &self,
        request: Request<Streaming<v1::ClientMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let (peer, stream) = Reader::of(request.extensions(), &self.service.metrics);
        let (service, stopping) = (Arc::clone(&self.service), self.stopping.of(request.extensions()));
        let identity = guard::of(request.extensions()).cloned();
        tokio::spawn(session::serve(stopping, service, request.into_inner(), peer, identity));
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let (peer, stream) = Reader::of(request.extensions(), &self.service.metrics);
        let stopping = self.stopping.of(request.extensions());
        let narrowed = Narrowed::to(guard::of(request.extensions()));
        let have = request.into_inner();
        let subscription = self.service.definitions().subscribe(have.have_instance, have.have_revision);
        let subscription = subscription.map_err(|error| Status::resource_exhausted(error.to_string()))?;
        tokio::spawn(watch::serve(stopping, Arc::clone(&self.service), subscription, narrowed, peer));
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }
}
