//! A controller that is killed while statements run, stays away, and comes back.

use std::time::Duration;

use tidegate_test_servers::ROOT;
use tokio::time::Instant;

use super::stage::{Stage, begun};
use crate::support::eventually;

const ANN: (&str, &str) = ("ann", "ann");
const SUM: &str = "select 40 + 2;";

/// The answers of both protocols to a statement of ann's.
fn both(stage: &Stage) -> [String; 2] {
    [stage.psql(ANN, SUM), stage.mysql(ANN, SUM)]
}

fn is_served(stage: &Stage) -> bool {
    both(stage).iter().all(|said| said == "42\n")
}

/// Puts ann into a group.
fn bind(stage: &Stage, group: &str) {
    stage.controller.ok(&["bind", "add", group, "--user", "ann"]);
    let asked = "select current_resource_group();";
    let expected = format!("{group}\n");
    eventually("ann is in the group", || {
        stage.psql(ANN, asked) == expected && stage.mysql(ANN, asked) == expected
    });
}

#[test]
fn leases_are_spent_to_their_end_and_then_it_goes_as_the_group_and_the_gateway_say() {
    let mut stage = Stage::new("ann", "info");
    let strict = stage.swap("identity = \"lenient\"\nadmit_without_lease = true\n");
    stage.controller.ok(&[
        "group",
        "create",
        "strict",
        "--rate",
        "100000",
        "--ttl",
        "3s",
        "--fallback",
        "stop",
    ]);
    stage.controller.ok(&[
        "group",
        "create",
        "loose",
        "--rate",
        "100000",
        "--ttl",
        "3s",
        "--fallback",
        "1000",
    ]);
    // Both gateways know both groups.
    let lenient = std::mem::replace(&mut stage.gateway, strict);
    bind(&stage, "loose");
    eventually("it has its lease", || is_served(&stage));
    bind(&stage, "strict");
    eventually("it has its lease", || is_served(&stage));
    let strict = std::mem::replace(&mut stage.gateway, lenient);
    eventually("it has its lease", || is_served(&stage));
    let lenient = std::mem::replace(&mut stage.gateway, strict);
    // A statement that runs, and others all the time.
    let running = begun(&mut stage.psql_client(ANN), b"select 'done', pg_sleep(4) is null;\n");
    assert!(is_served(&stage));
    stage.controller.kill();
    let (killed, mut served) = (Instant::now(), 0);
    while is_served(&stage) {
        served += 1;
        assert!(killed.elapsed() < Duration::from_secs(20), "leases have an end");
    }
    assert!(served > 0, "what was leased is there to be spent");
    eventually("both are told", || {
        let [postgres, mysql] =
            [stage.psql(ANN, &format!("\\set VERBOSITY verbose\n{SUM}")), stage.mysql(ANN, SUM)];
        postgres.contains("57P03")
            && mysql.contains("ERROR 8251")
            && mysql.contains("no lease from the controller")
    });
    let done = running.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&done.stdout), "done|f\n", "it was admitted, and runs to its end");
    // The other gateway lets them run, and they owe.
    let strict = std::mem::replace(&mut stage.gateway, lenient);
    assert!(is_served(&stage), "{:?}", both(&stage));
    let lenient = std::mem::replace(&mut stage.gateway, strict);
    stage.controller.again();
    eventually("it is as before", || is_served(&stage));
    // A group may run on at a rate of its own.
    bind(&stage, "loose");
    eventually("it has its lease", || is_served(&stage));
    stage.controller.kill();
    let killed = Instant::now();
    while killed.elapsed() < Duration::from_secs(5) {
        assert!(is_served(&stage), "after {:?}: {:?}", killed.elapsed(), both(&stage));
    }
    stage.controller.again();
    // Once the controller is back, no admin has to act: its definitions are there.
    eventually("its groups are there", || {
        stage.psql(ROOT, "show create resource group loose;").contains("loose")
    });
    for gateway in [lenient, stage.gateway] {
        gateway.terminate();
        let (status, log, _) = gateway.ended();
        assert_eq!(status, Some(0), "{log}");
    }
}
