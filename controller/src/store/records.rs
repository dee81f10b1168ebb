//! The meaning of the bytes in the store.
//!
//! Keys are big-endian, so that their order is the order of the numbers. Definitions, bindings, clients, cost tables,
//! audit entries, watches, runaways and tokens are JSON, readable with any tool and open to new fields. Consumption is a fixed
//! layout: one version byte, then every counter in the order of `Total::to_words`; in version 1 as 8 big-endian bytes,
//! and in version 2, for counters that these cannot hold, as 16.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tidegate_core::group::{ClientId, GroupId};
use tidegate_core::units::{Rate, Ru, Span};
use tidegate_core::usage::Total;
use tidegate_core::view::{SavedLease, Snapshot};

use super::{StoreError, Table, Write};
use crate::definitions::bindings::Principal;
use crate::definitions::definition::Definition;
use crate::leasing::clients::Tombstone;
use crate::name::GroupName;
use tidegate_proto::v1;

/// Version of everything in this file.
pub const FORMAT: u32 = 1;

/// Key of the format version.
pub const META_FORMAT: &[u8] = b"format";
/// Key of the leadership epoch.
pub const META_EPOCH: &[u8] = b"epoch";
/// Key of the revision of the definitions.
pub const META_REVISION: &[u8] = b"revision";
/// Key of the next group id.
pub const META_NEXT_GROUP: &[u8] = b"next_group";
/// Key of the longest lease, in microseconds, that may be out.
pub const META_LONGEST_TTL: &[u8] = b"longest_ttl_us";
/// Key of the longest fence since the last clean stop, in microseconds; 0 is none.
pub const META_FENCE: &[u8] = b"fence_us";
/// Key of the next client id.
pub const META_NEXT_CLIENT: &[u8] = b"next_client";
/// Key of the next id of a watched statement.
pub const META_NEXT_WATCH: &[u8] = b"next_watch";
/// Key of the starts of controllers on this store, and of the known starts on copies of it.
pub const META_LINEAGE: &[u8] = b"lineage";
/// Key of the secret that signs proofs.
pub const META_PROOF_KEY: &[u8] = b"proof_key";
/// Key of the leases saved by a clean shutdown; its presence is the clean mark.
pub const META_CLEAN: &[u8] = b"clean";
/// Key of the last commit: the opening of the file that made it, and its number.
pub const META_COMMIT: &[u8] = b"commit";
/// Key of the place in the log that a local store has taken.
pub const META_APPLIED: &[u8] = b"applied";
/// Key of the cluster whose log a local store follows.
pub const META_CLUSTER: &[u8] = b"cluster";
/// Key of the next id of a token.
pub const META_NEXT_TOKEN: &[u8] = b"next_token";
/// Key of all tokens of callers, as earlier versions stored them.
pub const META_TOKENS: &[u8] = b"tokens";
/// Keys of the name and version of the active and the shadow cost table.
pub const META_COST_ROLES: &[u8] = b"cost_roles";

/// Bytes of a stored consumption whose counters all fit into 63 bits: all versions read it.
pub const CONSUMPTION_BYTES: usize = 1 + 8 * Total::WORDS;
/// Bytes of any other stored consumption.
const WIDE_BYTES: usize = 1 + 16 * Total::WORDS;
const CONSUMPTION_VERSION: u8 = 1;
const WIDE_VERSION: u8 = 2;
/// The first counters are amounts of RU, which version 1 keeps below 2^63.
const AMOUNTS: usize = 6;
const MOST_NARROW: u64 = i64::MAX.unsigned_abs();

/// A group as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoredGroup {
    /// Its id.
    pub id: u32,
    /// Its definition.
    pub group: v1::Group,
    /// Longest lease, in microseconds, that may be out in it, or in removed groups that were below it; `None` in rows
    /// of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_ttl_us: Option<u64>,
}

/// The row of a group in which leases of up to `longest` may be out.
pub fn group_row(id: GroupId, definition: &Definition, longest: Span) -> Result<Write, StoreError> {
    let stored = StoredGroup { id: id.0, group: definition.text(), longest_ttl_us: Some(longest.0) };
    put_json(Table::Groups, group_key(id), &stored)
}

/// A binding as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoredBinding {
    /// The principal.
    pub principal: Principal,
    /// The name of the group.
    pub group: String,
}

