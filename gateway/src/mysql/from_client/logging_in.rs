//! The client's direction until it is logged in: who it says it is, and how it proves that.

use super::super::auth::{AUTH_LIMIT, Auth, Password};
use super::super::capability::Capabilities;
use super::super::command::Command;
use super::super::frame::{HEADER, Header, arrived};
use super::super::handshake::Securing;
use super::super::login::{Identity, PREAMBLE, Preamble};
use super::super::outstanding::{Response, Running};
use super::super::protocol_error::ProtocolError;
use super::super::step::{Bytes, Step, Stepped};
use super::super::wire::Wire;
use super::{After, ClientSide, Doing};
use crate::session::Side;

/// Asks for the RSA key of `caching_sha2_password`.
const REQUEST_KEY: &[u8] = &[0x02];

impl ClientSide {
    pub(super) fn login<'a, T>(&mut self, wire: &mut Wire<T>, input: &'a [u8]) -> Stepped<'a, T> {
        let Some(header) = Header::parse(input) else { return Ok(Step::More) };
        let Header { len, sequence } = header;
        // An error is numbered behind it.
        self.frames.begin(header);
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
        if len == PREAMBLE && asked.has(Capabilities::SSL) && !wire.handshake.client_is_private() {
            if !wire.handshake.offers_tls() {
                return Err(ProtocolError::ClientTls);
            }
            self.frames.drain(payload);
            self.doing = Doing::Securing;
            return Ok(Step::Skip(HEADER + len));
        }
        let forwarded = wire.handshake.forwarded(asked)?;
        match wire.handshake.secure_server() {
            Some(Securing::Ask) => {
                return Ok(Step::Send(Side::Server, beginning(PREAMBLE, 1, &preamble, forwarded)));
            }
            Some(Securing::Begin) => return Ok(Step::StartTls(Side::Server)),
            None => {}
        }
        let identity = Identity::of_login(payload, asked)?;
        wire.handshake.agreed(forwarded);
        wire.outstanding
            .push(Running::new(Command::ChangeUser, Response::Auth(Box::new(Auth::new(identity, true)))));
        self.frames.drain(payload.get(..PREAMBLE).unwrap_or_default());
        self.doing = Doing::Passing(After::Auth);
        let sequence = sequence.wrapping_add(wire.handshake.shift());
        Ok(Step::Swap(HEADER + PREAMBLE, beginning(len, sequence, &preamble, forwarded)))
    }

    pub(super) fn auth<'a, T: Clone>(&mut self, wire: &mut Wire<T>, input: &'a [u8]) -> Stepped<'a, T> {
        let Some(Response::Auth(auth)) = wire.outstanding.back_mut().map(|running| &mut running.response)
        else {
            // The server has decided.
            self.doing = Doing::Command;
            return self.command(wire, input);
        };
        let Some(header) = Header::parse(input) else { return Ok(Step::More) };
        // It is asked once all that was sent before has been answered.
        if !auth.is_asked() {
            return Ok(Step::Wait);
        }
        if header.len > AUTH_LIMIT {
            return Err(ProtocolError::LongLogin { len: header.len, limit: AUTH_LIMIT });
        }
        if auth.password == Password::Wanted {
            let payload = arrived(input, header);
            if payload.len() < header.len {
                return Ok(Step::More);
            }
            if payload.len() > 1 && payload.ends_with(&[0]) {
                return Ok(self.password(wire, header, payload));
            }
            // The client asks for the key itself, or has it already.
            auth.password = Password::None;
        }
        auth.answer();
        let shift =
            wire.outstanding.front().map(|running| wire.handshake.ahead_of(running)).unwrap_or_default();
        if shift == 0 {
            return Ok(self.pass(wire, input, header, After::Auth));
        }
        self.frames.begin(header);
        self.doing = if header.len == 0 { Doing::Auth } else { Doing::Passing(After::Auth) };
        let renumbered = Header { sequence: header.sequence.wrapping_add(shift), ..header };
        Ok(Step::Swap(HEADER, Bytes(renumbered.to_bytes().to_vec())))
    }

    /// The client has sent the whole password as it is: the server is asked for the key that it wants it under.
    fn password<T>(&mut self, wire: &mut Wire<T>, header: Header, payload: &[u8]) -> Step<'static, T> {
        let Some(running) = wire.outstanding.front_mut() else { return Step::Wait };
        let Response::Auth(auth) = &mut running.response else { return Step::Wait };
        auth.answer();
        auth.password = Password::Key(Bytes(payload.to_vec()));
        let shift =
            wire.outstanding.front().map(|running| wire.handshake.ahead_of(running)).unwrap_or_default();
        self.frames.begin(header);
        self.frames.drain(payload);
        let asks = Header { len: REQUEST_KEY.len(), sequence: header.sequence.wrapping_add(shift) };
        wire.send(Side::Server, [&asks.to_bytes()[..], REQUEST_KEY].concat());
        Step::Skip(HEADER + header.len)
    }
}

/// A header and the fixed part of a login.
fn beginning(len: usize, sequence: u8, preamble: &Preamble, capabilities: Capabilities) -> Bytes {
    let header = Header { len, sequence }.to_bytes();
    Bytes([&header[..], &preamble.with(capabilities)].concat())
}
