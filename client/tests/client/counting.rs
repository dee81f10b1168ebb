//! Operations are counted once, whether a thread or its group decided on them.

use std::time::Duration;

use tidegate_client::Ru;
use tidegate_core::group::GroupSpec;
use tidegate_core::units::Rate;
use tidegate_proto::v1;
use tokio::time::sleep;

use crate::fake::{Fake, client_and_group};

#[tokio::test(start_paused = true)]
async fn every_operation_that_is_admitted_or_refused_at_once_counts_once() {
    let fake = Fake::new();
    fake.state().tamper = Some(Box::new(|granted: &mut v1::Granted| {
        for entry in &mut granted.entries {
            (entry.rate, entry.lump_micro_ru) = (0, 0);
            (entry.cap_micro_ru, entry.max_fit_micro_ru) = (Ru::whole(100).0, Ru::whole(100).0);
            entry.fill_micro_ru = if granted.seq == 1 { Ru::whole(100).0 } else { 0 };
            (entry.ttl_us, entry.renew_after_us, entry.ask_again_us) = (3_600_000_000, 3_000_000_000, 0);
            (entry.ack_now, entry.scarce) = (false, false);
        }
    }));
    let (client, group) = client_and_group(&fake, GroupSpec::capped(Rate::whole(1_000))).await;
    let (mut admitted, mut refused) = (0, 0);
    for turn in 0..300 {
        // Some at the same moment, some after a while.
        if turn % 50 == 49 {
            sleep(Duration::from_millis(10)).await;
        }
        match group.try_acquire(Ru::whole(1)) {
            Ok(permit) => {
                admitted += 1;
                drop(permit);
            }
            Err(_) => refused += 1,
        }
        if turn % 60 == 7 || turn == 299 {
            let counts = client.stats().counts;
            assert_eq!((counts.admitted, counts.refused), (admitted, refused), "turn {turn}");
        }
    }
    assert_eq!((admitted, refused), (100, 200));
    assert_eq!(group.consumption().operations, 100);
}
