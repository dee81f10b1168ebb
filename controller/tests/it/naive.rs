//! Definitions beside a naive model of them: random changes, refusals, crashes and clean restarts, and after each step
//! everything that can be read, and what a watcher was sent, must be what the model says.

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tidegate_proto::v1;
use tidegate_proto::v1::admin_client::AdminClient;
use tidegate_proto::v1::statements_client::StatementsClient;
use tidegate_proto::v1::watch_event::Kind;
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use crate::support::{Lab, PATIENCE, stories};

const GROUPS: [&str; 5] = ["a", "b", "c", "d", "e"];
const PRINCIPALS: [(&str, &str); 6] = [("t", ""), ("s", ""), ("", "u"), ("", "v"), ("t", "u"), ("s", "v")];
const SEEDS: u64 = 8;
const STEPS: u64 = 50;

/// Every seed is a story that can be told again.
struct Random(StdRng);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0.random_range(0..end)
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.0.random_range(0..of.len())]
    }

    /// A group, or another text one time in `often`.
    fn group_or(&mut self, other: &'static str, often: u64) -> &'static str {
        if self.below(often) == 0 { other } else { self.one(&GROUPS) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    parent: String,
    rate: String,
    weight: u32,
    /// The group to which runaways are switched.
    switch: String,
}

/// A watch: whose statement, and where it is switched to, or empty.
type Watch = (String, String);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Model {
    groups: BTreeMap<String, Group>,
    bindings: BTreeMap<(String, String), String>,
    watches: BTreeMap<u64, Watch>,
}

impl Model {
    fn exists(&self, name: &str) -> bool {
        name == "default" || self.groups.contains_key(name)
    }

    fn is_below(&self, name: &str, above: &str) -> bool {
        name == above || self.groups.get(name).is_some_and(|group| self.is_below(&group.parent, above))
    }

    /// Whether a group of this name may be as it says.
    fn allows(&self, name: &str, group: &Group) -> bool {
        let parent = &*group.parent;
        let place =
            parent.is_empty() || (self.exists(parent) && !self.is_below(parent, name) && name != parent);
        place && (group.switch.is_empty() || (self.exists(&group.switch) && group.switch != name))
    }

    /// Deletes a group; `None` when that is refused.
    fn delete(&self, name: &str, to: &str) -> Option<Self> {
        let mut after = self.clone();
        after.groups.remove(name)?;
        let mut used = false;
        let mut moved = |what: &mut String| {
            if what == name {
                used = true;
                *what = to.to_owned();
            }
        };
        after.watches.retain(|_, (of, _)| of != name);
        for group in after.groups.values_mut() {
            moved(&mut group.parent);
            moved(&mut group.switch);
        }
        after.bindings.values_mut().for_each(&mut moved);
        after.watches.values_mut().for_each(|(_, switch)| moved(switch));
        if to.is_empty() {
            return (!used).then_some(after);
        }
        let target = after.groups.get(to);
        let to_itself = target.is_some_and(|target| target.switch == to)
            || after.watches.values().any(|(of, switch)| of == to && switch == to);
        // What is below the default group could not be there, since that group is at the top and stays so.
        (after.exists(to) && !self.is_below(to, name) && !to_itself).then_some(after)
    }

    fn charged(&self, tenant: &str, user: &str) -> &str {
        let keys = [(tenant, user), ("", user), (tenant, "")];
        let bound = |(tenant, user): &(&str, &str)| self.bindings.get(&((*tenant).into(), (*user).into()));
        keys.iter().filter(|key| **key != ("", "")).find_map(bound).map_or("default", String::as_str)
    }
}

/// A node's copy of the bindings, from what the watch stream sends.
struct Watcher {
    events: Streaming<v1::WatchEvent>,
    revision: u64,
    bindings: BTreeMap<(String, String), String>,
}

impl Watcher {
    async fn open(lab: &Lab) -> Self {
        let request = v1::WatchRequest::default();
        let events = lab.grants().await.watch(request).await.unwrap().into_inner();
        Self { events, revision: 0, bindings: BTreeMap::new() }
    }

    /// Applies events until `revision`; returns the groups that changed.
    async fn follow(&mut self, revision: u64) -> BTreeSet<String> {
        let mut changed = BTreeSet::new();
        while self.revision < revision {
            let event = timeout(PATIENCE, self.events.message()).await.unwrap().unwrap().unwrap();
            self.revision = event.revision;
            match event.kind.unwrap() {
                Kind::Snapshot(snapshot) => {
                    self.bindings = snapshot.bindings.into_iter().map(entry).collect();
                }
                Kind::Binding(change) => {
                    let (key, group) = entry(change.binding.unwrap());
                    if change.removed {
                        self.bindings.remove(&key);
                    } else {
                        self.bindings.insert(key, group);
                    }
                }
                Kind::GroupsChanged(groups) => changed.extend(groups.groups),
                Kind::CostTables(_) | Kind::Heartbeat(_) => {}
            }
        }
        changed
    }
}

fn entry(binding: v1::Binding) -> ((String, String), String) {
    ((binding.tenant, binding.user), binding.group)
}

fn limit(switch: &str) -> Option<v1::QueryLimit> {
    let action = "switch_group".into();
    (!switch.is_empty()).then(|| v1::QueryLimit {
        rows: 5,
        action,
        switch_group: switch.into(),
        ..v1::QueryLimit::default()
    })
}

fn message(name: &str, group: &Group) -> v1::Group {
    v1::Group {
        name: name.into(),
        parent: group.parent.clone(),
        ru_per_sec: group.rate.clone(),
        weight: group.weight,
        query_limit: limit(&group.switch),
        ..v1::Group::default()
    }
}

/// A controller and a model of it.
struct Story {
    random: Random,
    /// There but for the moment of a restart.
    lab: Option<Lab>,
    admin: AdminClient<Channel>,
    statements: StatementsClient<Channel>,
    watcher: Watcher,
    model: Model,
    /// Of each group, as of its last change.
    revisions: BTreeMap<String, u64>,
}

impl Story {
    async fn begin(seed: u64) -> Self {
        let lab = Lab::start().await;
        let (admin, statements) = (lab.admin().await, lab.statements().await);
        let watcher = Watcher::open(&lab).await;
        Self {
            random: Random(StdRng::seed_from_u64(seed)),
            lab: Some(lab),
            admin,
            statements,
            watcher,
            model: Model::default(),
            revisions: BTreeMap::new(),
        }
    }

    /// Takes `after` for the state if the call succeeded, which it must exactly if there is one.
    fn judge<T>(&mut self, what: &str, after: Option<Model>, done: Result<T, Status>) {
        match (after, done) {
            (Some(after), Ok(_)) => self.model = after,
            (None, Err(_)) => {}
            (Some(_), Err(refused)) => panic!("{what} was refused: {refused}; {:?}", self.model),
            (None, Ok(_)) => panic!("{what} was allowed; {:?}", self.model),
        }
    }

    async fn step(&mut self) -> String {
        match self.random.below(16) {
            0..4 => self.create().await,
            4..8 => self.alter().await,
            8..10 => self.delete().await,
            10..12 => self.bind().await,
            12 => self.unbind().await,
            13 => self.watch().await,
            14 => self.unwatch().await,
            _ => self.restart().await,
        }
    }

    fn group(&mut self) -> Group {
        let parent = if self.random.below(2) == 0 { String::new() } else { self.random.one(&GROUPS).into() };
        let switch =
            if self.random.below(3) > 0 { String::new() } else { self.random.group_or("default", 6).into() };
        let rate = self.random.one(&["10", "20", "unlimited"]).into();
        Group { parent, rate, weight: self.random.one(&[1, 2, 9]), switch }
    }

    async fn create(&mut self) -> String {
        let (name, group) = (self.random.one(&GROUPS), self.group());
        let what = format!("create {name} as {group:?}");
        let mut after = self.model.clone();
        let allowed = !after.groups.contains_key(name) && after.allows(name, &group);
        let request = v1::CreateGroupRequest { group: Some(message(name, &group)), if_not_exists: false };
        after.groups.insert(name.into(), group);
        let done = self.admin.create_group(request).await;
        self.judge(&what, allowed.then_some(after), done);
        what
    }

    async fn alter(&mut self) -> String {
        let (name, new) = (self.random.one(&GROUPS), self.group());
        let fields = ["parent", "ru_per_sec", "weight", "query_limit"];
        let mask: BTreeSet<&str> = (0..=self.random.below(2)).map(|_| self.random.one(&fields)).collect();
        let what = format!("alter {mask:?} of {name} to {new:?}");
        let mut after = self.model.clone();
        let merged = after.groups.get_mut(name).map(|group| {
            for field in &mask {
                match *field {
                    "parent" => group.parent.clone_from(&new.parent),
                    "ru_per_sec" => group.rate.clone_from(&new.rate),
                    "weight" => group.weight = new.weight,
                    _ => group.switch.clone_from(&new.switch),
                }
            }
            group.clone()
        });
        let allowed = merged.is_some_and(|merged| self.model.allows(name, &merged));
        let mut text = message(name, &new);
        if text.parent.is_empty() {
            text.parent = "/".into();
        }
        let update_mask = mask.into_iter().map(str::to_owned).collect();
        let done = self
            .admin
            .alter_group(v1::AlterGroupRequest { group: Some(text), update_mask, expected_revision: 0 })
            .await;
        self.judge(&what, allowed.then_some(after), done);
        what
    }

    async fn delete(&mut self) -> String {
        let name = self.random.one(&GROUPS);
        let to = if self.random.below(3) == 0 { "" } else { self.random.group_or("default", 4) };
        let what = format!("delete {name} to {to:?}");
        let after = self.model.delete(name, to);
        let (name, force_to) = (name.into(), to.into());
        let request = v1::DeleteGroupRequest { name, force_to, ..v1::DeleteGroupRequest::default() };
        let done = self.admin.delete_group(request).await;
        self.judge(&what, after, done);
        what
    }

    async fn bind(&mut self) -> String {
        let ((tenant, user), group) = (self.random.one(&PRINCIPALS), self.random.group_or("default", 6));
        let what = format!("bind {tenant}/{user} to {group}");
        let mut after = self.model.clone();
        after.bindings.insert((tenant.into(), user.into()), group.into());
        let binding = v1::Binding { tenant: tenant.into(), user: user.into(), group: group.into() };
        let done = self.admin.bind(v1::BindRequest { binding: Some(binding) }).await;
        self.judge(&what, self.model.exists(group).then_some(after), done);
        what
    }

    async fn unbind(&mut self) -> String {
        let (tenant, user) = self.random.one(&PRINCIPALS);
        let what = format!("unbind {tenant}/{user}");
        let mut after = self.model.clone();
        let removed = after.bindings.remove(&(tenant.into(), user.into())).is_some();
        let done = self.admin.unbind(v1::UnbindRequest { tenant: tenant.into(), user: user.into() }).await;
        assert_eq!(done.as_ref().map(|reply| reply.get_ref().removed).ok(), Some(removed), "{what}");
        self.judge(&what, Some(after), done);
        what
    }

    async fn watch(&mut self) -> String {
        let (of, to) = (self.random.one(&GROUPS), self.random.one(&GROUPS));
        let switch = if self.random.below(2) == 0 { "" } else { to };
        let what = format!("watch a statement of {of} that is switched to {switch:?}");
        let allowed =
            self.model.exists(of) && (switch.is_empty() || (self.model.exists(switch) && of != switch));
        // A statement of its own, so that no watch replaces another.
        let digest = format!("{:016x}", self.random.below(1 << 60) + 1);
        let watch = v1::Watch {
            group: of.into(),
            r#match: "similar".into(),
            digest,
            action: if switch.is_empty() { "kill" } else { "switch_group" }.into(),
            switch_group: switch.into(),
            ..v1::Watch::default()
        };
        let done = self.statements.add_watch(v1::AddWatchRequest { watch: Some(watch), watch_us: 0 }).await;
        let mut after = self.model.clone();
        if let Ok(reply) = &done {
            let id = reply.get_ref().watch.as_ref().unwrap().id;
            after.watches.insert(id, (of.into(), switch.into()));
        }
        self.judge(&what, allowed.then_some(after), done);
        what
    }

    async fn unwatch(&mut self) -> String {
        let Some(id) = self.model.watches.keys().next().copied() else { return "nothing to unwatch".into() };
        let mut after = self.model.clone();
        after.watches.remove(&id);
        let done = self.statements.remove_watch(v1::RemoveWatchRequest { id, ..Default::default() }).await;
        self.judge("unwatch", Some(after), done);
        format!("unwatch {id}")
    }

    async fn restart(&mut self) -> String {
        let crashes = self.random.below(2) == 0;
        let lab = self.lab.take().unwrap();
        let lab = if crashes { lab.crash().await } else { lab.restart().await };
        (self.admin, self.statements) = (lab.admin().await, lab.statements().await);
        self.watcher = Watcher::open(&lab).await;
        self.lab = Some(lab);
        format!("restart, {crashes}")
    }

    /// The revision of the definitions.
    async fn revision(&mut self) -> u64 {
        self.admin.status(v1::StatusRequest::default()).await.unwrap().into_inner().revision
    }

    /// Everything that can be read is what the model says.
    async fn check(&mut self, before: &Model, what: &str) {
        let listed = self.admin.list_groups(v1::ListGroupsRequest::default()).await.unwrap().into_inner();
        let groups: BTreeMap<_, _> =
            listed.groups.into_iter().map(|group| (group.name.clone(), group)).collect();
        let names: Vec<&str> = groups.keys().map(String::as_str).filter(|name| *name != "default").collect();
        assert_eq!(names, self.model.groups.keys().collect::<Vec<_>>(), "{what}");
        let now = self.revision().await;
        for (name, expected) in &self.model.groups {
            let group = &groups[name];
            // Who wants to change what it has read can tell whether that is still so.
            let is_same = before.groups.get(name) == Some(expected);
            let revision = if is_same { self.revisions[name] } else { now };
            assert_eq!(group.revision, revision, "{name} after {what}, at revision {now}");
            self.revisions.insert(name.clone(), revision);
            let switch =
                group.query_limit.as_ref().map(|limit| limit.switch_group.clone()).unwrap_or_default();
            let parent = group.parent.trim_matches('/').to_owned();
            let found = Group { parent, rate: group.ru_per_sec.clone(), weight: group.weight.max(1), switch };
            assert_eq!(found, *expected, "{name} after {what}");
        }
        let mut all = BTreeMap::new();
        for group in ["default"].iter().chain(&GROUPS) {
            let request = v1::ListBindingsRequest { group: (*group).into(), ..Default::default() };
            let of_group = self.admin.list_bindings(request).await;
            if self.model.exists(group) {
                let of_group = of_group.unwrap().into_inner().bindings;
                assert!(of_group.iter().all(|binding| binding.group == *group), "{group} after {what}");
                all.extend(of_group.into_iter().map(entry));
            }
        }
        assert_eq!(all, self.model.bindings, "by group, after {what}");
        let list = self.admin.list_bindings(v1::ListBindingsRequest::default()).await.unwrap().into_inner();
        let list: BTreeMap<_, _> = list.bindings.into_iter().map(entry).collect();
        assert_eq!(list, self.model.bindings, "after {what}");
        for (tenant, user) in PRINCIPALS.into_iter().chain([("t", "v"), ("x", "u"), ("t", "x")]) {
            let request = v1::ResolveRequest { tenant: tenant.into(), user: user.into() };
            let charged = self.admin.resolve(request).await.unwrap().into_inner().group;
            assert_eq!(charged, self.model.charged(tenant, user), "{tenant}/{user} after {what}");
        }
        let watches = self.statements.list_watches(v1::ListWatchesRequest::default()).await.unwrap();
        let watches = watches.into_inner().watches.into_iter();
        let watches: BTreeMap<u64, Watch> =
            watches.map(|watch| (watch.id, (watch.group, watch.switch_group))).collect();
        assert_eq!(watches, self.model.watches, "after {what}");
        let leased = |group: &Group| (group.parent.clone(), group.rate.clone(), group.weight);
        let differs =
            |name: &&&str| before.groups.get(**name).map(leased) != self.model.groups.get(**name).map(leased);
        let changed: Vec<&str> = GROUPS.iter().filter(differs).copied().collect();
        let restarted = self.watcher.revision == 0;
        if restarted || !changed.is_empty() || before.bindings != self.model.bindings {
            let revision = self.revision().await;
            let heard = self.watcher.follow(revision).await;
            assert_eq!(self.watcher.bindings, self.model.bindings, "at a watcher, after {what}");
            let unheard = changed.iter().find(|name| !restarted && !heard.contains(**name));
            assert_eq!(unheard, None, "a node must hear of it after {what}: {heard:?}");
        }
    }
}

#[tokio::test]
async fn definitions_are_what_a_naive_model_says_after_any_changes_and_crashes() {
    for seed in stories(SEEDS) {
        let mut story = Story::begin(seed).await;
        story.check(&Model::default(), "the start").await;
        for step in 0..STEPS {
            let (before, revision) = (story.model.clone(), story.revision().await);
            let what = format!("step {step} of seed {seed}: {}", story.step().await);
            if story.model != before || story.watcher.revision == 0 {
                story.check(&before, &what).await;
            } else {
                assert_eq!(story.revision().await, revision, "{what}");
            }
        }
    }
}
