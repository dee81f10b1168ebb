//! Rules against runaways, the watch list and statements against a real controller process.

use crate::support::Controller;
use serde_json::json;

const RULE: &str = "EXEC_ELAPSED='1m0s', RU=1000, ROWS=50000, ACTION=KILL, WATCH=SIMILAR DURATION='10m0s'";

#[test]
fn a_rule_is_set_shown_altered_and_removed() {
    let controller = Controller::start();
    let created = controller.json(&["group", "create", "shop", "--rate", "100", "--query-limit", RULE]);
    let limit = &created["group"]["query_limit"];
    assert_eq!((&limit["exec_elapsed_us"], &limit["watch"]), (&json!(60_000_000), &json!("similar")));
    assert!(controller.ok(&["group", "show", "shop"]).contains(RULE));
    controller.ok(&["group", "create", "slow", "--rate", "5"]);
    let switched = ["group", "alter", "shop", "--query-limit", "ROWS=5, ACTION=SWITCH_GROUP(slow)"];
    assert_eq!(controller.json(&switched)["group"]["query_limit"]["switch_group"], json!("slow"));
    assert!(controller.ok(&["audit"]).contains("query_limit: "), "the log shows the change");
    let said = controller.refused(&["group", "delete", "slow"]);
    assert!(said.contains("query_limit of group shop"), "{said}");
    let said =
        controller.wrong(&["group", "alter", "shop", "--query-limit", "EXEC_ELAPSED='1ms', ACTION=KILL"]);
    assert!(said.contains("--query-limit, EXEC_ELAPSED: "), "{said}");
    let wrong = controller.run(&["group", "alter", "shop", "--query-limit", "ROWS=5, ACTION=SHOOT"]);
    assert_eq!(wrong.status.code(), Some(2));
    let removed = controller.json(&["group", "alter", "shop", "--query-limit", "none"]);
    assert_eq!(removed["group"]["query_limit"], json!(null));
    controller.ok(&["group", "delete", "slow"]);
}

#[test]
fn statements_are_watched_and_listed() {
    let controller = Controller::start();
    controller.ok(&["group", "create", "shop", "--rate", "100"]);
    let sql = ["--sql", "select * from t where a = 5", "--dialect", "postgresql", "--match", "similar"];
    let added = controller
        .json(&[&["watch", "add", "--group", "shop", "--action", "kill", "--for", "10m"][..], &sql].concat());
    assert_eq!((&added["match"], &added["source"]), (&json!("similar"), &json!("manual")));
    let unix_ms = |field: &str| added[field].as_u64().unwrap();
    let lasts_ms = unix_ms("end_unix_ms") - unix_ms("start_unix_ms");
    assert_eq!(lasts_ms, 600_000, "by the clock of the controller alone");
    let long =
        [&["watch", "add", "--group", "shop", "--action", "kill", "--for", "8784h"][..], &sql].concat();
    let said = controller.wrong(&long);
    assert!(said.contains("--for: ") && said.contains("up to "), "{said}");
    assert!(added["text"].as_str().unwrap().contains('?'), "{added}");
    let exact = "ab".repeat(32);
    controller.ok(&["watch", "add", "--group", "shop", "--exact", &exact, "--switch-group", "default"]);
    let said = controller.wrong(&["watch", "add", "--group", "shop", "--exact", &exact]);
    assert!(said.contains("action"), "{said}");
    let table = controller.ok(&["watch", "list", "--group", "shop"]);
    assert!(
        table.contains("for ever") && table.contains("switch to default") && table.contains("kill"),
        "{table}"
    );
    let id = added["id"].to_string();
    assert_eq!(controller.json(&["watch", "remove", &id])["removed"], json!(1));
    assert_eq!(controller.json(&["watch", "remove", "--group", "shop"])["removed"], json!(1));
    assert_eq!(controller.json(&["watch", "list"]), json!([]));
    assert!(controller.ok(&["audit"]).contains("remove watch"));
    let said = controller.refused(&["watch", "remove", &id]);
    assert!(said.contains(&format!("watch {id} does not exist; `tidegate watch list`")), "{said}");
    assert_eq!(controller.ok(&["watch", "remove", "98", "99"]), "watch 98 unchanged\nwatch 99 unchanged\n");
    assert_eq!(controller.ok(&["watch", "remove", "--group", "shop"]), "0 watches removed\n");

    assert_eq!(controller.json(&["runaway", "list"]), json!([]));
    assert!(controller.ok(&["runaway", "list", "--group", "gone"]).starts_with("LAST"));
    assert_eq!(controller.json(&["statement", "list", "--order", "calls"])["rows"], json!([]));
    assert!(controller.ok(&["statement", "list", "--group", "shop"]).starts_with("GROUP"));
    assert_eq!(controller.run(&["statement", "list", "--order", "size"]).status.code(), Some(2));
    assert_eq!(controller.json(&["statement", "reset", "--group", "shop"])["removed"], json!(0));
    assert!(controller.refused(&["statement", "reset", "--group", "nobody"]).contains("nobody"));
}
