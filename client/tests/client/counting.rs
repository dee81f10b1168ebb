//! Operations are counted once, whether a thread or its group decided on them.

use std::time::Duration;

use tidegate_client::Ru;
use tidegate_core::group::GroupSpec;
use tidegate_core::units::Rate;
use tokio::time::sleep;

use crate::cancel::fixed_hundred;
use crate::fake::{Fake, client_and_group};

#[tokio::test(start_paused = true)]
async fn every_operation_that_is_admitted_or_refused_at_once_counts_once() {
    let fake = Fake::new();
    fixed_hundred(&fake);
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
