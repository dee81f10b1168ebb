//! The quota of a group, by every way in, and the rules between groups.

use serde_json::json;

use crate::support::Controller;

#[test]
fn a_quota_is_set_changed_and_taken_away_by_every_way_and_never_by_an_empty_text() {
    let mut controller = Controller::start();
    let quota = |controller: &Controller| controller.json(&["group", "show", "shop"])["quota"].clone();
    controller.ok(&["group", "create", "shop", "--rate", "5"]);
    assert_eq!(quota(&controller), json!(""));
    controller.ok(&["group", "alter", "shop", "--quota", "1000000 RU per Day europe/berlin"]);
    assert_eq!(quota(&controller), json!("1000000 per day Europe/Berlin"));
    let shown = controller.ok(&["sql", "SHOW CREATE RESOURCE GROUP shop"]);
    assert!(shown.contains("QUOTA=1000000 PER DAY 'Europe/Berlin'"), "{shown}");
    let listed = controller.ok(&["group", "list", "-o", "wide"]);
    assert!(listed.contains("1000000 per day Europe/Berlin"), "{listed}");
    controller.ok(&["sql", "ALTER RESOURCE GROUP shop QUOTA = 2.5 RU PER MONTH"]);
    assert_eq!(quota(&controller), json!("2.5 per month"));
    controller.ok(&["sql", "ALTER RESOURCE GROUP shop RU_PER_SEC = 7"]);
    assert_eq!(quota(&controller), json!("2.5 per month"), "an ALTER keeps what it does not name");
    controller.ok(&["sql", "ALTER RESOURCE GROUP shop QUOTA = NONE"]);
    assert_eq!(quota(&controller), json!(""));
    controller.ok(&["sql", "ALTER RESOURCE GROUP shop QUOTA '7 per hour Asia/Kathmandu', WEIGHT 2"]);
    assert_eq!(quota(&controller), json!("7 per hour Asia/Kathmandu"));
    controller.kill();
    controller.again();
    assert_eq!(quota(&controller), json!("7 per hour Asia/Kathmandu"), "it is stored");
    controller.ok(&["sql", "ALTER RESOURCE GROUP shop QUOTA = 5000 RU PER ROLLING HOUR"]);
    assert_eq!(quota(&controller), json!("5000 per rolling hour"));
    let shown = controller.ok(&["sql", "SHOW CREATE RESOURCE GROUP shop"]);
    assert!(shown.contains("QUOTA=5000 PER ROLLING HOUR"), "{shown}");
    // In `shop`, what was lost by the kill may count.
    controller.ok(&["sql", "CREATE RESOURCE GROUP other RU_PER_SEC = 7, QUOTA = 5000 RU PER ROLLING HOUR"]);
    let listed = controller.ok(&["lease", "list", "other", "-o", "wide"]);
    assert!(listed.contains("5000 RU") && listed.contains(", a part"), "{listed}");
    controller.kill();
    controller.again();
    assert_eq!(quota(&controller), json!("5000 per rolling hour"), "it is stored");
    controller.ok(&["group", "alter", "shop", "--quota", "10000 Requests per day europe/berlin"]);
    assert_eq!(quota(&controller), json!("10000 requests per day Europe/Berlin"));
    let shown = controller.ok(&["sql", "SHOW CREATE RESOURCE GROUP shop"]);
    assert!(shown.contains("QUOTA=10000 REQUESTS PER DAY 'Europe/Berlin'"), "{shown}");
    controller.ok(&["sql", "ALTER RESOURCE GROUP shop QUOTA = 1 REQUESTS PER MINUTE"]);
    assert_eq!(quota(&controller), json!("1 request per minute"));
    let path = controller.path("requests.yaml");
    let file = "kind: Group\nname: shop\nru_per_sec: 7\nburst: 900\nquota: 7 requests per hour\n";
    std::fs::write(&path, file).unwrap();
    controller.ok(&["apply", "-f", path.to_str().unwrap()]);
    assert_eq!(quota(&controller), json!("7 requests per hour"), "a burst in RU is not above it");
    controller.kill();
    controller.again();
    assert_eq!(quota(&controller), json!("7 requests per hour"), "it is stored");
    let said = controller.wrong(&["group", "alter", "shop", "--quota", ""]);
    assert!(said.contains("--quota is empty"), "{said}");
    controller.ok(&["group", "alter", "shop", "--quota", "none"]);
    assert_eq!(quota(&controller), json!(""));
    for (wrong, remedy) in [
        ("0 per day", "none"),
        ("-5 per day", "out of range"),
        ("1000000000001 per day", "out of range"),
        ("5e6 per day", "an amount such as"),
        ("5 per week", "month"),
        ("0 requests per day", "1 to 1000000000000"),
        ("0.5 requests per day", "a whole number"),
        ("1000000000001 requests per day", "a whole number"),
        ("5 requests", "10000 requests per day"),
        ("5 per day Berlin", "Europe/Berlin"),
        ("5 per day Mars/Olympus", "an IANA name"),
        ("5", "1000000 per day"),
        ("5 per rolling day UTC", "a rolling day has no zone"),
    ] {
        let said = controller.wrong(&["group", "alter", "shop", &format!("--quota={wrong}")]);
        assert!(said.contains("--quota") && said.contains(remedy), "{wrong}: {said}");
    }
    let said = controller.refused(&["sql", "ALTER RESOURCE GROUP shop QUOTA = 5 PER WEEK"]);
    assert!(said.contains("MONTH"), "{said}");
    assert_eq!(quota(&controller), json!(""));
}

