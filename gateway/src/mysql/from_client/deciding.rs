//! What becomes of a statement that was decided about.

use super::super::answer::{Answer, Refusal};
use super::super::command::Command;
use super::super::machine::Decision;
use super::super::outstanding::{Kind, Told};
use super::super::protocol_error::ProtocolError;
use super::super::wire::Wire;
use super::dropping::Instead;
use super::{ClientSide, Doing};

/// Stands at the server for a statement that the gateway answers. It fails if it is executed, which happens only where
/// the gateway has had to forget what it stands for: so no client reads that something was done that was not.
const NEVER: &[u8] = b"SET @tidegate = (SELECT 1 UNION ALL SELECT 2)";

impl ClientSide {
    /// Decides about the statement that was asked about.
    pub(in crate::mysql) fn decide<T: Clone>(
        &mut self,
        wire: &mut Wire<T>,
        decision: Decision<T>,
    ) -> Result<(), ProtocolError> {
        let Doing::Asked(command, id) = self.doing else { return Err(ProtocolError::NotAsked) };
        self.doing = match decision {
            Decision::Go => admitted(wire, command, id, None),
            Decision::Remember(template) => admitted(wire, command, id, Some(template)),
            Decision::Answer(answer) => {
                wire.statements.stays(command);
                let binary = command == Command::Execute;
                if executes(command) {
                    wire.statements.parts.refused(id);
                }
                Doing::Dropping(Instead::Answer { answer: answer_to(command, answer), binary })
            }
            Decision::Explain(sql) => Doing::Dropping(Instead::Query(sql)),
            Decision::Prepare(template, sql) => prepares(wire, template, Kind::Explained, sql),
            Decision::PrepareOurs(template) => prepares(wire, template, Kind::Ours, NEVER.to_vec()),
            Decision::ExplainRun => {
                let _ = admitted(wire, command, id, None);
                if let Some(running) = wire.outstanding.back_mut() {
                    running.muted = true;
                    running.explained = Some(Told { sequence: 1, binary: true });
                }
                Doing::Explained
            }
        };
        Ok(())
    }
}

/// The server is to prepare this, which is another statement than the client's.
fn prepares<T: Clone>(wire: &mut Wire<T>, template: T, kind: Kind, sql: Vec<u8>) -> Doing {
    wire.statements.prepares(template, kind);
    Doing::Dropping(Instead::Prepare(sql))
}

fn admitted<T: Clone>(wire: &mut Wire<T>, command: Command, id: u32, template: Option<T>) -> Doing {
    let number = Some(wire.statements.number());
    let (kept, using) = wire.statements.goes(command, template);
    wire.expect(command, number, kept, using);
    if executes(command) {
        wire.statements.parts.gone(id);
        let parts = wire.statements.parts.take_bytes();
        if let Some(running) = wire.outstanding.back_mut() {
            running.request_bytes = running.request_bytes.saturating_add(parts);
        }
    }
    Doing::Admitted(command)
}

/// Whether values that were sent in parts are for this command.
fn executes(command: Command) -> bool {
    matches!(command, Command::Execute | Command::BulkExecute)
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
