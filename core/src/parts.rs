//! A group's fallback, divided among its nodes. The parts never add up to more than the whole.
//!
//! A node that is cut off goes on at its part, so a part outlives the lease it came with: it counts until the node has
//! acknowledged a smaller one, has said goodbye, is known to be gone, or has been silent for [`PART_LASTS`], after
//! which it uses the part no more. An answer names a part only once it is on disk, so that a controller that restarts
//! knows every part that may be in use.

use std::collections::BTreeMap;

use crate::engine::Engine;
use crate::exchange::Enforcement;
use crate::group::{ClientId, Fallback, GroupId};
use crate::tree::{Chain, Group};
use crate::units::{Rate, Span, Time};

/// How long a node may go on at its part after the newest answer it heard. Half would not bridge an outage over night;
/// with twice, the parts of nodes that died silently are missing for a day.
pub(crate) const PART_LASTS: Span = Span::secs(12 * 3_600);

/// A client without a lease that was silent for this long counts as away: the others divide what it leaves.
const AWAY_AFTER: Span = Span::secs(10);

/// One client's part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Part {
    /// The part that counts: the node never has more.
    reserved: Rate,
    /// The part that the node may be using, and the one in the answer to renewal `seq`.
    held: Rate,
    told: Rate,
    seq: u64,
    /// The least that is on disk.
    stored: Rate,
    dirty: bool,
    /// Whether the client asks for leases, so that an answer can change its part.
    here: bool,
    heard: Time,
}

/// The parts of one group.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Parts {
    parts: BTreeMap<ClientId, Part>,
    /// The sum of the parts that count; the sum for clients that are away; the number of clients that are not.
    out: Rate,
    away: Rate,
    here: i64,
    /// Clients without a part whose old part may still be on disk.
    gone: Vec<ClientId>,
}

impl Parts {
    /// Returns the part of `total` for a client that asked in renewal `seq` and has applied the answer to `acked`.
    /// `None`: it will not apply the answer.
    pub(crate) fn give(
        &mut self,
        now: Time,
        client: ClientId,
        (seq, acked): (Option<u64>, u64),
        total: Rate,
    ) -> Rate {
        let mut part = self.lift(client).unwrap_or_default();
        let applied = part.seq > 0 && acked == part.seq;
        part.held = if applied { part.told } else { part.held.max(part.told) };
        (part.here, part.heard) = (true, now);
        let share = Rate((total - self.away).0 / (self.here + 1)).max(Rate::ZERO);
        let free = (total - self.out).max(Rate::ZERO);
        let reserved = part.held.max(share.min(free));
        part.dirty |= reserved != part.stored;
        part.reserved = reserved;
        part.seq = seq.unwrap_or_default();
        if seq.is_some() {
            part.told = share.min(reserved).min(part.stored);
        }
        self.lay(client, part);
        part.told
    }

    /// Loads a part from disk, at the start of a controller.
    pub(crate) fn load(&mut self, now: Time, client: ClientId, rate: Rate) {
        let part = Part { reserved: rate, held: rate, stored: rate, heard: now, ..Part::default() };
        self.lay(client, part);
    }

    /// Frees the part of a client that is known to use it no more.
    pub(crate) fn free(&mut self, client: ClientId) {
        if self.lift(client).is_some() {
            self.gone.push(client);
        }
    }

    /// Frees the parts of clients that were silent for long, and notes clients that went away; `leased`: whether a
    /// client has a lease.
    pub(crate) fn sweep(&mut self, now: Time, longest: Span, leased: impl Fn(ClientId) -> bool) {
        let late = |part: &Part, span| now >= part.heard.after(span);
        let silent = self.parts.iter().filter(|(_, part)| late(part, longest));
        let silent: Vec<ClientId> = silent.map(|(client, _)| *client).collect();
        silent.into_iter().for_each(|client| self.free(client));
        let left =
            |(client, part): &(&ClientId, &Part)| part.here && late(part, AWAY_AFTER) && !leased(**client);
        let left: Vec<ClientId> = self.parts.iter().filter(left).map(|(client, _)| *client).collect();
        for client in left {
            if let Some(part) = self.lift(client) {
                self.lay(client, Part { here: false, ..part });
            }
        }
    }

    /// Returns the rows to store; zero deletes one. Until they are stored, answers name at most the lesser of old and
    /// new part.
    pub(crate) fn take_dirty(&mut self) -> Vec<(ClientId, Rate)> {
        let mut rows: Vec<(ClientId, Rate)> = Vec::new();
        for client in std::mem::take(&mut self.gone) {
            // The client may have come again.
            rows.extend((!self.parts.contains_key(&client)).then_some((client, Rate::ZERO)));
        }
        for (client, part) in self.parts.iter_mut().filter(|(_, part)| part.dirty) {
            part.dirty = false;
            part.stored = part.stored.min(part.reserved);
            rows.push((*client, part.reserved));
        }
        rows
    }

    /// Notes that a row is on disk.
    pub(crate) fn stored(&mut self, client: ClientId, rate: Rate) {
        if let Some(part) = self.parts.get_mut(&client) {
            part.stored = rate;
            part.dirty |= part.reserved != rate;
        }
    }

    /// Notes that storing a row failed.
    pub(crate) fn not_stored(&mut self, client: ClientId) {
        match self.parts.get_mut(&client) {
            Some(part) => part.dirty = true,
            None => self.gone.push(client),
        }
    }