#[test]
fn one_quota_stands_on_each_way_and_nothing_under_it_runs_without_bound_whatever_asks() {
    let controller = Controller::start();
    let wrong = |arguments: &[&str], words: &[&str]| {
        let said = controller.wrong(arguments);
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    };
    controller.ok(&["group", "create", "top", "--rate", "50", "--quota", "100 per day"]);
    let below = ["group", "create", "below", "--rate", "5", "--parent", "top"];
    wrong(&[&below[..], &["--quota", "10 per day"]].concat(), &["group below", "group top", "none"]);
    wrong(&[&below[..], &["--fallback", "unlimited"]].concat(), &["--fallback", "group top", "stop"]);
    controller.ok(&below);
    wrong(&["group", "alter", "below", "--quota", "10 per day"], &["group below", "group top", "none"]);
    controller.ok(&["group", "create", "beside", "--rate", "5", "--quota", "10 per day"]);
    wrong(&["group", "alter", "beside", "--parent", "below"], &["group beside", "group top", "none"]);
    controller.ok(&["group", "create", "above", "--rate", "5"]);
    controller.ok(&["group", "alter", "beside", "--parent", "above"]);
    wrong(&["group", "alter", "above", "--quota", "10 per day"], &["group beside", "group above"]);
    wrong(&["group", "alter", "above", "--parent", "top"], &["group beside", "group top"]);
    // The group of all the others falls back to no limit, until somebody says otherwise.
    wrong(&["group", "alter", "default", "--quota", "10 per day"], &["--fallback", "stop"]);
    controller.ok(&["group", "alter", "default", "--quota", "10 per day", "--fallback", "stop"]);
    // A file is checked as a whole: a quota goes up the tree and down again in one change, and never stands twice.
    let file = |above: &str, beside: &str| {
        let path = controller.path("quotas.yaml");
        let group = |name: &str, quota: &str, parent: &str| {
            format!("---\nkind: Group\nname: {name}\nru_per_sec: 5\nquota: {quota}\nparent: {parent}\n")
        };
        std::fs::write(&path, group("above", above, "/") + &group("beside", beside, "above")).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let quotas = || {
        let of = |name: &str| controller.json(&["group", "show", name])["quota"].clone();
        (of("above"), of("beside"))
    };
    let said = controller.refused(&["apply", "-f", &file("9 per hour", "9 per hour")]);
    assert!(said.contains("group beside") && said.contains("group above"), "{said}");
    assert_eq!(quotas(), (json!(""), json!("10 per day")));
    controller.ok(&["apply", "-f", &file("9 per hour", "none")]);
    assert_eq!(quotas(), (json!("9 per hour"), json!("")));
    controller.ok(&["apply", "-f", &file("none", "8 per hour")]);
    assert_eq!(quotas(), (json!(""), json!("8 per hour")));
    let warned = controller.json(&["group", "alter", "beside", "--fallback", "3"]);
    assert!(warned["warnings"].to_string().contains("quota of group beside"), "{warned}");
}
