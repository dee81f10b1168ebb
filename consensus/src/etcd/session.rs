//! One call to a member of a cluster: a connection, a login, and one answer.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tidegate_tls::{Dial, root_cause};
use tokio::sync::Mutex;
use tonic::metadata::{Ascii, AsciiMetadataValue, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use super::fault::{Fault, is_stale};
use super::once::{Once, is_unsent};
use super::settings::{EtcdSettings, Login, password};
use super::wire::{Ask, AuthenticateRequest, ResponseHeader, StatusRequest};

/// Time for a connection, where the call itself has more. Half of it is short for a network that loses a packet twice;
/// twice of it only waits for a member that is away.
const CONNECT_WITHIN: Duration = Duration::from_secs(4);

/// What a login gave.
type Token = MetadataValue<Ascii>;

/// The cluster as it is known, and what is shown to its members.
pub(super) struct Cluster {
    pub(super) settings: EtcdSettings,
    /// Which one answered first.
    id: OnceLock<u64>,
}

/// A member whose turn it is, and the connection to it once there is one.
pub(super) struct Turn {
    pub(super) member: usize,
    session: Mutex<Option<Arc<Session>>>,
}

/// A connection, until it ends.
struct Session {
    channel: Channel,
    dial: Dial,
    /// With a login. Of this member: one that has not heard of a token waits until it has, which may be never.
    token: Mutex<Option<Token>>,
}

impl Turn {
    pub(super) fn of(member: usize) -> Self {
        Self { member, session: Mutex::new(None) }
    }
}

impl Session {
    async fn ask<Q: Ask>(&self, question: Q, token: Option<&Token>) -> Result<Q::Answer, Status> {
        let mut request = Request::new(question);
        let metadata = request.metadata_mut();
        // A member that knows no leader says so at once, so that another one is asked.
        metadata.insert("hasleader", AsciiMetadataValue::from_static("true"));
        if let Some(token) = token {
            metadata.insert("token", token.clone());
        }
        Ok(Q::send(request, self.channel.clone()).await?.into_inner())
    }

    fn fault(&self, status: &Status) -> Fault {
        let said = match std::error::Error::source(status) {
            Some(_) => advised(&root_cause(status)),
            None => status.message().to_owned(),
        };
        Fault::of(status, self.dial.refused().map_or(said, |said| advised(&said)))
    }
}

impl Cluster {
    pub(super) fn new(settings: EtcdSettings) -> Self {
        Self { settings, id: OnceLock::new() }
    }

    pub(super) fn id(&self) -> Option<u64> {
        self.id.get().copied()
    }

    /// The name of a member, for messages.
    pub(super) fn name(&self, member: usize) -> String {
        self.settings.members.get(member).map(ToString::to_string).unwrap_or_default()
    }

    /// Asks a member once. What was not sent, because the connection had ended, is sent over another one.
    pub(super) async fn ask<Q: Ask>(&self, turn: &Turn, question: Q) -> Result<Q::Answer, Fault> {
        let mut session = self.session(turn, None).await?;
        let mut answer = self.shown(&session, question.clone()).await?;
        if answer.as_ref().is_err_and(is_unsent) {
            session = self.session(turn, Some(&session)).await?;
            answer = self.shown(&session, question).await?;
        }
        let answer = answer.map_err(|status| session.fault(&status))?;
        self.check(Q::header(&answer))?;
        Ok(answer)
    }

    /// The connection to a member: one of its own for the first caller, and for the first who finds that it has ended.
    async fn session(&self, turn: &Turn, ended: Option<&Arc<Session>>) -> Result<Arc<Session>, Fault> {
        let mut held = turn.session.lock().await;
        let open = held.as_ref().filter(|session| !ended.is_some_and(|ended| Arc::ptr_eq(ended, session)));
        if let Some(session) = open {
            return Ok(Arc::clone(session));
        }
        let session = Arc::new(self.connect(turn.member).await?);
        *held = Some(Arc::clone(&session));
        Ok(session)
    }

    /// Asks with the token. A member that does not take it is shown a new one: it has done nothing until then.
    async fn shown<Q: Ask>(
        &self,
        session: &Session,
        question: Q,
    ) -> Result<Result<Q::Answer, Status>, Fault> {
        let token = session.token.lock().await.clone();
        let again = token.as_ref().map(|token| (token, question.clone()));
        Ok(match (session.ask(question, token.as_ref()).await, again) {
            (Err(status), Some((stale, again))) if is_stale(&status) => {
                let token = self.renewed(session, stale).await?;
                session.ask(again, token.as_ref()).await
            }
            (answer, _) => answer,
        })
    }

    /// Connects to a member, and looks whose it is before it is asked to do anything. With users, the login says it: how
    /// a member is may be for administrators only.
    async fn connect(&self, member: usize) -> Result<Session, Fault> {
        let lost = |error: tonic::transport::Error| Fault::Unknown(advised(&root_cause(&error)));
        let dial = Dial::new(self.settings.files.clone(), CONNECT_WITHIN);
        let endpoint = Endpoint::from_shared(self.name(member)).map_err(lost)?;
        let endpoint = endpoint.connect_timeout(CONNECT_WITHIN);
        let channel = endpoint.connect_with_connector(Once::new(dial.clone())).await.map_err(lost)?;
        let session = Session { channel, dial, token: Mutex::new(None) };
        if let Some(login) = &self.settings.login {
            let token = self.log_in(&session, login).await?;
            *session.token.lock().await = Some(token);
        } else {
            let status = session.ask(StatusRequest {}, None).await;
            self.check(status.map_err(|status| session.fault(&status))?.header.as_ref())?;
        }
        Ok(session)
    }

    /// Two clusters are two truths: who is of another one than the first that answered is not believed.
    fn check(&self, header: Option<&ResponseHeader>) -> Result<(), Fault> {
        let id = header.map(|header| header.cluster_id).filter(|id| *id != 0);
        let id =
            id.ok_or_else(|| Fault::Unknown("its answer does not say of which cluster it is".to_owned()))?;
        let first = *self.id.get_or_init(|| id);
        if first == id {
            return Ok(());
        }
        Err(Fault::Unknown(format!(
            "it is of the cluster {id:016x}, others in etcd_endpoints of {first:016x}; name members of one cluster"
        )))
    }

    /// The token after one that was not taken: a new one, unless another caller has asked for it.
    async fn renewed(&self, session: &Session, stale: &Token) -> Result<Option<Token>, Fault> {
        let mut held = session.token.lock().await;
        if let (Some(login), true) = (&self.settings.login, held.as_ref() == Some(stale)) {
            *held = Some(self.log_in(session, login).await?);
        }
        Ok(held.clone())
    }

    async fn log_in(&self, session: &Session, login: &Login) -> Result<Token, Fault> {
        let (name, file) = (login.user.clone(), login.password_file.clone());
        let read = tokio::task::spawn_blocking(move || password(&file)).await;
        let read = read.map_err(|error| Fault::Unknown(error.to_string()))?;
        let password = read.map_err(|reason| Fault::Refused(format!("etcd_password_file: {reason}")))?;
        let answer = session.ask(AuthenticateRequest { name, password }, None).await;
        let answer = answer.map_err(|status| match session.fault(&status) {
            Fault::Refused(said) => Fault::Refused(format!(
                "{said}; correct etcd_user ({:?}) and etcd_password_file, or turn authentication on there",
                login.user
            )),
            other => other,
        })?;
        self.check(answer.header.as_ref())?;
        let mut token = Token::try_from(answer.token)
            .map_err(|_| Fault::Unknown("the token that it gave cannot be shown".to_owned()))?;
        token.set_sensitive(true);
        Ok(token)
    }
}

/// What the handshake advises, with the settings of etcd in place of the flags of commands.
fn advised(said: &str) -> String {
    said.replace("(--ca)", "(etcd_ca)").replace("(--cert, --key)", "(etcd_cert, etcd_key)")
}

#[cfg(test)]
mod tests {
    use super::super::settings::Written;
    use super::*;

    #[test]
    fn who_does_not_say_of_which_cluster_it_is_or_is_of_another_one_is_not_believed() {
        let endpoints = vec!["http://127.0.0.1:1".to_owned()];
        let settings = Written { endpoints, ..Written::default() }.check().unwrap();
        let cluster = Cluster::new(settings);
        let of = |cluster_id| ResponseHeader { cluster_id, revision: 1 };
        let refused = |header: Option<ResponseHeader>| match cluster.check(header.as_ref()) {
            Err(Fault::Unknown(said)) => said,
            other => panic!("{other:?}"),
        };
        for unsaid in [None, Some(of(0))] {
            assert!(refused(unsaid).contains("does not say of which cluster"), "{unsaid:?}");
            assert_eq!(cluster.id(), None);
        }
        assert_eq!(cluster.check(Some(&of(5))), Ok(()));
        let said = refused(Some(of(6)));
        assert!(said.contains("0000000000000006") && said.contains("0000000000000005"), "{said}");
        assert!(refused(Some(of(0))).contains("does not say"));
        assert_eq!((cluster.check(Some(&of(5))), cluster.id()), (Ok(()), Some(5)));
    }
}
