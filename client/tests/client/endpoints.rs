//! A client with the addresses of several controllers, of which some answer.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_client::transport::{Opening, Transport};
use tidegate_client::{Client, Ru};
use tidegate_core::group::GroupSpec;
use tidegate_core::units::Rate;
use tidegate_proto::{ABOUT_TO_LEAD, v1};
use tokio::sync::mpsc;
use tokio::time::{Instant, interval, timeout};
use tonic::Status;
use tonic::metadata::MetadataValue;

use crate::fake::{Fake, Pipe};

const MINUTE: Duration = Duration::from_secs(60);
const NAMES: [&str; 3] = ["a", "b", "c"];

/// A controller behind each address. One that is down refuses, or never answers.
struct Several {
    fakes: Vec<Fake>,
    silent: bool,
}

impl Several {
    fn fake(&self, endpoint: &str) -> Option<Pipe> {
        let place = NAMES.iter().position(|name| *name == endpoint).unwrap();
        let down = self.fakes[place].state().down;
        (!(down && self.silent)).then(|| Pipe(self.fakes[place].clone()))
    }
}

impl Transport for Several {
    fn session(
        &self,
        endpoint: &str,
        outbound: mpsc::Receiver<v1::ClientMessage>,
    ) -> Opening<v1::ServerMessage> {
        match self.fake(endpoint) {
            Some(pipe) => pipe.session(endpoint, outbound),
            None => Box::pin(pending()),
        }
    }

    fn watch(&self, endpoint: &str, request: v1::WatchRequest) -> Opening<v1::WatchEvent> {
        match self.fake(endpoint) {
            Some(pipe) => pipe.watch(endpoint, request),
            None => Box::pin(pending()),
        }
    }
}

/// Waits for what takes seconds of the paused time.
async fn within_a_minute(what: &str, condition: impl Fn() -> bool) {
    let mut looks = interval(Duration::from_millis(200));
    let wait = async {
        while !condition() {
            looks.tick().await;
        }
    };
    timeout(MINUTE, wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// From each set of controllers that answer to each other set.
#[tokio::test(start_paused = true)]
async fn whichever_controllers_answer_a_client_finds_one_of_them() {
    let among = |set: usize, place: usize| set & (1 << place) != 0;
    for (count, silent) in [(2, true), (3, false)] {
        let sets = 1_usize..(1 << count);
        let fakes: Vec<Fake> = (0..count).map(|_| Fake::new()).collect();
        for fake in &fakes {
            for group in ["one", "two"] {
                fake.group(group, GroupSpec::capped(Rate::whole(1_000)));
            }
        }
        let several = Several { fakes: fakes.clone(), silent };
        let client =
            Client::builder(NAMES.into_iter().take(count), "node-1").transport(several).start().unwrap();
        let mut turn = 0;
        for set in sets.clone().flat_map(|from| sets.clone().flat_map(move |to| [from, to])) {
            turn += 1;
            let (bound, opened) = (["one", "two"][turn % 2], client.stats().counts.sessions);
            for (place, fake) in fakes.iter().enumerate() {
                fake.go_down();
                fake.bind("t", "", bound);
                if among(set, place) {
                    fake.come_back();
                }
            }
            let what = format!("controllers {set:03b} of {count} answer, silent: {silent}");
            within_a_minute(&what, || {
                let (link, counts) = (client.stats().link, client.stats().counts);
                let place = NAMES.iter().position(|name| *name == link.endpoint);
                link.connected && counts.sessions > opened && place.is_some_and(|place| among(set, place))
            })
            .await;
            within_a_minute(&what, || client.resolve_now("t", "u").is_ok_and(|of| **of.name() == *bound))
                .await;
            let group = client.group(bound).await.unwrap();
            let admitted = group.acquire(Ru::whole(1), MINUTE).await;
            assert!(admitted.is_ok(), "{what}: {:?}", admitted.err());
        }
    }
}

/// Refuses one stream of each kind with the word that it is about to lead, and then serves. Others are standbys.
struct AboutToLead {
    fake: Fake,
    refused: Arc<AtomicUsize>,
    sessions: AtomicUsize,
    watches: AtomicUsize,
}

impl AboutToLead {
    /// The refusal of a call, of which there were some before.
    fn refuses(&self, endpoint: &str, before: &AtomicUsize) -> Option<Status> {
        let mut status = Status::unavailable("a standby");
        if endpoint == NAMES[0] {
            if before.fetch_add(1, Ordering::Relaxed) > 0 {
                return None;
            }
            self.refused.fetch_add(1, Ordering::Relaxed);
            status.metadata_mut().insert(ABOUT_TO_LEAD, MetadataValue::from_static("1"));
        }
        Some(status)
    }
}

impl Transport for AboutToLead {
    fn session(
        &self,
        endpoint: &str,
        outbound: mpsc::Receiver<v1::ClientMessage>,
    ) -> Opening<v1::ServerMessage> {
        match self.refuses(endpoint, &self.sessions) {
            None => Pipe(self.fake.clone()).session(endpoint, outbound),
            Some(status) => Box::pin(async { Err(status) }),
        }
    }

    fn watch(&self, endpoint: &str, request: v1::WatchRequest) -> Opening<v1::WatchEvent> {
        match self.refuses(endpoint, &self.watches) {
            None => Pipe(self.fake.clone()).watch(endpoint, request),
            Some(status) => Box::pin(async { Err(status) }),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_is_about_to_lead_is_called_again_at_once() {
    let refused = Arc::<AtomicUsize>::default();
    let (sessions, watches) = Default::default();
    let transport = AboutToLead { fake: Fake::new(), refused: Arc::clone(&refused), sessions, watches };
    let begun = Instant::now();
    let client = Client::builder(NAMES, "node-1").transport(transport).start().unwrap();
    let mut looks = interval(Duration::from_millis(1));
    while !client.stats().link.connected || client.stats().counts.watch_events == 0 {
        looks.tick().await;
    }
    // The others would have come first, and then a pause.
    assert_eq!(
        (client.stats().link.endpoint.as_str(), client.stats().counts.session_failures),
        (NAMES[0], 0)
    );
    assert!(refused.load(Ordering::Relaxed) == 2 && begun.elapsed() < Duration::from_millis(5));
}
