//! The server's direction: greeting, conversations, responses.
//!
//! One step passes a run of packets, however many rows it holds; a step ends where there is an event.

use super::answer::Refusal;
use super::auth::{AUTH_LIMIT, AUTH_LOOK, Password, Verdict};
use super::capability::Capabilities;
use super::ending::Ending;
use super::frame::{HEADER, Header, arrived};
use super::from_client::ClientSide;
use super::greeting::GREETING_LIMIT;
use super::outstanding::{Described, Kind, Response, Running};
use super::protocol_error::ProtocolError;
use super::public_key;
use super::reply::Seen;
use super::step::{Bytes, Step, Stepped};
use super::wire::Wire;
use crate::govern::explained_columns;
use crate::session::Side;

/// The error for a client that may not send a file (`ER_CLIENT_LOCAL_FILES_DISABLED`).
const NO_FILES: u16 = 3948;
const NO_FILES_TOLD: &str = "this gateway passes no files; load the file without LOCAL, or have the gateway started \
    without --refuse-local-infile";

/// How an ERR packet begins that says that the statement was interrupted (`ER_QUERY_INTERRUPTED`).
const INTERRUPTED: [u8; 3] = [0xff, 0x25, 0x05];

/// What follows the packet that is being passed.
#[derive(Debug)]
enum AtEnd {
    /// It was the last of a response.
    Finish(Ending),
    /// It was the last, and the client gets the refusal in its place.
    Replace(Box<(Refusal, Ending)>),
    /// The client sends a file.
    Upload,
    /// The client does not send it; `told` is whether it has had the error already.
    RefuseFile { told: bool },
}

/// What becomes of a packet that begins.
enum Next {
    /// Too little of it has come.
    Later,
    /// It is a step of its own, and others come before it.
    Apart,
    Goes,
    /// It gets another sequence id.
    Renumbered(u8),
    /// Its payload gets another beginning.
    Edited(Vec<u8>),
    /// The client does not get it, nor what follows in this response.
    Hidden,
}

/// The server's direction.
#[derive(Debug)]
pub(super) struct ServerSide {
    hearing: Hearing,
    /// What follows the packet that is being passed.
    at_end: Option<AtEnd>,
}

/// What the server's next bytes are.
#[derive(Debug, PartialEq, Eq)]
enum Hearing {
    Greeting,
    Responses,
    /// The server has turned the client away before the greeting.
    Over,
}

impl ServerSide {
    /// Before its greeting.
    pub(super) fn new() -> Self {
        Self { hearing: Hearing::Greeting, at_end: None }
    }

    /// Whether it has not said anything yet.
    pub(super) fn is_silent(&self) -> bool {
        self.hearing == Hearing::Greeting
    }

    /// Whether it has greeted the client and not turned it away at once.
    pub(super) fn is_open(&self) -> bool {
        self.hearing == Hearing::Responses
    }

