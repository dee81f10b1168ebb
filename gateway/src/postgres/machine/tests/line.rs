//! A client and a server that may have to wait for each other.

use super::*;

/// Parses, binds and executes a statement without a name.
pub(super) fn whole(text: &str) -> Vec<u8> {
    [parse("", text), bind("", ""), execute("")].concat()
}

/// What the server says of the first two of these.
pub(super) fn bound() -> Vec<u8> {
    [message(b'1', &[]), message(b'2', &[])].concat()
}

/// The end of a statement.
pub(super) fn done(tag: &str) -> Vec<u8> {
    message(b'C', format!("{tag}\0").as_bytes())
}

/// A `Sync`.
pub(super) fn sync() -> Vec<u8> {
    message(b'S', &[])
}

/// A session between them.
pub(super) struct Line {
    pub(super) machine: Tested,
    /// Statements that run are numbered from 1, in the order in which they were asked about.
    pub(super) decider: Decider,
    /// How often anything was asked.
    pub(super) asks: u32,
    /// What the client has sent and the gateway has not come to.
    held: Vec<u8>,
    /// What the client got.
    pub(super) told: Vec<u8>,
    pub(super) events: Vec<Event<u32>>,
}

impl Line {
    /// After the login.
    pub(super) fn new() -> Self {
        let (held, told, events) = (Vec::new(), Vec::new(), Vec::new());
        Self { machine: machine(), decider: Decider::default(), asks: 0, held, told, events }
    }

    /// The client says this. Returns what the server gets.
    pub(super) fn client(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        let mut sent = Vec::new();
        loop {
            match self.machine.client(&self.held).unwrap() {
                Step::Pass(count) => sent.extend(self.held.drain(..count)),
                Step::Skip(count) => drop(self.held.drain(..count)),
                Step::Send(bytes) => sent.extend(bytes),
                Step::Ask(ask) => {
                    let runs = matches!(ask, Ask::Query(_) | Ask::Execute(_));
                    decide(&mut self.machine, &self.held, ask, &mut self.decider);
                    self.decider.next -= u32::from(!runs);
                    self.asks += 1;
                }
                Step::Ends => self.events.push(Event::Ended(self.machine.part().unwrap())),
                Step::More(_) | Step::Wait => {
                    if self.machine.take_flush() {
                        sent.extend(message(b'H', &[]));
                    }
                    return sent;
                }
            }
        }
    }

    /// The server says this. Returns what it gets then of what the client has said before.
    pub(super) fn server(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.events.extend(server(&mut self.machine, bytes, &mut self.told));
        let sent = self.client(b"");
        // Answers of the gateway.
        self.events.extend(server(&mut self.machine, b"", &mut self.told));
        sent
    }

    /// The statements that have ended since the last time, and how many rows each sent.
    pub(super) fn ended(&mut self) -> Vec<(Option<u32>, u64)> {
        let ended = self.events.drain(..).filter_map(|event| match event {
            Event::Ended(unit) => Some((unit.running, unit.progress.sent_rows)),
            Event::Login | Event::Costs(_) => None,
        });
        ended.collect()
    }
}
