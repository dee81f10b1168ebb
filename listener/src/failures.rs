//! Who keeps failing to prove who they are: by address, a debt of one second for each failure.
//!
//! A debt is paid by time, and by a proof from the same address, since many may be behind one. With a small one nothing
//! happens, with a larger one the refusal comes later, and with a large one new connections are closed at once, which
//! adds nothing to it. Open connections go on. The table is bounded, and all addresses of one IPv6 network count as one.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Failures that have no effect: a person who tries, or a fleet that starts with an old file. Half of it would slow
/// those down; twice of it lets a stranger try twice as often.
const FREE: Duration = Duration::from_secs(10);
/// Debt from which on new connections are closed. Half of it would close the door for a fleet whose certificates ended;
/// with twice of it, twice as many handshakes are made for nothing.
const CLOSED: Duration = Duration::from_secs(60);
/// The largest debt: the door is open again half a minute after the last failure.
const MOST: Duration = Duration::from_secs(90);
/// What a failure adds.
const EACH: Duration = Duration::from_secs(1);
/// By this part of what is owed beyond [`FREE`] a refusal is late: 5 s at most before the door is closed.
const LATER: u32 = 10;
/// Addresses that are remembered, some hundred bytes each. Half of it is fewer than a network of stolen machines has;
/// twice of it takes longer to look through when it is full.
const MOST_ADDRESSES: usize = 10_000;
/// Time between lines in the log about failures.
const SAY_EVERY: Duration = Duration::from_secs(1);

/// The debts of all addresses.
#[derive(Debug, Default)]
pub struct Failures {
    /// When each is free of debt.
    free_at: Mutex<BTreeMap<IpAddr, Instant>>,
    /// How many there are, for the usual case that there is none.
    count: AtomicUsize,
    /// When something was said, and how much was left out since.
    said: Mutex<(Option<Instant>, u64)>,
}

impl Failures {
    /// Notes that a peer failed; returns how much later it should hear of it.
    pub fn failed(&self, peer: IpAddr) -> Duration {
        let (now, peer) = (Instant::now(), network(peer));
        let mut all = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MOST_ADDRESSES && !all.contains_key(&peer) {
            all.retain(|_, free_at| *free_at > now);
            // The one that owes the least makes room.
            let least = all.iter().min_by_key(|(_, free_at)| **free_at).map(|(peer, _)| *peer);
            if let Some(least) = least.filter(|_| all.len() >= MOST_ADDRESSES) {
                all.remove(&least);
            }
        }
        let free_at = all.entry(peer).or_insert(now);
        *free_at = ((*free_at).max(now) + EACH).min(now + MOST);
        let owed = free_at.saturating_duration_since(now);
        self.count.store(all.len(), Ordering::Relaxed);
        owed.saturating_sub(FREE) / LATER
    }

    /// Notes that a peer proved who it is, which pays for a failure from its address.
    pub fn proved(&self, peer: IpAddr) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let (now, peer) = (Instant::now(), network(peer));
        let mut all = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(free_at) = all.get_mut(&peer) {
            *free_at = free_at.checked_sub(EACH).unwrap_or(now);
            if *free_at <= now {
                all.remove(&peer);
            }
        }
        self.count.store(all.len(), Ordering::Relaxed);
    }

    /// Whether new connections of a peer are closed at once.
    pub fn is_closed_to(&self, peer: IpAddr) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let all = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let free_at = all.get(&network(peer));
        free_at.is_some_and(|free_at| free_at.saturating_duration_since(Instant::now()) >= CLOSED)
    }

    /// Whether the log should have a line about a failure now: then how many were left out before it.
    pub fn say(&self) -> Option<u64> {
        let now = Instant::now();
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.0.is_some_and(|at| now.saturating_duration_since(at) < SAY_EVERY) {
            said.1 = said.1.saturating_add(1);
            return None;
        }
        said.0 = Some(now);
        Some(std::mem::take(&mut said.1))
    }
}