    /// What to do with `input`, which has been read from the server and not been taken.
    pub(super) fn step<T>(
        &mut self,
        wire: &mut Wire<T>,
        client: &mut ClientSide,
        input: &[u8],
    ) -> Stepped<'static, T> {
        if let Some(due) = wire.due() {
            return Ok(due);
        }
        match self.hearing {
            Hearing::Greeting => self.greeting(wire, client, input),
            Hearing::Responses => self.responses(wire, client, input),
            Hearing::Over if input.is_empty() => Ok(Step::More),
            Hearing::Over => Ok(Step::Pass(input.len())),
        }
    }

    fn greeting<T>(
        &mut self,
        wire: &mut Wire<T>,
        client: &mut ClientSide,
        input: &[u8],
    ) -> Stepped<'static, T> {
        let Some(header) = Header::parse(input) else { return Ok(Step::More) };
        let len = header.len;
        if len > GREETING_LIMIT {
            return Err(ProtocolError::Greeting { len });
        }
        let payload = arrived(input, header);
        if payload.len() < len {
            return Ok(Step::More);
        }
        wire.heard.begin(header);
        wire.heard.drain(payload);
        if payload.first() == Some(&0xff) {
            self.hearing = Hearing::Over;
            client.over();
            return Ok(Step::Pass(HEADER + len));
        }
        let edited = [&header.to_bytes()[..], &wire.handshake.greeted(payload)?].concat();
        self.hearing = Hearing::Responses;
        client.greeted();
        Ok(Step::Swap(HEADER + len, Bytes(edited)))
    }

    fn responses<T>(
        &mut self,
        wire: &mut Wire<T>,
        client: &mut ClientSide,
        input: &[u8],
    ) -> Stepped<'static, T> {
        let muted = wire.outstanding.front().is_some_and(|running| running.muted);
        let mut at: usize = 0;
        loop {
            at += wire.heard.drain(input.get(at..).unwrap_or_default());
            if !wire.heard.at_packet() {
                break;
            }
            if let Some(end) = self.at_end.take() {
                wire.outstanding.count(at);
                self.packet_ended(wire, client, end)?;
                return Ok(moved(wire, at, muted));
            }
            let rest = input.get(at..).unwrap_or_default();
            let Some(header) = Header::parse(rest) else { break };
            if wire.outstanding.awaits_key(arrived(rest, header)) {
                if at > 0 {
                    break;
                }
                return self.key(wire, header, arrived(rest, header));
            }
            match self.packet(wire, client, header, arrived(rest, header), at == 0)? {
                Next::Later | Next::Apart => break,
                Next::Goes => {}
                Next::Renumbered(sequence) => {
                    wire.heard.begin(header);
                    wire.outstanding.count(HEADER);
                    let renumbered = Header { sequence, ..header };
                    return Ok(Step::Swap(HEADER, Bytes(renumbered.to_bytes().to_vec())));
                }
                Next::Edited(beginning) => {
                    wire.heard.begin(header);
                    wire.heard.drain(&beginning);
                    wire.outstanding.count(HEADER + beginning.len());
                    let edited = [&header.to_bytes()[..], &beginning].concat();
                    return Ok(Step::Swap(HEADER + beginning.len(), Bytes(edited)));
                }
                Next::Hidden => {
                    wire.heard.begin(header);
                    wire.outstanding.count(HEADER);
                    return Ok(Step::Skip(HEADER));
                }
            }
            wire.heard.begin(header);
            at += HEADER;
        }
        wire.outstanding.count(at);
        Ok(moved(wire, at, muted))
    }

    /// A packet begins, of which `payload` has come. An unexpected packet is passed on: a server announces so that it
    /// closes.
    fn packet<T>(
        &mut self,
        wire: &mut Wire<T>,
        client: &ClientSide,
        header: Header,
        payload: &[u8],
        first: bool,
    ) -> Result<Next, ProtocolError> {
        let capabilities = wire.handshake.capabilities();
        let Some(running) = wire.outstanding.front_mut() else { return Ok(Next::Goes) };
        let Header { len, sequence } = header;
        match &mut running.response {
            Response::Auth(auth) => {
                let shift = wire.handshake.ahead(auth);
                let Some(payload) = payload.get(..len.min(AUTH_LOOK)) else { return Ok(Next::Later) };
                if shift != 0 && !first {
                    return Ok(Next::Apart);
                }
                if auth.asks_for_password(payload, len) {
                    match (wire.handshake.client_is_private(), wire.handshake.server_is_private()) {
                        (true, false) => auth.password = Password::Wanted,
                        (false, true) => return Err(ProtocolError::PlainPassword),
                        _ => {}
                    }
                }
                match auth.read(payload, len, capabilities) {
                    Verdict::Undecided => {}
                    Verdict::Accepted(ending) | Verdict::Rejected(ending) => {
                        self.at_end = Some(AtEnd::Finish(ending));
                    }
                }
                Ok(if shift == 0 { Next::Goes } else { Next::Renumbered(sequence.wrapping_sub(shift)) })
            }
            Response::Reply(_) => self.reply_packet(wire, client, header, payload, first),
        }
    }

    /// The server gets the password under its key, and the client neither hears nor says anything.
    fn key<T>(&mut self, wire: &mut Wire<T>, header: Header, payload: &[u8]) -> Stepped<'static, T> {
        let Header { len, sequence } = header;
        if len > AUTH_LIMIT {
            return Err(ProtocolError::ServerKey { len });
        }
        if payload.len() < len {
            return Ok(Step::More);
        }
        let Some(Response::Auth(auth)) = wire.outstanding.front_mut().map(|running| &mut running.response)
        else {
            return Ok(Step::More);
        };
        let Password::Key(Bytes(password)) = std::mem::replace(&mut auth.password, Password::None) else {
            return Ok(Step::More);
        };
        let pem = payload.get(1..).unwrap_or_default();
        let scramble = auth.scramble.as_deref().unwrap_or_else(|| wire.handshake.scramble());
        let secret = public_key::encrypt(&password, scramble, pem).ok_or(ProtocolError::ServerKey { len })?;
        auth.ahead = auth.ahead.wrapping_add(2);
        wire.heard.begin(header);
        wire.heard.drain(payload);
        wire.outstanding.count(HEADER + len);
        let header = Header { len: secret.len(), sequence: sequence.wrapping_add(1) };
        wire.send(Side::Server, [&header.to_bytes()[..], &secret].concat());
        Ok(Step::Skip(HEADER + len))
    }

    fn reply_packet<T>(
        &mut self,
        wire: &mut Wire<T>,
        client: &ClientSide,
        header: Header,
        payload: &[u8],
        first: bool,
    ) -> Result<Next, ProtocolError> {
        let capabilities = wire.handshake.capabilities();
        let Some(running) = wire.outstanding.front_mut() else { return Ok(Next::Goes) };
        let was_killed = payload.starts_with(&INTERRUPTED) && running.awaits_kill();
        let Response::Reply(reply) = &mut running.response else { return Ok(Next::Goes) };
        let len = header.len;
        let look = reply.look(payload.first().copied(), len, capabilities);
        let Some(payload) = payload.get(..look) else { return Ok(Next::Later) };
        if reply.wants_file() && client.is_uploading() {
            return Err(ProtocolError::UploadCut);
        }
        let refuses_file = reply.asks_for_file(payload) && (running.muted || !wire.handshake.passes_files());
        let told_anyway = running.explained.is_some() && payload.first() == Some(&0xff);
        let described = running.described.is_some() && !running.muted;
        // Not every server says in so many words that it was interrupted: MySQL's SLEEP and BENCHMARK give a value.
        let withheld = running.killed.is_some() && !running.muted && reply.begins_rows(payload);
        if !first && (refuses_file || was_killed || told_anyway || described || withheld) {
            return Ok(Next::Apart);
        }
        match reply.read(payload, len, capabilities) {
            Seen::Middle if withheld => {
                running.muted = true;
                running.withheld = Some(header.sequence);
                return Ok(Next::Hidden);
            }
            Seen::Middle => {}
            Seen::Last(ending) if was_killed || running.withheld.is_some() => {
                let muted = std::mem::replace(&mut running.muted, true);
                if let Some(refusal) = running.killed.take() {
                    reply.set_error(refusal.code);
                    self.at_end = Some(AtEnd::Replace(Box::new((refusal, ending))));
                }
                return Ok(if muted { Next::Goes } else { Next::Hidden });
            }
            Seen::Last(ending) => {
                let failed = ending.error.is_some();
                self.at_end = Some(AtEnd::Finish(ending));
                if failed && let Some(told) = running.explained.take() {
                    running.muted = false;
                    return Ok(Next::Renumbered(told.sequence));
                }
            }
            Seen::Prepared { id, last } => {
                if let Some(template) = running.template.take() {
                    wire.statements.prepared.insert(id, template, |kept| kept.kind == Kind::Theirs);
                }
                if last {
                    self.at_end = Some(AtEnd::Finish(Ending::default()));
                }
                if running.described.is_some() {
                    let (described, edited) = described_as_explained(header, payload, capabilities)?;
                    running.described = Some(described);
                    return Ok(Next::Edited(edited));
                }
            }
            Seen::FileWanted if refuses_file => {
                let told = std::mem::replace(&mut running.muted, true);
                self.at_end = Some(AtEnd::RefuseFile { told });
                return Ok(Next::Hidden);
            }
            Seen::FileWanted => self.at_end = Some(AtEnd::Upload),
        }
        Ok(if running.hides_description(header.sequence) { Next::Hidden } else { Next::Goes })
    }

    fn packet_ended<T>(
        &self,
        wire: &mut Wire<T>,
        client: &mut ClientSide,
        end: AtEnd,
    ) -> Result<(), ProtocolError> {
        match end {
            AtEnd::Finish(ending) => {
                if !wire.finish(ending) {
                    client.over();
                }
            }
            AtEnd::Replace(replaced) => {
                let (refusal, ending) = *replaced;
                let sequence = wire.outstanding.front_mut().and_then(|running| {
                    running.withheld.or_else(|| running.explained.take().map(|told| told.sequence))
                });
                let packet = refusal.packet(sequence.unwrap_or_else(|| wire.heard.sequence()));
                wire.finish(Ending { error: Some(refusal.code), ..ending });
                wire.send(Side::Client, packet);
            }
            AtEnd::Upload => {
                if wire.outstanding.len() > 1 || !client.upload() {
                    return Err(ProtocolError::Ahead);
                }
            }
            // To the server, what it has been sent behind the statement is the file.
            AtEnd::RefuseFile { .. } if wire.outstanding.is_ahead() || client.is_in_packet() => {
                return Err(ProtocolError::Ahead);
            }
            AtEnd::RefuseFile { told } => self.refuse_file(wire, told),
        }
        Ok(())
    }

    /// The server gets an empty file, and the client an error, and no further results.
    fn refuse_file<T>(&self, wire: &mut Wire<T>, told: bool) {
        let sequence = wire.heard.sequence();
        if let Some(reply) = wire.outstanding.front_mut().and_then(Running::reply) {
            reply.file_sent();
            reply.set_error(NO_FILES);
        }
        let empty = Header { len: 0, sequence: sequence.wrapping_add(1) };
        wire.send(Side::Server, empty.to_bytes().to_vec());
        if !told {
            let refusal = Refusal { code: NO_FILES, state: *b"42000", message: NO_FILES_TOLD.into() };
            wire.send(Side::Client, refusal.packet(sequence));
        }
    }
}

