//! The admin service of a controller: the connection, who asks, and its refusals in one line.

use std::error::Error as _;
use std::time::Duration;

use tidegate_proto::v1::ListGroupsRequest;
use tidegate_proto::v1::admin_client::AdminClient;
use tidegate_proto::v1::statements_client::StatementsClient;
use tidegate_tls::{ClientFiles, Dial, check_scheme, root_cause};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use crate::clock::monotonic_us;
use crate::endpoints;
use crate::error::CliError;
use crate::flags::in_flags;
use crate::token::check_endpoint;

/// How long a connection may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);
/// How long one of several controllers may take to say whether it leads: one that stands still never does, and another
/// one may lead by now.
const LEADS_WITHIN: Duration = Duration::from_secs(2);
/// How long commands wait for one of several controllers to lead, in microseconds: a takeover takes a second or two.
const TAKEOVER_WITHIN_US: u64 = 5_000_000;
/// Between two looks for it.
const LOOK: Duration = Duration::from_millis(100);
/// How long an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The metadata key that carries the actor into the audit log.
const ACTOR_KEY: &str = "x-tidegate-actor";

/// The generated client with the actor attached.
pub(crate) type Calls = AdminClient<InterceptedService<Channel, Actor>>;

/// The same for the service of statements.
pub(crate) type StatementCalls = StatementsClient<InterceptedService<Channel, Actor>>;

/// A controller as an administrator sees it.
#[derive(Clone)]
pub(crate) struct Admin {
    endpoint: String,
    channel: Channel,
    actor: Actor,
    dial: Dial,
}

/// What shows a token to the controller.
pub(crate) type Token = MetadataValue<Ascii>;

/// Puts the actor into each request, and the token.
#[derive(Clone)]
pub(crate) struct Actor {
    name: MetadataValue<Ascii>,
    token: Option<Token>,
}

impl Interceptor for Actor {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert(ACTOR_KEY, self.name.clone());
        if let Some(token) = &self.token {
            request.metadata_mut().insert("authorization", token.clone());
        }
        Ok(request)
    }
}

impl Admin {
    /// Connects to the controller at `endpoint` on behalf of `actor`; of several, to the first that leads. If some answer
    /// and none leads, one takes over: it is waited for.
    pub(crate) async fn connect(
        endpoint: &str,
        actor: &str,
        tls: &ClientFiles,
        token: Option<Token>,
    ) -> Result<Self, CliError> {
        let all: Vec<&str> = endpoints::each(endpoint).collect();
        if all.len() > 1
            && let Some(leader) = Self::leader_of(&all, actor, tls, token.as_ref()).await?
        {
            return Ok(leader);
        }
        // One of several says what is wrong.
        Self::connect_to(all.last().copied().unwrap_or_default(), actor, tls, token).await
    }

