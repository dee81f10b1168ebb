//! What the session hears: `Granted`, `Lower`, `Farewell`.

use std::sync::Arc;

use tidegate_core::exchange::Grant;
use tidegate_core::node::Heard;
use tidegate_core::units::Span;
use tidegate_proto::v1;
use tidegate_proto::v1::server_message::Kind;

use super::{Session, Stream, convert};
use crate::cell::Notice;
use crate::groups::GroupCell;

/// A group whose answer could not be used asks again after this.
const MALFORMED_PAUSE: Span = Span::secs(1);

/// The answer to message `seq` is of no use to a group. False when another was sent since.
fn unanswered(cell: &GroupCell, seq: u64) -> bool {
    cell.if_awake(|state, now| state.unanswered(now, seq, MALFORMED_PAUSE)).unwrap_or(false)
}

impl Session {
    /// Applies a message. True when the controller confirmed the end.
    pub(super) fn hear(&mut self, stream: &mut Stream, message: v1::ServerMessage) -> bool {
        match message.kind {
            Some(Kind::Granted(granted)) => self.granted(stream, granted),
            Some(Kind::Lower(lower)) => self.lower(stream, &lower),
            Some(Kind::Farewell(farewell)) if stream.goodbye == Some(farewell.seq) => {
                self.settle_reports(farewell.seq, &farewell.refused, farewell.seq);
                if self.leaving.take().is_some_and(|leaving| leaving.send(()).is_err()) {
                    tracing::debug!("a farewell came for which no shutdown waits");
                }
                return true;
            }
            Some(Kind::Farewell(_) | Kind::Welcome(_)) | None => self.hub.shared.counters.malformed.add(),
        }
        false
    }

    /// Whether a message of this epoch counts.
    fn current(&mut self, epoch: u64) -> bool {
        if epoch < self.epoch {
            self.hub.shared.counters.old_epochs.add();
            return false;
        }
        if epoch > self.epoch {
            self.epoch = epoch;
            self.hub.link.send_modify(|link| link.epoch = epoch);
        }
        true
    }

    fn granted(&mut self, stream: &mut Stream, granted: v1::Granted) {
        if !self.current(granted.epoch) {
            return;
        }
        if !granted.standing.is_empty() {
            self.keep(&granted.standing);
        }
        self.settle_reports(granted.seq, &granted.refused, granted.durable_seq);
        let counters = &self.hub.shared.counters;
        let Some(mut pending) = stream.pending.remove(&granted.seq) else {
            counters.stale_grants.add_many(granted.entries.len().max(1) as u64);
            return;
        };
        self.hub.shared.answered_within(self.hub.shared.clock.now().since(pending.sent));
        if granted.shed {
            counters.shed.add_many(pending.groups.len() as u64);
            pending.groups.values().for_each(|cell| cell.heed(Notice::Shed(granted.seq)));
            return;
        }
        for entry in granted.entries {
            let Some(cell) = pending.groups.remove(&entry.group) else {
                // The client did not ask for it.
                counters.stale_grants.add();
                continue;
            };
            match convert::grant(&entry) {
                Ok(grant) => {
                    match cell.grant(granted.seq, &grant, entry.proof, self.target(&cell, &entry.demote_to)) {
                        Heard::Applied => {
                            counters.grants.add();
                            if let Some(known) = &self.hub.shared.known {
                                known.hear(cell.name(), &grant);
                            }
                            stream.urgent |= matches!(grant, Grant::Leased(terms) if terms.ack_now);
                        }
                        Heard::Extended => counters.late_grants.add(),
                        Heard::Ignored => counters.stale_grants.add(),
                    }
                }
                Err(error) => {
                    counters.malformed.add();
                    tracing::warn!(%error, "grant not applied");
                    unanswered(&cell, granted.seq);
                }
            }
        }
        for cell in pending.groups.values() {
            // The controller leaves out what was asked again before it came to it.
            if unanswered(cell, granted.seq) {
                counters.malformed.add();
            }
        }
    }

    /// The group to which one demotes, by its name in a grant. One that demotes further is none: there are no chains.
    fn target(&self, cell: &Arc<GroupCell>, name: &str) -> Option<Arc<GroupCell>> {
        if name.is_empty() {
            return None;
        }
        let before = cell.last_word.target().filter(|target| **target.name() == *name);
        let found = before.map_or_else(|| self.hub.registry.get_or_make(name), Ok);
        let sound =
            |target: &Arc<GroupCell>| !Arc::ptr_eq(target, cell) && target.last_word.target().is_none();
        match found {
            Ok(target) if sound(&target) => Some(target),
            Ok(_) => None,
            Err(error) => {
                self.hub.shared.counters.malformed.add();
                tracing::warn!(%error, group = %cell.name(), "what is over its limits waits and is not demoted");
                None
            }
        }
    }

    /// Keeps the reports of message `seq` that the controller could not count; then all others up to message `durable`
    /// are confirmed.
    fn settle_reports(&self, seq: u64, refused: &[v1::RefusedReport], durable: u64) {
        for report in refused {
            self.hub.shared.counters.reports_refused.add();
            let (group, incarnation, reason) = (&report.group, report.incarnation, &report.message);
            tracing::error!(%group, incarnation, %reason, "the controller could not count a report");
            let cell = self.hub.registry.get(group);
            self.hub.reports().refused(seq, report, cell.as_deref());
        }
        // A controller cannot have what was not sent.
        if durable <= self.seq {
            self.hub.reports().durable(durable, self.hub.shared.journal.as_ref());
        } else {
            self.hub.shared.counters.malformed.add();
        }
    }

    fn lower(&mut self, stream: &mut Stream, lower: &v1::Lower) {
        if !self.current(lower.epoch) {
            return;
        }
        for entry in &lower.entries {
            self.hub.shared.counters.lowers.add();
            match convert::lower(entry) {
                Ok(at_most) => {
                    if let Some(cell) = self.hub.registry.get(&entry.group) {
                        cell.heed(Notice::Lower(at_most));
                        stream.urgent = true;
                    }
                }
                Err(error) => {
                    self.hub.shared.counters.malformed.add();
                    tracing::warn!(%error, "order to lower a rate not applied");
                }
            }
        }
    }
}
