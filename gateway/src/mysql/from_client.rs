//! The client's direction: commands and files. `logging_in` has what comes before.
//!
//! No byte of a statement is passed on before the decision about it. Where the gateway cannot know what a packet would
//! be to the server, the packet waits: a client cannot have a command taken for a password, or for a part of a file.

use super::answer::{Answer, Audience, Refusal};
use super::auth::{AUTH_LIMIT, Auth};
use super::capability::Capabilities;
use super::command::{Command, Shape, sql, used_database};
use super::ending::Ending;
use super::frame::{HEADER, Header, MAX_PAYLOAD, arrived};
use super::login::{Identity, NAME_LIMIT};
use super::machine::{After, Doing, Instead, LOOK_LIMIT, Machine};
use super::outstanding::{Described, Kept, Kind, Response, Running, Told};
use super::prepared::LAST_ID;
use super::protocol_error::ProtocolError;
use super::reader::Reader;
use super::reply::Reply;
use super::step::{Bytes, Statement, Step};
use crate::session::Side;

/// The first byte of a text to be prepared.
const PREPARE: u8 = 0x16;
/// Code, id and flags of an execution, and those of the flags that ask for a cursor.
const RUN_LOOK: usize = 6;
const CURSORS: u8 = 0x07;

/// First byte of a replica's acknowledgement of events (semi-synchronous replication).
const REPLICA_MAGIC: u8 = 0xef;

