//! The watch list and the records of runaways: what operators add and remove, and what gateways convict.
//!
//! An operator's change is a change like any other: stored, then in force. What gateways convict is counted in memory
//! and stored with the next flush, so that a storm of convictions costs no more commits than a quiet hour.

use std::sync::Arc;

use tidegate_core::units::Span;
use tidegate_proto::v1;

use crate::answers::page_limit;
use crate::definitions::audit::{Actor, Change};
use crate::definitions::change::{Edit, Plan};
use crate::error::{AdminError, InField};
use crate::excerpt::excerpt;
use crate::limits::{MAX_STATEMENT_PAGE, MAX_WATCHES, WATCH_RANGE};
use crate::name::GroupName;
use crate::statements::StatementCalls;
use crate::statements::runaways::{Conviction, Found};
use crate::statements::watches::Watch;

/// Runaways in an answer when the request names no limit.
const RUNAWAY_PAGE: u32 = 100;

impl StatementCalls<'_> {
    /// Watches a statement, in place of an earlier watch of the same.
    pub fn add_watch(&self, actor: &Actor, text: &v1::Watch) -> Result<Watch, AdminError> {
        self.add_watch_at(actor, text, self.service.clock().unix_ms())
    }

    /// The same for so long from now, so that the caller's clock has no part in the end; with no time, until the end
    /// that the watch has.
    pub fn add_watch_for(&self, actor: &Actor, text: &v1::Watch, lasts: Span) -> Result<Watch, AdminError> {
        let unix_ms = self.service.clock().unix_ms();
        if lasts == Span(0) {
            return self.add_watch_at(actor, text, unix_ms);
        }
        if lasts > WATCH_RANGE.1 {
            let message = format!("{lasts} is out of range: up to {}, or 0 for ever", WATCH_RANGE.1);
            return Err(AdminError::invalid("watch_us", message));
        }
        // One that lasts less than a millisecond still ends after its start.
        let end_unix_ms = unix_ms.saturating_add(lasts.0.div_ceil(1_000));
        self.add_watch_at(actor, &v1::Watch { end_unix_ms, ..text.clone() }, unix_ms)
    }

    fn add_watch_at(&self, actor: &Actor, text: &v1::Watch, unix_ms: u64) -> Result<Watch, AdminError> {
        let wanted = Watch::parse(text, unix_ms)?;
        // No flush may store an older state of the same watch after this.
        let _alone = self.service.flushing();
        let fresh_id = self.service.lock().convictions.watches.reserve();
        self.service.definitions().change(actor, |state| {
            let id = state.definitions.catalog().require(&wanted.group)?;
            if let Some(target) = wanted.switch_group() {
                state.definitions.catalog().check_switch("switch_group", &wanted.group, target)?;
            }
            let ruled = state.definitions.catalog().get(id).is_some_and(|group| group.query_limit.is_some());
            if wanted.action.is_none() && !ruled {
                let message = format!(
                    "is missing, and group {} has no query_limit that says it; write one",
                    wanted.group
                );
                return Err(AdminError::invalid("action", message));
            }
            let known = state.convictions.watches.find(&wanted.group, wanted.matching, &wanted.digest);
            if known.is_none() && !state.convictions.watches.has_room() {
                return Err(AdminError::Full { what: "watches", limit: MAX_WATCHES });
            }
            let watch = Watch { id: known.map_or(fresh_id, |known| known.id), ..wanted };
            let change = Change {
                action: "add watch",
                subject: subject(&watch),
                before: known.map(|known| json(known)).unwrap_or_default(),
                after: json(&watch),
            };
            Ok(Plan {
                edits: vec![Edit::PutWatch(Box::new(watch.clone()))],
                changes: vec![change],
                reply: watch,
            })
        })
    }

    /// Ends a watch, or all of a group; returns their number.
    pub fn remove_watch(&self, actor: &Actor, id: u64, group: &str) -> Result<usize, AdminError> {
        if (id == 0) == group.is_empty() {
            let message = "set either id or group, to end one watch or all of a group";
            return Err(AdminError::invalid("id", message));
        }
        let group = (!group.is_empty()).then(|| GroupName::parse(group).in_field("group")).transpose()?;
        let _alone = self.service.flushing();
        self.service.definitions().change(actor, |state| {
            let gone: Vec<Arc<Watch>> = match &group {
                None => state.convictions.watches.get(id).cloned().into_iter().collect(),
                Some(group) => {
                    state.definitions.catalog().require(group)?;
                    state.convictions.watches.of_group(group).cloned().collect()
                }
            };
            let Some(first) = gone.first() else {
                return Ok(Plan::nothing(0));
            };
            let texts: Vec<_> = gone.iter().map(|watch| json(watch)).collect();
            let change = Change {
                action: "remove watch",
                subject: group
                    .as_ref()
                    .map_or_else(|| subject(first), |group| format!("all of group {group}")),
                before: if group.is_some() { format!("[{}]", texts.join(",")) } else { texts.concat() },
                after: String::new(),
            };
            let ids = gone.iter().map(|watch| watch.id).collect();
            Ok(Plan { edits: vec![Edit::RemoveWatches(ids)], changes: vec![change], reply: gone.len() })
        })
    }

    /// The watches of one group or all, in order of their ids. A long list cuts their texts.
    pub fn watches(&self, group: &str) -> Result<Vec<v1::Watch>, AdminError> {
        let group = (!group.is_empty()).then(|| GroupName::parse(group).in_field("group")).transpose()?;
        let mut watches: Vec<Arc<Watch>> = {
            let state = self.service.lock();
            match group {
                None => state.convictions.watches.iter().cloned().collect(),
                Some(group) => {
                    state.definitions.catalog().require(&group)?;
                    state.convictions.watches.of_group(&group).cloned().collect()
                }
            }
        };
        watches.sort_unstable_by_key(|watch| watch.id);
        let shown = watches.iter().map(|watch| {
            let text = excerpt(&watch.text, watches.len()).to_owned();
            v1::Watch { text, ..watch.text() }
        });
        Ok(shown.collect())
    }

    /// Counts and keeps a conviction, and watches the statement if the group's rule says so. Returns the id of the
    /// watch that covers it from now on.
    pub fn convict(&self, text: &v1::ConvictRequest) -> Result<Option<u64>, AdminError> {
        let conviction = Conviction::parse(text)?;
        let unix_ms = self.service.clock().unix_ms();
        let action = conviction.action.as_str();
        let mut state = self.service.lock();
        let id = state.definitions.catalog().require(&conviction.group)?;
        let limit = state.definitions.catalog().get(id).and_then(|group| group.query_limit.clone());
        let before = (state.convictions.watches.evicted(), state.convictions.runaways.evicted());
        let identified = match limit {
            Some(limit) if conviction.found == Found::Identify => {
                state.convictions.watches.identify(unix_ms, &limit, &conviction)
            }
            _ => None,
        };
        let covering =
            identified.map(|(id, _)| id).or_else(|| state.convictions.watches.covering(&conviction));
        state.convictions.runaways.convict(unix_ms, conviction);
        let after = (state.convictions.watches.evicted(), state.convictions.runaways.evicted());
        drop(state);
        self.service.metrics.convicted(action);
        self.service.metrics.watches_evicted.inc_by(after.0 - before.0);
        self.service.metrics.runaways_evicted.inc_by(after.1 - before.1);
        if identified.is_some_and(|(_, changed)| changed) {
            self.rules_changed();
        }
        Ok(covering)
    }

    /// The newest records of one group or of all, newest first. The group may be gone. A long list cuts the templates.
    pub fn runaways(&self, group: &str, limit: u32) -> Result<Vec<v1::Runaway>, AdminError> {
        Ok(self.list_runaways(group, limit)?.runaways)
    }

    /// The same, and whether there are older ones.
    pub fn list_runaways(&self, group: &str, limit: u32) -> Result<v1::ListRunawaysReply, AdminError> {
        let group = (!group.is_empty()).then(|| GroupName::parse(group).in_field("group")).transpose()?;
        let limit = page_limit(limit, RUNAWAY_PAGE, MAX_STATEMENT_PAGE)?;
        let mut records = self.service.lock().convictions.runaways.newest(group.as_ref(), limit + 1);
        let more = records.len() > limit;
        records.truncate(limit);
        let shown = records.iter().map(|record| {
            let mut text = record.text();
            let template = excerpt(&record.conviction.template, records.len());
            text.conviction.get_or_insert_default().template = template.to_owned();
            text
        });
        Ok(v1::ListRunawaysReply { runaways: shown.collect(), more })
    }
}

fn subject(watch: &Watch) -> String {
    format!("{} of group {}", watch.id, watch.group)
}

fn json(watch: &Watch) -> String {
    serde_json::to_string(&watch.text()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
