//! Work that goes on in another group: by every way in, and over a controller process that is killed with several clients
//! at work.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_client::{Client, Refused, Ru, RuParts};
use tidegate_core::bound::Bound;
use tidegate_core::units::{Rate, Span, Time};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::support::{Controller, eventually, out};

fn target(controller: &Controller) -> Value {
    controller.json(&["group", "show", "shop"])["demote_to"].clone()
}

#[test]
fn a_target_is_named_by_every_way_and_kept_whole_by_each() {
    let mut controller = Controller::start();
    controller.ok(&["group", "create", "spill", "--rate", "50", "--priority", "low"]);
    controller.ok(&["group", "create", "shop", "--rate", "100", "--demote-to", "Spill"]);
    assert_eq!(target(&controller), json!("spill"));
    let shown = controller.ok(&["group", "show", "shop"]);
    assert!(shown.contains("demotes to"), "{shown}");
    let created = controller.ok(&["sql", "SHOW CREATE RESOURCE GROUP shop"]);
    assert!(created.contains("DEMOTE_TO=`spill`"), "{created}");
    controller.ok(&["sql", "ALTER RESOURCE GROUP shop DEMOTE_TO = NULL"]);
    assert_eq!(target(&controller), Value::Null, "a group without one has no such field");
    controller.ok(&["sql", "ALTER RESOURCE GROUP shop DEMOTE_TO = 'spill', RU_PER_SEC = 90"]);
    controller.ok(&["sql", "ALTER RESOURCE GROUP shop RU_PER_SEC = 100"]);
    assert_eq!(target(&controller), json!("spill"), "an ALTER keeps what it does not name");
    for (wrong, words) in [
        (&["group", "alter", "shop", "--demote-to", "nobody"][..], ["nobody", "create it first"]),
        (&["group", "alter", "shop", "--demote-to", "shop"], ["shop", "\"/\""]),
        (&["group", "alter", "shop", "--demote-to", "default"], ["default", "priority medium"]),
        (&["group", "alter", "shop", "--priority", "low"], ["group shop", "group spill"]),
        (&["group", "alter", "spill", "--priority", "medium"], ["group shop", "group spill"]),
        (&["group", "alter", "spill", "--rate", "unlimited"], ["group shop", "group spill"]),
        (&["group", "alter", "spill", "--enforcement", "shadow"], ["group shop", "group spill"]),
        (&["group", "alter", "spill", "--parent", "shop"], ["group shop", "group spill"]),
    ] {
        let output = controller.run(wrong);
        assert!(!output.status.success(), "{wrong:?}: {}", out(&output));
        let said = crate::support::err(&output);
        assert!(words.iter().all(|word| said.contains(word)), "{wrong:?}: {said}");
    }
    let said = controller.refused(&["group", "delete", "spill"]);
    assert!(said.contains("the demote_to of group shop"), "{said}");
    controller.ok(&["group", "create", "other", "--rate", "5", "--priority", "low"]);
    controller.ok(&["group", "delete", "spill", "--force-to", "other"]);
    assert_eq!(target(&controller), json!("other"), "what took over is the target");

    // In a file the order does not matter, and what would break the rules changes nothing.
    let file = controller.path("groups.yaml");
    let text = "kind: Group\nname: till\nru_per_sec: 9\ndemote_to: rest\n---\nkind: Group\nname: rest\nru_per_sec: 3\n\
                priority: low\n";
    fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    controller.ok(&["apply", "-f", file]);
    assert_eq!(controller.json(&["group", "show", "till"])["demote_to"], json!("rest"));
    fs::write(file, text.replace("priority: low", "priority: high")).unwrap();
    let output = controller.run(&["apply", "-f", file]);
    assert!(!output.status.success());
    let said = crate::support::err(&output);
    assert!(said.contains("group till") && said.contains("group rest"), "{said}");
    fs::write(file, text.replace("ru_per_sec: 9\ndemote_to: rest", "ru_per_sec: 9")).unwrap();
    assert!(!controller.run(&["apply", "-f", file]).status.success(), "left out is not taken away");
    controller.kill();
    controller.again();
    assert_eq!(target(&controller), json!("other"), "it is stored");
    assert_eq!(controller.json(&["group", "show", "rest"])["priority"], json!("low"));
}

