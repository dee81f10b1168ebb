//! The watch list: statements that are convicted before they run.
//!
//! Pure: time is Unix milliseconds and an argument. There is one watch per group, statement and way of matching;
//! watching it again replaces the watch under its id. Watches end. At most [`MAX_WATCHES`] are kept: the identified one
//! that ends first makes room, never one that an operator added. Changes are returned once, to be stored.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::error::{AdminError, InField};
use crate::limits::{MAX_WATCHES, WATCH_RANGE};
use crate::name::GroupName;
use crate::quantity::cut;
use crate::statements::query_limit::{Action, Matching, QueryLimit};
use crate::statements::runaways::{Conviction, template};
use tidegate_proto::v1;

/// Source of a watch that an operator added.
pub const MANUAL: &str = "manual";

/// A watched statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// Never reused.
    pub id: u64,
    /// The group to which it applies.
    pub group: GroupName,
    /// The way to recognise the statement.
    pub matching: Matching,
    /// The SHA-256 of its text or the fingerprint of its template, as lower-case hexadecimal digits.
    pub digest: Box<str>,
    /// The template, for people.
    pub text: Arc<str>,
    /// The action; `None` is that of the group's rule.
    pub action: Option<Action>,
    /// Its start, in milliseconds since the Unix epoch.
    pub start_unix_ms: u64,
    /// Its end; 0 is never.
    pub end_unix_ms: u64,
    /// [`MANUAL`], or the gateway that found it.
    pub source: Box<str>,
    /// The broken limit; empty when manual.
    pub rule: Box<str>,
}

type Key = (GroupName, Matching, Box<str>);

/// All watches.
#[derive(Debug, Default)]
pub struct Watches {
    watches: BTreeMap<u64, Arc<Watch>>,
    ids: BTreeMap<Key, u64>,
    /// Whether the watch is manual, its end, and its id.
    ends: BTreeSet<(bool, u64, u64)>,
    next_id: u64,
    /// Changed and not on disk; one that no longer exists is to be removed there.
    dirty: BTreeSet<u64>,
    evicted: u64,
}

impl Watch {
    /// Whether an operator added it.
    pub fn is_manual(&self) -> bool {
        &*self.source == MANUAL
    }

    /// Reads a watch that an operator asks for, from now on; it gets its id when it is added. The catalog checks that
    /// its groups exist.
    pub fn parse(text: &v1::Watch, unix_ms: u64) -> Result<Self, AdminError> {
        let end = text.end_unix_ms;
        let latest = unix_ms.saturating_add(WATCH_RANGE.1.0 / 1_000);
        if end != 0 && (end <= unix_ms || latest < end) {
            let message =
                format!("{end} is out of range: after now, {unix_ms}, up to {latest}, or 0 for ever");
            return Err(AdminError::invalid("end_unix_ms", message));
        }
        let manual = v1::Watch {
            id: 0,
            text: template("text", &text.text)?.to_owned(),
            start_unix_ms: unix_ms,
            source: MANUAL.to_owned(),
            rule: String::new(),
            ..text.clone()
        };
        let watch = Self::load(&manual)?;
        if watch.is_blank() {
            let message =
                "is that of an empty text, which is no statement; write that of the statement's text";
            return Err(AdminError::invalid("digest", message));
        }
        Ok(watch)
    }

    /// Whether it covers no statement, but all whose text is unknown.
    pub fn is_blank(&self) -> bool {
        is_blank(self.matching, &self.digest)
    }

    /// The watch as text.
    pub fn text(&self) -> v1::Watch {
        v1::Watch {
            id: self.id,
            group: self.group.to_string(),
            r#match: self.matching.as_str().to_owned(),
            digest: self.digest.to_string(),
            text: self.text.to_string(),
            action: self.action.as_ref().map(Action::as_str).unwrap_or_default().to_owned(),
            switch_group: self.switch_group().map(ToString::to_string).unwrap_or_default(),
            start_unix_ms: self.start_unix_ms,
            end_unix_ms: self.end_unix_ms,
            source: self.source.to_string(),
            rule: self.rule.to_string(),
        }
    }