/// The leases of a clean shutdown: numbers in the order of the fields of the core's `Snapshot`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedLeases {
    /// Group, tokens.
    pools: Vec<(u32, i64)>,
    /// Group, client, sequence number, rate, cap, lump, microseconds left.
    leases: Vec<(u32, u64, u64, i64, i64, i64, u64)>,
    /// Microseconds left of the latest recovery.
    recovery_us: u64,
    /// The seal that was put beside the store.
    #[serde(default)]
    seal: String,
    /// When the store was closed, in milliseconds since the Unix epoch.
    #[serde(default)]
    closed_unix_ms: u64,
    /// Group, microseconds left of its recovery. Earlier versions had one for all groups.
    #[serde(default)]
    recoveries: Vec<(u32, u64)>,
    /// Group, what it has in store whose rate warms up.
    #[serde(default)]
    warmths: Vec<(u32, i64)>,
}

/// Age at which the mark of a clean stop is no longer valid: the longest possible lease. By then all leases in it have
/// ended, so it would gain nothing, while a whole volume that is set back (a snapshot, which contains the seal, too) is
/// seldom started within a minute of the stop. Half of it would lose a lease of a minute over a planned stop; twice of
/// it would accept a snapshot that is restored quickly.
const MARK_KEPT_MS: u64 = 60_000;

impl SavedLeases {
    /// Whether every rate and amount can have been granted.
    pub fn in_range(&self) -> bool {
        let (rates, amounts) = (Rate::ZERO.0..=Rate::MAX.0, Ru::ZERO.0..=Ru::MAX.0);
        // A pool that granted ahead of its time is in debt.
        let pools = -Ru::MAX.0..=Ru::MAX.0;
        let lease = |(_, _, _, rate, cap, lump, _): &(u32, u64, u64, i64, i64, i64, u64)| {
            rates.contains(rate) && amounts.contains(cap) && amounts.contains(lump)
        };
        let warmths = self.warmths.iter().all(|(_, stored)| amounts.contains(stored));
        warmths
            && self.leases.iter().all(lease)
            && self.pools.iter().all(|(_, tokens)| pools.contains(tokens))
    }

    /// Completes the mark for a store that closes now, with this seal beside it.
    #[must_use]
    pub fn sealed(self, seal: String, closed_unix_ms: u64) -> Self {
        Self { seal, closed_unix_ms, ..self }
    }

    /// Whether this very store was closed cleanly, and lately, and no controller has started on it since. `found` is
    /// the seal that was beside it.
    pub fn is_good(&self, found: Option<&str>, unix_ms: u64) -> bool {
        let age = unix_ms.checked_sub(self.closed_unix_ms);
        self.is_sealed_by(found) && age.is_some_and(|age| age <= MARK_KEPT_MS)
    }

    /// Whether this very store was closed cleanly, and no controller has started on it since.
    pub fn is_sealed_by(&self, found: Option<&str>) -> bool {
        found == Some(self.seal.as_str())
    }

    /// How long ago the store was closed.
    pub fn closed_for(&self, unix_ms: u64) -> Span {
        Span::millis(unix_ms.saturating_sub(self.closed_unix_ms))
    }

    /// For how long earlier leases may be out.
    pub fn left(&self) -> Left {
        let mut left: BTreeMap<GroupId, Span> = BTreeMap::new();
        let leases = self.leases.iter().map(|(group, .., us)| (*group, *us));
        for (group, us) in leases.chain(self.recoveries.iter().copied()) {
            let longest = left.entry(GroupId(group)).or_default();
            *longest = Span(us).max(*longest);
        }
        Left { left, of_all: self.recovery_of_all() }
    }

    /// The rest of the recovery of all groups, as an earlier version stored it.
    pub fn recovery_of_all(&self) -> Span {
        Span(if self.recoveries.is_empty() { self.recovery_us } else { 0 })
    }
}

/// For how long leases may be out that were given before a stop.
pub struct Left {
    left: BTreeMap<GroupId, Span>,
    of_all: Span,
}

impl Left {
    /// Those of a group.
    pub fn of(&self, id: GroupId) -> Span {
        self.left.get(&id).copied().unwrap_or_default().max(self.of_all)
    }

    /// That which ends last.
    pub fn longest(&self) -> Span {
        self.left.values().copied().max().unwrap_or_default().max(self.of_all)
    }
}

