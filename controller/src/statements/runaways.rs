//! Records of runaways: the convicted statements, for what, and how often.
//!
//! Pure: time is Unix milliseconds and an argument. Equal convictions (group, statement, way of finding) within
//! [`CONVICTION_WINDOW_MS`] of the first are one record, which keeps the newest of them and a count. The newest
//! [`MAX_RUNAWAYS`] records are kept. Changes are returned once, to be stored.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::error::{AdminError, InField};
use crate::limits::{CONVICTION_WINDOW_MS, MAX_CONVICTION_TEXT, MAX_RUNAWAYS, MAX_TEMPLATE};
use crate::name::{GroupName, client_id};
use crate::quantity::cut;
use crate::statements::query_limit::{Action, Matching};
use crate::statements::watches::{digest, is_blank};
use tidegate_proto::v1;

/// The way in which a runaway was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Found {
    /// It broke a limit.
    Identify,
    /// It was on the watch list.
    Watch,
}

/// A checked conviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conviction {
    /// The gateway.
    pub gateway: Box<str>,
    /// The group that was charged.
    pub group: GroupName,
    /// The way in which it was found.
    pub found: Found,
    /// The action taken.
    pub action: Action,
    /// Fingerprint of the template; empty when unknown.
    pub fingerprint: Box<str>,
    /// The template.
    pub template: Arc<str>,
    /// SHA-256 of the statement's text; empty when unknown.
    pub text_sha256: Box<str>,
    /// The broken limit; empty when the statement was on the list.
    pub rule: Box<str>,
    /// The tenant, or an empty text.
    pub tenant: Box<str>,
    /// The user, or an empty text.
    pub user: Box<str>,
}

/// A record of equal convictions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runaway {
    /// The newest conviction.
    pub conviction: Conviction,
    /// The time of the first, in milliseconds since the Unix epoch.
    pub first_unix_ms: u64,
    /// The time of the last.
    pub last_unix_ms: u64,
    /// Their number, the first included.
    pub repeats: u64,
}

type Key = (GroupName, Box<str>, Found);

/// All records.
#[derive(Debug, Default)]
pub struct Runaways {
    /// By a number that grows from record to record.
    records: BTreeMap<u64, Arc<Runaway>>,
    newest: BTreeMap<Key, u64>,
    next_id: u64,
    dirty: BTreeSet<u64>,
    evicted: u64,
}

impl Found {
    /// The spelling of the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Identify => "identify",
            Self::Watch => "watch",
        }
    }
}

impl Conviction {
    /// Checks a conviction field by field.
    pub fn parse(text: &v1::ConvictRequest) -> Result<Self, AdminError> {
        let found = match text.r#match.as_str() {
            "identify" => Found::Identify,
            "watch" => Found::Watch,
            other => {
                let message = format!("{:?} is none of \"identify\", \"watch\"", cut(other));
                return Err(AdminError::invalid("match", message));
            }
        };
        let action = Action::parse("", &text.action, &text.switch_group)?;
        let action = action.ok_or_else(|| {
            AdminError::invalid("action", "is missing; say what was done, \"dryrun\" if nothing")
        })?;
        // The digest of an empty text stands for no statement: a watch of it would cover all whose text is unknown.
        let optional = |field, matching, text: &str| {
            if text.is_empty() { Ok(Box::default()) } else { digest(field, matching, text) }
                .map(|digest| if is_blank(matching, &digest) { Box::default() } else { digest })
        };
        let fingerprint = optional("fingerprint", Matching::Similar, &text.fingerprint)?;
        let text_sha256 = optional("text_sha256", Matching::Exact, &text.text_sha256)?;
        Ok(Self {
            gateway: client_id(&text.gateway).in_field("gateway")?.into(),
            group: GroupName::parse(&text.group).in_field("group")?,
            found,
            action,
            fingerprint,
            template: template("template", &text.template)?.into(),
            text_sha256,
            rule: short("rule", &text.rule)?.into(),
            tenant: short("tenant", &text.tenant)?.into(),
            user: short("user", &text.user)?.into(),
        })
    }

    /// The conviction as text.
    pub fn text(&self) -> v1::ConvictRequest {
        v1::ConvictRequest {
            gateway: self.gateway.to_string(),
            group: self.group.to_string(),
            r#match: self.found.as_str().to_owned(),
            action: self.action.as_str().to_owned(),
            switch_group: self.action.switch_group().map(ToString::to_string).unwrap_or_default(),
            fingerprint: self.fingerprint.to_string(),
            template: self.template.to_string(),
            text_sha256: self.text_sha256.to_string(),
            rule: self.rule.to_string(),
            tenant: self.tenant.to_string(),
            user: self.user.to_string(),
        }
    }

    /// The digest for this way of matching; empty when it is unknown.
    pub fn digest(&self, matching: Matching) -> &str {
        match matching {
            Matching::Exact => &self.text_sha256,
            Matching::Similar => &self.fingerprint,
        }
    }

    fn key(&self) -> Key {
        let statement = if self.fingerprint.is_empty() { &self.text_sha256 } else { &self.fingerprint };
        (self.group.clone(), statement.clone(), self.found)
    }
}

