//! How long a watch lasts, by whose clock.

use serde_json::Value;
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

#[tokio::test]
async fn rest_says_how_long_a_watch_lasts_as_grpc_does() {
    let lab = Lab::start().await;
    lab.group("shop", "10").await;
    let put = async |query: &str, end_unix_ms: u64| {
        let body = serde_json::to_string(&v1::Watch { end_unix_ms, ..similar() }).unwrap();
        lab.http("POST", &format!("/v1/watches{query}"), Some(&body)).await
    };
    let lasts = |answer: &Value| {
        let at = |field: &str| answer["watch"][field].as_u64().unwrap();
        at("end_unix_ms").saturating_sub(at("start_unix_ms"))
    };
    for (watch_us, lasts_ms) in [(600_000_000, 600_000), (1, 1), (365 * DAY_US, 365 * DAY_US / 1_000)] {
        // An end beside it does not count, as over gRPC.
        for end_unix_ms in [0, 1] {
            let (status, answer) = put(&format!("?watch_us={watch_us}"), end_unix_ms).await;
            assert_eq!((status, lasts(&answer)), (200, lasts_ms), "{answer}");
        }
    }
    for query in ["", "?watch_us=0"] {
        let (status, answer) = put(query, 0).await;
        assert_eq!((status, &answer["watch"]["end_unix_ms"]), (200, &Value::from(0)), "{answer}");
        let (status, answer) = put(query, 1).await;
        assert_eq!((status, &answer["error"]["field"]), (400, &"end_unix_ms".into()), "{answer}");
    }
    for (query, field) in [
        (format!("?watch_us={}", 365 * DAY_US + 1), "watch_us"),
        ("?watch_us=10m".to_owned(), "watch_us"),
        ("?watch_ms=1".to_owned(), "watch_ms"),
    ] {
        let (status, answer) = put(&query, 0).await;
        assert_eq!((status, &answer["error"]["field"]), (400, &field.into()), "{answer}");
    }
    let watches = lab.running.service().statements().watches("").unwrap();
    assert!(
        watches.len() == 1 && watches[0].end_unix_ms == 0,
        "what is refused changes nothing: {watches:?}"
    );
}