impl From<&Snapshot> for SavedLeases {
    fn from(snapshot: &Snapshot) -> Self {
        let lease =
            |l: &SavedLease| (l.group.0, l.client.0, l.seq, l.rate.0, l.cap.0, l.lump.0, l.remaining.0);
        Self {
            pools: snapshot.pools.iter().map(|(group, tokens)| (group.0, tokens.0)).collect(),
            leases: snapshot.leases.iter().map(lease).collect(),
            seal: String::new(),
            closed_unix_ms: 0,
            recovery_us: snapshot.recoveries.iter().map(|(_, left)| left.0).max().unwrap_or_default(),
            recoveries: snapshot.recoveries.iter().map(|(group, left)| (group.0, left.0)).collect(),
            warmths: snapshot.warmths.iter().map(|(group, stored)| (group.0, stored.0)).collect(),
        }
    }
}

impl From<SavedLeases> for Snapshot {
    fn from(saved: SavedLeases) -> Self {
        let lease = |(group, client, seq, rate, cap, lump, remaining)| SavedLease {
            group: GroupId(group),
            client: ClientId(client),
            seq,
            rate: Rate(rate),
            cap: Ru(cap),
            lump: Ru(lump),
            remaining: Span(remaining),
        };
        Self {
            pools: saved.pools.into_iter().map(|(group, tokens)| (GroupId(group), Ru(tokens))).collect(),
            leases: saved.leases.into_iter().map(lease).collect(),
            recoveries: saved.recoveries.into_iter().map(|(group, us)| (GroupId(group), Span(us))).collect(),
            warmths: saved.warmths.into_iter().map(|(group, stored)| (GroupId(group), Ru(stored))).collect(),
            away: Span(0),
        }
    }
}

/// A number in `Table::Meta`, as decimal text.
pub fn put_number(key: &[u8], number: u64) -> Write {
    put_number_in(Table::Meta, key, number)
}

/// A number in another table, as decimal text.
fn put_number_in(table: Table, key: &[u8], number: u64) -> Write {
    Write::Put(table, key.to_vec(), number.to_string().into_bytes())
}

/// The row of a node's tombstone. The key of one for a single incarnation has that after the name, which holds no zero
/// byte.
pub fn put_tombstone(name: &str, tombstone: Tombstone) -> Write {
    match tombstone {
        Tombstone::Below(oldest) => put_number_in(Table::Tombstones, name.as_bytes(), oldest),
        Tombstone::Only(number) => {
            let key = [name.as_bytes(), b"\0", &number.to_be_bytes()].concat();
            put_number_in(Table::Tombstones, &key, number)
        }
    }
}

/// Reads what [`put_tombstone`] wrote.
pub fn tombstone_of(key: &[u8], value: &[u8]) -> Result<(String, Tombstone), StoreError> {
    let of = number(value)?;
    let zero = key.iter().position(|byte| *byte == 0);
    let name = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
    Ok(match zero {
        None => (name(Some(key)), Tombstone::Below(of)),
        Some(zero) => (name(key.get(..zero)), Tombstone::Only(of)),
    })
}

/// Reads what [`put_number`] wrote.
pub fn number(value: &[u8]) -> Result<u64, StoreError> {
    let text = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
    text.ok_or_else(|| bad(Table::Meta, "a number was expected"))
}

/// A JSON value.
pub fn put_json<T: Serialize>(table: Table, key: Vec<u8>, value: &T) -> Result<Write, StoreError> {
    let bytes = serde_json::to_vec(value).map_err(|error| bad(table, &error.to_string()))?;
    Ok(Write::Put(table, key, bytes))
}

/// Reads what [`put_json`] wrote.
pub fn json<T: DeserializeOwned>(table: Table, value: &[u8]) -> Result<T, StoreError> {
    serde_json::from_slice(value).map_err(|error| bad(table, &error.to_string()))
}

/// Key of a group.
pub fn group_key(group: GroupId) -> Vec<u8> {
    group.0.to_be_bytes().to_vec()
}

/// Reads what [`group_key`] wrote.
pub fn group_of(table: Table, key: &[u8]) -> Result<GroupId, StoreError> {
    let id = key.try_into().map(u32::from_be_bytes);
    id.map(GroupId).map_err(|_| bad(table, "the key is not a group id"))
}

/// Key of a client, an audit entry or another number.
pub fn u64_key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

/// Reads what [`u64_key`] wrote.
pub fn u64_of(table: Table, key: &[u8]) -> Result<u64, StoreError> {
    key.try_into().map(u64::from_be_bytes).map_err(|_| bad(table, "the key is not a number"))
}

/// Key of a row of the ledger or of the history: a number, then a group.
pub fn pair_key(number: u64, group: GroupId) -> Vec<u8> {
    [number.to_be_bytes().as_slice(), group.0.to_be_bytes().as_slice()].concat()
}

