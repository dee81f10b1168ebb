//! A machine between two buffers: does what the machine says, and records its events.

use tidegate_cost_model::SqlDialect;
use tidegate_sql::Naming;

use super::step::{Bytes, Event, Step};
use super::{Command, Decision, INPUT_LIMIT, Machine, ProtocolError, Settings};
use crate::session::Side;

/// A statement as it was asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) command: Command,
    pub(super) sql: String,
    pub(super) whole: bool,
    pub(super) template: Option<u64>,
    pub(super) explained: bool,
}

/// The machine's questions and events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Asked(Asked),
    Told(Event),
    Tls(Side),
}

type Judge = Box<dyn FnMut(&Asked) -> Option<Decision<u64>>>;

/// A connection whose sockets are vectors. Templates are numbered by the statement that was prepared.
pub(super) struct Link {
    pub(super) machine: Machine<u64>,
    pub(super) to_client: Vec<u8>,
    pub(super) to_server: Vec<u8>,
    pub(super) heard: Vec<Heard>,
    from_client: Vec<u8>,
    from_server: Vec<u8>,
    judge: Judge,
}

impl Link {
    /// A connection on which every statement is let through.
    pub(super) fn new(settings: Settings) -> Self {
        Self::judged(settings, |_| None)
    }

    /// A connection on which `judge` decides; `None` lets through.
    pub(super) fn judged(
        settings: Settings,
        judge: impl FnMut(&Asked) -> Option<Decision<u64>> + 'static,
    ) -> Self {
        Self {
            machine: Machine::new(settings),
            to_client: Vec::new(),
            to_server: Vec::new(),
            heard: Vec::new(),
            from_client: Vec::new(),
            from_server: Vec::new(),
            judge: Box::new(judge),
        }
    }

    /// That side sends `bytes`.
    pub(super) fn hear(&mut self, side: Side, bytes: &[u8]) -> Result<(), ProtocolError> {
        match side {
            Side::Client => self.from_client.extend(bytes),
            Side::Server => self.from_server.extend(bytes),
        }
        self.run()
    }

    /// Bytes that the gateway has read and not taken.
    pub(super) fn kept(&self) -> usize {
        self.from_client.len() + self.from_server.len()
    }

    /// The events, without the questions.
    pub(super) fn told(&self) -> Vec<Event> {
        let told = self.heard.iter().filter_map(|heard| match heard {
            Heard::Told(event) => Some(event.clone()),
            _ => None,
        });
        told.collect()
    }

    /// What was asked.
    pub(super) fn asked(&self) -> Vec<Asked> {
        let asked = self.heard.iter().filter_map(|heard| match heard {
            Heard::Asked(asked) => Some(asked.clone()),
            _ => None,
        });
        asked.collect()
    }

    /// Both directions until neither moves.
    fn run(&mut self) -> Result<(), ProtocolError> {
        loop {
            let server = self.run_side(Side::Server)?;
            let client = self.run_side(Side::Client)?;
            if !client && !server {
                return Ok(());
            }
        }
    }

    fn run_side(&mut self, side: Side) -> Result<bool, ProtocolError> {
        let mut moved = false;
        loop {
            let input = match side {
                Side::Client => std::mem::take(&mut self.from_client),
                Side::Server => std::mem::take(&mut self.from_server),
            };
            // What a caller with a buffer of the stated size would show.
            let shown = &input[..input.len().min(INPUT_LIMIT)];
            let step = match side {
                Side::Client => self.machine.client(shown)?,
                Side::Server => self.machine.server(shown)?,
            };
            let stays = matches!(step, Step::More | Step::Wait);
            assert!(step != Step::More || shown.len() < INPUT_LIMIT, "a full buffer is not enough");
            let taken = self.carry_out(side, step, shown);
            let rest = input[taken..].to_vec();
            match side {
                Side::Client => self.from_client = rest,
                Side::Server => self.from_server = rest,
            }
            if stays {
                return Ok(moved);
            }
            moved = true;
        }
    }

