//! How long a watch lasts, by whose clock.

use tidegate_proto::v1;

use crate::support::{Lab, group};

/// A day, in microseconds.
const DAY_US: u64 = 86_400_000_000;

fn similar() -> v1::Watch {
    v1::Watch {
        group: "shop".into(),
        r#match: "similar".into(),
        digest: "00000000000000ab".into(),
        action: "kill".into(),
        ..v1::Watch::default()
    }
}

async fn add(lab: &Lab, watch: v1::Watch, watch_us: u64) -> Result<v1::Watch, tonic::Status> {
    let request = v1::AddWatchRequest { watch: Some(watch), watch_us };
    Ok(lab.statements().await.add_watch(request).await?.into_inner().watch.unwrap())
}

/// A caller's clock may be off by anything; controllers of earlier builds are told the end by it all the same.
#[tokio::test]
async fn a_watch_lasts_as_long_as_was_said_by_the_controllers_clock() {
    let lab = Lab::start().await;
    let request = v1::CreateGroupRequest { group: Some(group("shop", "10")), if_not_exists: false };
    lab.admin().await.create_group(request).await.unwrap();
    for end_unix_ms in [0, 1, u64::MAX] {
        let watch = v1::Watch { end_unix_ms, ..similar() };
        for (watch_us, lasts_ms) in [(600_000_000, 600_000), (1, 1), (365 * DAY_US, 365 * DAY_US / 1_000)] {
            let added = add(&lab, watch.clone(), watch_us).await.unwrap();
            assert_eq!(added.end_unix_ms - added.start_unix_ms, lasts_ms, "{end_unix_ms} {watch_us}");
        }
        let refused = add(&lab, watch, 365 * DAY_US + 1).await.unwrap_err();
        assert!(refused.message().starts_with("watch_us: "), "{refused}");
    }
    let for_ever = add(&lab, similar(), 0).await.unwrap();
    assert_eq!(for_ever.end_unix_ms, 0);
    let refused = add(&lab, v1::Watch { end_unix_ms: 1, ..similar() }, 0).await.unwrap_err();
    assert!(refused.message().starts_with("end_unix_ms: "), "{refused}");
}