/// Reads what [`pair_key`] wrote.
pub fn pair_of(table: Table, key: &[u8]) -> Result<(u64, GroupId), StoreError> {
    let (number, group) = key.split_at_checked(8).ok_or_else(|| bad(table, "the key is too short"))?;
    Ok((u64_of(table, number)?, group_of(table, group)?))
}

/// The id for the sums of folded clients: no client has it.
pub const NOBODY: ClientId = ClientId(0);

/// Key of a row of the ledger.
pub fn ledger_key(client: ClientId, group: GroupId) -> Vec<u8> {
    pair_key(client.0, group)
}

/// Common start of the keys of the consumption counted for removed groups of a name, which holds no zero byte.
pub fn retired_keys(name: &GroupName) -> Vec<u8> {
    [name.as_str().as_bytes(), b"\0"].concat()
}

/// Key of the consumption of a client counted for removed groups of a name.
pub fn retired_key(name: &GroupName, client: ClientId) -> Vec<u8> {
    [retired_keys(name).as_slice(), client.0.to_be_bytes().as_slice()].concat()
}

/// Reads what [`retired_key`] wrote.
pub fn retired_of(key: &[u8]) -> Result<(GroupName, ClientId), StoreError> {
    let table = Table::Retired;
    let zero = key.iter().position(|byte| *byte == 0);
    let (name, client) =
        zero.and_then(|zero| Some((key.get(..zero)?, key.get(zero + 1..)?))).unwrap_or_default();
    let name =
        GroupName::parse(&String::from_utf8_lossy(name)).map_err(|error| bad(table, &error.to_string()))?;
    Ok((name, ClientId(u64_of(table, client)?)))
}

/// Consumption as bytes.
pub fn consumption_bytes(total: &Total) -> Vec<u8> {
    let words = total.to_words();
    let narrow = words.map(|word| u64::try_from(word).ok().filter(|word| *word <= MOST_NARROW));
    let mut bytes = Vec::with_capacity(CONSUMPTION_BYTES);
    if narrow.iter().all(Option::is_some) {
        bytes.push(CONSUMPTION_VERSION);
        narrow.iter().flatten().for_each(|word| bytes.extend_from_slice(&word.to_be_bytes()));
    } else {
        bytes.push(WIDE_VERSION);
        words.iter().for_each(|word| bytes.extend_from_slice(&word.to_be_bytes()));
    }
    bytes
}

/// Reads what [`consumption_bytes`] wrote.
pub fn consumption(table: Table, bytes: &[u8]) -> Result<Total, StoreError> {
    let (version, rest) = bytes.split_first().ok_or_else(|| bad(table, "the row is empty"))?;
    let mut words = [0; Total::WORDS];
    match (*version, bytes.len()) {
        (CONSUMPTION_VERSION, CONSUMPTION_BYTES) => {
            let (chunks, _) = rest.as_chunks();
            words.iter_mut().zip(chunks).for_each(|(word, chunk)| *word = u64::from_be_bytes(*chunk).into());
            let (amounts, _) = words.split_at(AMOUNTS);
            if amounts.iter().any(|word| *word > MOST_NARROW.into()) {
                return Err(bad(table, "an amount is out of range"));
            }
        }
        (WIDE_VERSION, WIDE_BYTES) => {
            let (chunks, _) = rest.as_chunks();
            words.iter_mut().zip(chunks).for_each(|(word, chunk)| *word = u128::from_be_bytes(*chunk));
        }
        (version, bytes) => {
            return Err(bad(table, &format!("consumption of version {version} with {bytes} bytes")));
        }
    }
    Ok(Total::from_words(words))
}

/// Counters of consumption, each in 63 bits.
pub(crate) type Narrow = [u64; Total::WORDS];

/// The counters of bytes that are just what [`consumption_bytes`] makes of them, if all fit into 63 bits.
pub(crate) fn narrow(bytes: &[u8]) -> Option<Narrow> {
    let rest = bytes.strip_prefix(&[CONSUMPTION_VERSION]).filter(|_| bytes.len() == CONSUMPTION_BYTES)?;
    let (chunks, _) = rest.as_chunks();
    let mut words = [0; Total::WORDS];
    words.iter_mut().zip(chunks).for_each(|(word, chunk)| *word = u64::from_be_bytes(*chunk));
    words.iter().all(|word| *word <= MOST_NARROW).then_some(words)
}

