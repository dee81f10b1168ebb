//! The server's direction: greeting, conversations, responses.
//!
//! One step passes a run of packets, however many rows it holds; a step ends where there is an event.

use super::answer::{self, Refusal};
use super::auth::{AUTH_LIMIT, AUTH_LOOK, Exchange, Verdict};
use super::capability::Capabilities;
use super::command::Command;
use super::ending::{Ending, Status};
use super::frame::{HEADER, Header, arrived};
use super::greeting::{GREETING_LIMIT, Greeting};
use super::machine::{Doing, Hearing, Machine};
use super::outstanding::{Described, Kind, Response, Running};
use super::protocol_error::ProtocolError;
use super::public_key;
use super::reply::Seen;
use super::settings::ClientTls;
use super::step::{Bytes, Event, Login, Step};
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
pub(super) enum AtEnd {
    /// It was the last of a response.
    Finish(Ending),
    /// It was the last, with this status, and the client gets the refusal in its place.
    Replace(Refusal, Option<Status>),
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

impl<T: Clone> Machine<T> {
    /// What to do with `input`, which has been read from the server and not been taken.
    pub(super) fn server(&mut self, input: &[u8]) -> Result<Step<'static, T>, ProtocolError> {
        if let Some(due) = self.due() {
            return Ok(due);
        }
        match self.hearing {
            Hearing::Greeting => self.greeting(input),
            Hearing::Responses => self.responses(input),
            Hearing::Over if input.is_empty() => Ok(Step::More),
            Hearing::Over => Ok(Step::Pass(input.len())),
        }
    }

