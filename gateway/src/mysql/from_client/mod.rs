//! The client's direction: commands and files. `logging_in` has what comes before.
//!
//! No byte of a statement is passed on before the decision about it. Where the gateway cannot know what a packet would
//! be to the server, the packet waits: a client cannot have a command taken for a password, or for a part of a file.

mod deciding;
mod dropping;
mod logging_in;

use dropping::{Instead, turned_away};

use super::auth::{AUTH_LIMIT, Auth};
use super::command::{Command, Shape, sql, used_database};
use super::ending::Ending;
use super::frame::{Frames, HEADER, Header, MAX_PAYLOAD, arrived};
use super::login::{Identity, NAME_LIMIT};
use super::machine::LOOK_LIMIT;
use super::outstanding::{Kind, Response, Running, Told};
use super::prepared::LAST_ID;
use super::protocol_error::ProtocolError;
use super::reader::Reader;
use super::step::{Bytes, Statement, Step, Stepped};
use super::wire::Wire;
use crate::session::Side;

/// Code, id and flags of an execution, and those of the flags that ask for a cursor.
const RUN_LOOK: usize = 6;
const CURSORS: u8 = 0x07;

/// First byte of a replica's acknowledgement of events (semi-synchronous replication).
const REPLICA_MAGIC: u8 = 0xef;

/// The client's direction.
#[derive(Debug)]
pub(super) struct ClientSide {
    frames: Frames,
    doing: Doing,
}

/// What the client's next bytes are.
#[derive(Debug, PartialEq)]
enum Doing {
    /// Nothing before the greeting.
    Greeting,
    Login,
    /// The beginning of TLS.
    Securing,
    /// An answer to the server's question who it is.
    Auth,
    Command,
    /// A command that is being decided upon, and the statement that it names, if it names one.
    Asked(Command, u32),
    /// A command that was let through.
    Admitted(Command),
    /// A prepared statement that was let through, to be explained.
    Explained,
    /// The rest of a packet, and what comes after it.
    Passing(After),
    /// A command that goes nowhere, and what comes of it.
    Dropping(Instead),
    /// The rest of one.
    DroppingRest(Instead),
    /// A file for the server.
    Upload,
    /// A replica's reports of its progress.
    Replicating,
    /// Nothing that counts.
    Over,
}

/// What comes after a packet of the client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Auth,
    Command,
    /// It was a part of a value of this statement's.
    Part(u32),
    Explained,
    Upload,
    UploadEnd,
    Replicating,
    Over,
}

impl ClientSide {
    /// Before the server's greeting.
    pub(super) fn new() -> Self {
        Self { frames: Frames::default(), doing: Doing::Greeting }
    }

    /// The server has greeted the client.
    pub(super) fn greeted(&mut self) {
        self.doing = Doing::Login;
    }

    /// Nothing that the client says counts any more.
    pub(super) fn over(&mut self) {
        self.doing = Doing::Over;
    }

    /// The server asks for a file. False when the client is at something else.
    pub(super) fn upload(&mut self) -> bool {
        let free = self.awaits_command();
        if free {
            self.doing = Doing::Upload;
        }
        free
    }

    /// Whether it sends a file.
    pub(super) fn is_uploading(&self) -> bool {
        self.doing == Doing::Upload
    }

    /// Whether the server has been sent a part of a packet.
    pub(super) fn is_in_packet(&self) -> bool {
        matches!(self.doing, Doing::Passing(_))
    }

    /// Whether it is between commands.
    pub(super) fn awaits_command(&self) -> bool {
        self.doing == Doing::Command
    }

    /// The side whose packet comes next, until the login has begun: the server's greeting first, then the login, or a
    /// request for TLS before it.
    pub(super) fn opens_with(&self) -> Option<Side> {
        match self.doing {
            Doing::Greeting => Some(Side::Server),
            Doing::Login | Doing::Securing => Some(Side::Client),
            _ => None,
        }
    }

    /// Sequence id of the last frame that began.
    pub(super) fn sequence(&self) -> u8 {
        self.frames.sequence()
    }

