//! The client's direction until it is logged in: who it says it is, and how it proves that.

use super::auth::{AUTH_LIMIT, Auth, Exchange};
use super::capability::Capabilities;
use super::command::Command;
use super::frame::{HEADER, Header, arrived};
use super::login::{Identity, PREAMBLE, Preamble};
use super::machine::{After, Doing, Machine, Secured};
use super::outstanding::{Response, Running};
use super::protocol_error::ProtocolError;
use super::step::{Bytes, Step};
use crate::session::Side;

/// Asks for the RSA key of `caching_sha2_password`.
const REQUEST_KEY: &[u8] = &[0x02];

impl<T: Clone> Machine<T> {
    pub(super) fn login<'a>(&mut self, input: &'a [u8]) -> Result<Step<'a, T>, ProtocolError> {
        let Some(header) = Header::parse(input) else { return Ok(Step::More) };
        let Header { len, sequence } = header;
        if len > AUTH_LIMIT {
            return Err(ProtocolError::LongLogin { len, limit: AUTH_LIMIT });
        }
        let payload = arrived(input, header);
        if payload.len() < len {
            return Ok(Step::More);
        }
        let preamble = Preamble::parse(payload).ok_or(ProtocolError::Login { len })?;
        let asked = preamble.capabilities();
        if !asked.has(Capabilities::PROTOCOL_41) {
            return Err(ProtocolError::Login { len });
        }
        if len == PREAMBLE && asked.has(Capabilities::SSL) && !self.client_tls {
            if !self.offers_tls {
                return Err(ProtocolError::ClientTls);
            }
            self.from_client.begin(header);
            self.from_client.drain(payload);
            self.doing = Doing::Securing;
            return Ok(Step::Skip(HEADER + len));
        }
        let offered = self.greeting.as_ref().map(|greeting| greeting.offered).unwrap_or_default();
        let secure = self.settings.server_tls;
        if secure && !offered.has(Capabilities::SSL) {
            return Err(ProtocolError::ServerTls);
        }
        let forwarded = asked.and(Capabilities::UNDERSTOOD).with(Capabilities::SSL, secure);
        match self.server_tls {
            Secured::No if secure => {
                self.server_tls = Secured::Asked;
                return Ok(Step::Send(Side::Server, beginning(PREAMBLE, 1, &preamble, forwarded)));
            }
            Secured::Asked => {
                self.server_tls = Secured::Yes;
                return Ok(Step::StartTls(Side::Server));
            }
            Secured::No | Secured::Yes => {}
        }
        let identity = Identity::of_login(payload, asked)?;
        self.capabilities = forwarded.and(offered);
        self.outstanding
            .push(Running::new(Command::ChangeUser, Response::Auth(Box::new(Auth::new(identity, true)))));
        self.from_client.begin(header);
        self.from_client.drain(payload.get(..PREAMBLE).unwrap_or_default());
        self.doing = Doing::Passing(After::Auth);
        let sequence = sequence.wrapping_add(self.shift());
        Ok(Step::Swap(HEADER + PREAMBLE, beginning(len, sequence, &preamble, forwarded)))
    }

    pub(super) fn auth<'a>(&mut self, input: &'a [u8]) -> Result<Step<'a, T>, ProtocolError> {
        let alone = self.outstanding.len() == 1;
        let Some(Response::Auth(auth)) = self.outstanding.back_mut().map(|running| &mut running.response)
        else {
            // The server has decided.
            self.doing = Doing::Command;
            return self.command(input);
        };
        let Some(header) = Header::parse(input) else { return Ok(Step::More) };
        if !(alone && auth.is_asked()) {
            return Ok(Step::Wait);
        }
        if header.len > AUTH_LIMIT {
            return Err(ProtocolError::LongLogin { len: header.len, limit: AUTH_LIMIT });
        }
        if auth.exchange == Exchange::Wanted {
            let payload = arrived(input, header);
            if payload.len() < header.len {
                return Ok(Step::More);
            }
            if payload.len() > 1 && payload.ends_with(&[0]) {
                return Ok(self.password(header, payload));
            }
            // The client asks for the key itself, or has it already.
            auth.exchange = Exchange::None;
        }
        auth.answer();
        let shift = self.outstanding.front().map(|running| self.ahead_of(running)).unwrap_or_default();
        if shift == 0 {
            return Ok(self.pass(input, header, After::Auth));
        }
        self.from_client.begin(header);
        self.doing = if header.len == 0 { Doing::Auth } else { Doing::Passing(After::Auth) };
        let renumbered = Header { sequence: header.sequence.wrapping_add(shift), ..header };
        Ok(Step::Swap(HEADER, Bytes(renumbered.to_bytes().to_vec())))
    }

    /// The client has sent the whole password as it is: the server is asked for the key that it wants it under.
    fn password(&mut self, header: Header, payload: &[u8]) -> Step<'static, T> {
        let Some(running) = self.outstanding.front_mut() else { return Step::Wait };
        let Response::Auth(auth) = &mut running.response else { return Step::Wait };
        auth.answer();
        auth.exchange = Exchange::Key(Bytes(payload.to_vec()));
        let shift = self.outstanding.front().map(|running| self.ahead_of(running)).unwrap_or_default();
        self.from_client.begin(header);
        self.from_client.drain(payload);
        let asks = Header { len: REQUEST_KEY.len(), sequence: header.sequence.wrapping_add(shift) };
        self.send(Side::Server, [&asks.to_bytes()[..], REQUEST_KEY].concat());
        Step::Skip(HEADER + header.len)
    }
}

/// A header and the fixed part of a login.
fn beginning(len: usize, sequence: u8, preamble: &Preamble, capabilities: Capabilities) -> Bytes {
    let header = Header { len, sequence }.to_bytes();
    Bytes([&header[..], &preamble.with(capabilities)].concat())
}