    /// Reads what [`Self::text`] wrote.
    pub fn load(stored: &v1::Watch) -> Result<Self, AdminError> {
        let matching = Matching::parse("match", &stored.r#match)?;
        let matching = matching
            .ok_or_else(|| AdminError::invalid("match", "is missing; write \"exact\" or \"similar\""))?;
        Ok(Self {
            id: stored.id,
            group: GroupName::parse(&stored.group).in_field("group")?,
            matching,
            digest: digest("digest", matching, &stored.digest)?,
            text: stored.text.as_str().into(),
            action: Action::parse("", &stored.action, &stored.switch_group)?,
            start_unix_ms: stored.start_unix_ms,
            end_unix_ms: stored.end_unix_ms,
            source: stored.source.as_str().into(),
            rule: stored.rule.as_str().into(),
        })
    }

    /// The group that it switches to itself.
    pub fn switch_group(&self) -> Option<&GroupName> {
        self.action.as_ref()?.switch_group()
    }

    fn key(&self) -> Key {
        (self.group.clone(), self.matching, self.digest.clone())
    }

    fn order(&self) -> (bool, u64, u64) {
        (self.is_manual(), ends(self.end_unix_ms), self.id)
    }
}

/// Checks the digest of a statement in this field; returns it in lower case.
pub fn digest(field: &str, matching: Matching, text: &str) -> Result<Box<str>, AdminError> {
    let (length, what) = match matching {
        Matching::Exact => (64, "SHA-256 of a statement's text"),
        Matching::Similar => (16, "fingerprint of a template"),
    };
    if text.len() != length || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        let message = format!("{:?} is not the {what}: write {length} hexadecimal digits", cut(text));
        return Err(AdminError::invalid(field, message));
    }
    Ok(text.to_ascii_lowercase().into())
}

/// Whether this digest, in lower case, is that of an empty text, which stands for no statement.
pub fn is_blank(matching: Matching, digest: &str) -> bool {
    let blank = match matching {
        Matching::Exact => "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        // The offset basis of FNV-1a.
        Matching::Similar => "cbf29ce484222325",
    };
    digest == blank
}

/// An end for comparisons: never is the last.
fn ends(end_unix_ms: u64) -> u64 {
    if end_unix_ms == 0 { u64::MAX } else { end_unix_ms }
}

impl Watches {
    /// No watches; the next one gets `next_id` or a later id.
    pub fn new(next_id: u64) -> Self {
        Self { next_id: next_id.max(1), ..Self::default() }
    }

    /// Number of watches.
    pub fn len(&self) -> usize {
        self.watches.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.watches.is_empty()
    }

    /// Watches that made room for others since the start.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// The id of the next new watch.
    pub fn next_id(&self) -> u64 {
        self.next_id
    }

    /// Reserves an id for a new watch. One that is not used is not given again.
    pub fn reserve(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id = id.saturating_add(1);
        id
    }

    /// Reserves all ids below one.
    pub fn reserve_below(&mut self, next_id: u64) {
        self.next_id = self.next_id.max(next_id);
    }

    /// One watch.
    pub fn get(&self, id: u64) -> Option<&Arc<Watch>> {
        self.watches.get(&id)
    }

    /// The watch of a statement.
    pub fn find(&self, group: &GroupName, matching: Matching, digest: &str) -> Option<&Arc<Watch>> {
        let id = self.ids.get(&(group.clone(), matching, digest.into()))?;
        self.watches.get(id)
    }