    /// Whether no part is left, nor a row to delete.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.gone.is_empty()
    }

    /// Sum of the parts that may be in use.
    pub(crate) fn out(&self) -> Rate {
        self.out
    }

    /// Whether the sums match the parts.
    pub(crate) fn balances(&self) -> bool {
        let sum = |away: bool| -> Rate {
            self.parts.values().filter(|part| !away || !part.here).map(|part| part.reserved).sum()
        };
        let within = |part: &Part| part.held.max(part.told) <= part.reserved;
        (self.out, self.away) == (sum(false), sum(true)) && self.parts.values().all(within)
    }

    fn lift(&mut self, client: ClientId) -> Option<Part> {
        let part = self.parts.remove(&client)?;
        self.out -= part.reserved;
        if part.here {
            self.here -= 1
        } else {
            self.away -= part.reserved
        }
        Some(part)
    }

    fn lay(&mut self, client: ClientId, part: Part) {
        self.out += part.reserved;
        if part.here {
            self.here += 1
        } else {
            self.away += part.reserved
        }
        self.parts.insert(client, part);
    }
}

impl Engine {
    /// The fallback that the answer to a client's renewal names.
    pub(crate) fn tell_fallback(
        &mut self,
        now: Time,
        chain: &Chain,
        client: ClientId,
        renewal: (Option<u64>, u64),
        enforcement: Enforcement,
    ) -> Fallback {
        if enforcement.shadow {
            return Fallback::Unlimited;
        }
        let group = self.tree.at_mut(chain.slot());
        let each = group.spec.fallback;
        let Some(total) = group.spec.fallback_total else { return each };
        let part = group.parts.get_or_insert_default().give(now, client, renewal, total);
        self.divided.insert(group.id);
        match each.rate().map_or(part, |each| part.min(each)) {
            Rate::ZERO => Fallback::Stop,
            part => Fallback::Part(part, PART_LASTS),
        }
    }

    /// Frees all parts of a client that uses nothing any more.
    pub fn free_parts(&mut self, client: ClientId) {
        for id in &self.divided {
            if let Some(parts) = self.tree.get_mut(*id).and_then(|group| group.parts.as_mut()) {
                parts.free(client);
            }
        }
    }

    /// Loads a part from disk, at the start of a controller.
    pub fn load_part(&mut self, now: Time, group: GroupId, client: ClientId, rate: Rate) {
        if let Some(known) = self.tree.get_mut(group) {
            known.parts.get_or_insert_default().load(now, client, rate.max(Rate::ZERO));
            self.divided.insert(group);
        }
    }

    /// Returns the parts to store, since an answer names at most the stored part; zero deletes a row. Parts of nodes
    /// that were silent until they use them no more are freed first.
    pub fn take_parts(&mut self, now: Time) -> Vec<(ClientId, GroupId, Rate)> {
        let longest = self.config.longest_use(PART_LASTS);
        let (mut rows, mut undivided) = (Vec::new(), Vec::new());
        for id in &self.divided {
            let Some(Group { parts, live, .. }) = self.tree.get_mut(*id) else {
                undivided.push(*id);
                continue;
            };
            let Some(parts) = parts else { continue };
            parts.sweep(now, longest, |client| live.leases.contains_key(&client));
            rows.extend(parts.take_dirty().into_iter().map(|(client, rate)| (client, *id, rate)));
            if parts.is_empty() {
                undivided.push(*id);
            }
        }
        for id in undivided {
            self.divided.remove(&id);
        }
        rows
    }

    /// Notes that these rows were stored, or were not.
    pub fn parts_taken(&mut self, rows: &[(ClientId, GroupId, Rate)], stored: bool) {
        for (client, id, rate) in rows {
            let Some(parts) = self.tree.get_mut(*id).and_then(|group| group.parts.as_mut()) else { continue };
            self.divided.insert(*id);
            if stored { parts.stored(*client, *rate) } else { parts.not_stored(*client) }
        }
    }

    /// Sum of the parts of a group's fallback that nodes may be using.
    pub fn parts_out(&self, id: GroupId) -> Rate {
        self.tree.get(id).and_then(|group| group.parts.as_ref()).map_or(Rate::ZERO, |parts| parts.out())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::EngineConfig;
    use crate::group::GroupSpec;

    const A: ClientId = ClientId(1);

    #[test]
    fn parts_balance_only_while_their_sums_fit_and_nobody_uses_more_than_counts() {
        let mut parts = Parts::default();
        parts.give(Time(0), A, (Some(1), 0), Rate(100));
        parts.load(Time(0), ClientId(2), Rate(30));
        assert!(parts.balances());
        let mut drifted = parts.clone();
        drifted.out += Rate(1);
        assert!(!drifted.balances());
        let mut uncounted = parts;
        uncounted.parts.get_mut(&A).unwrap().told = Rate(101);
        assert!(!uncounted.balances());
    }

    #[test]
    fn only_groups_with_parts_are_walked_for_rows_to_store() {
        let mut engine = Engine::new(Time(0), EngineConfig::default());
        engine.put_group(Time(0), GroupId(2), GroupSpec::unlimited()).unwrap();
        engine.load_part(Time(0), GroupId(2), A, Rate(7));
        engine.take_parts(Time(1));
        assert_eq!(engine.divided.len(), 1);
        engine.free_parts(A);
        let rows = engine.take_parts(Time(2));
        assert_eq!(rows, [(A, GroupId(2), Rate::ZERO)]);
        engine.parts_taken(&rows, true);
        assert_eq!((engine.take_parts(Time(3)), engine.divided.len()), (Vec::new(), 0));
    }
}
