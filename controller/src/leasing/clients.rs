//! The nodes: the known incarnations, the connected ones, and how far their reports are on disk.
//!
//! Every incarnation of a node has a numeric id, under which its leases and its consumption are kept. Incarnations
//! grow; one below the newest is refused. Incarnations that were silent for long are folded, and a tombstone per node
//! then refuses their late reports, so that nothing is counted twice.
//!
//! Nodes number their starts by the wall clock, in microseconds. A number that is ahead of the controller's clock by
//! more than a day comes from a wrong clock, or is made up: such a start does not prevent a later one, which replaces
//! it, and it is folded alone. What is replaced stays so when time has reached its number.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tidegate_core::group::ClientId;
use tidegate_core::units::Time;

use crate::limits::{AHEAD_MS, FOLD_AFTER_MS, FOLD_BATCH, MAX_CLIENTS, MAX_FOLDED_AHEAD, MAX_INCARNATIONS};

/// Totals of a node's process, as the node reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeStats {
    /// CPU time of the process.
    pub process_cpu_ns: u64,
    /// The metered part of it.
    pub metered_cpu_ns: u64,
    /// Resident memory.
    pub resident_bytes: u64,
}

/// One incarnation of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incarnation {
    /// Identity of the node.
    pub name: String,
    /// The number of its start.
    pub number: u64,
    /// Software and version, as the node states them.
    pub agent: String,
    /// When it was last heard; `None` when only an earlier run of the controller heard it.
    pub heard: Option<Time>,
    /// When it was last heard, in milliseconds since the Unix epoch.
    pub heard_unix_ms: u64,
    /// The `heard_unix_ms` that is on disk; `None` before the first time.
    pub stored_unix_ms: Option<u64>,
    /// Messages received from it.
    pub messages: u64,
    /// Its totals.
    pub node: NodeStats,
    /// Newest renewal of the open stream with counted reports.
    pub counted_seq: u64,
    /// Newest renewal of the open stream with reports on disk.
    pub durable_seq: u64,
    /// Whether a stream is open.
    pub connected: bool,
    /// Whether its number was ahead of the clock, and a later start with a lower number replaced it.
    pub replaced: bool,
}

impl Incarnation {
    /// Whether lower numbers may be of later starts, which are not folded with it.
    fn folds_alone(&self, unix_ms: u64) -> bool {
        self.replaced || is_ahead(self.number, unix_ms)
    }

    /// The row of the store.
    pub fn stored(&self) -> StoredClient {
        StoredClient {
            name: self.name.clone(),
            incarnation: self.number,
            heard_unix_ms: self.heard_unix_ms,
            replaced: self.replaced,
        }
    }
}

/// An incarnation as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredClient {
    /// Identity of the node.
    pub name: String,
    /// The number of its start.
    pub incarnation: u64,
    /// When it was last heard, in milliseconds since the Unix epoch.
    pub heard_unix_ms: u64,
    /// Whether a later start with a lower number replaced it. Earlier versions did not store that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replaced: bool,
}

/// Why an incarnation is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// A later start of the node is known.
    #[error(
        "incarnation {number} of client {name} is older than {newest}, which is known; is the id used by two nodes?"
    )]
    Older {
        /// The node.
        name: String,
        /// The incarnation that it stated.
        number: u64,
        /// The newest known one.
        newest: u64,
    },
    /// The incarnation's consumption was folded; more of it would be counted twice.
    #[error(
        "incarnation {number} of client {name} was closed after long silence; start the node again: under another \
         number, of at least {oldest}, it may report"
    )]
    Folded {
        /// The node.
        name: String,
        /// The incarnation that it stated.
        number: u64,
        /// The oldest that may report.
        oldest: u64,
    },
    /// There are too many nodes.
    #[error(
        "the limit of {MAX_CLIENTS} connected clients is reached; add a controller or connect fewer nodes"
    )]
    TooMany,
}

#[derive(Debug, Default)]
struct Node {
    /// Incarnations below this were folded.
    oldest: u64,
    /// Incarnations folded alone.
    folded_ahead: BTreeSet<u64>,
    incarnations: BTreeMap<u64, ClientId>,
}

