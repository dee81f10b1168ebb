//! What the session says: `Renew` for the groups that are due, and `Goodbye`.

use std::collections::BTreeMap;

use tidegate_core::units::Span;
use tidegate_proto::v1;
use tidegate_proto::v1::client_message::Kind;

use super::{MAX_PENDING, Pending, Session, Stream, convert, send};
use crate::process;

impl Session {
    /// Sends one `Renew` for the groups that are due and the reports that are not durable, if there are any.
    pub(super) fn renew(&mut self, stream: &mut Stream) -> Result<(), String> {
        let hub = &self.hub;
        if let Some(clocks) = hub.shared.clock.beside_raw() {
            hub.compare_clocks(clocks);
        }
        let now = hub.shared.clock.now();
        hub.shared.keep_known(now, false);
        let seq = self.seq.saturating_add(1);
        let mut groups = BTreeMap::new();
        let (mut entries, mut answer_within) = (Vec::new(), Span(0));
        for cell in hub.agenda.take_due(stream.max_entries) {
            let due = cell.if_awake(|state, now| state.ask(now, seq));
            let Some((ask, proof, wait)) = due.flatten() else {
                continue;
            };
            answer_within = wait.max(answer_within);
            entries.push(convert::renew_entry(cell.name(), &ask, &proof));
            groups.insert(cell.name().to_string(), cell);
        }
        stream.urgent &= !hub.agenda.due.is_empty();
        let cells = hub.agenda.awake.all();
        let reports = hub.reports().collect(seq, &cells, stream.max_entries);
        // A group stays whole as long as `cells` holds it.
        drop(cells);
        let asleep = hub.reports().fell_asleep();
        asleep.iter().for_each(|name| hub.registry.put_away(name));
        stream.last_look = Some(now);
        if entries.is_empty() && reports.is_empty() {
            return Ok(());
        }
        self.seq = seq;
        hub.shared.counters.renewals.add();
        hub.shared.counters.asks.add_many(entries.len() as u64);
        self.remember(stream, seq, Pending { sent: now, groups });
        stream.last_sent = Some(now);
        let (sent_us, answer_within_us) = (hub.shared.clock.steady().0, answer_within.0);
        let renew = v1::Renew {
            seq,
            entries,
            reports,
            node: self.node_stats(),
            sent_us,
            answer_within_us,
            counts_requests: true,
            counts_rolling: true,
        };
        send(&stream.outbound, Kind::Renew(renew))
    }

    /// Keeps the request until it is answered. A late answer to an earlier one still lengthens the lease.
    fn remember(&self, stream: &mut Stream, seq: u64, pending: Pending) {
        let asked_again = |name| stream.pending.values().any(|earlier| earlier.groups.contains_key(name));
        let again = pending.groups.keys().filter(|name| asked_again(*name)).count();
        self.hub.shared.counters.timeouts.add_many(again as u64);
        stream.pending.insert(seq, pending);
        while stream.pending.len() > MAX_PENDING
            && let Some((seq, forgotten)) = stream.pending.pop_first()
        {
            for cell in forgotten.groups.values() {
                cell.if_awake(|state, now| state.unanswered(now, seq, Span(0)));
            }
        }
    }

    /// The node's totals, at most once in [`process::EVERY`].
    fn node_stats(&mut self) -> Option<v1::NodeStats> {
        let now = self.hub.shared.clock.now();
        if self.stats_sent.is_some_and(|sent| now.since(sent) < process::EVERY) {
            return None;
        }
        let totals = self.hub.process.read(now)?;
        self.stats_sent = Some(now);
        Some(v1::NodeStats {
            process_cpu_ns: totals.cpu_ns,
            metered_cpu_ns: self.hub.agenda.awake.metered_cpu_ns(),
            resident_bytes: totals.resident_bytes,
        })
    }

    /// Sends `Goodbye` once, when the client wants to leave; reports beyond its limit go ahead of it.
    pub(super) fn say_goodbye(&mut self, stream: &mut Stream) -> Result<(), String> {
        if self.leaving.is_none() || stream.goodbye.is_some() {
            return Ok(());
        }
        self.hub.shared.keep_known(self.hub.shared.clock.now(), true);
        let cells = self.hub.agenda.awake.all();
        let mut left = self.hub.reports().count(&cells);
        loop {
            self.seq = self.seq.saturating_add(1);
            let seq = self.seq;
            let reports = self.hub.reports().collect(seq, &cells, stream.max_entries);
            if left <= stream.max_entries {
                stream.goodbye = Some(seq);
                return send(&stream.outbound, Kind::Goodbye(v1::Goodbye { seq, reports }));
            }
            left = left.saturating_sub(stream.max_entries);
            self.hub.shared.counters.renewals.add();
            let sent = self.hub.shared.clock.now();
            self.remember(stream, seq, Pending { sent, groups: BTreeMap::new() });
            send(&stream.outbound, Kind::Renew(v1::Renew { seq, reports, ..v1::Renew::default() }))?;
        }
    }
}
