//! Saying something on a stream, and what must come of it.

use prost::Message as _;
use tidegate_controller::limits::{MAX_ENTRIES, MAX_PROOF_BYTES};
use tidegate_controller::name::GroupName;
use tidegate_core::units::{Rate, Ru};
use tidegate_proto::v1;
use tonic::Code;
use v1::client_message::Kind as Ask;
use v1::server_message::Kind as Answer;

use super::lab::Lab;
use super::stream::{Heard, Phase};

/// Longest text in an answer.
const LONGEST_TEXT: usize = 1_000;

impl Lab {
    /// Sends one message, right or wrong, and waits for what the protocol says must follow.
    pub(super) async fn say(&mut self, slot: usize, message: &[u8]) {
        let Some(mut stream) = self.streams.get_mut(slot).and_then(Option::take) else { return };
        stream.send_message(message).await;
        let ask = v1::ClientMessage::decode(message).map(|message| message.kind);
        let phase = stream.phase.clone();
        let heard = loop {
            match stream.next().await {
                Heard::Message(Answer::Lower(lower)) => self.lowered(&lower),
                other => break other,
            }
        };
        let goes_on = match (phase, ask) {
            (Phase::Fresh, Ok(Some(Ask::Hello(hello)))) => self.welcomed(&hello, &heard),
            (Phase::Fresh, _) => refused(&heard),
            (Phase::Open { replaced: true, .. }, _) => {
                assert!(matches!(heard, Heard::End(Code::Aborted)), "an older stream goes on: {heard:?}");
                None
            }
            (Phase::Open { name, incarnation, .. }, Ok(Some(Ask::Renew(renew)))) => {
                self.renewed(&name, incarnation, &renew, &heard).then_some(stream.phase.clone())
            }
            (Phase::Open { name, incarnation, .. }, Ok(Some(Ask::Goodbye(goodbye)))) => {
                if self.said_goodbye(&name, incarnation, &goodbye, &heard) {
                    assert_eq!(stream.until_the_end().await, Code::Ok, "a goodbye ends a stream well");
                    return;
                }
                None
            }
            (Phase::Open { .. }, _) => refused(&heard),
        };
        if let (Some(phase), Some(place)) = (goes_on, self.streams.get_mut(slot)) {
            stream.phase = phase;
            *place = Some(stream);
        }
    }

    fn welcomed(&mut self, hello: &v1::Hello, heard: &Heard) -> Option<Phase> {
        let Heard::Message(Answer::Welcome(welcome)) = heard else {
            return refused(heard);
        };
        assert!(hello.protocol_min <= 1 && 1 <= hello.protocol_max, "{hello:?}");
        assert!(hello.incarnation > 0 && !hello.client_id.is_empty(), "{hello:?}");
        assert_eq!((welcome.protocol, welcome.epoch), (1, self.service.epoch()));
        for other in self.streams.iter_mut().flatten() {
            if let Phase::Open { name, replaced, .. } = &mut other.phase {
                *replaced |= *name == hello.client_id;
            }
        }
        let (name, incarnation) = (hello.client_id.clone(), hello.incarnation);
        Some(Phase::Open { name, incarnation, replaced: false })
    }

    fn renewed(&mut self, name: &str, incarnation: u64, renew: &v1::Renew, heard: &Heard) -> bool {
        let most = renew.entries.len().max(renew.reports.len());
        if renew.seq == 0 || most > MAX_ENTRIES {
            refused(heard);
            return false;
        }
        let Heard::Message(Answer::Granted(granted)) = heard else {
            assert!(matches!(heard, Heard::Message(Answer::Granted(_))), "a renewal is answered: {heard:?}");
            return false;
        };
        assert_eq!((granted.seq, granted.epoch), (renew.seq, self.service.epoch()));
        assert!(granted.entries.len() <= renew.entries.len());
        for entry in &granted.entries {
            assert!(
                renew.entries.iter().any(|asked| asked.group == entry.group),
                "nobody asked for {entry:?}"
            );
            sane(entry);
            self.granted.insert((name.to_owned(), entry.group.clone()), (renew.seq, entry.clone()));
        }
        self.count(name, incarnation, &renew.reports);
        true
    }

    fn said_goodbye(&mut self, name: &str, incarnation: u64, goodbye: &v1::Goodbye, heard: &Heard) -> bool {
        if goodbye.reports.len() > MAX_ENTRIES {
            refused(heard);
            return false;
        }
        let Heard::Message(Answer::Farewell(farewell)) = heard else {
            assert!(matches!(heard, Heard::Message(Answer::Farewell(_))), "a goodbye is answered: {heard:?}");
            return false;
        };
        assert_eq!(farewell.seq, goodbye.seq);
        self.count(name, incarnation, &goodbye.reports);
        self.books.stored();
        true
    }

    /// Enters reports into the model.
    fn count(&mut self, name: &str, incarnation: u64, reports: &[v1::Report]) {
        for report in reports {
            let of = if report.incarnation == 0 { incarnation } else { report.incarnation };
            let group = GroupName::parse(&report.group).ok().map(|group| group.to_string());
            let known = group.filter(|group| self.service.definitions().group(group).is_ok());
            if let (Some(group), Some(total)) = (known.filter(|_| of <= incarnation), &report.total) {
                self.books.report((group, name.to_owned(), of), total);
            }
        }
    }

    fn lowered(&self, lower: &v1::Lower) {
        assert_eq!(lower.epoch, self.service.epoch());
        for entry in &lower.entries {
            assert!((0..=Rate::MAX.0).contains(&entry.rate_at_most), "{entry:?}");
        }
    }
}

/// A malformed message ends its stream, with a status that blames neither network nor server overload.
fn refused(heard: &Heard) -> Option<Phase> {
    use Code::{FailedPrecondition, Internal, InvalidArgument, OutOfRange};
    let Heard::End(code) = heard else {
        assert!(matches!(heard, Heard::End(_)), "it goes on: {heard:?}");
        return None;
    };
    // The protocol library says INTERNAL of a message that does not decode.
    let fitting = [InvalidArgument, FailedPrecondition, OutOfRange, Internal];
    assert!(fitting.contains(code), "ended with {code}");
    None
}

/// A grant that any node can apply.
fn sane(entry: &v1::GrantEntry) {
    let amounts = [entry.cap_micro_ru, entry.fill_micro_ru, entry.lump_micro_ru, entry.max_debt_micro_ru];
    assert!(amounts.iter().all(|amount| (0..=Ru::MAX.0).contains(amount)), "{entry:?}");
    assert!(
        (0..=Rate::MAX.0).contains(&entry.rate) && entry.fill_micro_ru <= entry.cap_micro_ru,
        "{entry:?}"
    );
    assert!(entry.proof.len() <= MAX_PROOF_BYTES && entry.message.len() <= LONGEST_TEXT, "{entry:?}");
    let leased = entry.status() == v1::GrantStatus::Leased;
    assert_eq!(leased, !entry.proof.is_empty(), "a lease comes with its proof: {entry:?}");
    assert!(!leased || (entry.ttl_us > 0 && entry.renew_after_us > 0), "{entry:?}");
    assert_ne!(entry.status(), v1::GrantStatus::Unspecified, "{entry:?}");
}
