//! A connection between a client and a server, without its sockets.
//!
//! In: bytes of either side, decisions about statements. Out: [`Step`]s. [`Machine::client`] and [`Machine::server`]
//! are called with what has been read and not yet taken, again and again until they want more.
//!
//! Two directions share what is here: `from_client` and `from_server` are their files.

use std::collections::VecDeque;

use super::answer::{Answer, Audience, Refusal};
use super::auth::Auth;
use super::capability::Capabilities;
use super::command::Command;
use super::ending::Status;
use super::frame::{Frames, HEADER};
use super::from_server::AtEnd;
use super::greeting::Greeting;
use super::named::Named;
use super::outstanding::{Kept, Kind, Outstanding, Response, Running, Told};
use super::prepared::Prepared;
use super::protocol_error::ProtocolError;
use super::settings::Settings;
use super::step::{Bytes, Event, Progress, StatementEnds, Step};
use crate::session::Side;

/// Most bytes of a packet that are seen before it is passed on: the beginning of a statement's text. A longer text
/// is known by its beginning.
pub(super) const LOOK_LIMIT: usize = 64 * 1024;
/// Most bytes of input that a machine needs to see at once; with less room a caller would wait forever.
pub(super) const INPUT_LIMIT: usize = HEADER + LOOK_LIMIT;

/// Stands at the server for a statement that the gateway answers. It fails if it is executed, which happens only where
/// the gateway has had to forget what it stands for: so no client reads that something was done that was not.
const NEVER: &[u8] = b"SET @tidegate = (SELECT 1 UNION ALL SELECT 2)";

/// The decision about a statement.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Decision<T> {
    /// It goes to the server.
    Go,
    /// It goes to the server; if it is prepared, this is what comes with every execution of it.
    Remember(T),
    /// It does not: the client gets this in its place. A result is an answer to text, and to one execution.
    Answer(Answer),
    /// This text goes in its place, and of the result the client gets errors only; [`Machine::explain`] has to follow
    /// the statement's end.
    Explain(Vec<u8>),
    /// This text is prepared in its place; executions of it are to be decided as [`Decision::ExplainRun`].
    Prepare(T, Vec<u8>),
    /// Another one is prepared in its place, so that it has a number; executions of it, with which this comes, are to be
    /// decided as [`Decision::Answer`].
    PrepareOurs(T),
    /// It goes, and of the result the client gets errors only; as with [`Decision::Explain`].
    ExplainRun,
}

/// A connection; `T` is what the caller remembers of a prepared statement.
#[derive(Debug)]
pub(super) struct Machine<T> {
    pub(super) settings: Settings,
    pub(super) greeting: Option<Greeting>,
    pub(super) capabilities: Capabilities,
    pub(super) status: Status,
    /// The client was offered TLS.
    pub(super) offers_tls: bool,
    pub(super) client_tls: bool,
    pub(super) server_tls: Secured,
    pub(super) from_client: Frames,
    pub(super) from_server: Frames,
    pub(super) doing: Doing,
    pub(super) hearing: Hearing,
    pub(super) outstanding: Outstanding<T>,
    pub(super) prepared: Prepared<Kept<T>>,
    /// What to keep of the statement that is prepared in place of the one asked about.
    pub(super) preparing: Option<Kept<T>>,
    pub(super) statements: u64,
    /// The database that the statement asked about will make the default.
    pub(super) using: Option<String>,
    pub(super) named: Named<T>,
    pub(super) at_end: Option<AtEnd>,
    pub(super) explaining: Option<Told>,
    due: VecDeque<Due>,
}

/// How far TLS to the server has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Secured {
    No,
    Asked,
    Yes,
}

/// What the client's next bytes are.
#[derive(Debug, PartialEq)]
pub(super) enum Doing {
    /// Nothing before the greeting.
    Greeting,
    Login,
    /// The beginning of TLS.
    Securing,
    /// An answer to the server's question who it is.
    Auth,
    Command,
    /// A command that is being decided upon.
    Asked(Command),
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

/// The answer to a command that does not go to the server.
#[derive(Debug, PartialEq)]
pub(super) enum Instead {
    Nothing,
    /// The client gets this, in binary if it is the result of an execution.
    Answer {
        answer: Answer,
        binary: bool,
    },
    /// The server gets another.
    Query(Vec<u8>),
    /// The server prepares another.
    Prepare(Vec<u8>),
}

/// What comes after a packet of the client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    Auth,
    Command,
    Explained,
    Upload,
    UploadEnd,
    Replicating,
    Over,
}