    /// All watches, in order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Watch>> {
        self.watches.values()
    }

    /// Watches after an id, in order of their ids.
    pub fn after(&self, id: u64) -> impl Iterator<Item = &Arc<Watch>> {
        self.watches.range((Bound::Excluded(id), Bound::Unbounded)).map(|(_, watch)| watch)
    }

    /// Watches of one group.
    pub fn of_group(&self, group: &GroupName) -> impl Iterator<Item = &Arc<Watch>> {
        let from = (group.clone(), Matching::Exact, Box::default());
        let ids = self.ids.range(from..).take_while(move |((of, ..), _)| of == group);
        ids.filter_map(|(_, id)| self.watches.get(id))
    }

    /// Whether there is room for one more watch of an operator.
    pub fn has_room(&self) -> bool {
        self.len() < MAX_WATCHES || self.ends.first().is_some_and(|(manual, ..)| !manual)
    }

    /// Adds a watch that is stored already, in place of any of the same statement.
    pub fn put(&mut self, watch: Watch) {
        self.next_id = self.next_id.max(watch.id.saturating_add(1));
        if let Some(other) = self.ids.get(&watch.key()).copied().filter(|other| *other != watch.id) {
            self.take(other);
            self.dirty.insert(other);
        }
        self.take(watch.id);
        while self.len() >= MAX_WATCHES {
            let Some((.., id)) = self.ends.first().copied() else { break };
            self.take(id);
            self.dirty.insert(id);
            self.evicted = self.evicted.saturating_add(1);
        }
        self.ids.insert(watch.key(), watch.id);
        self.ends.insert(watch.order());
        self.dirty.remove(&watch.id);
        self.watches.insert(watch.id, Arc::new(watch));
    }

    /// Adds a watch that is to be stored.
    pub fn put_unstored(&mut self, watch: Watch) {
        let id = watch.id;
        self.put(watch);
        self.dirty.insert(id);
    }

    /// Removes a watch that the store no longer has.
    pub fn remove(&mut self, id: u64) {
        self.take(id);
        self.dirty.remove(&id);
    }

    /// Removes the watches of a group that is gone, and those that switch to it.
    pub fn forget_group(&mut self, group: &GroupName) {
        let gone = |watch: &&Arc<Watch>| watch.group == *group || watch.switch_group() == Some(group);
        let ids: Vec<u64> = self.iter().filter(gone).map(|watch| watch.id).collect();
        for id in ids {
            self.take(id);
            self.dirty.insert(id);
        }
    }

    /// Watches a statement that broke `limit`, if that says so: adds a watch or extends the existing one. A watch of an
    /// operator keeps its action. Ends move in steps of a tenth, so that many convictions make few changes. Returns the
    /// watch, and whether it changed.
    pub fn identify(
        &mut self,
        unix_ms: u64,
        limit: &QueryLimit,
        conviction: &Conviction,
    ) -> Option<(u64, bool)> {
        let (matching, span) = limit.watch?;
        let digest = conviction.digest(matching);
        let length_ms = span.map(|span| span.0.div_ceil(1_000));
        let end_unix_ms = length_ms.map_or(0, |length| unix_ms.saturating_add(length));
        let known = self.find(&conviction.group, matching, digest).cloned();
        if digest.is_empty() || (known.is_none() && !self.has_room()) {
            return None;
        }
        let later = known.as_ref().is_none_or(|known| {
            let gained = ends(end_unix_ms).saturating_sub(ends(known.end_unix_ms));
            gained > length_ms.unwrap_or_default() / 10
        });
        let watch = match known {
            Some(known) if !later && (known.is_manual() || known.action.as_ref() == Some(&limit.action)) => {
                return Some((known.id, false));
            }
            Some(known) if known.is_manual() => Watch { end_unix_ms, ..Watch::clone(&known) },
            known => Watch {
                id: known.as_ref().map_or_else(|| self.reserve(), |known| known.id),
                group: conviction.group.clone(),
                matching,
                digest: digest.into(),
                text: Arc::clone(&conviction.template),
                action: Some(limit.action.clone()),
                start_unix_ms: known.as_ref().map_or(unix_ms, |known| known.start_unix_ms),
                end_unix_ms: match &known {
                    Some(known) if !later => known.end_unix_ms,
                    _ => end_unix_ms,
                },
                source: conviction.gateway.clone(),
                rule: conviction.rule.clone(),
            },
        };
        let id = watch.id;
        self.put_unstored(watch);
        Some((id, true))
    }

    /// The watch that convicts a statement: by its text, else by its template.
    pub fn covering(&self, conviction: &Conviction) -> Option<u64> {
        let found = |matching| self.find(&conviction.group, matching, conviction.digest(matching));
        found(Matching::Exact).or_else(|| found(Matching::Similar)).map(|watch| watch.id)
    }

    /// Ends watches whose time is over; returns whether there were any.
    pub fn expire(&mut self, unix_ms: u64) -> bool {
        let mut any = false;
        for manual in [false, true] {
            let past = (manual, 0, 0)..=(manual, unix_ms, u64::MAX);
            while let Some((.., id)) = self.ends.range(past.clone()).next().copied() {
                self.take(id);
                self.dirty.insert(id);
                any = true;
            }
        }
        any
    }

    fn take(&mut self, id: u64) {
        if let Some(watch) = self.watches.remove(&id) {
            self.ids.remove(&watch.key());
            self.ends.remove(&watch.order());
        }
    }

    /// Returns the changes to store; `None` removes a watch.
    pub fn take_dirty(&mut self) -> BTreeMap<u64, Option<Arc<Watch>>> {
        let dirty = std::mem::take(&mut self.dirty);
        dirty.into_iter().map(|id| (id, self.watches.get(&id).cloned())).collect()
    }

    /// Takes back changes that were not stored.
    pub fn mark_dirty(&mut self, ids: impl IntoIterator<Item = u64>) {
        self.dirty.extend(ids);
    }
}

