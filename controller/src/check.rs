//! Checking a store: every page, every row, and the references between rows.
//!
//! The file is read as it is and not changed. Each row is decoded as a start decodes it, and what it refers to must
//! exist. Finally a controller is loaded from it, in memory, because that refuses what no single row shows.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use tidegate_core::group::GroupId;
use tidegate_cost_model::CostTable;

use crate::accounts::brief::minutes;
use crate::clock::Clock;
use crate::definitions::bindings::Principal;
use crate::definitions::cost_tables::Roles;
use crate::definitions::definition::Definition;
use crate::definitions::proposals::Proposal;
use crate::identity::token_of;
use crate::identity::tokens::{EarlierTokens, Tokens};
use crate::leasing::clients::StoredClient;
use crate::leasing::lineage::Lineage;
use crate::leasing::proof::KEY_BYTES;
use crate::leasing::quotas::StoredWindow;
use crate::name::GroupName;
use crate::service::{Service, ServiceConfig};
use crate::statements::runaways::Runaway;
use crate::statements::watches::Watch;
use crate::store::records::{
    META_CLEAN, META_COMMIT, META_COST_ROLES, META_EPOCH, META_LINEAGE, META_NEXT_CLIENT, META_NEXT_GROUP,
    META_PROOF_KEY, META_REVISION, META_TOKENS, NOBODY, SavedLeases, StoredBinding, StoredGroup, bad,
    consumption, group_of, json, number, pair_of, retired_of, tombstone_of, u64_of,
};
use crate::store::{RedbStore, Store as _, StoreError, Table, last_commit_of};
use tidegate_proto::v1::AuditEntry;

/// Damages that are listed; more are only counted. Nobody mends a file with as many by hand.
const MOST: usize = 1_000;
/// Bytes of a key that a damage shows.
const KEY_SHOWN: usize = 40;

/// The result of a check.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// The epoch of the last start on the store.
    pub epoch: u64,
    /// Revision of the definitions.
    pub revision: u64,
    /// When the newest definition was changed, in milliseconds since the Unix epoch.
    pub changed_unix_ms: Option<u64>,
    /// Rows of each table.
    pub rows: BTreeMap<Table, u64>,
    /// Rows of groups that were deleted while the rows were written; a start skips them.
    pub leftover: u64,
    /// The damages found.
    pub damage: Vec<Damage>,
    /// The number of damages beyond those listed.
    pub more: u64,
    /// The secret that signs proofs: the same in all copies of a store.
    pub(crate) key: Vec<u8>,
}

/// One damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Table and key; empty for the file as a whole.
    pub place: String,
    /// What is wrong.
    pub reason: String,
}

impl Checked {
    /// Whether there is no damage.
    pub fn is_whole(&self) -> bool {
        self.damage.is_empty()
    }

    fn damaged(&mut self, place: String, reason: String) {
        if self.damage.len() < MOST {
            self.damage.push(Damage { place, reason });
        } else {
            self.more = self.more.saturating_add(1);
        }
    }
}

/// Checks the store at `path`, which no process may have open.
///
/// # Errors
/// The file is in use, of another format, or no store.
pub fn check(path: &Path) -> Result<Checked, StoreError> {
    let mut store = RedbStore::peek(path)?;
    let mut checked = Checked::default();
    if let Some(reason) = store.integrity() {
        checked.damaged(String::new(), reason);
    }
    let mut seen = Seen::default();
    let read = store.copy(&mut |table, key, value| {
        let rows = checked.rows.entry(table).or_default();
        *rows = rows.saturating_add(1);
        if let Err(error) = seen.row(&mut checked, table, key, value) {
            checked.damaged(shown(table, key), plain(error));
        }
        Ok(ControlFlow::Continue(()))
    });
    if let Err(error) = read {
        checked.damaged(String::new(), error.to_string());
    }
    seen.end(&mut checked);
    if checked.is_whole() {
        let loaded = Service::load(Arc::new(store), ServiceConfig::default(), Clock::start());
        if let Err(error) = loaded {
            checked.damaged(String::new(), plain(error));
        }
    }
    Ok(checked)
}

/// The reason without the remedy, which the end of the check names once.
fn plain(error: StoreError) -> String {
    match error {
        StoreError::Record { reason, .. } => reason,
        other => other.to_string(),
    }
}

