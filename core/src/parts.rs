//! A group's fallback, divided among its nodes: each has a part, and the parts never add up to more than the whole.
//!
//! A node that is cut off goes on at its part, so a part outlives the lease it came with: it counts until the node has
//! acknowledged a smaller one, has said goodbye, is known to be gone, or has not been heard for [`PART_LASTS`], after
//! which it uses the part no more. A part is told only when it is on disk, so that a controller that starts anew knows of
//! every part that may be in use.

use std::collections::BTreeMap;

use crate::engine::Engine;
use crate::group::{ClientId, Fallback, GroupId};
use crate::tree::{Chain, Group};
use crate::units::{Rate, Span, Time};

/// How long a node may go on at its part after the newest answer it heard. With half, an outage over night is not
/// bridged; with twice, the parts of nodes that died without a word are missing for a day.
pub(crate) const PART_LASTS: Span = Span::secs(12 * 3_600);

/// A client that has no lease and was not heard for this long is taken to be away: the others divide what it leaves.
const AWAY_AFTER: Span = Span::secs(10);

/// One client's part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Part {
    /// What counts: the node never has more.
    reserved: Rate,
    /// What the node may be using, and what it was told in the answer to renewal `seq`.
    held: Rate,
    told: Rate,
    seq: u64,
    /// What is on disk at least.
    stored: Rate,
    dirty: bool,
    /// It asks for leases, and can be told another part.
    here: bool,
    heard: Time,
}

/// The parts of one group.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Parts {
    parts: BTreeMap<ClientId, Part>,
    /// Sum of what counts; of that, what belongs to clients that are away; clients that are not.
    out: Rate,
    away: Rate,
    here: i64,
    /// Parts that are gone and may still be on disk.
    gone: Vec<ClientId>,
}

impl Parts {
    /// A client asked, in renewal `seq`, and has applied the answer to `acked`: its part of `total`, to be told in the
    /// answer. `None`: the answer will not be applied.
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

    /// A part that is on disk, at the start of a controller.
    pub(crate) fn load(&mut self, now: Time, client: ClientId, rate: Rate) {
        let part = Part { reserved: rate, held: rate, stored: rate, heard: now, ..Part::default() };
        self.lay(client, part);
    }

    /// A client is known to use its part no more.
    pub(crate) fn free(&mut self, client: ClientId) {
        if self.lift(client).is_some() {
            self.gone.push(client);
        }
    }

    /// Frees the parts of clients that were not heard for long, and notes who went away; `leased` tells who has a lease.
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

    /// What is to be stored; zero is nothing any more. Until it is, no more than the lesser of before and after is told.
    pub(crate) fn take_dirty(&mut self) -> Vec<(ClientId, Rate)> {
        let mut rows: Vec<(ClientId, Rate)> = Vec::new();
        for client in std::mem::take(&mut self.gone) {
            // It may have come again.
            rows.extend((!self.parts.contains_key(&client)).then_some((client, Rate::ZERO)));
        }
        for (client, part) in self.parts.iter_mut().filter(|(_, part)| part.dirty) {
            part.dirty = false;
            part.stored = part.stored.min(part.reserved);
            rows.push((*client, part.reserved));
        }
        rows
    }

    /// A row is on disk.
    pub(crate) fn stored(&mut self, client: ClientId, rate: Rate) {
        if let Some(part) = self.parts.get_mut(&client) {
            part.stored = rate;
            part.dirty |= part.reserved != rate;
        }
    }

    /// A row is not on disk.
    pub(crate) fn not_stored(&mut self, client: ClientId) {
        match self.parts.get_mut(&client) {
            Some(part) => part.dirty = true,
            None => self.gone.push(client),
        }
    }

    /// Nothing was ever divided.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.gone.is_empty()
    }

    /// Sum of the parts that may be in use.
    pub(crate) fn out(&self) -> Rate {
        self.out
    }

    /// Whether the sums are those of the parts.
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
    /// What a client of a group may admit without a lease, as the answer to its renewal tells it.
    pub(crate) fn tell_fallback(
        &mut self,
        now: Time,
        chain: &Chain,
        client: ClientId,
        renewal: (Option<u64>, u64),
    ) -> Fallback {
        let Some(group) = self.tree.at_mut(chain.slot()) else { return Fallback::Stop };
        let each = group.spec.fallback;
        let Some(total) = group.spec.fallback_total else { return each };
        let part = group.parts.get_or_insert_default().give(now, client, renewal, total);
        self.divided.insert(group.id);
        match each.rate().map_or(part, |each| part.min(each)) {
            Rate::ZERO => Fallback::Stop,
            part => Fallback::Part(part, PART_LASTS),
        }
    }

    /// A client uses nothing any more.
    pub fn free_parts(&mut self, client: ClientId) {
        for id in &self.divided {
            if let Some(parts) = self.tree.get_mut(*id).and_then(|group| group.parts.as_mut()) {
                parts.free(client);
            }
        }
    }

    /// A part that is on disk, at the start of a controller.
    pub fn load_part(&mut self, now: Time, group: GroupId, client: ClientId, rate: Rate) {
        if let Some(known) = self.tree.get_mut(group) {
            known.parts.get_or_insert_default().load(now, client, rate.max(Rate::ZERO));
            self.divided.insert(group);
        }
    }

    /// Parts to be stored: a node is told no more than what is. Zero is nothing any more. Parts of nodes that were not
    /// heard for so long that they use them no more are freed first.
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

    /// These are on disk, or are not.
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