/// The bytes of counters; `None`: one does not fit into 63 bits.
pub(crate) fn narrow_bytes(words: &Narrow) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(CONSUMPTION_BYTES);
    bytes.push(CONSUMPTION_VERSION);
    words.iter().for_each(|word| bytes.extend_from_slice(&word.to_be_bytes()));
    words.iter().all(|word| *word <= MOST_NARROW).then_some(bytes)
}

/// The error of a row that does not decode.
pub fn bad(table: Table, reason: &str) -> StoreError {
    StoreError::Record { table, reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts up from one, in the order of the words, up to a given last one.
    fn sample(last: u128) -> Total {
        let mut words: [u128; Total::WORDS] = std::array::from_fn(|place| place as u128 + 1);
        words[Total::WORDS - 1] = last;
        Total::from_words(words)
    }

    #[test]
    fn the_mark_of_a_clean_stop_is_good_for_a_minute_and_with_its_seal() {
        let closed = 1_000_000;
        let mark = SavedLeases::default().sealed("seal".to_owned(), closed);
        let good = |after_ms: u64| mark.is_good(Some("seal"), closed + after_ms);
        assert_eq!([0, 60_000, 60_001, 3_600_000].map(good), [true, true, false, false]);
        assert!(!mark.is_good(Some("seal"), closed - 1), "of the future");
        assert!(!mark.is_good(Some("another"), closed) && !mark.is_good(None, closed));
    }

    #[test]
    fn consumption_round_trips_and_damage_is_noticed() {
        let most = i64::MAX as u128;
        let bytes = consumption_bytes(&sample(most));
        assert_eq!((bytes.len(), CONSUMPTION_BYTES), (153, 153), "another length is another version");
        assert_eq!(consumption(Table::Ledger, &bytes).unwrap(), sample(most));
        for wide in [most + 1, u128::from(u64::MAX) + 1, u128::MAX] {
            let bytes = consumption_bytes(&sample(wide));
            assert_eq!((bytes.len(), bytes[0]), (305, 2), "what has no room is never cut");
            assert_eq!(consumption(Table::Ledger, &bytes).unwrap(), sample(wide));
            assert!(consumption(Table::Ledger, &bytes[..304]).is_err());
        }
        // What is counted in steps is the same bytes.
        assert_eq!(narrow_bytes(&narrow(&bytes).unwrap()).unwrap(), bytes);
        assert!(narrow(&consumption_bytes(&sample(most + 1))).is_none() && narrow(&bytes[..152]).is_none());
        assert!(narrow_bytes(&[1 << 63; Total::WORDS]).is_none());
        // An earlier version wrote counters like these.
        let mut earlier = bytes.clone();
        earlier[152 - 7..].fill(0xff);
        assert_eq!(consumption(Table::Ledger, &earlier).unwrap(), sample(u64::MAX.into()));
        assert!(narrow(&earlier).is_none());
        assert!(consumption(Table::Ledger, &bytes[1..]).is_err());
        assert!(consumption(Table::Ledger, &[]).is_err());
        let mut newer = bytes.clone();
        newer[0] = 3;
        assert!(consumption(Table::Ledger, &newer).is_err());
        let mut negative = bytes;
        negative[1] = 0xff;
        assert!(consumption(Table::Ledger, &negative).is_err());
    }

    #[test]
    fn all_groups_recover_together_only_after_a_stop_of_an_earlier_version() {
        let earlier = r#"{"pools":[],"leases":[],"recovery_us":7}"#;
        let earlier: SavedLeases = serde_json::from_str(earlier).unwrap();
        let left = earlier.left();
        assert_eq!((left.longest(), left.of(GroupId(9))), (Span(7), Span(7)), "the recovery of all groups");
        let recoveries = vec![(GroupId(2), Span(5)), (GroupId(3), Span(9))];
        let saved = SavedLeases::from(&Snapshot { recoveries, ..Snapshot::default() });
        assert_eq!((saved.recovery_of_all(), saved.left().longest()), (Span(0), Span(9)));
        let left = saved.left();
        assert_eq!([2, 3, 4].map(|id| left.of(GroupId(id))), [5, 9, 0].map(Span));
    }

    #[test]
    fn keys_keep_the_order_of_numbers() {
        assert!(pair_key(255, GroupId(9)) < pair_key(256, GroupId(1)));
        assert_eq!(pair_of(Table::Hours, &pair_key(7, GroupId(9))).unwrap(), (7, GroupId(9)));
        assert!(pair_of(Table::Hours, b"short").is_err());
        assert_eq!(number(b"12").unwrap(), 12);
        assert!(number(b"x").is_err());
    }
}