impl<T: Clone> Machine<T> {
    /// What to do with `input`, which has been read from the client and not been taken.
    pub(super) fn client<'a>(&mut self, input: &'a [u8]) -> Result<Step<'a, T>, ProtocolError> {
        if let Some(due) = self.due() {
            return Ok(due);
        }
        match &self.doing {
            Doing::Greeting | Doing::Asked(_) => Ok(Step::Wait),
            Doing::Securing => {
                self.client_tls = true;
                self.doing = Doing::Login;
                Ok(Step::StartTls(Side::Client))
            }
            Doing::Login => self.login(input),
            Doing::Auth => self.auth(input),
            Doing::Command => self.command(input),
            &Doing::Admitted(command) => Ok(match Header::parse(input) {
                Some(header) => {
                    self.note_cursor(command, arrived(input, header));
                    self.pass(input, header, after(command))
                }
                None => Step::More,
            }),
            Doing::Explained => Ok(match Header::parse(input) {
                Some(header) => self.explained_run(input, header),
                None => Step::More,
            }),
            &Doing::Passing(after) => {
                let taken = self.from_client.drain(input);
                Ok(self.passed(taken, after))
            }
            Doing::Dropping(_) | Doing::DroppingRest(_) => Ok(self.drop_packet(input)),
            Doing::Upload => Ok(match Header::parse(input) {
                Some(header @ Header { len: 0, .. }) => self.pass(input, header, After::UploadEnd),
                Some(header) => self.pass(input, header, After::Upload),
                None => Step::More,
            }),
            Doing::Replicating => self.replicating(input),
            Doing::Over if input.is_empty() => Ok(Step::More),
            Doing::Over => Ok(Step::Skip(input.len())),
        }
    }

    /// A command has a response, which is awaited from now on.
    pub(super) fn expect(
        &mut self,
        command: Command,
        number: Option<u64>,
        template: Option<Kept<T>>,
        database: Option<String>,
    ) {
        let naming = self.named.next.take();
        if let Some(reply) = Reply::to(command) {
            let running = Running::new(command, Response::Reply(reply));
            self.outstanding.push(Running { number, template, database, naming, ..running });
        }
    }

    pub(super) fn ahead_of(&self, running: &Running<T>) -> u8 {
        match &running.response {
            Response::Auth(auth) => self.ahead(auth),
            Response::Reply(_) => 0,
        }
    }

    pub(super) fn command<'a>(&mut self, input: &'a [u8]) -> Result<Step<'a, T>, ProtocolError> {
        let Some(header) = Header::parse(input) else { return Ok(Step::More) };
        if let Some(step) = self.end_of_unknown() {
            return Ok(step);
        }
        if !self.outstanding.has_room() {
            return Ok(Step::Wait);
        }
        let payload = arrived(input, header);
        let Some(&code) = payload.first().or((header.len == 0).then_some(&0)) else {
            return Ok(Step::More);
        };
        let command = Command::of(code);
        if command == Command::ChangeUser && header.len > AUTH_LIMIT {
            return Err(ProtocolError::LongLogin { len: header.len, limit: AUTH_LIMIT });
        }
        let Some(payload) = payload.get(..look(command).min(header.len)) else { return Ok(Step::More) };
        let id = Reader::new(payload.get(1..).unwrap_or_default()).u32().unwrap_or_default();
        if let Some(instead) = self.turned_away(command, id) {
            self.doing = Doing::Dropping(instead);
            return Ok(self.drop_packet(input));
        }
        if command.is_governed() {
            return Ok(self.ask(command, id, payload, header));
        }
        match command {
            Command::ChangeUser => {
                let identity = Identity::of_change(payload.get(1..).unwrap_or_default(), self.capabilities)?;
                let auth = Response::Auth(Box::new(Auth::new(identity, false)));
                self.outstanding.push(Running::new(command, auth));
            }
            Command::InitDb => {
                let name = payload.get(1..).unwrap_or_default();
                let kept = (name.len() <= NAME_LIMIT).then(|| String::from_utf8_lossy(name).into_owned());
                self.expect(command, None, None, kept);
            }
            _ => {
                if command == Command::Close {
                    self.prepared.remove(id);
                }
                self.expect(command, None, None, None);
            }
        }
        Ok(self.pass(input, header, after(command)))
    }

    /// A response of unknown shape ends when the client goes on. As long as none of it has come, the client cannot.
    fn end_of_unknown(&mut self) -> Option<Step<'static, T>> {
        let back = self.outstanding.back_mut()?;
        if back.command.shape() != Shape::Opaque {
            return None;
        }
        let ended = back.reply().is_some_and(|reply| reply.may_have_ended());
        if !ended || self.outstanding.len() > 1 || !self.from_server.at_packet() {
            return Some(Step::Wait);
        }
        self.finish(Ending::default());
        self.due()
    }

    /// The answer to a command that names a statement which was not prepared.
    fn turned_away(&self, command: Command, id: u32) -> Option<Instead> {
        if !command.names_statement() || !self.prepared.is_refused(id) {
            return None;
        }
        if command.shape() == Shape::Nothing {
            return Some(Instead::Nothing);
        }
        // ER_UNKNOWN_STMT_HANDLER
        let refusal = Refusal {
            code: 1243,
            state: *b"HY000",
            message: "the last statement was not prepared, for the reason given there; prepare it again"
                .into(),
        };
        Some(Instead::Answer { answer: Answer::Refused(refusal), binary: false })
    }

    fn ask<'a>(&mut self, command: Command, id: u32, payload: &'a [u8], header: Header) -> Step<'a, T> {
        let text = match command {
            Command::Query => sql(payload, self.capabilities),
            Command::Prepare => payload.get(1..).unwrap_or_default(),
            _ => b"",
        };
        let whole = payload.len() == header.len || !matches!(command, Command::Query | Command::Prepare);
        self.using = (command == Command::Query && whole).then(|| used_database(text)).flatten();
        self.statements = self.statements.saturating_add(1);
        self.doing = Doing::Asked(command);
        let kept = command.names_statement().then(|| self.prepared.get(id)).flatten();
        Step::Ask(Statement {
            number: self.statements,
            command,
            sql: text,
            whole,
            explained: kept.as_ref().is_some_and(|kept| kept.kind == Kind::Explained),
            template: kept.map(|kept| kept.template),
        })
    }

    /// Passes the beginning of the execution of a statement to be explained: it takes no cursor, as its cost is that
    /// of all its rows.
    fn explained_run(&mut self, input: &[u8], header: Header) -> Step<'static, T> {
        let begun = arrived(input, header).get(..RUN_LOOK).unwrap_or_default();
        let Some((flags, id)) = begun.split_last() else { return self.pass(input, header, After::Explained) };
        self.from_client.begin(header);
        self.from_client.drain(begun);
        let _ = self.passed(HEADER + begun.len(), After::Explained);
        let bytes = [&header.to_bytes()[..], id, &[flags & !CURSORS]].concat();
        Step::Swap(HEADER + begun.len(), Bytes(bytes))
    }

    /// An execution that asks for a cursor is answered by the columns alone.
    fn note_cursor(&mut self, command: Command, payload: &[u8]) {
        let flags = payload.get(RUN_LOOK - 1).copied().unwrap_or_default();
        if command == Command::Execute
            && flags & CURSORS != 0
            && let Some(reply) = self.outstanding.back_mut().and_then(Running::reply)
        {
            reply.allow_cursor();
        }
    }

    /// Passes a packet that begins, as far as it has come.
    pub(super) fn pass(&mut self, input: &[u8], header: Header, after: After) -> Step<'static, T> {
        self.from_client.begin(header);
        let taken = HEADER + self.from_client.drain(input.get(HEADER..).unwrap_or_default());
        self.passed(taken, after)
    }

    fn passed(&mut self, taken: usize, after: After) -> Step<'static, T> {
        // A statement that the server has answered already was reported without these bytes.
        if let Some(running) = self.outstanding.back_mut() {
            running.request_bytes =
                running.request_bytes.saturating_add(u64::try_from(taken).unwrap_or(u64::MAX));
        }
        self.doing = if self.from_client.at_packet() { self.next(after) } else { Doing::Passing(after) };
        if taken == 0 { Step::More } else { Step::Pass(taken) }
    }

    fn next(&mut self, after: After) -> Doing {
        match after {
            After::Auth => Doing::Auth,
            After::Command => Doing::Command,
            After::Explained => {
                let sequence = self.from_client.sequence().wrapping_add(1);
                if let Some(running) = self.outstanding.back_mut() {
                    running.explained = Some(Told { sequence, binary: true });
                }
                Doing::Command
            }
            After::Upload => Doing::Upload,
            After::UploadEnd => {
                if let Some(reply) = self.outstanding.front_mut().and_then(Running::reply) {
                    reply.file_sent();
                }
                Doing::Command
            }
            After::Replicating => Doing::Replicating,
            After::Over => Doing::Over,
        }
    }

    /// Takes a packet that goes nowhere, as far as it has come; what stands for it follows on its last frame.
    fn drop_packet(&mut self, input: &[u8]) -> Step<'static, T> {
        let (instead, taken) = match std::mem::replace(&mut self.doing, Doing::Over) {
            Doing::Dropping(instead) => {
                let Some(header) = Header::parse(input) else {
                    self.doing = Doing::Dropping(instead);
                    return Step::More;
                };
                self.from_client.begin(header);
                (instead, HEADER + self.from_client.drain(input.get(HEADER..).unwrap_or_default()))
            }
            Doing::DroppingRest(instead) => (instead, self.from_client.drain(input)),
            other => {
                self.doing = other;
                return Step::More;
            }
        };
        if self.from_client.at_packet() {
            self.doing = Doing::Command;
            self.dropped(instead);
        } else {
            self.doing = Doing::DroppingRest(instead);
        }
        if taken == 0 { Step::More } else { Step::Skip(taken) }
    }

    /// A packet that goes nowhere has been taken.
    fn dropped(&mut self, instead: Instead) {
        let next = self.from_client.sequence().wrapping_add(1);
        match instead {
            Instead::Nothing => {}
            Instead::Answer { answer, binary } => {
                let packets = answer.packets(next, Audience { binary, ..self.audience() });
                self.outstanding.push_answer(packets);
            }
            Instead::Query(sql) => {
                self.expect(Command::Query, Some(self.statements), None, None);
                // No attributes, where there may be some.
                let attributes = self.capabilities.has(Capabilities::QUERY_ATTRIBUTES);
                let none: &[u8] = if attributes { &[0, 1] } else { &[] };
                let payload = [&[0x03], none, &sql].concat();
                let header = Header { len: payload.len(), sequence: 0 };
                let packet = [&header.to_bytes()[..], &payload].concat();
                if let Some(running) = self.outstanding.back_mut() {
                    running.muted = true;
                    running.explained = Some(Told { sequence: next, binary: false });
                    running.request_bytes = u64::try_from(packet.len()).unwrap_or(u64::MAX);
                }
                self.send(Side::Server, packet);
            }
            Instead::Prepare(sql) => {
                let kept = self.preparing.take();
                let explained = kept.as_ref().is_some_and(|kept| kept.kind == Kind::Explained);
                self.expect(Command::Prepare, Some(self.statements), kept, None);
                let header = Header { len: 1 + sql.len(), sequence: 0 };
                let packet = [&header.to_bytes()[..], &[PREPARE], &sql].concat();
                if let Some(running) = self.outstanding.back_mut() {
                    running.described = explained.then_some(Described::Awaited);
                    running.request_bytes = u64::try_from(packet.len()).unwrap_or(u64::MAX);
                }
                self.send(Side::Server, packet);
            }
        }
    }

    fn replicating<'a>(&mut self, input: &'a [u8]) -> Result<Step<'a, T>, ProtocolError> {
        if self.outstanding.back_mut().is_none_or(|running| running.command != Command::BinlogDump) {
            self.doing = Doing::Command;
            return self.command(input);
        }
        let Some(header) = Header::parse(input) else { return Ok(Step::More) };
        match arrived(input, header).first() {
            Some(&REPLICA_MAGIC) => Ok(self.pass(input, header, After::Replicating)),
            Some(_) => Ok(Step::Wait),
            None if header.len == 0 => Ok(Step::Wait),
            None => Ok(Step::More),
        }
    }
}

/// How much of a command has to be seen: text, a name, or the id of a statement.
fn look(command: Command) -> usize {
    match command {
        Command::Query | Command::Prepare | Command::ChangeUser => LOOK_LIMIT,
        Command::InitDb => 1 + NAME_LIMIT + 1,
        Command::Execute => RUN_LOOK,
        _ => 5,
    }
}

fn after(command: Command) -> After {
    match command {
        Command::ChangeUser => After::Auth,
        Command::BinlogDump => After::Replicating,
        Command::Quit => After::Over,
        _ => After::Command,
    }
}

const _: () = assert!(AUTH_LIMIT <= LOOK_LIMIT && LOOK_LIMIT < MAX_PAYLOAD && LAST_ID == u32::MAX);