    /// What to do with `input`, which has been read from the client and not been taken.
    pub(super) fn step<'a, T: Clone>(&mut self, wire: &mut Wire<T>, input: &'a [u8]) -> Stepped<'a, T> {
        if let Some(due) = wire.due() {
            return Ok(due);
        }
        match &self.doing {
            Doing::Greeting | Doing::Asked(..) => Ok(Step::Wait),
            Doing::Securing => {
                wire.handshake.client_secured();
                self.doing = Doing::Login;
                Ok(Step::StartTls(Side::Client))
            }
            Doing::Login => self.login(wire, input),
            Doing::Auth => self.auth(wire, input),
            Doing::Command => self.command(wire, input),
            &Doing::Admitted(command) => Ok(match Header::parse(input) {
                Some(header) => {
                    note_cursor(wire, command, arrived(input, header));
                    self.pass(wire, input, header, after(command))
                }
                None => Step::More,
            }),
            Doing::Explained => Ok(match Header::parse(input) {
                Some(header) => self.explained_run(wire, input, header),
                None => Step::More,
            }),
            &Doing::Passing(after) => {
                let taken = self.frames.drain(input);
                Ok(self.passed(wire, taken, after))
            }
            Doing::Dropping(_) | Doing::DroppingRest(_) => Ok(self.drop_packet(wire, input)),
            Doing::Upload => Ok(match Header::parse(input) {
                Some(header @ Header { len: 0, .. }) => self.pass(wire, input, header, After::UploadEnd),
                Some(header) => self.pass(wire, input, header, After::Upload),
                None => Step::More,
            }),
            Doing::Replicating => self.replicating(wire, input),
            Doing::Over if input.is_empty() => Ok(Step::More),
            Doing::Over => Ok(Step::Skip(input.len())),
        }
    }

    fn command<'a, T: Clone>(&mut self, wire: &mut Wire<T>, input: &'a [u8]) -> Stepped<'a, T> {
        let Some(header) = Header::parse(input) else { return Ok(Step::More) };
        if let Some(step) = end_of_unknown(wire) {
            return Ok(step);
        }
        if !wire.outstanding.has_room() {
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
        if let Some(instead) = turned_away(wire, command, id) {
            self.doing = Doing::Dropping(instead);
            return Ok(self.drop_packet(wire, input));
        }
        if command.is_governed() {
            return Ok(self.ask(wire, command, id, payload, header));
        }
        if matches!(command, Command::ChangeUser | Command::ResetConnection) {
            wire.statements.prepared.reset_sent();
        }
        match command {
            Command::ChangeUser => {
                let identity =
                    Identity::of_change(payload.get(1..).unwrap_or_default(), wire.handshake.capabilities())?;
                let auth = Response::Auth(Box::new(Auth::new(identity, false)));
                wire.outstanding.push(Running::new(command, auth));
            }
            Command::InitDb => {
                let name = payload.get(1..).unwrap_or_default();
                let kept = (name.len() <= NAME_LIMIT).then(|| String::from_utf8_lossy(name).into_owned());
                wire.expect(command, None, None, kept);
            }
            _ => {
                if command == Command::Close {
                    wire.statements.prepared.remove(id);
                }
                if matches!(command, Command::Close | Command::Reset) {
                    wire.statements.parts.gone(id);
                }
                wire.expect(command, None, None, None);
            }
        }
        let after = if command == Command::LongData { After::Part(id) } else { after(command) };
        Ok(self.pass(wire, input, header, after))
    }

    fn ask<'a, T: Clone>(
        &mut self,
        wire: &mut Wire<T>,
        command: Command,
        id: u32,
        payload: &'a [u8],
        header: Header,
    ) -> Step<'a, T> {
        let text = match command {
            Command::Query => sql(payload, wire.handshake.capabilities()),
            Command::Prepare => payload.get(1..).unwrap_or_default(),
            _ => b"",
        };
        let whole = payload.len() == header.len || !matches!(command, Command::Query | Command::Prepare);
        let using = (command == Command::Query && whole).then(|| used_database(text)).flatten();
        let number = wire.statements.ask(using);
        self.doing = Doing::Asked(command, id);
        let kept = command.names_statement().then(|| wire.statements.prepared.get(id)).flatten();
        Step::Ask(Statement {
            number,
            command,
            sql: text,
            whole,
            explained: kept.as_ref().is_some_and(|kept| kept.kind == Kind::Explained),
            template: kept.map(|kept| kept.template),
        })
    }

    /// Passes the beginning of the execution of a statement to be explained: it takes no cursor, as its cost is that
    /// of all its rows.
    fn explained_run<T>(&mut self, wire: &mut Wire<T>, input: &[u8], header: Header) -> Step<'static, T> {
        let begun = arrived(input, header).get(..RUN_LOOK).unwrap_or_default();
        let Some((flags, id)) = begun.split_last() else {
            return self.pass(wire, input, header, After::Explained);
        };
        self.frames.begin(header);
        self.frames.drain(begun);
        let _ = self.passed(wire, HEADER + begun.len(), After::Explained);
        let bytes = [&header.to_bytes()[..], id, &[flags & !CURSORS]].concat();
        Step::Swap(HEADER + begun.len(), Bytes(bytes))
    }

    /// Passes a packet that begins, as far as it has come.
    fn pass<T>(
        &mut self,
        wire: &mut Wire<T>,
        input: &[u8],
        header: Header,
        after: After,
    ) -> Step<'static, T> {
        self.frames.begin(header);
        let taken = HEADER + self.frames.drain(input.get(HEADER..).unwrap_or_default());
        self.passed(wire, taken, after)
    }

    fn passed<T>(&mut self, wire: &mut Wire<T>, taken: usize, after: After) -> Step<'static, T> {
        let bytes = u64::try_from(taken).unwrap_or(u64::MAX);
        if let After::Part(id) = after {
            wire.statements.parts.sent(id, bytes);
        } else if let Some(running) = wire.outstanding.back_mut() {
            // A statement that the server has answered already was reported without these bytes.
            running.request_bytes = running.request_bytes.saturating_add(bytes);
        }
        self.doing = if self.frames.at_packet() { self.next(wire, after) } else { Doing::Passing(after) };
        if taken == 0 { Step::More } else { Step::Pass(taken) }
    }

    fn next<T>(&mut self, wire: &mut Wire<T>, after: After) -> Doing {
        match after {
            After::Auth => Doing::Auth,
            After::Command | After::Part(_) => Doing::Command,
            After::Explained => {
                let sequence = self.frames.sequence().wrapping_add(1);
                if let Some(running) = wire.outstanding.back_mut() {
                    running.explained = Some(Told { sequence, binary: true });
                }
                Doing::Command
            }
            After::Upload => Doing::Upload,
            After::UploadEnd => {
                if let Some(reply) = wire.outstanding.front_mut().and_then(Running::reply) {
                    reply.file_sent();
                }
                Doing::Command
            }
            After::Replicating => Doing::Replicating,
            After::Over => Doing::Over,
        }
    }

    fn replicating<'a, T: Clone>(&mut self, wire: &mut Wire<T>, input: &'a [u8]) -> Stepped<'a, T> {
        if wire.outstanding.back_mut().is_none_or(|running| running.command != Command::BinlogDump) {
            self.doing = Doing::Command;
            return self.command(wire, input);
        }
        let Some(header) = Header::parse(input) else { return Ok(Step::More) };
        match arrived(input, header).first() {
            Some(&REPLICA_MAGIC) => Ok(self.pass(wire, input, header, After::Replicating)),
            Some(_) => Ok(Step::Wait),
            None if header.len == 0 => Ok(Step::Wait),
            None => Ok(Step::More),
        }
    }
}

/// A response of unknown shape ends when the client goes on. As long as none of it has come, the client cannot.
fn end_of_unknown<T>(wire: &mut Wire<T>) -> Option<Step<'static, T>> {
    let back = wire.outstanding.back_mut()?;
    if back.command.shape() != Shape::Opaque {
        return None;
    }
    let ended = back.reply().is_some_and(|reply| reply.may_have_ended());
    if !ended || wire.outstanding.len() > 1 || !wire.heard.at_packet() {
        return Some(Step::Wait);
    }
    wire.finish(Ending::default());
    wire.due()
}

/// An execution that asks for a cursor is answered by the columns alone.
fn note_cursor<T>(wire: &mut Wire<T>, command: Command, payload: &[u8]) {
    let flags = payload.get(RUN_LOOK - 1).copied().unwrap_or_default();
    if command == Command::Execute
        && flags & CURSORS != 0
        && let Some(reply) = wire.outstanding.back_mut().and_then(Running::reply)
    {
        reply.allow_cursor();
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