/// Checks the template in this field: it is not too long.
pub fn template<'t>(field: &str, text: &'t str) -> Result<&'t str, AdminError> {
    if text.len() > MAX_TEMPLATE {
        let message = format!("{} bytes are too many: at most {MAX_TEMPLATE}; cut it", text.len());
        return Err(AdminError::invalid(field, message));
    }
    Ok(text)
}

fn short<'t>(field: &str, text: &'t str) -> Result<&'t str, AdminError> {
    let length = text.chars().count();
    if length > MAX_CONVICTION_TEXT {
        let message = format!("{length} characters are too many: at most {MAX_CONVICTION_TEXT}; cut it");
        return Err(AdminError::invalid(field, message));
    }
    Ok(text)
}

impl Runaway {
    /// The record as text.
    pub fn text(&self) -> v1::Runaway {
        v1::Runaway {
            conviction: Some(self.conviction.text()),
            first_unix_ms: self.first_unix_ms,
            last_unix_ms: self.last_unix_ms,
            repeats: self.repeats,
        }
    }

    /// Reads what [`Self::text`] wrote.
    pub fn load(stored: &v1::Runaway) -> Result<Self, AdminError> {
        Ok(Self {
            conviction: Conviction::parse(
                stored.conviction.as_ref().unwrap_or(&v1::ConvictRequest::default()),
            )?,
            first_unix_ms: stored.first_unix_ms,
            last_unix_ms: stored.last_unix_ms,
            repeats: stored.repeats,
        })
    }
}

impl Runaways {
    /// Number of records.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Records that made room for others since the start.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Loads a stored record.
    pub fn load(&mut self, id: u64, record: Runaway) {
        self.next_id = self.next_id.max(id.saturating_add(1));
        self.newest.insert(record.conviction.key(), id);
        self.records.insert(id, Arc::new(record));
        self.make_room(MAX_RUNAWAYS);
    }

    /// Counts a conviction.
    pub fn convict(&mut self, unix_ms: u64, conviction: Conviction) {
        let key = conviction.key();
        let known = self.newest.get(&key).copied();
        if let Some((id, record)) = known.and_then(|id| Some((id, self.records.get_mut(&id)?)))
            && unix_ms.saturating_sub(record.first_unix_ms) < CONVICTION_WINDOW_MS
        {
            let record = Arc::make_mut(record);
            record.conviction = conviction;
            record.last_unix_ms = record.last_unix_ms.max(unix_ms);
            record.repeats = record.repeats.saturating_add(1);
            self.dirty.insert(id);
            return;
        }
        self.make_room(MAX_RUNAWAYS - 1);
        let id = self.next_id;
        self.next_id = id.saturating_add(1);
        let record = Runaway { conviction, first_unix_ms: unix_ms, last_unix_ms: unix_ms, repeats: 1 };
        self.newest.insert(key, id);
        self.records.insert(id, Arc::new(record));
        self.dirty.insert(id);
    }

    fn make_room(&mut self, most: usize) {
        while self.len() > most
            && let Some((id, record)) = self.records.pop_first()
        {
            let key = record.conviction.key();
            if self.newest.get(&key) == Some(&id) {
                self.newest.remove(&key);
            }
            self.dirty.insert(id);
            self.evicted = self.evicted.saturating_add(1);
        }
    }

    /// The newest records of one group or of all, newest first.
    pub fn newest(&self, group: Option<&GroupName>, most: usize) -> Vec<Arc<Runaway>> {
        let records = self.records.values().rev();
        let of_group = records.filter(|record| group.is_none_or(|group| record.conviction.group == *group));
        of_group.take(most).cloned().collect()
    }

    /// Returns the changes to store; `None` removes a record.
    pub fn take_dirty(&mut self) -> BTreeMap<u64, Option<Arc<Runaway>>> {
        let dirty = std::mem::take(&mut self.dirty);
        dirty.into_iter().map(|id| (id, self.records.get(&id).cloned())).collect()
    }

    /// Takes back changes that were not stored.
    pub fn mark_dirty(&mut self, ids: impl IntoIterator<Item = u64>) {
        self.dirty.extend(ids);
    }
}

#[cfg(test)]
mod kept_tests;

#[cfg(test)]
mod tests {
    use super::*;

    fn text(fingerprint: u64) -> v1::ConvictRequest {
        v1::ConvictRequest {
            gateway: "gw-1".into(),
            group: "web".into(),
            r#match: "identify".into(),
            action: "kill".into(),
            fingerprint: format!("{fingerprint:016x}"),
            template: "SELECT ?".into(),
            text_sha256: "AB".repeat(32),
            rule: "ROWS = 6 (5)".into(),
            user: "ann".into(),
            ..v1::ConvictRequest::default()
        }
    }

    fn conviction(fingerprint: u64) -> Conviction {
        Conviction::parse(&text(fingerprint)).unwrap()
    }