impl Node {
    /// Refuses all incarnations below this. Those that were refused alone take no room any more.
    fn refuse_below(&mut self, oldest: u64) {
        self.oldest = self.oldest.max(oldest);
        self.folded_ahead = self.folded_ahead.split_off(&self.oldest);
    }
}

/// Refuses late reports of folded incarnations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tombstone {
    /// All incarnations below this.
    Below(u64),
    /// This incarnation, which was ahead of the clock; lower ones may still come.
    Only(u64),
}

/// Whether a start was numbered by a clock that is ahead of the controller's by more than a day.
fn is_ahead(number: u64, unix_ms: u64) -> bool {
    number / 1_000 > unix_ms.saturating_add(AHEAD_MS)
}

/// All known incarnations.
#[derive(Debug, Default)]
pub struct Clients {
    nodes: BTreeMap<String, Node>,
    incarnations: BTreeMap<ClientId, Incarnation>,
    /// Forgotten here, and neither stored nor folded on disk.
    leaving: BTreeMap<ClientId, StoredClient>,
    next_id: u64,
    connected: usize,
}

impl Clients {
    /// No incarnation is known; the next new one gets `next_id`.
    pub fn new(next_id: u64) -> Self {
        Self { next_id: next_id.max(1), ..Self::default() }
    }

    /// The id of the next new incarnation.
    pub fn next_id(&self) -> u64 {
        self.next_id
    }

    /// Loads a stored incarnation.
    pub fn load(&mut self, id: ClientId, stored: StoredClient) {
        self.next_id = self.next_id.max(id.0.saturating_add(1));
        self.insert(id, &stored.name, stored.incarnation, stored.heard_unix_ms);
        if let Some(client) = self.get_mut(id) {
            client.stored_unix_ms = Some(stored.heard_unix_ms);
            client.replaced = stored.replaced;
        }
    }

    /// Loads a stored tombstone. An earlier version, which did not fold starts ahead of the clock alone, may have
    /// stored one that would refuse the node until tomorrow or longer.
    pub fn load_tombstone(&mut self, name: String, tombstone: Tombstone, unix_ms: u64) {
        let node = self.nodes.entry(name).or_default();
        match tombstone {
            Tombstone::Below(oldest) if is_ahead(oldest, unix_ms) => {
                node.folded_ahead.insert(oldest.saturating_sub(1));
            }
            Tombstone::Below(oldest) => node.refuse_below(oldest),
            Tombstone::Only(number) if number < node.oldest => {}
            Tombstone::Only(number) => {
                node.folded_ahead.insert(number);
            }
        }
    }

    /// Opens a stream for an incarnation; returns its id.
    pub fn hello(
        &mut self,
        name: &str,
        number: u64,
        agent: &str,
        unix_ms: u64,
    ) -> Result<ClientId, ClientError> {
        let ahead = self.make_way(name, number, unix_ms)?;
        let id = self.identify(name, number, unix_ms)?;
        let full = self.connected >= MAX_CLIENTS;
        let Some(client) = self.incarnations.get_mut(&id) else {
            return Ok(id);
        };
        if !client.connected {
            if full {
                return Err(ClientError::TooMany);
            }
            client.connected = true;
            self.connected += 1;
        }
        agent.clone_into(&mut client.agent);
        (client.counted_seq, client.durable_seq) = (0, 0);
        for other in ahead {
            if let Some(other) = self.incarnations.get_mut(&other) {
                // The row that is on disk does not say it.
                (other.replaced, other.stored_unix_ms) = (true, None);
            }
        }
        Ok(id)
    }

    /// The starts of a node that this one replaces, because they were ahead of the clock.
    fn make_way(&self, name: &str, number: u64, unix_ms: u64) -> Result<Vec<ClientId>, ClientError> {
        let Some(node) = self.nodes.get(name) else { return Ok(Vec::new()) };
        let refused = |newest| ClientError::Older { name: name.to_owned(), number, newest };
        let replaced = |id: &ClientId| self.get(*id).is_some_and(|client| client.replaced);
        if node.incarnations.get(&number).is_some_and(replaced) {
            let others = node.incarnations.iter().filter(|(_, id)| !replaced(id)).map(|(other, _)| *other);
            return Err(refused(others.max().unwrap_or(number)));
        }
        let newer = node.incarnations.iter().filter(|(other, id)| **other > number && !replaced(id));
        if let Some((newest, _)) = newer.clone().rev().find(|(other, _)| !is_ahead(**other, unix_ms)) {
            return Err(refused(*newest));
        }
        Ok(newer.map(|(_, id)| *id).collect())
    }

