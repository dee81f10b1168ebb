//! The answer to a request, as a future: running already, refused, or waiting for admission.
//!
//! A request that is admitted at once runs in place; only one that waits is put in a box.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Response;
use http_body::Body;
use pin_project_lite::pin_project;

use super::account::Account;
use super::body::GovernedBody;
use super::reply;

/// A whole answer that is waited for.
type Waiting<B, E> = Pin<Box<dyn Future<Output = Result<Response<GovernedBody<B>>, E>> + Send>>;

pin_project! {
    /// The answer of a governed service.
    #[must_use = "futures do nothing unless polled"]
    pub struct Governed<F, B, E> {
        #[pin]
        stage: Stage<F, B, E>,
    }
}

pin_project! {
    #[project = StageView]
    enum Stage<F, B, E> {
        Running { #[pin] running: Running<F> },
        Waiting { waiting: Waiting<B, E> },
        Denied { response: Option<Response<GovernedBody<B>>> },
    }
}

impl<F, B, E> Governed<F, B, E> {
    pub(super) fn running(running: Running<F>) -> Self {
        Self { stage: Stage::Running { running } }
    }

    pub(super) fn waiting(waiting: Waiting<B, E>) -> Self {
        Self { stage: Stage::Waiting { waiting } }
    }

    pub(super) fn denied(response: Response<GovernedBody<B>>) -> Self {
        Self { stage: Stage::Denied { response: Some(response) } }
    }
}

impl<F, B, E> Future for Governed<F, B, E>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body<Data = Bytes>,
{
    type Output = Result<Response<GovernedBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().stage.project() {
            StageView::Running { running } => running.poll(context),
            StageView::Waiting { waiting } => waiting.as_mut().poll(context),
            // Polled again after its end it has nothing to say.
            StageView::Denied { response } => {
                response.take().map_or(Poll::Pending, |response| Poll::Ready(Ok(response)))
            }
        }
    }
}

pin_project! {
    /// An admitted request, whose polls are metered.
    pub(super) struct Running<F> {
        #[pin]
        inner: F,
        // Settles when it is dropped, so a request given up half way is charged for that half.
        account: Option<Account>,
    }
}

impl<F> Running<F> {
    pub(super) fn new(inner: F, account: Account) -> Self {
        Self { inner, account: Some(account) }
    }
}

impl<F, B, E> Future for Running<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body<Data = Bytes>,
{
    type Output = Result<Response<GovernedBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Some(account) = this.account else { return Poll::Pending };
        let response = ready!(account.metered(|| this.inner.poll(context)));
        let Some(account) = this.account.take() else { return Poll::Pending };
        let (mut parts, body) = response?.into_parts();
        let charge = account.charge_with(body.size_hint().exact().unwrap_or(0));
        reply::charge(&mut parts.headers, charge, account.remaining());
        account.write_limits(&mut parts.headers, charge);
        Poll::Ready(Ok(Response::from_parts(parts, GovernedBody::served(body, account))))
    }
}