    #[test]
    fn equal_convictions_within_ten_minutes_are_one_record() {
        let mut runaways = Runaways::default();
        runaways.convict(1_000, conviction(1));
        runaways.convict(2_000, Conviction { user: "bob".into(), ..conviction(1) });
        runaways.convict(3_000, Conviction { found: Found::Watch, ..conviction(1) });
        runaways.convict(4_000, conviction(2));
        runaways.convict(1_000 + CONVICTION_WINDOW_MS, conviction(1));
        let shown = |record: &Arc<Runaway>| (record.first_unix_ms, record.last_unix_ms, record.repeats);
        let all = runaways.newest(None, 10);
        let figures: Vec<_> = all.iter().map(shown).collect();
        assert_eq!(figures, [(601_000, 601_000, 1), (4_000, 4_000, 1), (3_000, 3_000, 1), (1_000, 2_000, 2)]);
        assert_eq!(&*all[3].conviction.user, "bob");
        assert_eq!(runaways.newest(Some(&GroupName::default_group()), 10), []);
        assert_eq!(runaways.newest(None, 1).len(), 1);
        assert_eq!(runaways.take_dirty().len(), 4);
        assert!(runaways.take_dirty().is_empty());
    }

    #[test]
    fn a_statement_without_a_template_is_known_by_its_text() {
        let bare = Conviction { fingerprint: Box::default(), ..conviction(1) };
        let mut runaways = Runaways::default();
        runaways.convict(1, bare.clone());
        runaways.convict(2, bare);
        assert_eq!(runaways.newest(None, 10)[0].repeats, 2);
    }

    #[test]
    fn a_statement_of_unknown_text_is_recorded_without_digests() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        for (fingerprint, text_sha256) in [("", ""), ("cbf29ce484222325", ""), ("CBF29CE484222325", empty)] {
            let (fingerprint, text_sha256) = (fingerprint.into(), text_sha256.into());
            let unknown = v1::ConvictRequest { fingerprint, text_sha256, template: String::new(), ..text(1) };
            let unknown = Conviction::parse(&unknown).unwrap();
            assert_eq!((&*unknown.fingerprint, &*unknown.text_sha256), ("", ""));
            let mut runaways = Runaways::default();
            runaways.convict(1, unknown.clone());
            runaways.convict(2, unknown);
            assert_eq!(runaways.newest(None, 10)[0].repeats, 2);
        }
    }

    #[test]
    fn the_oldest_records_go() {
        let mut runaways = Runaways::default();
        let most = u64::try_from(MAX_RUNAWAYS).unwrap();
        (0..most + 3).for_each(|number| runaways.convict(number, conviction(number)));
        assert_eq!((runaways.len(), runaways.evicted()), (MAX_RUNAWAYS, 3));
        let dirty = runaways.take_dirty();
        assert!(dirty[&2].is_none() && dirty[&3].is_some());
        runaways.mark_dirty([1, 3]);
        assert!(runaways.take_dirty()[&1].is_none());
        runaways.convict(most, conviction(0));
        assert_eq!(runaways.newest(None, 1)[0].repeats, 1);
    }

    #[test]
    fn records_read_back() {
        let mut runaways = Runaways::default();
        runaways.convict(5, conviction(1));
        let record = Arc::clone(&runaways.newest(None, 1)[0]);
        assert_eq!(Runaway::load(&record.text()).unwrap(), *record);
        let mut again = Runaways::default();
        again.load(7, Runaway::clone(&record));
        again.convict(6, conviction(1));
        again.convict(6, conviction(2));
        assert_eq!(again.take_dirty().into_keys().collect::<Vec<_>>(), [7, 8]);
    }

    #[test]
    fn bad_fields_are_refused_by_name() {
        let long = "x".repeat(MAX_CONVICTION_TEXT + 1);
        let table: Vec<(&str, v1::ConvictRequest)> = vec![
            ("gateway", v1::ConvictRequest { gateway: String::new(), ..text(1) }),
            ("gateway", v1::ConvictRequest { gateway: "a b".into(), ..text(1) }),
            ("group", v1::ConvictRequest { group: "a b".into(), ..text(1) }),
            ("match", v1::ConvictRequest { r#match: "guess".into(), ..text(1) }),
            ("action", v1::ConvictRequest { action: String::new(), ..text(1) }),
            ("action", v1::ConvictRequest { action: "shoot".into(), ..text(1) }),
            ("switch_group", v1::ConvictRequest { action: "switch_group".into(), ..text(1) }),
            ("fingerprint", v1::ConvictRequest { fingerprint: "12".into(), ..text(1) }),
            ("text_sha256", v1::ConvictRequest { text_sha256: "12".into(), ..text(1) }),
            ("template", v1::ConvictRequest { template: "x".repeat(MAX_TEMPLATE + 1), ..text(1) }),
            ("rule", v1::ConvictRequest { rule: long.clone(), ..text(1) }),
            ("tenant", v1::ConvictRequest { tenant: long.clone(), ..text(1) }),
            ("user", v1::ConvictRequest { user: long, ..text(1) }),
        ];
        for (field, text) in table {
            assert_eq!(Conviction::parse(&text).unwrap_err().field(), Some(field), "{text:?}");
        }
    }
}