    /// The id of an incarnation that reports, known or not.
    pub fn identify(&mut self, name: &str, number: u64, unix_ms: u64) -> Result<ClientId, ClientError> {
        if let Some(node) = self.nodes.get(name) {
            if let Some(id) = node.incarnations.get(&number) {
                return Ok(*id);
            }
            if number < node.oldest || node.folded_ahead.contains(&number) {
                return Err(ClientError::Folded { name: name.to_owned(), number, oldest: node.oldest });
            }
        }
        let id = ClientId(self.next_id);
        self.next_id = self.next_id.saturating_add(1);
        self.insert(id, name, number, unix_ms);
        Ok(id)
    }

    fn insert(&mut self, id: ClientId, name: &str, number: u64, heard_unix_ms: u64) {
        let client = Incarnation {
            name: name.to_owned(),
            number,
            agent: String::new(),
            heard: None,
            heard_unix_ms,
            stored_unix_ms: None,
            messages: 0,
            node: NodeStats::default(),
            counted_seq: 0,
            durable_seq: 0,
            connected: false,
            replaced: false,
        };
        self.nodes.entry(name.to_owned()).or_default().incarnations.insert(number, id);
        self.incarnations.insert(id, client);
    }

    /// The incarnation of an id.
    pub fn get(&self, id: ClientId) -> Option<&Incarnation> {
        self.incarnations.get(&id)
    }

    /// Name and number of an incarnation.
    pub fn identity(&self, client: ClientId) -> Option<(String, u64)> {
        self.get(client).map(|known| (known.name.clone(), known.number))
    }

    /// The incarnation of an id, to be changed.
    pub fn get_mut(&mut self, id: ClientId) -> Option<&mut Incarnation> {
        self.incarnations.get_mut(&id)
    }

    /// Incarnations of the node of `id` that it follows: lower ones, and those that were replaced.
    pub fn older_siblings(&self, id: ClientId) -> Vec<ClientId> {
        let Some(client) = self.get(id) else { return Vec::new() };
        let others = self.of(&client.name).filter(|(other, _)| *other != id);
        let older = others.filter(|(_, other)| other.number < client.number || other.replaced);
        older.map(|(id, _)| id).collect()
    }

    /// Other connected incarnations of the node of `id`.
    pub fn connected_siblings(&self, id: ClientId) -> Vec<ClientId> {
        let node = self.get(id).and_then(|client| self.nodes.get(&client.name));
        let ids = node.into_iter().flat_map(|node| node.incarnations.values().copied());
        ids.filter(|other| *other != id && self.get(*other).is_some_and(|client| client.connected)).collect()
    }

    /// Notes that the stream of an incarnation ended.
    pub fn disconnect(&mut self, id: ClientId) {
        if let Some(client) = self.incarnations.get_mut(&id).filter(|client| client.connected) {
            client.connected = false;
            self.connected = self.connected.saturating_sub(1);
        }
    }

    /// Number of open streams.
    pub fn connected(&self) -> usize {
        self.connected
    }