/// What becomes of the bytes that were looked at.
fn moved<T>(wire: &mut Wire<T>, taken: usize, muted: bool) -> Step<'static, T> {
    match (taken, muted) {
        (0, _) => wire.due().unwrap_or(Step::More),
        (_, true) => Step::Skip(taken),
        (_, false) => Step::Pass(taken),
    }
}

/// The answer to the preparation of an explained statement, with the columns of the explanation, and the packets of the
/// server's own description that are left.
fn described_as_explained(
    header: Header,
    payload: &[u8],
    capabilities: Capabilities,
) -> Result<(Described, Vec<u8>), ProtocolError> {
    // Status, id, and the count of columns, which becomes that of the explanation.
    let begun = payload.first_chunk::<7>().and_then(|begun| begun.split_last_chunk::<2>());
    let Some((id, _)) = begun else { return Err(ProtocolError::Prepared { len: header.len }) };
    let parameters = payload.get(7..9).and_then(<[u8]>::first_chunk::<2>);
    let parameters = parameters.map(|count| u32::from(u16::from_le_bytes(*count)));
    let ends = parameters > Some(0) && !capabilities.has(Capabilities::DEPRECATE_EOF);
    let left = parameters.unwrap_or_default() + u32::from(ends);
    let next = header.sequence.wrapping_add(1);
    let columns = u16::try_from(explained_columns().len()).unwrap_or_default().to_le_bytes();
    Ok((Described::Parameters { left, next }, [id, &columns].concat()))
}
