//! The governed service: admit, run, meter, settle.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use tidegate_core::units::Ru;
use tower::Service;

use super::Policy;
use super::account::Account;
use super::body::GovernedBody;
use super::reply::{self, Denied};
use crate::client::Client;
use crate::group::Group;
use crate::meter::UsageRecorder;
use crate::permit::Permit;
use crate::refused::Refused;

/// A service behind a [`super::GovernLayer`].
#[derive(Clone)]
pub struct Govern<S> {
    inner: S,
    client: Client,
    policy: Policy,
}

impl<S> Govern<S> {
    pub(super) fn new(inner: S, client: Client, policy: Policy) -> Self {
        Self { inner, client, policy }
    }
}

impl<S: fmt::Debug> fmt::Debug for Govern<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Govern").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<S, Q, R> Service<Request<Q>> for Govern<S>
where
    S: Service<Request<Q>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    Q: Body + Send + 'static,
    R: Body<Data = Bytes> + Send + 'static,
{
    type Response = Response<GovernedBody<R>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        // The service that was polled ready serves; its clone waits for the next request.
        let next = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, next);
        let (client, policy) = (self.client.clone(), self.policy.clone());
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let grpc = is_grpc(&parts);
            let group = match find_group(&client, &policy, &parts) {
                Ok(group) => group,
                Err(reason) => return Ok(reply::denied(&reason, None, grpc)),
            };
            match admit(&policy, &group, policy.estimator.cost(&parts)).await {
                Ok(permit) => {
                    let permit = permit.into_owned();
                    serve(inner, Request::from_parts(parts, body), &policy, &group, permit).await
                }
                Err(refused) => Ok(reply::denied(&Denied::Refused(refused), Some(&group), grpc)),
            }
        })
    }
}

fn find_group(client: &Client, policy: &Policy, parts: &Parts) -> Result<Group, Denied> {
    let subject = (policy.subject)(parts);
    client.resolve_now(&subject.tenant, &subject.user).map_err(Denied::NoGroup)
}

async fn admit<'g>(policy: &Policy, group: &'g Group, cost: Ru) -> Result<Permit<'g>, Refused> {
    match group.acquire(cost, policy.wait).await {
        // A few dear requests must not make the average one that can never run.
        Err(Refused::NeverFits { max, .. }) if policy.estimator.is_guess() && max < cost => {
            group.acquire(max, policy.wait).await
        }
        answer => answer,
    }
}

/// Runs the admitted request.
async fn serve<S, Q, R>(
    mut inner: S,
    mut request: Request<Q>,
    policy: &Policy,
    group: &Group,
    permit: Permit<'static>,
) -> Result<Response<GovernedBody<R>>, S::Error>
where
    S: Service<Request<Q>, Response = Response<R>>,
    Q: Body,
    R: Body<Data = Bytes>,
{
    let recorder = UsageRecorder::default();
    let received = received(&request);
    request.extensions_mut().insert(recorder.clone());
    // Settles when it is dropped, so a request given up half way is charged for that half.
    let mut account = Account::open(permit, recorder, Arc::clone(&policy.estimator), received);
    let mut request = Some(request);
    let mut running = pin!(None);
    // The call and the first poll are one piece of work to the meter.
    let response = poll_fn(|context| {
        account.metered(|| {
            if let Some(request) = request.take() {
                running.set(Some(inner.call(request)));
            }
            running.as_mut().as_pin_mut().map_or(Poll::Pending, |running| running.poll(context))
        })
    });
    let response = response.await?;
    let (mut parts, body) = response.into_parts();
    let charge = account.charge_with(body.size_hint().exact().unwrap_or(0));
    reply::charge(&mut parts.headers, charge, Some(group));
    Ok(Response::from_parts(parts, GovernedBody::served(body, account)))
}

/// Bytes of the request's body, as far as known beforehand.
fn received<Q: Body>(request: &Request<Q>) -> u64 {
    let declared = || request.headers().get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok();
    request.body().size_hint().exact().or_else(declared).unwrap_or(0)
}

fn is_grpc(parts: &Parts) -> bool {
    parts.headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}
