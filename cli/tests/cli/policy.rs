//! The policy of a group, by every way in.

use serde_json::json;

use crate::support::Controller;

#[test]
fn a_limit_becomes_paced_and_a_token_bucket_again_by_every_way_and_never_by_an_empty_text() {
    let mut controller = Controller::start();
    let policy = |controller: &Controller| controller.json(&["group", "show", "shop"])["policy"].clone();
    controller.ok(&["group", "create", "shop", "--rate", "5"]);
    assert_eq!(policy(&controller), json!("token_bucket"));
    controller.ok(&["group", "alter", "shop", "--policy", "Paced"]);
    assert_eq!(policy(&controller), json!("paced"));
    let shown = controller.ok(&["sql", "SHOW CREATE RESOURCE GROUP shop"]);
    assert!(shown.contains("POLICY=PACED"), "{shown}");
    controller.ok(&["sql", "ALTER RESOURCE GROUP shop POLICY = TOKEN_BUCKET"]);
    assert_eq!(policy(&controller), json!("token_bucket"));
    controller.ok(&["sql", "ALTER RESOURCE GROUP shop RU_PER_SEC = 6, POLICY PACED"]);
    controller.ok(&["sql", "ALTER RESOURCE GROUP shop RU_PER_SEC = 7"]);
    assert_eq!(policy(&controller), json!("paced"), "an ALTER keeps what it does not name");
    for wrong in ["leaky", "warm_up(10s"] {
        let said = controller.wrong(&["group", "alter", "shop", "--policy", wrong]);
        assert!(said.contains("token_bucket"), "{said}");
    }
    let said = controller.wrong(&["group", "alter", "shop", "--policy", ""]);
    assert!(said.contains("--policy is empty"), "{said}");
    let said = controller.refused(&["sql", "ALTER RESOURCE GROUP shop POLICY = LEAKY"]);
    assert!(said.contains("PACED"), "{said}");
    assert_eq!(policy(&controller), json!("paced"));
    controller.kill();
    controller.again();
    assert_eq!(controller.json(&["group", "show", "shop"])["policy"], json!("paced"), "it is stored");
}

#[test]
fn a_limit_warms_up_by_every_way_and_what_cannot_warm_up_is_refused_by_name() {
    let mut controller = Controller::start();
    let policy = |controller: &Controller| controller.json(&["group", "show", "shop"])["policy"].clone();
    controller.ok(&["group", "create", "shop", "--rate", "200", "--policy", "warm_up"]);
    assert_eq!(policy(&controller), json!("warm_up(10s, 3)"), "Guava's defaults");
    let shown = controller.ok(&["sql", "SHOW CREATE RESOURCE GROUP shop"]);
    assert!(shown.contains("POLICY=WARM_UP('10s', 3)"), "{shown}");
    controller.ok(&["sql", "ALTER RESOURCE GROUP shop POLICY = WARM_UP('1m30s', 5), RU_PER_SEC = 300"]);
    assert_eq!(policy(&controller), json!("warm_up(90s, 5)"));
    controller.ok(&["sql", "ALTER RESOURCE GROUP shop RU_PER_SEC = 200"]);
    let shown = controller.ok(&["group", "show", "shop", "-o", "json"]);
    assert!(shown.contains("warm_up(90s, 5)"), "{shown}");
    for (wrong, named) in [
        ("warm_up(10ms, 3)", "a period of 10ms is out of range: 1s to 3600s"),
        ("warm_up(10s, 1)", "a cold factor of \"1\""),
        ("warm_up(2h)", "a period of 7200s"),
    ] {
        let said = controller.wrong(&["group", "alter", "shop", "--policy", wrong]);
        assert!(said.contains(named), "{said}");
    }
    let said = controller.wrong(&["group", "alter", "shop", "--rate", "unlimited"]);
    assert!(said.contains("needs a limit to warm up to"), "{said}");
    let said = controller.refused(&["sql", "ALTER RESOURCE GROUP shop POLICY = WARM_UP('10s', 3"]);
    assert!(said.contains("a closing parenthesis"), "{said}");
    controller.kill();
    controller.again();
    assert_eq!(policy(&controller), json!("warm_up(90s, 5)"), "it is stored");
}