/// What the server's next bytes are.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Hearing {
    Greeting,
    Responses,
    /// The server has turned the client away before the greeting.
    Over,
}

/// A step that is due before anything else is looked at.
#[derive(Debug)]
pub(super) enum Due {
    Tell(Event),
    Send(Side, Vec<u8>),
}

impl<T: Clone> Machine<T> {
    /// A connection of which nothing has been heard.
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings,
            greeting: None,
            capabilities: Capabilities::default(),
            status: Status::default(),
            offers_tls: false,
            client_tls: false,
            server_tls: Secured::No,
            from_client: Frames::default(),
            from_server: Frames::default(),
            doing: Doing::Greeting,
            hearing: Hearing::Greeting,
            outstanding: Outstanding::new(),
            prepared: Prepared::new(),
            preparing: None,
            statements: 0,
            using: None,
            named: Named::new(),
            at_end: None,
            explaining: None,
            due: VecDeque::new(),
        }
    }

    /// Decides about the statement that was asked about.
    pub(super) fn decide(&mut self, decision: Decision<T>) -> Result<(), ProtocolError> {
        let Doing::Asked(command) = self.doing else { return Err(ProtocolError::NotAsked) };
        self.doing = match decision {
            Decision::Go => self.admitted(command, None),
            Decision::Remember(template) => self.admitted(command, Some(template)),
            Decision::Answer(answer) => {
                self.named.next = None;
                if command == Command::Prepare {
                    self.prepared.refused();
                }
                let binary = command == Command::Execute;
                Doing::Dropping(Instead::Answer { answer: answer_to(command, answer), binary })
            }
            Decision::Explain(sql) => Doing::Dropping(Instead::Query(sql)),
            Decision::Prepare(template, sql) => self.prepares(template, Kind::Explained, sql),
            Decision::PrepareOurs(template) => self.prepares(template, Kind::Ours, NEVER.to_vec()),
            Decision::ExplainRun => {
                let _ = self.admitted(command, None);
                if let Some(running) = self.outstanding.back_mut() {
                    running.muted = true;
                    running.explained = Some(Told { sequence: 1, binary: true });
                }
                Doing::Explained
            }
        };
        Ok(())
    }

    /// The server is to prepare this, which is another statement than the client's.
    fn prepares(&mut self, template: T, kind: Kind, sql: Vec<u8>) -> Doing {
        let kept = Kept { template, kind };
        self.prepared.sent(Some(kept.clone()));
        self.preparing = Some(kept);
        Doing::Dropping(Instead::Prepare(sql))
    }

    fn admitted(&mut self, command: Command, template: Option<T>) -> Doing {
        let kept = template.filter(|_| command == Command::Prepare);
        let kept = kept.map(|template| Kept { template, kind: Kind::Theirs });
        if command == Command::Prepare {
            self.prepared.sent(kept.clone());
        }
        let number = Some(self.statements);
        let using = self.using.take();
        self.expect(command, number, kept, using);
        Doing::Admitted(command)
    }

    /// Sends the client the cost of the explained statement that has just ended; nothing if the client had an error
    /// instead.
    pub(super) fn explain(&mut self, answer: &Answer) {
        if let Some(Told { sequence, binary }) = self.explaining.take() {
            let packets = answer.packets(sequence, Audience { binary, ..self.audience() });
            self.send(Side::Client, packets);
        }
    }

    /// The server has been asked to interrupt the statement that it runs; when it says that it did, the client gets
    /// `refusal`. Returns whether the server runs that statement.
    pub(super) fn kill(&mut self, number: u64, refusal: Refusal) -> bool {
        let Some(running) = self.outstanding.front_mut() else { return false };
        let runs = running.number == Some(number);
        if runs {
            running.killed = Some(refusal);
        }
        runs
    }

    /// Whether the session is in a transaction, as the server said last.
    pub(super) fn in_transaction(&self) -> bool {
        self.status.has(Status::IN_TRANSACTION)
    }

    /// The side whose packet comes next, until the client's login has begun: the server's greeting first, then the login,
    /// or a request for TLS before it.
    pub(super) fn opens_with(&self) -> Option<Side> {
        match self.doing {
            Doing::Greeting => Some(Side::Server),
            Doing::Login | Doing::Securing => Some(Side::Client),
            _ => None,
        }
    }

    /// Whether TLS may begin behind the next packet of that side: no byte further is the protocol's.
    pub(super) fn may_secure(&self, side: Side) -> bool {
        match side {
            Side::Client => self.offers_tls && !self.client_tls,
            Side::Server => self.settings.server_tls && self.server_tls != Secured::Yes,
        }
    }

    /// Whether the server has greeted the client and not turned it away at once.
    pub(super) fn is_open(&self) -> bool {
        self.hearing == Hearing::Responses
    }

    /// Whether the server has answered all that it was sent.
    pub(super) fn is_quiet(&self) -> bool {
        self.outstanding.is_empty()
    }

    /// Whether the client awaits nothing and says nothing: a good moment to end the connection.
    pub(super) fn is_idle(&self) -> bool {
        self.outstanding.is_empty()
            && self.due.is_empty()
            && self.doing == Doing::Command
            && self.from_server.at_packet()
    }

    /// How far the statement has come that the server is at.
    pub(super) fn progress(&self) -> Option<Progress> {
        self.outstanding.front()?.progress()
    }

    /// The connection has ended: returns the statements that have not.
    pub(super) fn abandon(&mut self) -> Vec<StatementEnds> {
        self.doing = Doing::Over;
        let in_transaction = self.in_transaction();
        let mut ended = Vec::new();
        while !self.outstanding.is_empty() {
            let running = self.outstanding.pop();
            ended.extend(running.and_then(|running| running.ends(in_transaction, false)));
            self.outstanding.pop_answer();
        }
        ended
    }

    /// The packet that says why the connection ends; none in the middle of another packet.
    pub(super) fn farewell(&self, refusal: &Refusal) -> Option<Vec<u8>> {
        if !self.from_server.at_packet() {
            return None;
        }
        let sequence = match (&self.hearing, self.outstanding.front()) {
            (Hearing::Greeting, _) => return Some(refusal.first_packet()),
            (_, Some(Running { response: Response::Auth(auth), .. })) if auth.is_asked() => {
                self.from_server.sequence().wrapping_sub(self.ahead(auth)).wrapping_add(1)
            }
            (_, Some(Running { response: Response::Auth(_), .. })) => {
                self.from_client.sequence().wrapping_add(1)
            }
            (_, Some(running)) if running.response_bytes > 0 => self.from_server.sequence().wrapping_add(1),
            _ => self.from_client.sequence().wrapping_add(1),
        };
        Some(refusal.packet(sequence))
    }

    /// The client's capabilities and the state of its session, for an answer to it.
    pub(super) fn audience(&self) -> Audience {
        Audience { capabilities: self.capabilities, status: self.status, binary: false }
    }

    pub(super) fn tell(&mut self, event: Event) {
        self.due.push_back(Due::Tell(event));
    }

    pub(super) fn send(&mut self, side: Side, bytes: Vec<u8>) {
        self.due.push_back(Due::Send(side, bytes));
    }

    /// The next step before more input is read: at most a few events of the packet that came last, then the answers
    /// whose turn has come.
    pub(super) fn due(&mut self) -> Option<Step<'static, T>> {
        match self.due.pop_front() {
            Some(Due::Tell(event)) => return Some(Step::Tell(event)),
            Some(Due::Send(side, bytes)) => return Some(Step::Send(side, Bytes(bytes))),
            None => {}
        }
        if !self.from_server.at_packet() {
            return None;
        }
        let packets = self.outstanding.pop_answer()?;
        Some(Step::Send(Side::Client, Bytes(packets)))
    }

    /// How much higher sequence ids towards the server are in this conversation.
    pub(super) fn ahead(&self, auth: &Auth) -> u8 {
        let shift = if auth.is_login { self.shift() } else { 0 };
        shift.wrapping_add(auth.ahead)
    }

    /// Whether the server takes its side for private, so that it wants passwords as they are.
    pub(super) fn server_is_private(&self) -> bool {
        self.server_tls == Secured::Yes || self.settings.server_socket
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
}

impl From<&ProtocolError> for Refusal {
    fn from(error: &ProtocolError) -> Self {
        let (code, state) = error.code();
        Self { code, state, message: error.to_string() }
    }
}

/// What a client can be given for `command`: a result is understood after a text and after an execution.
fn answer_to(command: Command, answer: Answer) -> Answer {
    match (command, &answer) {
        (Command::Query | Command::Execute, _) | (_, Answer::Refused(_)) => answer,
        // ER_UNSUPPORTED_PS
        _ => Answer::Refused(Refusal {
            code: 1295,
            state: *b"HY000",
            message: "tidegate answers this statement one execution at a time; send it as text, or alone"
                .into(),
        }),
    }
}
