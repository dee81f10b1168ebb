//! Definitions and bindings that are made, changed and removed with the real command line while the controller dies,
//! and what must be there afterwards.
//!
//! What was acknowledged must be found exactly; what got no answer may be found as before or as asked, and is left
//! alone from then on, since the request may still be on its way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_core::units::Rate;
use tidegate_proto::v1::admin_client::AdminClient;
use tidegate_proto::v1::{ListBindingsRequest, ListGroupsRequest};
use tokio::sync::watch;
use tonic::transport::Endpoint;

use super::cap::Cap;
use super::console::{Console, Reply};
use super::things::Things;
use super::{GROUP_TTL, LEASE_US, MOVING, MOVING_RATES};
use crate::process::log::machine_micros;
use tidegate_sim::random::Random;

/// Rows in one page of a list.
const PAGE: u32 = 1_000;
/// Everything is compared after this many changes, and after every start of the controller.
const COMPARE_EVERY: u64 = 50;
/// Time between two changes, in milliseconds.
const PAUSE_MS: (u64, u64) = (50, 350);
/// Time after a change without an answer.
const AFTER_LOSS: Duration = Duration::from_millis(600);
/// How long a list may take.
const LIST_WITHIN: Duration = Duration::from_secs(20);
/// How long one of several controllers may take: one that stands still would take all of it.
const ONE_LISTS_WITHIN: Duration = Duration::from_secs(6);

/// Groups with their rates, and users with their groups.
type Lists = (BTreeMap<String, String>, BTreeMap<String, String>);

/// Counts of what was done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Changes that were acknowledged.
    pub acknowledged: u64,
    /// Changes without an answer, or that nobody could make.
    pub lost: u64,
    /// Comparisons of everything.
    pub compared: u64,
}

/// The definitions of a run, and who changes them.
#[derive(Debug)]
pub struct Definitions {
    console: Console,
    random: Random,
    made: u64,
    groups: Things,
    bindings: Things,
    /// What was done.
    pub counts: Counts,
    /// The rate of the group that is altered.
    pub cap: Cap,
}

impl Definitions {
    /// A change without any group yet; groups under load are not listed here.
    pub fn new(console: Console, seed: u64) -> Self {
        let cap = Cap::new(Rate::whole(MOVING_RATES.1), LEASE_US);
        let random = Random::new(seed, 1_000);
        let (groups, bindings) = (Things::default(), Things::default());
        Self { console, random, made: 0, groups, bindings, counts: Counts::default(), cap }
    }

    /// How many groups and bindings certainly exist.
    pub fn there(&self) -> (usize, usize) {
        (self.groups.there().len(), self.bindings.there().len())
    }

    /// Changes one thing after another until it is stopped. `starts` counts starts of the controller.
    ///
    /// # Errors
    /// What was acknowledged is not there, or a change was refused.
    pub async fn run(mut self, starts: Arc<AtomicU64>, stop: watch::Receiver<bool>) -> Result<Self, String> {
        let (mut seen, mut changes) = (starts.load(Ordering::Relaxed), 0_u64);
        while !*stop.borrow() {
            let pause = self.random.between(PAUSE_MS.0, PAUSE_MS.1);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            self.change().await?;
            changes += 1;
            let now = starts.load(Ordering::Relaxed);
            if (now != seen || changes.is_multiple_of(COMPARE_EVERY)) && self.compare().await? {
                seen = now;
            }
        }
        Ok(self)
    }

    /// Makes one change; waits a while after one without an answer, since the next would get none either.
    async fn change(&mut self) -> Result<(), String> {
        let lost = self.counts.lost;
        self.change_something().await?;
        if self.counts.lost > lost {
            tokio::time::sleep(AFTER_LOSS).await;
        }
        Ok(())
    }

    async fn change_something(&mut self) -> Result<(), String> {
        match self.random.below(10) {
            0 => self.move_rate().await,
            1 => self.remove_group().await,
            2 => self.unbind().await,
            3 => self.alter().await,
            4..=6 => self.bind().await,
            _ => self.create().await,
        }
    }

    fn count(&mut self, reply: &Reply) -> Result<(), String> {
        match reply {
            Reply::Done => self.counts.acknowledged += 1,
            Reply::Lost | Reply::Undone => self.counts.lost += 1,
            Reply::Refused(why) => return Err(format!("a change was refused: {why}")),
        }
        Ok(())
    }

    async fn create(&mut self) -> Result<(), String> {
        self.made += 1;
        let (name, rate) = (format!("made-{}", self.made), self.rate());
        let args = ["group", "create", &name, "--rate", &rate, "--ttl", GROUP_TTL];
        let reply = self.console.run(&args).await;
        self.groups.note(&name, Some(rate), &reply);
        self.count(&reply)
    }

