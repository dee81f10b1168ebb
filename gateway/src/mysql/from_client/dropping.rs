//! Commands that do not go to the server, and what comes of them.

use super::super::answer::{Answer, Audience, Refusal};
use super::super::capability::Capabilities;
use super::super::command::{Command, Shape, used_database};
use super::super::frame::{HEADER, Header};
use super::super::outstanding::{Described, Kind, Told};
use super::super::step::Step;
use super::super::wire::Wire;
use super::{ClientSide, Doing};
use crate::session::Side;

/// The first byte of a text to be prepared.
const PREPARE: u8 = 0x16;
/// The first byte of a reset of a prepared statement.
const RESET: u8 = 0x1a;

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

impl ClientSide {
    /// Takes a packet that goes nowhere, as far as it has come; what stands for it follows on its last frame.
    pub(super) fn drop_packet<T>(&mut self, wire: &mut Wire<T>, input: &[u8]) -> Step<'static, T> {
        let (instead, taken) = match std::mem::replace(&mut self.doing, Doing::Over) {
            Doing::Dropping(instead) => {
                let Some(header) = Header::parse(input) else {
                    self.doing = Doing::Dropping(instead);
                    return Step::More;
                };
                self.frames.begin(header);
                (instead, HEADER + self.frames.drain(input.get(HEADER..).unwrap_or_default()))
            }
            Doing::DroppingRest(instead) => (instead, self.frames.drain(input)),
            other => {
                self.doing = other;
                return Step::More;
            }
        };
        if self.frames.at_packet() {
            self.doing = Doing::Command;
            self.dropped(wire, instead);
        } else {
            self.doing = Doing::DroppingRest(instead);
        }
        if taken == 0 { Step::More } else { Step::Skip(taken) }
    }

    /// A packet that goes nowhere has been taken.
    fn dropped<T>(&mut self, wire: &mut Wire<T>, instead: Instead) {
        let next = self.frames.sequence().wrapping_add(1);
        match instead {
            Instead::Nothing => {}
            Instead::Answer { answer, binary } => {
                let packets = answer.packets(next, Audience { binary, ..wire.audience() });
                wire.outstanding.push_answer(packets);
                if let Some(id) = wire.statements.parts.take_refused() {
                    forget_parts(wire, id);
                }
            }
            Instead::Query(sql) => {
                wire.expect(Command::Query, Some(wire.statements.number()), None, used_database(&sql));
                // No attributes, where there may be some.
                let attributes = wire.handshake.capabilities().has(Capabilities::QUERY_ATTRIBUTES);
                let none: &[u8] = if attributes { &[0, 1] } else { &[] };
                let payload = [&[0x03], none, &sql].concat();
                let header = Header { len: payload.len(), sequence: 0 };
                let packet = [&header.to_bytes()[..], &payload].concat();
                if let Some(running) = wire.outstanding.back_mut() {
                    running.muted = true;
                    running.explained = Some(Told { sequence: next, binary: false });
                    running.request_bytes = u64::try_from(packet.len()).unwrap_or(u64::MAX);
                }
                wire.send(Side::Server, packet);
            }
            Instead::Prepare(sql) => {
                let kept = wire.statements.take_preparing();
                let explained = kept.as_ref().is_some_and(|kept| kept.kind == Kind::Explained);
                wire.expect(Command::Prepare, Some(wire.statements.number()), kept, None);
                let header = Header { len: 1 + sql.len(), sequence: 0 };
                let packet = [&header.to_bytes()[..], &[PREPARE], &sql].concat();
                if let Some(running) = wire.outstanding.back_mut() {
                    running.described = explained.then_some(Described::Awaited);
                    running.request_bytes = u64::try_from(packet.len()).unwrap_or(u64::MAX);
                }
                wire.send(Side::Server, packet);
            }
        }
    }
}

/// The answer to a command that names a statement which was not prepared.
pub(super) fn turned_away<T>(wire: &Wire<T>, command: Command, id: u32) -> Option<Instead> {
    if !command.names_statement() || !wire.statements.prepared.is_refused(id) {
        return None;
    }
    if command.shape() == Shape::Nothing {
        return Some(Instead::Nothing);
    }
    // ER_UNKNOWN_STMT_HANDLER
    let refusal = Refusal {
        code: 1243,
        state: *b"HY000",
        message: "the last statement was not prepared, for the reason given there; prepare it again".into(),
    };
    Some(Instead::Answer { answer: Answer::Refused(refusal), binary: false })
}

/// The server resets a statement, of which its client hears nothing.
fn forget_parts<T>(wire: &mut Wire<T>, id: u32) {
    wire.expect(Command::Reset, None, None, None);
    let payload = [&[RESET][..], &id.to_le_bytes()].concat();
    let header = Header { len: payload.len(), sequence: 0 };
    let packet = [&header.to_bytes()[..], &payload].concat();
    if let Some(running) = wire.outstanding.back_mut() {
        running.muted = true;
        running.request_bytes = u64::try_from(packet.len()).unwrap_or(u64::MAX);
    }
    wire.send(Side::Server, packet);
}