    /// The first of several controllers that leads; `None` if none does in time, or none answers.
    async fn leader_of(
        all: &[&str],
        actor: &str,
        tls: &ClientFiles,
        token: Option<&Token>,
    ) -> Result<Option<Self>, CliError> {
        let until_us = monotonic_us().saturating_add(TAKEOVER_WITHIN_US);
        loop {
            let mut some_answer = false;
            for one in all {
                match Self::connect_to(one, actor, tls, token.cloned()).await {
                    Ok(admin) if admin.leads().await => return Ok(Some(admin)),
                    Ok(_) => some_answer = true,
                    Err(CliError::Unreachable { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            if !some_answer || monotonic_us() >= until_us {
                return Ok(None);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Whether the controller leads: a standby takes no call, of anybody, nor does one that may have a successor take
    /// this one; and one that stands still gives no answer.
    pub(crate) async fn leads(&self) -> bool {
        let mut calls = self.calls();
        let request = ListGroupsRequest { limit: 1, ..ListGroupsRequest::default() };
        match tokio::time::timeout(LEADS_WITHIN, calls.list_groups(request)).await {
            Ok(Ok(_)) => true,
            // A refusal of those who may not ask is the leader's. One with a cause was made on this side: the connection
            // broke, as one through a balancer does whose controller is gone.
            Ok(Err(status)) => status.code() != Code::Unavailable && status.source().is_none(),
            Err(_) => false,
        }
    }

    async fn connect_to(
        endpoint: &str,
        actor: &str,
        tls: &ClientFiles,
        token: Option<Token>,
    ) -> Result<Self, CliError> {
        let unusable = |reason: String| CliError::Endpoint { endpoint: endpoint.to_owned(), reason };
        check_scheme(endpoint).map_err(unusable)?;
        if token.is_some() {
            check_endpoint(endpoint)?;
        }
        let dial = Dial::new(tls.clone(), CONNECT_WITHIN);
        let channel = Endpoint::from_shared(endpoint.to_owned())
            .map_err(|error| unusable(error.to_string()))?
            .connect_timeout(CONNECT_WITHIN)
            .timeout(ANSWER_WITHIN)
            .connect_with_connector(dial.clone())
            .await
            .map_err(|error| CliError::away(endpoint, root_cause(&error)))?;
        let readable = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '?' };
        let actor: String = actor.chars().map(readable).collect();
        let actor =
            MetadataValue::try_from(actor).map_err(|error| CliError::Usage(format!("--actor: {error}")))?;
        Ok(Self { endpoint: endpoint.to_owned(), channel, actor: Actor { name: actor, token }, dial })
    }

    /// The calls; pass a refusal to [`Admin::failed`].
    pub(crate) fn calls(&self) -> Calls {
        AdminClient::with_interceptor(self.channel.clone(), self.actor.clone())
    }

    /// The calls about statements; pass a refusal to [`Admin::failed`].
    pub(crate) fn statements(&self) -> StatementCalls {
        StatementsClient::with_interceptor(self.channel.clone(), self.actor.clone())
    }

    /// The connection, for calls that say themselves who asks.
    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// What shows the token to the controller, if there is one.
    pub(crate) fn token(&self) -> Option<Token> {
        self.actor.token.clone()
    }

    /// Where the controller is.
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// A refusal as an error, of a command whose flags are the fields of the request.
    pub(crate) fn failed_in_flags(&self) -> impl Fn(Status) -> CliError + use<> {
        let failed = self.failed();
        move |status| in_flags(failed(status))
    }

    /// A refusal as an error.
    pub(crate) fn failed(&self) -> impl Fn(Status) -> CliError + use<> {
        let (endpoint, dial) = (self.endpoint.clone(), self.dial.clone());
        move |status| {
            if let Some(reason) = dial.refused() {
                return CliError::away(&endpoint, reason);
            }
            let message = status.message().to_owned();
            match status.code() {
                // The controller is there and says itself what it cannot do now, such as write to a full disk.
                Code::Unavailable if status.source().is_none() && !message.is_empty() => {
                    CliError::Unavailable(message)
                }
                // The first byte of a page, read as the flag before a message.
                _ if message.contains("invalid compression flag") => CliError::Endpoint {
                    endpoint: endpoint.clone(),
                    reason: "the server there does not speak gRPC (is this the REST port?)".to_owned(),
                },
                Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => {
                    CliError::away(&endpoint, status.source().map_or(message, root_cause))
                }
                // Only a status that was made on this side has a cause: the connection broke in the call.
                _ if let Some(cause) = status.source() => CliError::away(&endpoint, root_cause(cause)),
                Code::InvalidArgument => CliError::Invalid(message),
                // It says where gRPC is.
                Code::Unimplemented if message.contains("the REST listener") => {
                    CliError::Endpoint { endpoint: endpoint.clone(), reason: message }
                }
                Code::Unimplemented => CliError::Refused(format!(
                    "the server at {endpoint} is no tidegate controller of this version ({message}); check --endpoint"
                )),
                _ if message.is_empty() => CliError::Refused(format!(
                    "the controller at {endpoint} answered {:?} without a reason; look at its log",
                    status.code()
                )),
                _ => CliError::Refused(message),
            }
        }
    }

    /// A part of an answer that the protocol promises.
    pub(crate) fn part<T>(&self, part: Option<T>, what: &'static str) -> Result<T, CliError> {
        part.ok_or_else(|| CliError::Answer { endpoint: self.endpoint.clone(), what })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(status: Status) -> String {
        let channel = Endpoint::from_static("http://127.0.0.1:1").connect_lazy();
        let actor = Actor { name: MetadataValue::from_static("tester"), token: None };
        let endpoint = "http://127.0.0.1:1".to_owned();
        let dial = Dial::new(ClientFiles::default(), CONNECT_WITHIN);
        let admin = Admin { endpoint, channel, actor, dial };
        admin.failed()(status).to_string()
    }

    #[tokio::test]
    async fn a_connection_that_breaks_in_a_call_is_told_as_such_and_not_as_a_refusal() {
        let cause = Box::new(std::io::Error::other("connection reset by peer"));
        let broken = said(Status::from_error(cause));
        assert!(
            broken.starts_with("cannot reach the controller at http://127.0.0.1:1: connection reset"),
            "{broken}"
        );
        assert!(broken.contains("is it running?"), "{broken}");
        assert_eq!(said(Status::unknown("group x is in use")), "group x is in use");
    }

    #[tokio::test]
    async fn what_the_controller_says_itself_is_told_as_it_says_it() {
        let full = "the store failed: no space left on device; the change is not in force";
        assert_eq!(said(Status::unavailable(full)), full);
        let page =
            said(Status::internal("protocol error: received message with invalid compression flag: 123"));
        assert!(page.contains("does not speak gRPC") && page.contains("http://127.0.0.1:7420"), "{page}");
    }
}
