//! What both sides have agreed to: TLS on either side, capabilities, and the greeting that the login answers.

use super::auth::Auth;
use super::capability::Capabilities;
use super::greeting::Greeting;
use super::login::Identity;
use super::outstanding::{Response, Running};
use super::protocol_error::ProtocolError;
use super::settings::{ClientTls, Settings};
use super::step::Login;
use crate::session::Side;

/// The agreement of a connection.
#[derive(Debug)]
pub(super) struct Handshake {
    settings: Settings,
    greeting: Option<Greeting>,
    capabilities: Capabilities,
    /// The client was offered TLS.
    offers_tls: bool,
    client_tls: bool,
    server_tls: Secured,
}

/// How far TLS to the server has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Secured {
    No,
    Asked,
    Yes,
}

/// What the server's side needs before the login goes to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Securing {
    /// It is asked for TLS.
    Ask,
    /// TLS begins.
    Begin,
}

impl Handshake {
    /// Of a connection of which nothing has been heard.
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings,
            greeting: None,
            capabilities: Capabilities::default(),
            offers_tls: false,
            client_tls: false,
            server_tls: Secured::No,
        }
    }

    /// The server has greeted the client, who gets this payload.
    pub(super) fn greeted(&mut self, payload: &[u8]) -> Result<Vec<u8>, ProtocolError> {
        let greeting = Greeting::parse(payload).ok_or(ProtocolError::Greeting { len: payload.len() })?;
        self.offers_tls = match self.settings.client_tls {
            ClientTls::Never => false,
            ClientTls::LikeServer => greeting.is_mysql() && greeting.offered.has(Capabilities::SSL),
            ClientTls::Always => true,
        };
        let offered = greeting.offered.and(Capabilities::UNDERSTOOD).with(Capabilities::SSL, self.offers_tls);
        let edited = greeting.offering(payload, offered);
        self.greeting = Some(greeting);
        Ok(edited)
    }

    /// Whether TLS may begin behind the next packet of that side: no byte further is the protocol's.
    pub(super) fn may_secure(&self, side: Side) -> bool {
        match side {
            Side::Client => self.offers_tls && !self.client_tls,
            Side::Server => self.settings.server_tls && self.server_tls != Secured::Yes,
        }
    }

    /// Whether the client's side is under TLS.
    pub(super) fn client_is_private(&self) -> bool {
        self.client_tls
    }

    /// Whether a client that asks for TLS may have it.
    pub(super) fn offers_tls(&self) -> bool {
        self.offers_tls
    }

    /// The client's side is under TLS from here on.
    pub(super) fn client_secured(&mut self) {
        self.client_tls = true;
    }

    /// The capabilities that the server is told of a client that can do these.
    pub(super) fn forwarded(&self, asked: Capabilities) -> Result<Capabilities, ProtocolError> {
        let secure = self.settings.server_tls;
        if secure && !self.offered().has(Capabilities::SSL) {
            return Err(ProtocolError::ServerTls);
        }
        Ok(asked.and(Capabilities::UNDERSTOOD).with(Capabilities::SSL, secure))
    }

    /// The next step towards TLS on the server's side, if there is one.
    pub(super) fn secure_server(&mut self) -> Option<Securing> {
        let (next, step) = match self.server_tls {
            Secured::No if self.settings.server_tls => (Secured::Asked, Securing::Ask),
            Secured::Asked => (Secured::Yes, Securing::Begin),
            Secured::No | Secured::Yes => return None,
        };
        self.server_tls = next;
        Some(step)
    }

    /// Whether the server takes its side for private, so that it wants passwords as they are.
    pub(super) fn server_is_private(&self) -> bool {
        self.server_tls == Secured::Yes || self.settings.server_socket
    }

    /// The login goes to the server with these.
    pub(super) fn agreed(&mut self, forwarded: Capabilities) {
        self.capabilities = forwarded.and(self.offered());
    }

    fn offered(&self) -> Capabilities {
        self.greeting.as_ref().map(|greeting| greeting.offered).unwrap_or_default()
    }

    /// What both sides can do.
    pub(super) fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// As if the client could not do this.
    #[cfg(test)]
    pub(super) fn forbid(&mut self, capabilities: Capabilities) {
        self.capabilities = self.capabilities.without(capabilities);
    }

    /// Whether clients may send files.
    pub(super) fn passes_files(&self) -> bool {
        self.settings.local_infile
    }

    /// By how much sequence ids towards the server are higher than the client's during the login: each side that
    /// speaks TLS has sent a packet for it.
    pub(super) fn shift(&self) -> u8 {
        match (self.client_tls, self.server_tls == Secured::Yes) {
            (true, false) => u8::MAX,
            (false, true) => 1,
            _ => 0,
        }
    }

    /// How much higher sequence ids towards the server are in this conversation.
    pub(super) fn ahead(&self, auth: &Auth) -> u8 {
        let shift = if auth.is_login { self.shift() } else { 0 };
        shift.wrapping_add(auth.ahead)
    }

    /// The same for any command.
    pub(super) fn ahead_of<T>(&self, running: &Running<T>) -> u8 {
        match &running.response {
            Response::Auth(auth) => self.ahead(auth),
            Response::Reply(_) => 0,
        }
    }

    /// What the client's answer is mixed with, unless the server has asked again since.
    pub(super) fn scramble(&self) -> &[u8] {
        self.greeting.as_ref().map(|greeting| greeting.scramble.as_slice()).unwrap_or_default()
    }

    /// A later conversation begins with this one.
    pub(super) fn keep_scramble(&mut self, scramble: Vec<u8>) {
        if let Some(greeting) = &mut self.greeting {
            greeting.scramble = scramble;
        }
    }

    /// The server has let this client in.
    pub(super) fn login(&self, identity: Identity, database: Option<String>) -> Login {
        let greeting = self.greeting.as_ref();
        Login {
            user: identity.user,
            database: database.or(identity.database),
            program_name: identity.program_name,
            thread_id: greeting.map(|greeting| greeting.thread_id).unwrap_or_default(),
            server_version: greeting.map(|greeting| greeting.server_version.clone()).unwrap_or_default(),
            tls: self.client_tls,
        }
    }
}