#[cfg(test)]
mod full_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statements::runaways::Found;

    /// SHA-256 of an empty text.
    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn group(name: &str) -> GroupName {
        GroupName::parse(name).unwrap()
    }

    fn watch(id: u64, of: &str, end_unix_ms: u64, source: &str) -> Watch {
        Watch {
            id,
            group: group(of),
            matching: Matching::Similar,
            digest: format!("{id:016x}").into(),
            text: "SELECT ?".into(),
            action: Some(Action::SwitchGroup(group("slow"))),
            start_unix_ms: 5,
            end_unix_ms,
            source: source.into(),
            rule: "RU = 2 (1)".into(),
        }
    }

    fn ids(watches: &Watches) -> Vec<u64> {
        watches.iter().map(|watch| watch.id).collect()
    }

    #[test]
    fn a_statement_is_watched_once_and_what_changed_is_stored() {
        let mut watches = Watches::new(0);
        assert_eq!((watches.reserve(), watches.reserve()), (1, 2));
        watches.put_unstored(watch(1, "a", 0, "gw"));
        watches.put(Watch { id: 2, ..watch(1, "a", 9, MANUAL) });
        watches.put(watch(3, "b", 0, MANUAL));
        assert_eq!(ids(&watches), [2, 3]);
        assert_eq!(watches.find(&group("a"), Matching::Similar, &format!("{:016x}", 1)).unwrap().id, 2);
        assert_eq!(watches.of_group(&group("a")).count(), 1);
        assert_eq!(watches.take_dirty(), [(1, None)].into());
        assert!(watches.take_dirty().is_empty());
        watches.mark_dirty([3]);
        assert!(watches.take_dirty()[&3].is_some());
        watches.remove(3);
        assert_eq!((ids(&watches), watches.next_id()), (vec![2], 4));
    }

    #[test]
    fn watches_go_with_their_groups() {
        let mut watches = Watches::new(1);
        watches.put(watch(1, "a", 0, "gw"));
        watches.put(Watch { action: None, ..watch(2, "b", 0, "gw") });
        watches.put(Watch { action: None, ..watch(3, "slow", 0, "gw") });
        watches.forget_group(&group("slow"));
        assert_eq!(ids(&watches), [2]);
        assert_eq!(watches.take_dirty(), [(1, None), (3, None)].into());
    }

    #[test]
    fn watches_end() {
        let mut watches = Watches::new(1);
        watches.put(watch(1, "a", 10, "gw"));
        watches.put(watch(2, "a", 20, MANUAL));
        watches.put(watch(3, "a", 0, "gw"));
        assert!(!watches.expire(9));
        assert!(watches.expire(10));
        assert_eq!(ids(&watches), [2, 3]);
        assert!(watches.expire(u64::MAX - 1));
        assert_eq!(ids(&watches), [3]);
        assert_eq!(watches.take_dirty(), [(1, None), (2, None)].into());
    }

    #[test]
    fn the_list_is_bounded_and_operators_come_first() {
        let mut watches = Watches::new(1);
        let most = u64::try_from(MAX_WATCHES).unwrap();
        watches.put(watch(1, "a", 7, MANUAL));
        for id in 2..=most + 5 {
            assert!(watches.has_room());
            watches.put(watch(id, "a", 1_000_000 - id, "gw"));
        }
        assert_eq!((watches.len(), watches.evicted()), (MAX_WATCHES, 5));
        assert!(watches.get(1).is_some() && watches.get(2).is_some() && watches.get(most).is_none());
        let mut manual = Watches::new(1);
        (1..=most).for_each(|id| manual.put(watch(id, "a", 0, MANUAL)));
        assert!(!manual.has_room());
    }

    #[test]
    fn stored_watches_read_back_and_digests_are_checked() {
        let known = watch(7, "a", 9, "gw");
        assert_eq!(Watch::load(&known.text()).unwrap(), known);
        assert_eq!(&*digest("digest", Matching::Similar, "00000000000000AB").unwrap(), "00000000000000ab");
        for (matching, text) in [
            (Matching::Similar, "ab"),
            (Matching::Similar, "zz000000000000ab"),
            (Matching::Exact, "00000000000000ab"),
            (Matching::Exact, ""),
        ] {
            assert_eq!(digest("digest", matching, text).unwrap_err().field(), Some("digest"));
        }
    }

    fn limit(watch: &str, watch_us: u64, action: &str) -> QueryLimit {
        let text = v1::QueryLimit {
            rows: 1,
            action: action.into(),
            watch: watch.into(),
            watch_us,
            ..v1::QueryLimit::default()
        };
        QueryLimit::parse(&text).unwrap()
    }

    fn conviction() -> Conviction {
        Conviction {
            gateway: "gw".into(),
            group: group("a"),
            found: Found::Identify,
            action: Action::Kill,
            fingerprint: "00000000000000ab".into(),
            template: "SELECT ?".into(),
            text_sha256: Box::default(),
            rule: "ROWS = 2 (1)".into(),
            tenant: Box::default(),
            user: Box::default(),
        }
    }

    #[test]
    fn an_identified_statement_is_watched_and_its_watch_extended_in_steps() {
        let mut watches = Watches::new(1);
        let ten_s = limit("similar", 10_000_000, "kill");
        assert_eq!(watches.identify(0, &limit("", 0, "kill"), &conviction()), None);
        assert_eq!(
            watches.identify(0, &limit("exact", 0, "kill"), &conviction()),
            None,
            "no digest is known"
        );
        assert_eq!(watches.identify(100, &ten_s, &conviction()), Some((1, true)));
        assert_eq!(watches.identify(1_100, &ten_s, &conviction()), Some((1, false)));
        assert_eq!(watches.identify(1_101, &ten_s, &conviction()), Some((1, true)));
        let watch = watches.get(1).unwrap();
        assert_eq!((watch.start_unix_ms, watch.end_unix_ms, &*watch.source), (100, 11_101, "gw"));
        assert_eq!((watch.action.clone(), &*watch.rule), (Some(Action::Kill), "ROWS = 2 (1)"));
        assert_eq!(watches.identify(1_102, &limit("similar", 0, "kill"), &conviction()), Some((1, true)));
        assert_eq!(watches.get(1).unwrap().end_unix_ms, 0);
        assert_eq!(watches.identify(1_103, &ten_s, &conviction()), Some((1, false)), "for ever stays");
        assert_eq!(watches.identify(1_104, &limit("similar", 0, "dryrun"), &conviction()), Some((1, true)));
        assert_eq!(watches.get(1).unwrap().action, Some(Action::DryRun));
        assert_eq!(watches.identify(1_105, &ten_s, &conviction()), Some((1, true)), "another action");
        assert_eq!(watches.get(1).unwrap().end_unix_ms, 0, "and still for ever");
        assert_eq!(watches.covering(&conviction()), Some(1));
        assert_eq!(watches.covering(&Conviction { group: group("b"), ..conviction() }), None);
    }

    #[test]
    fn a_rule_that_changes_its_action_ends_no_watch_earlier() {
        let mut watches = Watches::new(1);
        for (at, seconds, action, end) in
            [(0, 60, "kill", 60_000), (5, 10, "dryrun", 60_000), (52_000, 10, "kill", 62_000)]
        {
            let changed = watches.identify(at, &limit("similar", seconds * 1_000_000, action), &conviction());
            assert_eq!(changed, Some((1, true)));
            let watch = watches.get(1).unwrap();
            assert_eq!((watch.start_unix_ms, watch.end_unix_ms), (0, end), "at {at}");
        }
    }

    #[test]
    fn a_watch_of_an_operator_keeps_its_action() {
        let mut watches = Watches::new(1);
        let digest = "00000000000000ab".into();
        watches.put(Watch { digest, action: None, ..watch(1, "a", 50, MANUAL) });
        let ten_s = limit("similar", 10_000_000, "kill");
        assert_eq!(watches.identify(40, &ten_s, &conviction()), Some((1, true)));
        let extended = watches.get(1).unwrap();
        assert_eq!((extended.end_unix_ms, &extended.action, &*extended.source), (10_040, &None, MANUAL));
    }

    #[test]
    fn bad_watches_are_refused_by_name() {
        let good = v1::Watch {
            id: 9,
            group: "a".into(),
            r#match: "similar".into(),
            digest: "00000000000000AB".into(),
            source: "me".into(),
            end_unix_ms: 11,
            ..v1::Watch::default()
        };
        let parsed = Watch::parse(&good, 10).unwrap();
        assert_eq!((parsed.id, parsed.start_unix_ms, &*parsed.source, &*parsed.rule), (0, 10, MANUAL, ""));
        let table: Vec<(&str, v1::Watch)> = vec![
            ("group", v1::Watch { group: String::new(), ..good.clone() }),
            ("match", v1::Watch { r#match: String::new(), ..good.clone() }),
            ("match", v1::Watch { r#match: "like".into(), ..good.clone() }),
            ("digest", v1::Watch { r#match: "exact".into(), ..good.clone() }),
            ("digest", v1::Watch { digest: String::new(), ..good.clone() }),
            ("digest", v1::Watch { digest: "CBF29CE484222325".into(), ..good.clone() }),
            ("digest", v1::Watch { r#match: "exact".into(), digest: EMPTY.into(), ..good.clone() }),
            ("text", v1::Watch { text: "x".repeat(9_000), ..good.clone() }),
            ("action", v1::Watch { action: "shoot".into(), ..good.clone() }),
            ("switch_group", v1::Watch { action: "switch_group".into(), ..good.clone() }),
            ("switch_group", v1::Watch { switch_group: "b".into(), ..good.clone() }),
            ("end_unix_ms", v1::Watch { end_unix_ms: 10, ..good.clone() }),
            ("end_unix_ms", v1::Watch { end_unix_ms: u64::MAX, ..good }),
        ];
        for (field, text) in table {
            assert_eq!(Watch::parse(&text, 10).unwrap_err().field(), Some(field), "{text:?}");
        }
    }
}
