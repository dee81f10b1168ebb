//! A machine between two buffers under any input, with what must hold.

use std::sync::Arc;

use tidegate_cost_model::{SqlDialect, Template};
use tidegate_sql::Naming;

use super::frame::ProtocolError;
use super::machine::{Ask, Decision, Event, Goes, Machine, Prepared, Step, Text};
use crate::fuzzing::patience;
use crate::govern::{Known, SqlText};

/// Most bytes that a client's message is looked at: a text and its header.
const MOST_LOOKED_AT: usize = 64 * 1_024 + 5;
/// What is asked for at once for the client.
const ROOM: usize = 1_024;

/// A machine between two buffers.
pub(crate) struct Link {
    machine: Machine<u8, ()>,
    known: Known,
    from_client: Vec<u8>,
    from_server: Vec<u8>,
}

impl Link {
    pub(crate) fn new(template: Arc<Template>) -> Self {
        let known = Known::new(template, SqlText::Unseen);
        let machine = Machine::new(known.clone(), false);
        Self { machine, known, from_client: Vec::new(), from_server: Vec::new() }
    }

    /// One side sends these bytes.
    pub(crate) fn hear(&mut self, control: u8, bytes: &[u8]) -> Result<(), ProtocolError> {
        if control & 1 == 0 {
            self.from_client.extend_from_slice(bytes);
            self.client(control >> 1)?;
        } else {
            self.from_server.extend_from_slice(bytes);
            self.server(control & 2 > 0)?;
        }
        Ok(())
    }

    fn client(&mut self, decision: u8) -> Result<(), ProtocolError> {
        let mut left = patience(self.from_client.len());
        loop {
            assert!(left > 0, "the client's side does not come to an end");
            left -= 1;
            let step = self.machine.client(&self.from_client)?;
            match step {
                Step::More(wanted) => {
                    assert!(wanted > self.from_client.len(), "more is wanted than there is");
                    assert!(wanted <= MOST_LOOKED_AT, "{wanted} bytes are wanted at once");
                    return Ok(());
                }
                Step::Pass(count) | Step::Skip(count) => {
                    assert!(count <= self.from_client.len(), "{count} bytes are to be taken of fewer");
                    self.from_client.drain(..count);
                }
                Step::Send(bytes) => assert!(!bytes.is_empty(), "nothing is to be sent"),
                Step::Ask(ask) => self.decide(ask, decision)?,
                Step::Ends => assert!(self.machine.part().is_some(), "a unit ends that there is not"),
                Step::Wait => return Ok(()),
            }
        }
    }

    fn decide(&mut self, ask: Ask<()>, decision: u8) -> Result<(), ProtocolError> {
        let bytes = &self.from_client[..];
        let decision = match (ask, decision % 3) {
            (Ask::Query(text), 0) => {
                let known = known_of(&self.known, bytes, text);
                let named = known.naming.as_deref().and_then(|naming| self.machine.executed(naming)).cloned();
                Decision::Go(decision, Goes { inner: None, naming: named.unwrap_or(known).naming })
            }
            (Ask::Query(_), 1) => Decision::Answer(vec![b'C', 0, 0, 0, 4]),
            (Ask::Query(_), _) => {
                Decision::Go(decision, Goes { inner: Some("select 1".into()), naming: None })
            }
            (Ask::Parse(text), 0) => {
                Decision::Prepare(Prepared::Theirs(known_of(&self.known, bytes, text)), None)
            }
            (Ask::Parse(_), 1) => Decision::Prepare(Prepared::Ours(Arc::default()), None),
            (Ask::Parse(Text { whole: true, .. }), _) => {
                Decision::Prepare(Prepared::Explained(self.known.clone()), Some("select 1".into()))
            }
            (Ask::Execute(_), 0 | 1) => Decision::Go(decision, Goes::default()),
            (Ask::Parse(_) | Ask::Execute(_), _) => Decision::Refuse(vec![b'E', 0, 0, 0, 4]),
            (Ask::Describe { .. } | Ask::Run { .. }, _) => Decision::Answer(vec![b'n', 0, 0, 0, 4]),
        };
        self.machine.decide(bytes, decision)
    }

    fn server(&mut self, kill: bool) -> Result<(), ProtocolError> {
        let mut out = Vec::new();
        let mut left = patience(self.from_server.len());
        loop {
            assert!(left > 0, "the server's side does not come to an end");
            left -= 1;
            let (used, event) = self.machine.server(&self.from_server, &mut out, ROOM)?;
            assert!(used <= self.from_server.len(), "{used} bytes are used of fewer");
            self.from_server.drain(..used);
            if kill && self.machine.admitted().is_some_and(|(_, is_first)| is_first) {
                self.machine.kill(vec![b'E', 0, 0, 0, 4]);
            }
            if used == 0
                && !matches!(event, Some(Event::Login | Event::Ended(_) | Event::Costs(_)))
                && out.len() < ROOM
            {
                return Ok(());
            }
            out.clear();
        }
    }
}

/// What is known of a text: all is like `known` but for what it does with names.
fn known_of(known: &Known, bytes: &[u8], text: Text) -> Known {
    assert!(bytes.get(text.place.clone()).is_some(), "a text outside of what was sent");
    let seen = bytes.get(text.place).unwrap_or_default();
    let naming = if text.whole { Naming::parse(seen, SqlDialect::PostgreSql, true) } else { None };
    Known { naming: naming.map(|naming| Arc::new(naming.map(|_| known.clone()))), ..known.clone() }
}
