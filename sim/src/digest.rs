//! The course of a run as one number: every message as it arrives, every operation as it starts or is refused, every
//! moment at which something happens.
//!
//! A change that keeps what nodes and controllers do keeps the number, on every machine, in a release build: the store
//! writes otherwise in a debug build, so that a power cut keeps other pages. Keys are random, so that the codes of
//! signed words are left out.

use std::hash::{Hash, Hasher};

use tidegate_controller::leasing::proof::MAC_BYTES;
use tidegate_controller::service::{Answer, EntryIn, EntryOut, RenewIn, Renewed, ReportIn};
use tidegate_core::units::Time;

use super::network::Message;
use super::world::{Event, Operation};

/// The number so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Digest(u64);

/// Odd, with its bits spread: the fraction of the golden ratio, of 64 bits.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

impl Hasher for Digest {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        let mixed = (self.0.rotate_left(5) ^ word).wrapping_mul(SPREAD);
        self.0 = mixed ^ (mixed >> 32);
    }
}

impl Digest {
    /// An event, at its time.
    pub(super) fn event(&mut self, now: Time, event: &Event) {
        (now, std::mem::discriminant(event)).hash(self);
        match event {
            Event::ToController { node, incarnation, process, message } => {
                (*node, *incarnation, *process).hash(self);
                self.message(message);
            }
            Event::ToNode { node, process, message } => {
                (*node, *process).hash(self);
                self.message(message);
            }
            Event::Wake { node } => node.hash(self),
            _ => {}
        }
    }

    fn message(&mut self, message: &Message) {
        std::mem::discriminant(message).hash(self);
        match message {
            Message::Renew { connection, seen, request } => {
                (*connection, seen.epoch, clear(&seen.standing)).hash(self);
                self.request(request);
            }
            Message::Goodbye { connection, seen, seq, reports } => {
                (*connection, seen.epoch, clear(&seen.standing), *seq).hash(self);
                self.reports(reports);
            }
            Message::Granted(renewed) => self.renewed(renewed),
            Message::Farewell { seq } => seq.hash(self),
            Message::Shed { seq, epoch, groups } => (*seq, *epoch, groups).hash(self),
            Message::Lower { group, rate_at_most } => (*group, *rate_at_most).hash(self),
            Message::Changed { group } => group.hash(self),
            Message::Bound { load, group } => (*load, *group).hash(self),
        }
    }

    fn request(&mut self, request: &RenewIn) {
        let RenewIn { seq, entries, reports, node: _, sent, counts_requests: _, counts_rolling: _ } = request;
        (*seq, sent.map(|sent| (sent.at, sent.answer_within)), entries.len()).hash(self);
        for EntryIn { group, ask } in entries {
            (group, ask.as_ref().ok().map(|(ask, proof)| (ask, clear(proof)))).hash(self);
        }
        self.reports(reports);
    }

    fn reports(&mut self, reports: &[ReportIn]) {
        reports.len().hash(self);
        for ReportIn { group, incarnation, total, waited } in reports {
            (group, *incarnation, total.as_ref().ok(), waited.len()).hash(self);
        }
    }

    /// Reasons are for people, and may be worded otherwise.
    fn renewed(&mut self, renewed: &Renewed) {
        let Renewed { seq, epoch, entries, durable_seq, standing, shed, refused } = renewed;
        (*seq, *epoch, *durable_seq, standing.as_deref().map(clear), *shed, entries.len()).hash(self);
        for EntryOut { group, answer, .. } in entries {
            let grant = match answer {
                Answer::Grant(grant, proof) => Some((grant, clear(proof))),
                Answer::Refused(_) => None,
            };
            (group, grant).hash(self);
        }
        refused.iter().for_each(|report| (&report.group, report.incarnation).hash(self));
    }

    /// An operation that was let in (`Some`, with whether a limit in shadow let it pass) or refused.
    pub(super) fn outcome(&mut self, now: Time, node: usize, operation: &Operation, over: Option<bool>) {
        (now, node, operation.load, operation.group, operation.cost, operation.since, over).hash(self);
    }
}

/// A proof or a standing without the code at its end.
fn clear(signed: &[u8]) -> &[u8] {
    signed.get(..signed.len().saturating_sub(MAC_BYTES)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: impl Hash) -> u64 {
        let mut digest = Digest::default();
        words.hash(&mut digest);
        digest.finish()
    }

    #[test]
    fn the_number_depends_on_every_word_and_on_their_order() {
        let words = [3_u64, 0, 0, 7, u64::MAX];
        for index in 0..words.len() {
            for bit in [0, 1, 31, 32, 63] {
                let mut other = words;
                other[index] ^= 1 << bit;
                assert_ne!(of(other), of(words), "word {index}, bit {bit}");
            }
        }
        assert_ne!(of([7_u64, 3]), of([3_u64, 7]));
        assert_ne!(of("ab"), of("ba"));
    }

    #[test]
    fn the_number_is_the_same_on_every_machine() {
        assert_eq!(of((1_u64, 2_u32, -3_i64, "four", Some(5_u8))), 0x9FDA_11D6_F506_F967);
    }
}
