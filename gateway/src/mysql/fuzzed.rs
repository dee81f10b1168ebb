//! A machine between two buffers under any input, with what must hold.

use tidegate_cost_model::SqlDialect;
use tidegate_sql::Naming;

use super::answer::{Answer, Refusal};
use super::command::Command;
use super::machine::{Decision, INPUT_LIMIT, Machine};
use super::prepared::PREPARED_LIMIT;
use super::protocol_error::ProtocolError;
use super::settings::{ClientTls, Settings};
use super::step::Step;
use crate::fuzzing::patience;
use crate::session::Side;

/// Either side broke the protocol, which ends a session.
#[derive(Debug)]
pub(crate) struct Broken;

impl From<ProtocolError> for Broken {
    fn from(_: ProtocolError) -> Self {
        Self
    }
}

/// A machine between two buffers.
pub(crate) struct Link {
    machine: Machine<u8>,
    from_client: Vec<u8>,
    from_server: Vec<u8>,
}

impl Link {
    pub(crate) fn new(settings: u8) -> Self {
        let flag = |bit: u8| settings & bit > 0;
        let machine = Machine::new(Settings {
            client_tls: match (flag(1), flag(32)) {
                (true, _) => ClientTls::Always,
                (false, true) => ClientTls::LikeServer,
                (false, false) => ClientTls::Never,
            },
            server_tls: flag(2),
            local_infile: flag(4),
            server_socket: flag(16),
        });
        Self { machine, from_client: Vec::new(), from_server: Vec::new() }
    }

    /// One side sends these bytes, perhaps once what runs is to be killed; both are served, as an answer may wait for the
    /// other side.
    pub(crate) fn hear(&mut self, control: u8, bytes: &[u8]) -> Result<(), Broken> {
        if control & 0x80 > 0
            && let Some(progress) = self.machine.progress()
        {
            let refusal = Refusal { code: 8253, state: *b"HY000", message: "killed".to_owned() };
            assert!(self.machine.kill(progress.number, refusal), "what runs can be killed");
        }
        if control & 1 == 0 {
            self.from_client.extend_from_slice(bytes);
        } else {
            self.from_server.extend_from_slice(bytes);
        }
        let mut left = patience(self.from_client.len() + self.from_server.len());
        while self.side(Side::Server, control >> 1, &mut left)?
            | self.side(Side::Client, control >> 1, &mut left)?
        {}
        Ok(())
    }

    /// The connection is over.
    pub(crate) fn end(&mut self) {
        drop(self.machine.farewell(&Refusal { code: 1053, state: *b"08S01", message: String::new() }));
        drop(self.machine.abandon());
    }

    /// Serves one side until it wants more. Whether anything was done.
    fn side(&mut self, side: Side, decision: u8, left: &mut usize) -> Result<bool, Broken> {
        let mut moved = false;
        loop {
            assert!(*left > 0, "it does not come to an end");
            *left -= 1;
            let input = match side {
                Side::Client => &mut self.from_client,
                Side::Server => &mut self.from_server,
            };
            let shown = input.get(..input.len().min(INPUT_LIMIT)).unwrap_or_default();
            let step = match side {
                Side::Client => self.machine.client(shown)?,
                Side::Server => self.machine.server(shown)?,
            };
            let (mut asked, mut naming) = (None, None);
            let taken = match step {
                Step::More => {
                    assert!(shown.len() < INPUT_LIMIT, "a full buffer is not enough");
                    return Ok(moved);
                }
                Step::Wait => return Ok(moved),
                Step::Pass(taken) | Step::Skip(taken) | Step::Swap(taken, _) => {
                    assert!(taken > 0 && taken <= shown.len(), "{taken} bytes are to be taken");
                    taken
                }
                Step::Ask(statement) => {
                    assert!(statement.sql.len() <= INPUT_LIMIT, "a text longer than what is looked at");
                    asked = Some(statement.command);
                    if statement.command == Command::Query && statement.whole {
                        naming = Naming::parse(statement.sql, SqlDialect::MySql, self.machine.escapes());
                    }
                    0
                }
                Step::Send(..) | Step::StartTls(_) | Step::Tell(_) => 0,
            };
            input.drain(..taken);
            moved = true;
            assert!(self.machine.names() <= PREPARED_LIMIT, "more names than there is room for");
            if let Some(command) = asked {
                if let Some(Naming::Execute { name }) = &naming {
                    assert!(
                        self.machine.named(name).is_none() || self.machine.knows_names(),
                        "a name of nothing"
                    );
                }
                // As a procedure may do.
                let anything = (decision & 0x20 > 0).then_some(Naming::ForgetAll);
                if let Some(naming) = naming.map(|naming| naming.map(|_| decision)).or(anything) {
                    self.machine.will_name(naming);
                }
                self.machine.decide(match decision % 5 {
                    4 if command == Command::Prepare && decision & 0x40 > 0 => {
                        Decision::PrepareOurs(decision)
                    }
                    4 if command == Command::Prepare => Decision::Prepare(decision, b"select 1".to_vec()),
                    4 if command == Command::Execute => Decision::ExplainRun,
                    4 => Decision::Go,
                    0 => Decision::Go,
                    1 => Decision::Remember(decision),
                    2 => Decision::Answer(Answer::Done { affected: 1, warnings: 0 }),
                    _ => Decision::Explain(b"select 1".to_vec()),
                })?;
            }
        }
    }
}
