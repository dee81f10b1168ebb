//! Lines of the log that any client can cause: one for each peer and kind in a minute, with a count of those left out.
//!
//! A peer that sends garbage could fill a disk with them otherwise.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::time::Instant;

use crate::clock;

/// Between two lines of a peer and kind. With half of it a garbage client writes twice as much, some 300 bytes a
/// minute; with twice of it a count comes late.
const PAUSE: Duration = Duration::from_secs(60);
/// Most pairs of peer and kind with a place of their own, some 100 bytes each; those beyond share one place per kind,
/// until some are a pause old.
const MAX_PEERS: usize = 1_024;

/// What is complained about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// A session that broke off.
    Session,
    /// A client whose address its balancer did not send.
    Header,
    /// A database that cannot be reached.
    Upstream,
    /// The gateway's own connection to a server, or a request to cancel.
    Control,
}

/// When each peer and kind was last in the log, and how many lines were left out since.
#[derive(Debug, Default)]
pub(crate) struct Complaints(Mutex<HashMap<(Option<IpAddr>, Kind), Told, RandomState>>);

#[derive(Clone, Copy, Debug)]
struct Told {
    at: Instant,
    left_out: u64,
}

impl Complaints {
    /// How many lines were left out before this one, or `None` when it is left out, too.
    pub(crate) fn told(&self, peer: IpAddr, kind: Kind) -> Option<u64> {
        let now = clock::now();
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut place = (Some(peer), kind);
        if places.len() >= MAX_PEERS && !places.contains_key(&place) {
            places.retain(|_, told| now.saturating_duration_since(told.at) < PAUSE);
            if places.len() >= MAX_PEERS {
                place.0 = None;
            }
        }
        let Some(told) = places.get_mut(&place) else {
            places.insert(place, Told { at: now, left_out: 0 });
            return Some(0);
        };
        if now.saturating_duration_since(told.at) < PAUSE {
            told.left_out = told.left_out.saturating_add(1);
            return None;
        }
        told.at = now;
        Some(std::mem::take(&mut told.left_out))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn peer(number: usize) -> IpAddr {
        Ipv4Addr::from(u32::try_from(number).unwrap()).into()
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_a_minute_is_told_and_the_others_counted() {
        let complaints = Complaints::default();
        assert_eq!(complaints.told(peer(1), Kind::Session), Some(0));
        for _ in 0..7 {
            assert_eq!(complaints.told(peer(1), Kind::Session), None);
        }
        assert_eq!(complaints.told(peer(2), Kind::Session), Some(0), "another peer");
        assert_eq!(complaints.told(peer(1), Kind::Upstream), Some(0), "another kind");
        tokio::time::advance(PAUSE).await;
        assert_eq!(complaints.told(peer(1), Kind::Session), Some(7));
        assert_eq!(complaints.told(peer(1), Kind::Session), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_of_peers_shares_a_place() {
        let complaints = Complaints::default();
        let told =
            (0..5 * MAX_PEERS).filter(|number| complaints.told(peer(*number), Kind::Session).is_some());
        assert_eq!(told.count(), MAX_PEERS + 1);
        let places = complaints.0.lock().unwrap().len();
        assert_eq!(places, MAX_PEERS + 1);
        tokio::time::advance(PAUSE).await;
        assert_eq!(complaints.told(peer(9 * MAX_PEERS), Kind::Session), Some(0));
        assert_eq!(complaints.0.lock().unwrap().len(), 1, "the others are forgotten");
    }

    /// The places are full, and every one of them keeps what it has, and is one of its own.
    #[tokio::test(start_paused = true)]
    async fn in_a_crowd_who_has_a_place_keeps_it_and_is_told_how_many_lines_were_left_out() {
        let complaints = Complaints::default();
        for number in 0..MAX_PEERS {
            assert_eq!(complaints.told(peer(number), Kind::Session), Some(0));
        }
        for _ in 0..3 {
            assert_eq!(complaints.told(peer(1), Kind::Session), None, "its minute is not over");
        }
        tokio::time::advance(PAUSE).await;
        assert_eq!(complaints.told(peer(1), Kind::Session), Some(3));
        // There is room again: each of these has a place of its own.
        assert_eq!(complaints.told(peer(2 * MAX_PEERS), Kind::Session), Some(0));
        assert_eq!(complaints.told(peer(3 * MAX_PEERS), Kind::Session), Some(0));
        assert_eq!(complaints.told(peer(2 * MAX_PEERS), Kind::Session), None);
    }

    #[tokio::test(start_paused = true)]
    async fn where_there_is_room_no_peer_s_lines_are_forgotten_for_another_s() {
        let complaints = Complaints::default();
        assert_eq!(complaints.told(peer(1), Kind::Session), Some(0));
        assert_eq!(complaints.told(peer(1), Kind::Session), None);
        tokio::time::advance(PAUSE).await;
        assert_eq!(complaints.told(peer(2), Kind::Session), Some(0));
        assert_eq!(complaints.told(peer(1), Kind::Session), Some(1));
    }
}
