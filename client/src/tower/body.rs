//! The response body: counts bytes and CPU while it is streamed, and closes the account when it ends.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::account::Account;

/// A body that is known to be no longer is in memory already: its CPU is not worth two readings of a clock.
const READY_BYTES: u64 = 16 * 1_024;

pin_project! {
    /// Body of a governed response, or the short text of a refusal.
    #[derive(Debug)]
    pub struct GovernedBody<B> {
        #[pin]
        content: Content<B>,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = ContentView]
    enum Content<B> {
        Served { #[pin] body: B, account: Account, ready: bool },
        Refused { text: Option<Bytes> },
    }
}

impl<B: Body> GovernedBody<B> {
    pub(super) fn served(body: B, account: Account) -> Self {
        let ready = body.size_hint().exact().is_some_and(|length| length <= READY_BYTES);
        Self { content: Content::Served { body, account, ready } }
    }
}

impl<B> GovernedBody<B> {
    pub(super) fn refused(text: String) -> Self {
        Self { content: Content::Refused { text: Some(text.into()).filter(|text: &Bytes| !text.is_empty()) } }
    }
}

impl<B: Body<Data = Bytes>> Body for GovernedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().content.project() {
            ContentView::Served { body, account, ready } => {
                let poll = || body.poll_frame(context);
                let frame = ready!(if *ready { poll() } else { account.metered(poll) });
                match &frame {
                    Some(Ok(frame)) => account.sent(frame.data_ref().map_or(0, Bytes::len)),
                    Some(Err(_)) | None => account.close(),
                }
                Poll::Ready(frame)
            }
            ContentView::Refused { text } => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Served { body, .. } => body.is_end_stream(),
            Content::Refused { text } => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Served { body, .. } => body.size_hint(),
            Content::Refused { text } => {
                let length = text.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(u64::try_from(length).unwrap_or(u64::MAX))
            }
        }
    }
}
