//! The controller's services as a statement sees them: who asks is attached, refusals become errors.

use std::error::Error as _;
use std::time::Duration;

use tidegate_proto::v1::admin_client::AdminClient;
use tidegate_proto::v1::statements_client::StatementsClient;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Code as Grpc, Request, Status};

use crate::code::Code;
use crate::context::Context;
use crate::error::SqlError;

/// The metadata key that carries the actor into the audit log.
const ACTOR_KEY: &str = "x-tidegate-actor";
/// How long an answer may take; beyond it the session gets the error that no controller answers, instead of hanging.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Longest name of an actor, in characters; the controller cuts it as well.
const MAX_ACTOR: usize = 128;
/// Largest answer: a thousand statements with templates of 8 KiB are 8 MiB. Above it a listing fails as a whole.
const MAX_ANSWER_BYTES: usize = 32 * 1024 * 1024;

type Attributed = InterceptedService<Channel, Actor>;

/// A controller, called on behalf of an actor.
#[derive(Clone)]
pub(crate) struct Controller {
    channel: Channel,
    actor: Actor,
}

/// Puts the actor and the time it may take into each request.
#[derive(Clone)]
pub(crate) struct Actor {
    name: MetadataValue<Ascii>,
    token: Option<MetadataValue<Ascii>>,
}

impl Interceptor for Actor {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert(ACTOR_KEY, self.name.clone());
        if let Some(token) = &self.token {
            request.metadata_mut().insert("authorization", token.clone());
        }
        request.set_timeout(ANSWER_WITHIN);
        Ok(request)
    }
}

impl Controller {
    pub(crate) fn new(channel: Channel, context: &Context) -> Self {
        let actor = context.actor();
        let readable = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '?' };
        let actor: String = actor.chars().take(MAX_ACTOR).map(readable).collect();
        let name = MetadataValue::try_from(actor).unwrap_or_else(|_| MetadataValue::from_static("?"));
        Self { channel, actor: Actor { name, token: context.token.clone() } }
    }

    /// Groups, bindings, usage, nodes.
    pub(crate) fn admin(&self) -> AdminClient<Attributed> {
        AdminClient::with_interceptor(self.channel.clone(), self.actor.clone())
            .max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    /// Statements, watches, runaways.
    pub(crate) fn statements(&self) -> StatementsClient<Attributed> {
        StatementsClient::with_interceptor(self.channel.clone(), self.actor.clone())
            .max_decoding_message_size(MAX_ANSWER_BYTES)
    }
}

/// A refusal of the controller as an error.
impl From<Status> for SqlError {
    fn from(status: Status) -> Self {
        let message = status.message().to_owned();
        // Only a status that was made on this side has a cause: the connection broke in the call.
        if let Some(cause) = status.source() {
            return Self::Unavailable { reason: root_cause(cause) };
        }
        let refused = |code| Self::Refused { message: message.clone(), code };
        match status.code() {
            Grpc::NotFound => Self::Unknown(message),
            // This side says so of an answer, with its own limit; the controller of a request, with another one.
            Grpc::OutOfRange if message.contains(&format!("the limit is: {MAX_ANSWER_BYTES} ")) => {
                Self::Refused { message: too_large(), code: Code::FULL }
            }
            Grpc::InvalidArgument | Grpc::OutOfRange => refused(Code::INVALID),
            Grpc::AlreadyExists | Grpc::FailedPrecondition | Grpc::Aborted => refused(Code::REFUSED),
            Grpc::ResourceExhausted => refused(Code::FULL),
            Grpc::PermissionDenied | Grpc::Unauthenticated => refused(Code::DENIED),
            Grpc::Unavailable | Grpc::DeadlineExceeded | Grpc::Cancelled => {
                Self::Unavailable { reason: message }
            }
            Grpc::Unimplemented => Self::unsupported(
                "this statement",
                format!("the controller is of an older version ({message}); update it"),
            ),
            code => Self::Internal(format!("the controller answered {code:?} ({message}); look at its log")),
        }
    }
}

fn too_large() -> String {
    format!(
        "the answer of the controller is larger than {} MiB and was not read; ask for less of it with the tidegate \
         command, or over REST",
        MAX_ANSWER_BYTES >> 20
    )
}

/// An answer without a part that the protocol promises.
pub(crate) fn missing(what: &str) -> SqlError {
    SqlError::Internal(format!("the controller left out {what}; check that it is of the same version"))
}

/// The last cause in a chain, which is what the operating system said.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_the_controller_keeps_its_words_and_has_the_code_of_its_kind() {
        for (grpc, code, beside) in [
            (Grpc::NotFound, Code::UNKNOWN, ""),
            (Grpc::InvalidArgument, Code::INVALID, ""),
            (Grpc::OutOfRange, Code::INVALID, ""),
            (Grpc::AlreadyExists, Code::REFUSED, ""),
            (Grpc::FailedPrecondition, Code::REFUSED, ""),
            (Grpc::Aborted, Code::REFUSED, ""),
            (Grpc::ResourceExhausted, Code::FULL, ""),
            (Grpc::PermissionDenied, Code::DENIED, ""),
            (Grpc::Unauthenticated, Code::DENIED, ""),
            (Grpc::Unavailable, Code::UNAVAILABLE, "does not answer"),
            (Grpc::DeadlineExceeded, Code::UNAVAILABLE, "does not answer"),
            (Grpc::Cancelled, Code::UNAVAILABLE, "does not answer"),
            (Grpc::Unimplemented, Code::UNSUPPORTED, "of an older version"),
            (Grpc::DataLoss, Code::INTERNAL, "look at its log"),
        ] {
            let error = SqlError::from(Status::new(grpc, "so it said"));
            let text = error.to_string();
            assert_eq!(error.code(), code, "{grpc:?}");
            assert!(text.contains("so it said") && text.contains(beside), "{grpc:?}: {text}");
        }
    }
}