/// RU/s and burst of each.
const SHOP: (i64, i64) = (100, 50);
const SPILL: (i64, i64) = (60, 30);

/// When what was admitted, in which group.
type Log = Arc<Mutex<Vec<(Instant, bool, Ru)>>>;

async fn work(client: Client, log: Log, ends: Arc<AtomicBool>) -> [u64; 2] {
    let shop = client.group("shop").await.unwrap();
    let (mut turn, mut operations) = (1_u64, [0, 0]);
    while !ends.load(Ordering::SeqCst) {
        turn = turn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let cost = Ru::whole(i64::try_from((turn >> 33) % 8 + 1).unwrap());
        match shop.acquire(cost, Duration::from_millis(300)).await {
            Ok(permit) if turn % 11 == 0 => permit.cancel(),
            Ok(permit) => {
                let demoted = permit.is_demoted();
                assert_eq!(&**permit.group(), if demoted { "spill" } else { "shop" });
                operations[usize::from(demoted)] += 1;
                log.lock().unwrap().push((permit.admitted_at(), demoted, cost));
                permit.settle_ru(RuParts::flat(cost));
            }
            Err(Refused::Throttled { group, .. } | Refused::Unavailable { group, .. }) => {
                assert_eq!(&*group, "shop", "its own group's error");
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(client.shutdown().await.unconfirmed.is_empty());
    operations
}

#[tokio::test(flavor = "multi_thread")]
async fn both_groups_keep_their_bounds_and_every_operation_has_one_payer_whatever_dies() {
    let mut controller = Controller::start();
    let group = |name: &str, (rate, burst): (i64, i64), more: &[&str]| {
        let (rate, burst) = (rate.to_string(), burst.to_string());
        let words = ["group", "create", name, "--rate", &rate, "--burst", &burst, "--ttl", "2s"];
        controller.ok(&[&words[..], more].concat());
    };
    group("spill", SPILL, &["--priority", "low"]);
    group("shop", SHOP, &["--demote-to", "spill"]);
    let (began, log) = (Instant::now(), Log::default());
    let ends = Arc::<AtomicBool>::default();
    let mut clients = JoinSet::new();
    for number in 0..3 {
        let client = Client::connect([controller.endpoint.clone()], format!("node-{number}")).await.unwrap();
        clients.spawn(work(client, Arc::clone(&log), Arc::clone(&ends)));
    }
    let demoted = || log.lock().unwrap().iter().filter(|(_, demoted, _)| *demoted).count();
    eventually("some are demoted", || demoted() > 20);
    controller.kill();
    controller.again();
    let before = demoted();
    eventually("it goes on after the kill", || demoted() > before + 50);
    ends.store(true, Ordering::SeqCst);
    let operations = clients.join_all().await;
    let mut log = log.lock().unwrap().clone();
    log.sort();
    let usage = controller.json(&["usage"]);
    for (demoted, name, (rate, burst)) in [(false, "shop", SHOP), (true, "spill", SPILL)] {
        let admitted: Vec<_> = log.iter().filter(|(_, of, _)| *of == demoted).collect();
        let mut bound = Bound::new(Time(0), Rate::whole(rate));
        for (at, _, cost) in &admitted {
            let since = at.saturating_duration_since(began).as_micros();
            bound.admit(Time(u64::try_from(since).unwrap()), *cost);
        }
        // A permit tells its moment by a clock that may be late by two ticks, or by five of a processor that is held up.
        let late = Rate::whole(rate).over(Span::millis(60));
        assert!(bound.worst() <= Ru::whole(burst) + late, "{name}: {} above its rate", bound.worst());
        let row = usage.as_array().unwrap().iter().find(|row| row["group"] == json!(name)).unwrap();
        let count: u64 = operations.iter().map(|of_client| of_client[usize::from(demoted)]).sum();
        assert_eq!(u64::try_from(admitted.len()).unwrap(), count);
        assert_eq!(row["total"]["operations"], json!(count), "{name}: {row}");
        assert_eq!(row["total"]["total_micro_ru"], json!(bound.admitted().0), "{name}: {row}");
    }
}