    /// All incarnations, in order of their ids.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (ClientId, &Incarnation)> {
        self.incarnations.iter().map(|(id, client)| (*id, client))
    }

    /// Incarnations to fold, because they were silent for long or are too many. At most a batch.
    pub fn foldable(&self, unix_ms: u64) -> Vec<ClientId> {
        let silent = |client: &Incarnation| unix_ms.saturating_sub(client.heard_unix_ms) > FOLD_AFTER_MS;
        let idle =
            self.iter().filter(|(_, client)| !client.connected && self.has_room_to_fold(client, unix_ms));
        let excess = self.incarnations.len().saturating_sub(MAX_INCARNATIONS);
        if excess == 0 {
            let old = idle.filter(|(_, client)| silent(client)).map(|(id, _)| id);
            return old.take(FOLD_BATCH).collect();
        }
        let mut by_silence: Vec<_> = idle.map(|(id, client)| (client.heard_unix_ms, id)).collect();
        by_silence.sort_unstable();
        by_silence.into_iter().map(|(_, id)| id).take(excess.min(FOLD_BATCH)).collect()
    }

    /// Whether there is room for the tombstone of an incarnation that is folded alone. One without room must not stand
    /// before others, since it may be long until there is some.
    fn has_room_to_fold(&self, client: &Incarnation, unix_ms: u64) -> bool {
        let is_full = |node: &Node| node.folded_ahead.len() >= MAX_FOLDED_AHEAD;
        !client.folds_alone(unix_ms) || !self.nodes.get(&client.name).is_some_and(is_full)
    }

    /// Forgets an incarnation and all older ones of its node, or only this one if it is or was ahead of the clock. Returns
    /// the node, its tombstone, and the forgotten ids.
    pub fn fold(&mut self, id: ClientId, unix_ms: u64) -> Option<(String, Tombstone, Vec<ClientId>)> {
        let client = self.incarnations.get(&id)?;
        let (name, number, alone) = (client.name.clone(), client.number, client.folds_alone(unix_ms));
        let node = self.nodes.get_mut(&name)?;
        if alone {
            // The node is kept if there is no room for its tombstone.
            if node.folded_ahead.len() >= MAX_FOLDED_AHEAD {
                return None;
            }
            node.folded_ahead.insert(number);
            node.incarnations.remove(&number);
            self.remove(id);
            return Some((name, Tombstone::Only(number), vec![id]));
        }
        let oldest = number.saturating_add(1);
        let newer = node.incarnations.split_off(&oldest);
        let folded: Vec<ClientId> = std::mem::replace(&mut node.incarnations, newer).into_values().collect();
        node.refuse_below(oldest);
        folded.iter().for_each(|id| self.remove(*id));
        Some((name, Tombstone::Below(oldest), folded))
    }

    /// Its rows may be stored before they are folded, and after a crash they would be another incarnation's, unless it
    /// is stored with them.
    fn remove(&mut self, id: ClientId) {
        self.disconnect(id);
        let removed = self.incarnations.remove(&id).filter(|client| client.stored_unix_ms.is_none());
        self.leaving.extend(removed.map(|client| (id, client.stored())));
    }

    /// The forgotten incarnations to store with their rows.
    pub(crate) fn leaving(&self) -> impl Iterator<Item = (ClientId, &StoredClient)> {
        self.leaving.iter().map(|(id, stored)| (*id, stored))
    }

    /// Notes that a forgotten incarnation is on disk, where its rows find it until they are folded.
    pub(crate) fn stored_leaving(&mut self, id: ClientId) {
        self.leaving.remove(&id);
    }

    /// Notes that the rows of forgotten incarnations are folded on disk.
    pub(crate) fn left(&mut self, folded: &BTreeSet<ClientId>) {
        self.leaving.retain(|id, _| !folded.contains(id));
    }

    /// The row of an incarnation that may have rows and is not stored.
    pub(crate) fn unstored(&self, id: ClientId) -> Option<StoredClient> {
        let known = self.get(id).filter(|known| known.stored_unix_ms.is_none());
        known.map(Incarnation::stored).or_else(|| self.leaving.get(&id).cloned())
    }
}

/// Whether a start's number is ahead of the clock, by however little.
fn is_early(number: u64, unix_ms: u64) -> bool {
    number / 1_000 > unix_ms
}

/// A forgotten node: the tombstones that refuse late reports, and the ids of its incarnations.
pub type Forgotten = (Vec<Tombstone>, Vec<ClientId>);

impl Clients {
    /// The known incarnations of a node.
    pub fn of(&self, name: &str) -> impl Iterator<Item = (ClientId, &Incarnation)> {
        let ids = self.nodes.get(name).into_iter().flat_map(|node| node.incarnations.values());
        ids.filter_map(|id| Some((*id, self.get(*id)?)))
    }

