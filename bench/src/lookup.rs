//! Admission with the group found first: by name, by tenant and user, and by a handle that follows the bindings.
//!
//! A thousand groups in turn, in an order the processor cannot guess. governor's keyed limiter finds a bucket by key
//! in a concurrent map. The floor is what a user of handles could keep: a map of them by name behind a lock for
//! reading, with the client's hash, and the operation done while it is locked, so that not even the handle is counted.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use foldhash::fast::RandomState;
use governor::RateLimiter;
use tidegate_client::{Group, GroupName, Rate};

use super::admission::{admit, quota};
use super::clock::Stopwatch;
use super::contest::{Work, contest};
use super::error::{BenchError, failed};
use super::row::{Kind, Mark, NS, Row};
use super::samples::Samples;
use super::setting::Setting;
use super::site::{Site, capped};
use tidegate_sim::random::Random;

/// Groups in use.
const GROUPS: usize = 1_000;
/// Rate kept leased of each.
const WARM: Rate = Rate::whole(100);

/// Measures the family.
pub fn run(setting: &Setting) -> Result<Vec<Row>, BenchError> {
    let names: Vec<String> = (0..GROUPS).map(|number| format!("group-{number:04}")).collect();
    let tenants: Vec<String> = (0..GROUPS).map(|number| format!("tenant-{number:04}")).collect();
    let bound = tenants.iter().cloned().zip(names.iter().cloned()).collect();
    let site = Site::with(names.iter().map(|name| capped(name, "100000")), bound)?;
    let client = site.client("bench-lookup")?;
    let groups = site.groups(&client, &names)?;
    site.keep_warm(&groups, WARM)?;
    let handles = Handles::of(groups);
    let mut resolved = Vec::new();
    for tenant in &tenants {
        let following = site.runtime.block_on(client.resolve(tenant, "app"));
        resolved.push(following.map_err(failed(format!("resolve {tenant}")))?);
    }
    let mut random = Random::new(1, 1);
    let order: Vec<usize> = (0..GROUPS * 16).map(|_| random.below(GROUPS)).collect();
    let keyed = RateLimiter::keyed(quota());

    let mut contenders: [Work<'_>; 5] = [
        Box::new(|count| {
            each(&order, &names, count, |name| {
                admit(&client.group_now(black_box(name)).map_err(failed("find a group"))?)
            })
        }),
        Box::new(|count| {
            each(&order, &tenants, count, |tenant| {
                admit(&client.resolve_now(black_box(tenant), "app").map_err(failed("resolve"))?)
            })
        }),
        Box::new(|count| each(&order, &resolved, count, |following| admit(&following.group()))),
        Box::new(|count| {
            each(&order, &names, count, |name| {
                keyed.check_key(black_box(name)).map_err(failed("pass governor"))
            })
        }),
        Box::new(|count| each(&order, &names, count, |name| handles.admit(black_box(name)))),
    ];
    let samples = contest(setting, &mut contenders)?;
    let [by_name, by_subject, by_handle, peer, floor] = samples.as_slice() else { return Ok(Vec::new()) };
    let row = |case, ours: &Samples, mark| {
        let row = Row::new(case, NS, ours.clone()).beside(Kind::Peer, "governor keyed", peer.clone(), None);
        if let Some(most) = mark { row.mark(Mark::AtMost(most)) } else { row }
    };
    let name = row("lookup/name", by_name, Some(40.0));
    Ok(vec![
        name.beside(Kind::Floor, "map of handles", floor.clone(), None)
            .note("with try_acquire and settle_ru; governor decides only"),
        row("lookup/tenant and user", by_subject, Some(60.0)),
        row("lookup/handle that follows bindings", by_handle, None),
    ])
}

/// Handles of all groups, by name, as a user could keep them.
struct Handles(RwLock<HashMap<GroupName, Group, RandomState>>);

impl Handles {
    fn of(groups: Vec<Group>) -> Self {
        Self(RwLock::new(groups.into_iter().map(|group| (group.name().clone(), group)).collect()))
    }

    fn admit(&self, name: &str) -> Result<(), BenchError> {
        let handles = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let missing = || BenchError::Wrong(format!("no handle of {name}"));
        admit(handles.get(name).ok_or_else(missing)?)
    }
}

/// `count` operations on things picked by `order`.
fn each<T>(
    order: &[usize],
    things: &[T],
    count: u64,
    operation: impl Fn(&T) -> Result<(), BenchError>,
) -> Result<Duration, BenchError> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let watch = Stopwatch::start();
    for index in order.iter().cycle().take(count) {
        if let Some(thing) = things.get(*index) {
            operation(thing)?;
        }
    }
    Ok(watch.elapsed())
}
