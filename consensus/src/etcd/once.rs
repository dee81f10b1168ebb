//! A connector for one connection. A channel connects again by itself when its connection has ended; what has the
//! address then may be a member of another cluster, which would do what it is asked before its answer says so.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use tidegate_tls::Dial;
use tonic::Status;
use tonic::codegen::Service;
use tonic::transport::Uri;

type BoxError = Box<dyn Error + Send + Sync>;
/// What a dial opens.
type Stream = <Dial as Service<Uri>>::Response;

/// Dials once.
pub(super) struct Once(Option<Dial>);

impl Once {
    pub(super) fn new(dial: Dial) -> Self {
        Self(Some(dial))
    }
}

impl Service<Uri> for Once {
    type Response = Stream;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let dialled = self.0.take().map(|mut dial| dial.call(uri));
        Box::pin(async { Ok(dialled.ok_or(Ended)?.await?) })
    }
}

/// The one connection has ended.
#[derive(Debug)]
struct Ended;

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the connection has ended")
    }
}

impl Error for Ended {}

/// Whether a call was not sent, because the connection had ended before.
pub(super) fn is_unsent(status: &Status) -> bool {
    std::iter::successors(status.source(), |&error| error.source()).any(|cause| cause.is::<Ended>())
}
