//! etcd's messages, generated, and how each is sent.

use std::future::Future;

use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use api::auth_client::AuthClient;
use api::kv_client::KvClient;
use api::maintenance_client::MaintenanceClient;
pub(super) use api::*;
pub(super) use mvccpb::KeyValue;

/// Bytes of an answer: a page of 16 rows whose values have 512 KiB, or 16 such reads of a transaction, with keys. Half
/// of it makes such a page two calls; twice of it is only more memory for a caller that asks for too much.
pub(super) const MOST_BYTES: usize = 9 << 20;

#[expect(
    unused_qualifications,
    unreachable_pub,
    clippy::enum_variant_names,
    reason = "generated, and private; consensus/proto describes it"
)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/etcd_api.rs"));
}
use generated::etcdserverpb as api;
use generated::mvccpb;

/// A message that a member answers.
pub(super) trait Ask: Clone + Send + 'static {
    /// Its answer.
    type Answer: Send + 'static;

    /// Sends it.
    fn send(
        request: Request<Self>,
        channel: Channel,
    ) -> impl Future<Output = Result<Response<Self::Answer>, Status>> + Send;

    /// What its answer begins with.
    fn header(answer: &Self::Answer) -> Option<&ResponseHeader>;
}

/// Which call of which service a message belongs to.
macro_rules! ask {
    ($question:ty, $answer:ty, $client:ident, $call:ident) => {
        impl Ask for $question {
            type Answer = $answer;

            async fn send(
                request: Request<Self>,
                channel: Channel,
            ) -> Result<Response<Self::Answer>, Status> {
                $client::new(channel).max_decoding_message_size(MOST_BYTES).$call(request).await
            }

            fn header(answer: &Self::Answer) -> Option<&ResponseHeader> {
                answer.header.as_ref()
            }
        }
    };
}

ask!(TxnRequest, TxnResponse, KvClient, txn);
ask!(RangeRequest, RangeResponse, KvClient, range);
ask!(CompactionRequest, CompactionResponse, KvClient, compact);
ask!(AuthenticateRequest, AuthenticateResponse, AuthClient, authenticate);
ask!(StatusRequest, StatusResponse, MaintenanceClient, status);
