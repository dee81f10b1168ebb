//! One call to a member of a cluster: a connection, a login, and one answer.

use std::sync::OnceLock;
use std::time::Duration;

use tidegate_tls::{Dial, root_cause};
use tokio::sync::{Mutex, OnceCell};
use tonic::metadata::{Ascii, AsciiMetadataValue, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use super::fault::{Fault, is_stale};
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
    /// Tokens are known to all members.
    token: Mutex<Option<Token>>,
}

/// A member whose turn it is, and the connection to it once there is one.
pub(super) struct Turn {
    pub(super) member: usize,
    session: OnceCell<Session>,
}

/// A connection.
struct Session {
    channel: Channel,
    dial: Dial,
}

impl Turn {
    pub(super) fn of(member: usize) -> Self {
        Self { member, session: OnceCell::new() }
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
        Self { settings, id: OnceLock::new(), token: Mutex::new(None) }
    }

    pub(super) fn id(&self) -> Option<u64> {
        self.id.get().copied()
    }

    /// The name of a member, for messages.
    pub(super) fn name(&self, member: usize) -> String {
        self.settings.members.get(member).map(ToString::to_string).unwrap_or_default()
    }

    /// Asks a member once. One that does not take the token is shown a new one: it has done nothing until then.
    pub(super) async fn ask<Q: Ask>(&self, turn: &Turn, question: Q) -> Result<Q::Answer, Fault> {
        let session = turn.session.get_or_try_init(|| self.connect(turn.member)).await?;
        let token = self.token(session, None).await?;
        let again = token.as_ref().map(|_| question.clone());
        let answer = match (session.ask(question, token.as_ref()).await, again) {
            (Err(status), Some(again)) if is_stale(&status) => {
                let token = self.token(session, token.as_ref()).await?;
                session.ask(again, token.as_ref()).await
            }
            (answer, _) => answer,
        };
        let answer = answer.map_err(|status| session.fault(&status))?;
        self.check(Q::header(&answer))?;
        Ok(answer)
    }

    /// Connects to a member, and looks whose it is before it is asked to do anything.
    async fn connect(&self, member: usize) -> Result<Session, Fault> {
        let lost = |error: tonic::transport::Error| Fault::Unknown(advised(&root_cause(&error)));
        let dial = Dial::new(self.settings.files.clone(), CONNECT_WITHIN);
        let endpoint = Endpoint::from_shared(self.name(member)).map_err(lost)?;
        let endpoint = endpoint.connect_timeout(CONNECT_WITHIN);
        let channel = endpoint.connect_with_connector(dial.clone()).await.map_err(lost)?;
        let session = Session { channel, dial };
        let status = session.ask(StatusRequest {}, None).await.map_err(|status| session.fault(&status))?;
        self.check(status.header.as_ref())?;
        Ok(session)
    }

    /// Two clusters are two truths: who is of another one than the first that answered is not believed.
    fn check(&self, header: Option<&ResponseHeader>) -> Result<(), Fault> {
        let id = header.map(|header| header.cluster_id).unwrap_or_default();
        let first = *self.id.get_or_init(|| id);
        if first == id {
            return Ok(());
        }
        Err(Fault::Unknown(format!(
            "it is of the cluster {id:016x}, others in etcd_endpoints of {first:016x}; name members of one cluster"
        )))
    }

    /// The token to show, if there is a login: the one that is held, but for one that was not taken.
    async fn token(&self, session: &Session, stale: Option<&Token>) -> Result<Option<Token>, Fault> {
        let Some(login) = &self.settings.login else { return Ok(None) };
        let mut held = self.token.lock().await;
        if held.is_none() || held.as_ref() == stale {
            *held = None;
            *held = Some(log_in(session, login.clone()).await?);
        }
        Ok(held.clone())
    }
}

async fn log_in(session: &Session, login: Login) -> Result<Token, Fault> {
    let file = login.password_file;
    let read = tokio::task::spawn_blocking(move || password(&file)).await;
    let read = read.map_err(|error| Fault::Unknown(error.to_string()))?;
    let password = read.map_err(|reason| Fault::Refused(format!("etcd_password_file: {reason}")))?;
    let asked = AuthenticateRequest { name: login.user.clone(), password };
    let answer = session.ask(asked, None).await.map_err(|status| match session.fault(&status) {
        Fault::Refused(said) => {
            let user = login.user;
            Fault::Refused(format!(
                "{said}; correct etcd_user ({user:?}) and etcd_password_file, or turn authentication on there"
            ))
        }
        other => other,
    })?;
    let mut token = Token::try_from(answer.token)
        .map_err(|_| Fault::Unknown("the token that it gave cannot be shown".to_owned()))?;
    token.set_sensitive(true);
    Ok(token)
}

/// What the handshake advises, with the settings of etcd in place of the flags of commands.
fn advised(said: &str) -> String {
    said.replace("(--ca)", "(etcd_ca)").replace("(--cert, --key)", "(etcd_cert, etcd_key)")
}