fn shown(table: Table, key: &[u8]) -> String {
    let readable = key.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ');
    let text = match std::str::from_utf8(key) {
        Ok(text) if readable => text.chars().take(KEY_SHOWN).collect(),
        _ => key.iter().take(KEY_SHOWN).map(|byte| format!("{byte:02x}")).collect::<String>(),
    };
    format!("{} {text}", table.name())
}

/// What rows may refer to, as read so far. Tables come in the order of [`Table::ALL`].
#[derive(Debug, Default)]
struct Seen {
    meta: BTreeMap<Vec<u8>, Vec<u8>>,
    groups: BTreeMap<GroupId, GroupName>,
    names: BTreeSet<GroupName>,
    parents: Vec<(GroupName, GroupName)>,
    clients: BTreeSet<u64>,
}

impl Seen {
    fn row(
        &mut self,
        checked: &mut Checked,
        table: Table,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), StoreError> {
        match table {
            Table::Meta => {
                self.meta.insert(key.to_vec(), value.to_vec());
                meta(checked, key, value)?;
            }
            Table::Groups => self.group(key, value)?,
            Table::Bindings => self.binding(key, value)?,
            Table::CostTables => {
                let costs: CostTable = json(table, value)?;
                if costs.to_string().as_bytes() != key {
                    return Err(bad(table, &format!("{costs} has the key of another")));
                }
            }
            Table::Clients => {
                json::<StoredClient>(table, value)?;
                let id = u64_of(table, key)?;
                self.clients.insert(id);
                self.below(META_NEXT_CLIENT, id, table)?;
            }
            Table::Tombstones => drop(tombstone_of(key, value)?),
            Table::Ledger | Table::Folded | Table::Retired | Table::Minutes | Table::Hours | Table::Apart => {
                checked.leftover += u64::from(self.account(table, key, value)?)
            }
            Table::Audit => {
                let entry: AuditEntry = json(table, value)?;
                if entry.id != u64_of(table, key)? {
                    return Err(bad(table, &format!("entry {} has the key of another", entry.id)));
                }
                checked.changed_unix_ms = checked.changed_unix_ms.max(Some(entry.unix_ms));
            }
            Table::Watches => checked.leftover += u64::from(self.watch(key, value)?),
            Table::Runaways => {
                u64_of(table, key)?;
                Runaway::load(&json(table, value)?).map_err(|error| bad(table, &error.to_string()))?;
            }
            Table::Tokens => {
                let alone = Tokens::load(u64::MAX, [token_of(key, value)?]);
                alone.map(drop).map_err(|reason| bad(table, &reason))?;
            }
            Table::Quotas => {
                StoredWindow::load(value)?;
                checked.leftover += u64::from(!self.groups.contains_key(&group_of(table, key)?));
            }
            Table::PastMinutes => {
                pair_of(table, key)?;
                minutes(value)?;
            }
            Table::Proposals => {
                let row = Proposal::row(key, value, |id| self.groups.get(&id))?;
                checked.leftover += u64::from(row.is_none());
            }
            Table::Parts => {
                let (_, group) = pair_of(table, key)?;
                number(value).map_err(|_| bad(table, "a number was expected"))?;
                checked.leftover += u64::from(!self.groups.contains_key(&group));
            }
        }
        Ok(())
    }

    /// A watch; returns whether a group that it names is gone.
    fn watch(&self, key: &[u8], value: &[u8]) -> Result<bool, StoreError> {
        let table = Table::Watches;
        let watch = Watch::load(&json(table, value)?).map_err(|error| bad(table, &error.to_string()))?;
        if watch.id != u64_of(table, key)? {
            return Err(bad(table, &format!("watch {} has the key of another", watch.id)));
        }
        let known = |name| self.names.contains(name);
        Ok(!known(&watch.group) || !watch.switch_group().is_none_or(known))
    }