/// What counts as one address: of IPv6 a network, which is the least that anybody has.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(six) => {
            let [a, b, c, d, ..] = six.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        four => four,
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn fail(failures: &Failures, peer: IpAddr, times: usize) {
        for _ in 0..times {
            failures.failed(peer);
        }
    }

    fn peer(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn who_keeps_failing_hears_of_it_later_and_then_finds_the_door_closed_for_a_while() {
        let (failures, one, other) = (Failures::default(), peer("192.0.2.1"), peer("192.0.2.2"));
        for _ in 0..10 {
            assert_eq!(failures.failed(one), Duration::ZERO);
        }
        let mut last = Duration::ZERO;
        for _ in 10..59 {
            let later = failures.failed(one);
            assert!(later > last && later < Duration::from_secs(5) && !failures.is_closed_to(one));
            last = later;
        }
        failures.failed(one);
        assert!(failures.is_closed_to(one) && !failures.is_closed_to(other));
        assert_eq!(failures.failed(other), Duration::ZERO, "nobody else is affected");
        fail(&failures, one, 999);
        advance(Duration::from_secs(30)).await;
        assert!(failures.is_closed_to(one));
        advance(Duration::from_secs(1)).await;
        assert!(!failures.is_closed_to(one), "half a minute after the last one");
        // Once a second for ever has no effect, beyond what is owed.
        advance(MOST).await;
        for _ in 0..1_000 {
            assert_eq!(failures.failed(one), Duration::ZERO);
            advance(EACH).await;
        }
        // An hour without any is no credit for the next.
        advance(Duration::from_secs(3_600)).await;
        fail(&failures, one, 60);
        assert!(failures.is_closed_to(one));
    }

    #[tokio::test(start_paused = true)]
    async fn proofs_from_the_same_address_pay_for_failures() {
        let (failures, shared) = (Failures::default(), peer("192.0.2.1"));
        for _ in 0..1_000 {
            failures.failed(shared);
            failures.proved(shared);
        }
        assert!(failures.free_at.lock().unwrap().is_empty(), "an address without a debt is not kept");
        assert!(!failures.is_closed_to(shared) && failures.failed(shared) == Duration::ZERO);
        fail(&failures, shared, 90);
        assert!(failures.is_closed_to(shared));
        (0..31).for_each(|_| failures.proved(shared));
        assert!(!failures.is_closed_to(shared));
    }

    #[tokio::test(start_paused = true)]
    async fn a_network_is_one_address_and_the_table_is_bounded() {
        let failures = Failures::default();
        for last in 0..100_u32 {
            failures.failed(peer(&format!("2001:db8:0:1::{last:x}")));
        }
        assert!(failures.is_closed_to(peer("2001:db8:0:1:ffff::1")));
        assert!(!failures.is_closed_to(peer("2001:db8:0:2::1")));
        fail(&failures, peer("::ffff:192.0.2.7"), 100);
        assert!(failures.is_closed_to(peer("192.0.2.7")), "one machine by either notation");
        for number in 0..u32::try_from(MOST_ADDRESSES + 500).unwrap() {
            failures.failed(IpAddr::from(number.to_be_bytes()));
        }
        assert_eq!(failures.free_at.lock().unwrap().len(), MOST_ADDRESSES);
        assert!(failures.is_closed_to(peer("192.0.2.7")), "who owes the most is not forgotten for others");
        advance(MOST).await;
        failures.failed(peer("192.0.2.9"));
        failures.proved(peer("192.0.2.9"));
        assert!(failures.free_at.lock().unwrap().len() <= 1, "who owes nothing is");
    }

    #[tokio::test(start_paused = true)]
    async fn the_log_has_a_line_a_second_with_what_was_left_out() {
        let failures = Failures::default();
        assert_eq!(failures.say(), Some(0));
        (0..99).for_each(|_| assert_eq!(failures.say(), None));
        advance(SAY_EVERY).await;
        assert_eq!((failures.say(), failures.say()), (Some(99), None));
    }
}