    async fn alter(&mut self) -> Result<(), String> {
        let Some(name) = pick(&mut self.random, &self.groups.there()) else {
            return Ok(());
        };
        let rate = self.rate();
        let reply = self.console.run(&["group", "alter", &name, "--rate", &rate]).await;
        self.groups.note(&name, Some(rate), &reply);
        self.count(&reply)
    }

    /// Removes a group that no user can be bound to.
    async fn remove_group(&mut self) -> Result<(), String> {
        let free: Vec<&str> =
            self.groups.there().into_iter().filter(|name| !self.bindings.may_say(name)).collect();
        let Some(name) = pick(&mut self.random, &free) else {
            return Ok(());
        };
        let reply = self.console.run(&["group", "delete", &name]).await;
        self.groups.note(&name, None, &reply);
        self.count(&reply)
    }

    /// Binds a new user, or binds one again.
    async fn bind(&mut self) -> Result<(), String> {
        let Some(group) = pick(&mut self.random, &self.groups.there()) else {
            return Ok(());
        };
        let again = if self.random.one_in(3) { pick(&mut self.random, &self.bindings.there()) } else { None };
        let user = again.unwrap_or_else(|| {
            self.made += 1;
            format!("user-{}", self.made)
        });
        let reply = self.console.run(&["bind", "add", &group, "--user", &user]).await;
        self.bindings.note(&user, Some(group), &reply);
        self.count(&reply)
    }

    async fn unbind(&mut self) -> Result<(), String> {
        let Some(user) = pick(&mut self.random, &self.bindings.there()) else {
            return Ok(());
        };
        let reply = self.console.run(&["bind", "remove", "--user", &user]).await;
        self.bindings.note(&user, None, &reply);
        self.count(&reply)
    }

    /// Alters the rate of a group that is under load.
    async fn move_rate(&mut self) -> Result<(), String> {
        let (low, high) = (MOVING_RATES.0.unsigned_abs(), MOVING_RATES.1.unsigned_abs());
        let rate = self.random.between(low, high);
        self.cap.asked(Rate::whole(i64::try_from(rate).unwrap_or(0)), machine_micros());
        let reply = self.console.run(&["group", "alter", MOVING, "--rate", &rate.to_string()]).await;
        if reply == Reply::Done {
            self.cap.acknowledged(machine_micros());
        }
        self.count(&reply)
    }

    fn rate(&mut self) -> String {
        self.random.between(1, 1_000).to_string()
    }

    /// Compares everything; false when the controller did not answer.
    ///
    /// # Errors
    /// What differs.
    pub async fn compare(&mut self) -> Result<bool, String> {
        let Ok(Some((groups, bindings))) = tokio::time::timeout(LIST_WITHIN, self.listed()).await else {
            return Ok(false);
        };
        self.counts.compared += 1;
        let mut differences = self.groups.differences("group", &groups);
        differences.extend(self.bindings.differences("binding of user", &bindings));
        if differences.is_empty() {
            return Ok(true);
        }
        differences.truncate(20);
        Err(format!("definitions differ from what was acknowledged:\n  {}", differences.join("\n  ")))
    }

    /// What the first controller lists that does: standbys refuse.
    async fn listed(&self) -> Option<Lists> {
        for endpoint in self.console.endpoint.split(',') {
            if let Ok(Ok(lists)) = tokio::time::timeout(ONE_LISTS_WITHIN, list(endpoint)).await {
                return Some(lists);
            }
        }
        None
    }
}

/// All groups that were made here with their rates, all users with their groups.
async fn list(endpoint: &str) -> Result<Lists, tonic::Status> {
    let unusable = |error: tonic::transport::Error| tonic::Status::unavailable(error.to_string());
    let endpoint = Endpoint::from_shared(endpoint.to_owned()).map_err(unusable)?;
    let mut admin = AdminClient::new(endpoint.connect().await.map_err(unusable)?);
    let (mut groups, mut bindings) = (BTreeMap::new(), BTreeMap::new());
    let mut after = String::new();
    loop {
        let request = ListGroupsRequest { after, limit: PAGE };
        let page = admin.list_groups(request).await?.into_inner();
        let made = page.groups.into_iter().filter(|group| group.name.starts_with("made-"));
        groups.extend(made.map(|group| (group.name, group.ru_per_sec)));
        after = page.next_after;
        if after.is_empty() {
            break;
        }
    }
    let mut last = String::new();
    loop {
        let request = ListBindingsRequest { after_user: last, limit: PAGE, ..ListBindingsRequest::default() };
        let page = admin.list_bindings(request).await?.into_inner();
        last = page.bindings.last().map(|binding| binding.user.clone()).unwrap_or_default();
        bindings.extend(page.bindings.into_iter().map(|binding| (binding.user, binding.group)));
        if !page.more || last.is_empty() {
            return Ok((groups, bindings));
        }
    }
}

fn pick(random: &mut Random, names: &[&str]) -> Option<String> {
    names.get(random.below(names.len())).map(|name| (*name).to_owned())
}
