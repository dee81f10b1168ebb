//! Names in an answer to which a group cannot demote.

use std::time::Duration;

use tidegate_client::{LeaseState, Refused, Ru};
use tidegate_core::group::GroupSpec;
use tidegate_core::units::Rate;
use tidegate_proto::v1;

use crate::fake::{Fake, eventually, piped};

/// Has the fake say to whom groups demote.
fn demoting(fake: &Fake, pairs: &'static [(&'static str, &'static str)]) {
    fake.state().tamper = Some(Box::new(move |granted: &mut v1::Granted| {
        for entry in &mut granted.entries {
            let pair = pairs.iter().find(|(from, _)| *from == entry.group);
            entry.demote_to = pair.map_or("", |(_, to)| to).into();
        }
    }));
}

#[tokio::test(start_paused = true)]
async fn a_group_demotes_neither_to_itself_nor_to_one_that_demotes_nor_to_what_is_no_name() {
    let cases: [(&'static [(&str, &str)], bool); 3] = [
        (&[("g", "g")], false),
        (&[("g", "spill"), ("spill", "third")], false),
        (&[("g", "no/name"), ("spill", "g")], true),
    ];
    for (pairs, malformed) in cases {
        let fake = Fake::new();
        demoting(&fake, pairs);
        let client = piped(&fake).connect().await.unwrap();
        // The last one is the first to know that it demotes to nobody.
        for name in ["third", "spill", "g"] {
            fake.group(name, GroupSpec::capped(Rate::whole(1_000)));
            let group = client.group(name).await.unwrap();
            eventually("it has a lease", || group.state().lease == LeaseState::Leased).await;
        }
        let [g, spill] = ["g", "spill"].map(|name| client.group_now(name).unwrap());
        drop(g.try_acquire(g.state().available).unwrap());
        let refused = g.try_acquire(Ru::whole(1));
        assert!(matches!(refused, Err(Refused::Throttled { .. })), "{pairs:?}: {refused:?}");
        assert!(g.acquire(Ru::whole(1), Duration::from_secs(5)).await.is_ok(), "{pairs:?}");
        assert_eq!((g.demoted().0, spill.consumption().operations), (0, 0), "{pairs:?}");
        assert_eq!(client.counts().malformed > 0, malformed, "{pairs:?}");
    }
}