    /// A row of consumption; returns whether it is left over from a group that is gone.
    fn account(&self, table: Table, key: &[u8], value: &[u8]) -> Result<bool, StoreError> {
        consumption(table, value)?;
        let (client, group) = match table {
            Table::Folded => (None, Some(group_of(table, key)?)),
            Table::Retired => (Some(retired_of(key)?.1.0), None),
            Table::Ledger | Table::Apart => {
                let (client, group) = pair_of(table, key)?;
                (Some(client), Some(group))
            }
            _ => {
                pair_of(table, key)?;
                (None, None)
            }
        };
        if let Some(client) = client.filter(|client| table != Table::Apart || *client != NOBODY.0) {
            self.known_client(table, client)?;
        }
        Ok(group.is_some_and(|group| !self.groups.contains_key(&group)))
    }

    fn group(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let table = Table::Groups;
        let (id, stored): (GroupId, StoredGroup) = (group_of(table, key)?, json(table, value)?);
        let definition = Definition::parse(&stored.group).map_err(|error| bad(table, &error.to_string()))?;
        if stored.id != id.0 {
            return Err(bad(table, &format!("group {} has the key of another", definition.name)));
        }
        if id != GroupId::DEFAULT {
            self.below(META_NEXT_GROUP, u64::from(id.0), table)?;
        }
        if let Some(parent) = &definition.parent {
            self.parents.push((definition.name.clone(), parent.clone()));
        }
        if !self.names.insert(definition.name.clone()) {
            return Err(bad(table, &format!("two groups are named {}", definition.name)));
        }
        self.groups.insert(id, definition.name);
        Ok(())
    }

    fn binding(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let table = Table::Bindings;
        let stored: StoredBinding = json(table, value)?;
        let principal = Principal::parse(stored.principal.tenant(), stored.principal.user());
        let principal = principal.map_err(|error| bad(table, &error.to_string()))?;
        if principal.key() != key {
            return Err(bad(table, &format!("the binding of {principal} has the key of another")));
        }
        let group = GroupName::parse(&stored.group).map_err(|error| bad(table, &error.to_string()))?;
        if !self.names.contains(&group) {
            return Err(bad(table, &format!("{principal} is bound to {group}, which is missing")));
        }
        Ok(())
    }

    fn known_client(&self, table: Table, client: u64) -> Result<(), StoreError> {
        if self.clients.contains(&client) {
            return Ok(());
        }
        Err(bad(table, &format!("it is of client {client}, which is missing")))
    }

    /// Checks that an id in use is below the counter of new ids, so that it is not given again. A store that has never
    /// given one has no such counter.
    fn below(&self, counter: &[u8], id: u64, table: Table) -> Result<(), StoreError> {
        let next = self.meta.get(counter).and_then(|value| number(value).ok());
        if next.is_none_or(|next| id < next) {
            return Ok(());
        }
        let name = String::from_utf8_lossy(counter);
        Err(bad(table, &format!("its id {id} is not below {name}, so it would be given again")))
    }

    /// Checks what only the whole store shows.
    fn end(&self, checked: &mut Checked) {
        for (name, parent) in &self.parents {
            if !self.names.contains(parent) {
                checked.damaged(format!("groups {name}"), format!("it is below {parent}, which is missing"));
            }
        }
        // A file that no controller has loaded contains only its format.
        let needed = [META_EPOCH, META_PROOF_KEY, META_COST_ROLES];
        for key in needed.into_iter().filter(|key| self.meta.len() > 1 && !self.meta.contains_key(*key)) {
            checked.damaged(shown(Table::Meta, key), "it is missing".to_owned());
        }
    }
}

fn meta(checked: &mut Checked, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
    let table = Table::Meta;
    match key {
        META_EPOCH => checked.epoch = number(value)?,
        META_REVISION => checked.revision = number(value)?,
        META_LINEAGE => drop(json::<Lineage>(table, value)?),
        META_PROOF_KEY if value.len() == KEY_BYTES => checked.key = value.to_vec(),
        META_PROOF_KEY => return Err(bad(table, &format!("it has {} bytes, not {KEY_BYTES}", value.len()))),
        META_CLEAN => {
            let saved: SavedLeases = json(table, value)?;
            if !saved.in_range() {
                return Err(bad(table, "a saved lease is out of range"));
            }
        }
        META_COST_ROLES => drop(json::<Roles>(table, value)?),
        META_TOKENS => {
            json::<EarlierTokens>(table, value)?.check().map_err(|reason| bad(table, &reason))?;
        }
        META_COMMIT => last_commit_of(value)?,
        _ => drop(number(value)?),
    }
    Ok(())
}