    fn greeting(&mut self, input: &[u8]) -> Result<Step<'static, T>, ProtocolError> {
        let Some(header) = Header::parse(input) else { return Ok(Step::More) };
        let len = header.len;
        if len > GREETING_LIMIT {
            return Err(ProtocolError::Greeting { len });
        }
        let payload = arrived(input, header);
        if payload.len() < len {
            return Ok(Step::More);
        }
        self.from_server.begin(header);
        self.from_server.drain(payload);
        if payload.first() == Some(&0xff) {
            self.hearing = Hearing::Over;
            self.doing = Doing::Over;
            return Ok(Step::Pass(HEADER + len));
        }
        let greeting = Greeting::parse(payload).ok_or(ProtocolError::Greeting { len })?;
        self.offers_tls = match self.settings.client_tls {
            ClientTls::Never => false,
            ClientTls::LikeServer => greeting.is_mysql() && greeting.offered.has(Capabilities::SSL),
            ClientTls::Always => true,
        };
        let offered = greeting.offered.and(Capabilities::UNDERSTOOD).with(Capabilities::SSL, self.offers_tls);
        let edited = [&header.to_bytes()[..], &greeting.offering(payload, offered)].concat();
        self.greeting = Some(greeting);
        self.hearing = Hearing::Responses;
        self.doing = Doing::Login;
        Ok(Step::Swap(HEADER + len, Bytes(edited)))
    }

    fn responses(&mut self, input: &[u8]) -> Result<Step<'static, T>, ProtocolError> {
        let muted = self.outstanding.front().is_some_and(|running| running.muted);
        let mut at: usize = 0;
        loop {
            at += self.from_server.drain(input.get(at..).unwrap_or_default());
            if !self.from_server.at_packet() {
                break;
            }
            if let Some(end) = self.at_end.take() {
                self.count(at);
                self.packet_ended(end)?;
                return Ok(self.moved(at, muted));
            }
            let rest = input.get(at..).unwrap_or_default();
            let Some(header) = Header::parse(rest) else { break };
            if self.awaits_key(arrived(rest, header)) {
                if at > 0 {
                    break;
                }
                return self.key(header, arrived(rest, header));
            }
            match self.packet(header, arrived(rest, header), at == 0)? {
                Next::Later | Next::Apart => break,
                Next::Goes => {}
                Next::Renumbered(sequence) => {
                    self.from_server.begin(header);
                    self.count(HEADER);
                    let renumbered = Header { sequence, ..header };
                    return Ok(Step::Swap(HEADER, Bytes(renumbered.to_bytes().to_vec())));
                }
                Next::Edited(beginning) => {
                    self.from_server.begin(header);
                    self.from_server.drain(&beginning);
                    self.count(HEADER + beginning.len());
                    let edited = [&header.to_bytes()[..], &beginning].concat();
                    return Ok(Step::Swap(HEADER + beginning.len(), Bytes(edited)));
                }
                Next::Hidden => {
                    self.from_server.begin(header);
                    self.count(HEADER);
                    return Ok(Step::Skip(HEADER));
                }
            }
            self.from_server.begin(header);
            at += HEADER;
        }
        self.count(at);
        Ok(self.moved(at, muted))
    }

    fn moved(&mut self, taken: usize, muted: bool) -> Step<'static, T> {
        match (taken, muted) {
            (0, _) => self.due().unwrap_or(Step::More),
            (_, true) => Step::Skip(taken),
            (_, false) => Step::Pass(taken),
        }
    }

    fn count(&mut self, taken: usize) {
        if let Some(running) = self.outstanding.front_mut() {
            let bytes = u64::try_from(taken).unwrap_or(u64::MAX);
            running.response_bytes = running.response_bytes.saturating_add(bytes);
        }
    }

    /// A packet begins, of which `payload` has come. An unexpected packet is passed on: a server announces so that it
    /// closes.
    fn packet(&mut self, header: Header, payload: &[u8], first: bool) -> Result<Next, ProtocolError> {
        let capabilities = self.capabilities;
        let (client_is_private, server_is_private) = (self.client_tls, self.server_is_private());
        let shift = self.shift();
        let Some(running) = self.outstanding.front_mut() else { return Ok(Next::Goes) };
        let Header { len, sequence } = header;
        match &mut running.response {
            Response::Auth(auth) => {
                let shift = if auth.is_login { shift } else { 0 }.wrapping_add(auth.ahead);
                let Some(payload) = payload.get(..len.min(AUTH_LOOK)) else { return Ok(Next::Later) };
                if shift != 0 && !first {
                    return Ok(Next::Apart);
                }
                if auth.asks_for_password(payload, len) {
                    match (client_is_private, server_is_private) {
                        (true, false) => auth.exchange = Exchange::Wanted,
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
            Response::Reply(_) => self.reply_packet(header, payload, first),
        }
    }

    /// Whether a packet that begins so is the key that the gateway has asked for.
    fn awaits_key(&self, payload: &[u8]) -> bool {
        let response = self.outstanding.front().map(|running| &running.response);
        let asked =
            matches!(response, Some(Response::Auth(auth)) if matches!(auth.exchange, Exchange::Key(_)));
        asked && payload.first() == Some(&0x01)
    }

    /// The server gets the password under its key, and the client neither hears nor says anything.
    fn key(&mut self, header: Header, payload: &[u8]) -> Result<Step<'static, T>, ProtocolError> {
        let Header { len, sequence } = header;
        if len > AUTH_LIMIT {
            return Err(ProtocolError::ServerKey { len });
        }
        if payload.len() < len {
            return Ok(Step::More);
        }
        let first = self.greeting.as_ref().map(|greeting| greeting.scramble.clone()).unwrap_or_default();
        let Some(Response::Auth(auth)) = self.outstanding.front_mut().map(|running| &mut running.response)
        else {
            return Ok(Step::More);
        };
        let Exchange::Key(Bytes(password)) = std::mem::replace(&mut auth.exchange, Exchange::None) else {
            return Ok(Step::More);
        };
        let pem = payload.get(1..).unwrap_or_default();
        let scramble = auth.scramble.as_ref().unwrap_or(&first);
        let secret = public_key::encrypt(&password, scramble, pem).ok_or(ProtocolError::ServerKey { len })?;
        auth.ahead = auth.ahead.wrapping_add(2);
        self.from_server.begin(header);
        self.from_server.drain(payload);
        self.count(HEADER + len);
        let header = Header { len: secret.len(), sequence: sequence.wrapping_add(1) };
        self.send(Side::Server, [&header.to_bytes()[..], &secret].concat());
        Ok(Step::Skip(HEADER + len))
    }

    fn reply_packet(&mut self, header: Header, payload: &[u8], first: bool) -> Result<Next, ProtocolError> {
        let capabilities = self.capabilities;
        let Some(running) = self.outstanding.front_mut() else { return Ok(Next::Goes) };
        let Response::Reply(reply) = &mut running.response else { return Ok(Next::Goes) };
        let len = header.len;
        let look = reply.look(payload.first().copied(), len, capabilities);
        let Some(payload) = payload.get(..look) else { return Ok(Next::Later) };
        if reply.wants_file() && self.doing == Doing::Upload {
            return Err(ProtocolError::UploadCut);
        }
        let refuses_file = reply.asks_for_file(payload) && (running.muted || !self.settings.local_infile);
        let was_killed = running.killed.is_some() && payload.starts_with(&INTERRUPTED);
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
                    self.at_end = Some(AtEnd::Replace(refusal, ending.status));
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
                    self.prepared.insert(id, template, |kept| kept.kind == Kind::Theirs);
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
        if let Some(Described::Parameters { left, next }) = &mut running.described {
            if *left == 0 {
                // Packets behind the first hidden one are hidden with it.
                let muted = std::mem::replace(&mut running.muted, true);
                return Ok(if muted { Next::Goes } else { Next::Hidden });
            }
            (*left, *next) = (*left - 1, header.sequence.wrapping_add(1));
        }
        Ok(Next::Goes)
    }

    fn packet_ended(&mut self, end: AtEnd) -> Result<(), ProtocolError> {
        match end {
            AtEnd::Finish(ending) => self.finish(ending),
            AtEnd::Replace(refusal, status) => {
                let sequence = self.outstanding.front_mut().and_then(|running| {
                    running.withheld.or_else(|| running.explained.take().map(|told| told.sequence))
                });
                let packet = refusal.packet(sequence.unwrap_or_else(|| self.from_server.sequence()));
                self.finish(Ending { status, error: Some(refusal.code), ..Ending::default() });
                self.send(Side::Client, packet);
            }
            AtEnd::Upload => {
                if self.outstanding.len() > 1 || self.doing != Doing::Command {
                    return Err(ProtocolError::Ahead);
                }
                self.doing = Doing::Upload;
            }
            AtEnd::RefuseFile { told } => self.refuse_file(told),
        }
        Ok(())
    }

    /// The server gets an empty file, and the client an error, and no further results.
    fn refuse_file(&mut self, told: bool) {
        let sequence = self.from_server.sequence();
        if let Some(reply) = self.outstanding.front_mut().and_then(Running::reply) {
            reply.file_sent();
            reply.set_error(NO_FILES);
        }
        let empty = Header { len: 0, sequence: sequence.wrapping_add(1) };
        self.send(Side::Server, empty.to_bytes().to_vec());
        if !told {
            let refusal = Refusal { code: NO_FILES, state: *b"42000", message: NO_FILES_TOLD.into() };
            self.send(Side::Client, refusal.packet(sequence));
        }
    }

    /// A response has ended.
    pub(super) fn finish(&mut self, ending: Ending) {
        self.status = ending.status_after(self.status);
        let Some(mut running) = self.outstanding.pop() else { return };
        self.explaining = running.explained;
        if let Some(Described::Parameters { next, .. }) = running.described {
            let columns = answer::columns(&explained_columns(), next, self.audience());
            self.send(Side::Client, columns);
        }
        if let Response::Auth(auth) = &mut running.response
            && let (Some(greeting), Some(scramble)) = (&mut self.greeting, auth.scramble.take())
        {
            greeting.scramble = scramble;
        }
        let done = ending.error.is_none();
        if let Some(naming) = running.naming.take() {
            self.named.ended(naming, done);
        }
        let database = ending.database.or(running.database.take().filter(|_| done));
        if let Some(ends) = running.ends(self.status.has(Status::IN_TRANSACTION), true) {
            self.tell(Event::StatementEnds(ends));
        }
        match (running.response, running.command) {
            (Response::Auth(auth), _) if done => {
                self.forget_statements();
                let greeting = self.greeting.as_ref();
                let login = Login {
                    user: auth.identity.user,
                    database: database.or(auth.identity.database),
                    program_name: auth.identity.program_name,
                    thread_id: greeting.map(|greeting| greeting.thread_id).unwrap_or_default(),
                    server_version: greeting
                        .map(|greeting| greeting.server_version.clone())
                        .unwrap_or_default(),
                    tls: self.client_tls,
                };
                self.tell(if auth.is_login { Event::Login(login) } else { Event::UserChanged(login) });
            }
            (Response::Auth(auth), _) if auth.is_login => self.doing = Doing::Over,
            (_, Command::ResetConnection) if done => {
                self.forget_statements();
                self.tell(Event::SessionReset);
            }
            _ => {
                if let Some(database) = database {
                    self.tell(Event::DatabaseChanged { database });
                }
            }
        }
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