    /// Does what a step says, and gives the number of bytes that it took.
    fn carry_out(&mut self, side: Side, step: Step<'_, u64>, input: &[u8]) -> usize {
        let (there, back) = match side {
            Side::Client => (&mut self.to_server, &mut self.to_client),
            Side::Server => (&mut self.to_client, &mut self.to_server),
        };
        match step {
            Step::More | Step::Wait => return 0,
            Step::Pass(taken) => {
                there.extend(&input[..taken]);
                return taken;
            }
            Step::Skip(taken) => return taken,
            Step::Swap(taken, Bytes(bytes)) => {
                there.extend(bytes);
                return taken;
            }
            Step::Send(to, Bytes(bytes)) => {
                if to == side {
                    back.extend(bytes)
                } else {
                    there.extend(bytes)
                }
            }
            Step::StartTls(with) => self.heard.push(Heard::Tls(with)),
            Step::Tell(event) => self.heard.push(Heard::Told(event)),
            Step::Ask(statement) => {
                let asked = Asked {
                    command: statement.command,
                    sql: String::from_utf8_lossy(statement.sql).into_owned(),
                    whole: statement.whole,
                    template: statement.template,
                    explained: statement.explained,
                };
                let number = statement.number;
                if asked.command == Command::Query && asked.whole {
                    let naming = Naming::parse(statement.sql, SqlDialect::MySql, self.machine.escapes());
                    if let Some(naming) = naming {
                        self.machine.will_name(naming.map(|_| number));
                    }
                }
                self.heard.push(Heard::Asked(asked.clone()));
                let decision = (self.judge)(&asked).unwrap_or(Decision::Remember(number));
                self.machine.decide(decision).unwrap();
            }
        }
        0
    }
}

/// A packet.
pub(in crate::mysql) fn packet(sequence: u8, payload: &[u8]) -> Vec<u8> {
    let [a, b, c, ..] = payload.len().to_le_bytes();
    [&[a, b, c, sequence], payload].concat()
}

/// Packets, numbered from `first`.
pub(super) fn packets(first: u8, payloads: &[&[u8]]) -> Vec<u8> {
    let numbered = payloads.iter().zip(0..=u8::MAX);
    numbered.flat_map(|(payload, index)| packet(first.wrapping_add(index), payload)).collect()
}

/// A statement as text.
pub(super) fn query(sql: &str) -> Vec<u8> {
    packet(0, &[b"\x03", sql.as_bytes()].concat())
}

/// The payloads of a result of one column and one row.
pub(super) const ROWS: [&[u8]; 4] = [b"\x01", b"\x03def", b"\x011", b"\xfe\0\0\x02\0\0\0"];

/// Explains what asks for it, also when it is prepared and run.
pub(super) fn explain(asked: &Asked) -> Option<Decision<u64>> {
    let inner = asked.sql.strip_prefix("explain ru ").map(|inner| inner.as_bytes().to_vec());
    match (asked.command, inner) {
        (Command::Prepare, Some(inner)) => Some(Decision::Prepare(9, inner)),
        (_, Some(inner)) => Some(Decision::Explain(inner)),
        _ => asked.explained.then_some(Decision::ExplainRun),
    }
}

/// OK, with no transaction open.
pub(in crate::mysql) const OK: &[u8] = b"\x00\x00\x00\x02\x00\x00\x00";

/// A link on which a client has just been let in, with `DEPRECATE_EOF`; nothing heard or sent is kept.
pub(super) fn logged_in(
    settings: Settings,
    judge: impl FnMut(&Asked) -> Option<Decision<u64>> + 'static,
) -> Link {
    let mut login = super::captured::LOGIN.to_vec();
    login[4 + 3] |= 1;
    logged_in_to(super::captured::GREETING, &login, settings, judge)
}

/// The same of another server, by this login.
pub(super) fn logged_in_to(
    greeting: &[u8],
    login: &[u8],
    settings: Settings,
    judge: impl FnMut(&Asked) -> Option<Decision<u64>> + 'static,
) -> Link {
    let mut link = Link::judged(settings, judge);
    link.hear(Side::Server, greeting).unwrap();
    link.hear(Side::Client, login).unwrap();
    link.hear(Side::Server, &packet(2, OK)).unwrap();
    assert!(matches!(link.heard[..], [Heard::Told(Event::Login(_))]), "{:?}", link.heard);
    link.heard.clear();
    link.to_client.clear();
    link.to_server.clear();
    link
}