    /// Whether a node can be forgotten: not too many of its starts that were ahead of the clock are refused already.
    pub fn has_room_to_forget(&self, name: &str, unix_ms: u64) -> bool {
        self.nodes.get(name).is_none_or(|node| {
            let alone = node.folded_ahead.iter().chain(node.incarnations.keys());
            alone.filter(|number| is_early(**number, unix_ms)).count() <= MAX_FOLDED_AHEAD
        })
    }

    /// Forgets all incarnations of a node. One that is ahead of the clock, by however little, is refused alone, so that
    /// the next start is accepted whatever its number. `None` when too many are refused alone already.
    pub fn forget(&mut self, name: &str, unix_ms: u64) -> Option<Forgotten> {
        if !self.has_room_to_forget(name, unix_ms) {
            return None;
        }
        let node = self.nodes.get_mut(name)?;
        let ahead = |number: u64| is_early(number, unix_ms);
        let mut tombstones = Vec::new();
        let forgotten = std::mem::take(&mut node.incarnations);
        // Those that time has reached since they were refused alone need no tombstone of their own any more.
        let all: BTreeSet<u64> = forgotten.keys().chain(&node.folded_ahead).copied().collect();
        for number in all {
            if !ahead(number) {
                node.refuse_below(number.saturating_add(1));
            } else if node.folded_ahead.insert(number) {
                tombstones.push(Tombstone::Only(number));
            }
        }
        if node.oldest > 0 {
            tombstones.push(Tombstone::Below(node.oldest));
        }
        let ids: Vec<ClientId> = forgotten.into_values().collect();
        ids.iter().for_each(|id| self.remove(*id));
        Some((tombstones, ids))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incarnations_grow() {
        let mut clients = Clients::new(1);
        let first = clients.hello("a", 5, "x", 0).unwrap();
        assert_eq!(clients.hello("a", 5, "x", 0).unwrap(), first);
        assert_eq!(clients.connected(), 1);
        let second = clients.hello("a", 6, "x", 0).unwrap();
        assert_eq!(clients.connected_siblings(second), [first]);
        assert!(matches!(clients.hello("a", 5, "x", 0), Err(ClientError::Older { newest: 6, .. })));
        assert_eq!(clients.identify("a", 5, 0).unwrap(), first);
        clients.disconnect(first);
        clients.disconnect(first);
        assert_eq!(clients.connected(), 1);
    }

    #[test]
    fn folded_incarnations_report_no_more() {
        let mut clients = Clients::new(1);
        clients.identify("a", 4, 0).unwrap();
        let old = clients.identify("a", 5, 0).unwrap();
        clients.hello("a", 6, "x", 0).unwrap();
        let late = FOLD_AFTER_MS + 1;
        assert_eq!(clients.foldable(late).len(), 2);
        assert_eq!(clients.foldable(late - 1), []);
        let (name, tombstone, folded) = clients.fold(old, late).unwrap();
        assert_eq!((name.as_str(), tombstone, folded.len()), ("a", Tombstone::Below(6), 2));
        assert!(matches!(clients.identify("a", 5, 0), Err(ClientError::Folded { oldest: 6, .. })));
        assert!(clients.identify("a", 6, 0).is_ok());
        assert_eq!(clients.fold(old, late), None);
    }

    /// A moment in 2026, a start then, and one by a clock that is a year ahead.
    const NOW_MS: u64 = 1_795_000_000_000;
    const START: u64 = NOW_MS * 1_000;
    const YEAR: u64 = 365 * 86_400_000_000;

    #[test]
    fn a_node_that_is_forgotten_starts_again_and_reports_nothing_twice() {
        const HOUR: u64 = 3_600_000_000;
        for ahead in [HOUR, 20 * HOUR, YEAR, u64::MAX - START] {
            let mut clients = Clients::new(1);
            clients.identify("a", START - HOUR, NOW_MS).unwrap();
            let wrong = clients.hello("a", START + ahead, "x", NOW_MS).unwrap();
            clients.disconnect(wrong);
            let (tombstones, ids) = clients.forget("a", NOW_MS).unwrap();
            let expected = [Tombstone::Only(START + ahead), Tombstone::Below(START - HOUR + 1)];
            assert_eq!((tombstones.as_slice(), ids.len()), (expected.as_slice(), 2), "{ahead}");
            assert_eq!((clients.of("a").count(), clients.iter().count(), clients.connected()), (0, 0, 0));
            for late in [START + ahead, START - HOUR] {
                let refused = clients.identify("a", late, NOW_MS);
                assert!(matches!(refused, Err(ClientError::Folded { .. })), "{late}: {refused:?}");
            }
            // The clock is right again, long before the number of the forgotten start.
            assert!(clients.hello("a", START + 1, "x", NOW_MS).is_ok(), "{ahead}");
        }
        let mut clients = Clients::new(1);
        for extra in 1..=MAX_FOLDED_AHEAD as u64 {
            clients.identify("a", START + extra * HOUR, NOW_MS).unwrap();
        }
        assert!(clients.forget("a", NOW_MS).is_some());
        clients.identify("a", START + 99 * HOUR, NOW_MS).unwrap();
        assert_eq!(clients.forget("a", NOW_MS), None, "there is no room for its tombstone");
        assert_eq!((clients.of("a").count(), clients.forget("b", NOW_MS)), (1, None));
    }

    #[test]
    fn a_start_that_was_ahead_of_the_clock_is_replaced_by_the_next_one() {
        for ahead in [START + YEAR, u64::MAX] {
            let mut clients = Clients::new(1);
            let wrong = clients.hello("a", ahead, "x", NOW_MS).unwrap();
            let right = clients.hello("a", START, "x", NOW_MS).unwrap();
            assert_eq!(clients.connected_siblings(right), [wrong]);
            // If both run, the replaced one does not come back.
            let refused = clients.hello("a", ahead, "x", NOW_MS);
            assert!(matches!(refused, Err(ClientError::Older { newest: START, .. })), "{refused:?}");
            let older = clients.hello("a", START - 1, "x", NOW_MS);
            assert!(matches!(older, Err(ClientError::Older { newest: START, .. })), "{older:?}");
            assert!(clients.hello("a", START + 1, "x", NOW_MS).is_ok());
            assert_eq!(clients.identify("a", ahead, NOW_MS), Ok(wrong), "what it charged still counts");
        }
        let mut clients = Clients::new(1);
        clients.hello("a", START + 86_400_000_000, "x", NOW_MS).unwrap();
        assert!(
            clients.hello("a", START, "x", NOW_MS).is_err(),
            "a day ahead is within the clocks there are"
        );
    }

    #[test]
    fn folding_a_start_that_was_ahead_shuts_no_other_out() {
        let mut clients = Clients::new(1);
        let wrong = clients.identify("a", u64::MAX, NOW_MS).unwrap();
        let right = clients.hello("a", START, "x", NOW_MS).unwrap();
        let folded = clients.fold(wrong, NOW_MS + FOLD_AFTER_MS);
        assert_eq!(folded, Some(("a".to_owned(), Tombstone::Only(u64::MAX), vec![wrong])));
        assert!(clients.get(right).is_some_and(|client| client.connected));
        assert!(clients.hello("a", START + 1, "x", NOW_MS).is_ok());
        assert!(matches!(clients.identify("a", u64::MAX, NOW_MS), Err(ClientError::Folded { .. })));
        let mut again = Clients::new(9);
        again.load_tombstone("a".to_owned(), Tombstone::Only(START + YEAR), NOW_MS);
        // A tombstone as an earlier version stored it.
        again.load_tombstone("a".to_owned(), Tombstone::Below(u64::MAX), NOW_MS);
        assert!(again.hello("a", START, "x", NOW_MS).is_ok());
        for folded in [START + YEAR, u64::MAX - 1] {
            assert!(matches!(again.identify("a", folded, NOW_MS), Err(ClientError::Folded { .. })));
        }
    }

    #[test]
    fn connections_are_bounded() {
        let mut clients = Clients::new(1);
        for node in 0..MAX_CLIENTS {
            clients.hello(&format!("n{node}"), 1, "x", 0).unwrap();
        }
        assert_eq!(clients.hello("one-more", 1, "x", 0), Err(ClientError::TooMany));
        assert!(clients.hello("n0", 1, "x", 0).is_ok());
    }
}
