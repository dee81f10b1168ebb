//! Reading: consumption, history, nodes, leases, status, audit log and the metrics page.
//!
//! Long reads copy under the lock and format outside of it. History and audit come from the store.

use tidegate_core::units::Rate;
use tidegate_core::usage::Total;

use crate::accounts::AccountCalls;
use crate::accounts::history::Resolution;
use crate::answers::{cut_rows, one_group};
use crate::error::{AdminError, InField};
use crate::limits::MAX_ROWS;
use crate::name::GroupName;
use crate::store::records::{consumption, pair_key};

/// Consumption of a group, or of one node in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageRow {
    /// The group.
    pub group: GroupName,
    /// The node and its incarnation; `None` is the whole group.
    pub client: Option<(String, u64)>,
    /// RU/s over the last seconds.
    pub live: Rate,
    /// Consumption since the group was created.
    pub total: Total,
    /// Claims since then that exceed what any process can have used: not in `total`.
    pub apart: Total,
}

impl AccountCalls<'_> {
    /// Consumption of one group, or of all that consumed anything; and whether rows are missing.
    pub fn usage(&self, group: &str, per_client: bool) -> Result<(Vec<UsageRow>, bool), AdminError> {
        let one = one_group(group)?;
        let now = self.service.clock().now();
        let state = self.service.lock();
        let mut rows = Vec::new();
        for (id, name) in state.definitions.chosen(self.sight, one.as_ref(), &state.accounts.charged)? {
            if rows.len() > MAX_ROWS {
                break;
            }
            let (total, apart) = (state.accounts.ledger.total(id), state.accounts.ledger.apart(id));
            if one.is_none() && (total, apart) == Default::default() {
                continue;
            }
            let live = state.accounts.live(id, now);
            rows.push(UsageRow { group: name.clone(), client: None, live, total, apart });
            if per_client {
                let by_client = state.accounts.ledger.accounts(id).filter_map(|(client, total, apart)| {
                    let live = state
                        .accounts
                        .live_clients
                        .get(&(id, client))
                        .map_or(Rate::ZERO, |live| live.rate(now));
                    Some(UsageRow {
                        group: name.clone(),
                        client: Some(state.leasing.clients().identity(client)?),
                        live,
                        total,
                        apart,
                    })
                });
                rows.extend(by_client);
            }
        }
        let truncated = cut_rows(&mut rows);
        Ok((rows, truncated))
    }

    /// RU/s of each group over the last seconds, of those that used any.
    pub(crate) fn rates(&self) -> Vec<(GroupName, Rate)> {
        let now = self.service.clock().now();
        let state = self.service.lock();
        let used = state.accounts.rates(now);
        used.filter_map(|(id, rate)| Some((state.definitions.catalog().name(id)?.clone(), rate))).collect()
    }

    /// Stored buckets of a group that start in `from_unix_s..to_unix_s`; a `to_unix_s` of 0 means now.
    pub fn usage_history(
        &self,
        group: &str,
        resolution: &str,
        from_unix_s: u64,
        to_unix_s: u64,
    ) -> Result<Vec<(u64, Total)>, AdminError> {
        let resolution = match resolution {
            "" | "minute" => Resolution::Minute,
            "hour" => Resolution::Hour,
            _ => return Err(AdminError::invalid("resolution", "write \"minute\" or \"hour\"")),
        };
        let name = GroupName::parse(group).in_field("group")?;
        let id = self.service.lock().definitions.require(self.sight, &name)?;
        // The answer includes what was counted a moment ago. If the disk fails, the flush counts and logs that, and the
        // answer is what is stored.
        let _ = self.flush();
        let now = self.service.clock().unix_ms() / 1_000;
        let to = if to_unix_s == 0 { now.saturating_add(1) } else { to_unix_s.min(now.saturating_add(1)) };
        let from = from_unix_s.max(now.saturating_sub(resolution.kept_s()));
        let step = usize::try_from(resolution.seconds()).unwrap_or(60);
        let starts: Vec<u64> =
            (resolution.start(from)..to).step_by(step).filter(|start| *start >= from_unix_s).collect();
        let keys: Vec<_> = starts.iter().map(|start| pair_key(*start, id)).collect();
        let values = self.service.store().get(resolution.table(), &keys)?;
        let stored = starts.into_iter().zip(values).filter_map(|(start, value)| Some((start, value?)));
        let points = stored.map(|(start, value)| Ok((start, consumption(resolution.table(), &value)?)));
        points.collect()
    }
}
