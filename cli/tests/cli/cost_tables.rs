//! Cost tables that are put together.

use serde_json::{Value, json};

use crate::support::{Controller, err};

/// The active table that there is, in this version, with this role.
fn table(like: &Value, version: u64, role: &str) -> Value {
    let mut table = like.clone();
    (table["version"], table["role"]) = (json!(version), json!(role));
    table
}

/// A list has the role of each table, and the option says another one: prices that were to be tried would charge.
#[test]
fn shadow_prices_charge_nobody_whatever_role_the_file_says() {
    let controller = Controller::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tables.json");
    let put = |text: String, more: &[&str]| {
        std::fs::write(&file, text).unwrap();
        controller.run(&[&["cost-table", "put", file.to_str().unwrap(), "-o", "json"], more].concat())
    };
    let before = controller.json(&["cost-table", "list"]);
    let live = &before[0];
    let of = |list: &Value, role: &str| {
        let found: Vec<u64> = list
            .as_array()
            .unwrap()
            .iter()
            .filter(|table| table["role"] == role)
            .map(|table| table["version"].as_u64().unwrap())
            .collect();
        found
    };
    let list = json!([table(live, 1, "stored"), table(live, 2, "active")]);
    let done = put(list.to_string(), &["--shadow"]);
    assert!(done.status.success(), "{}", err(&done));
    let now = controller.json(&["cost-table", "list"]);
    assert_eq!((of(&now, "active"), of(&now, "shadow")), (vec![1], vec![2]), "{now}");

    let two = json!([table(live, 3, "active"), table(live, 4, "shadow")]).to_string();
    for (text, more, said) in [
        (two.as_str(), &["--shadow"][..], "holds 2 tables to put in force; leave one"),
        ("[]", &[], "holds 0 tables to put in force"),
        ("{\"name\": ", &[], "EOF while parsing"),
        ("name = ", &[], "TOML parse error"),
    ] {
        let refused = put(text.to_owned(), more);
        let told = err(&refused);
        assert!(refused.status.code() == Some(1) && told.contains(said), "{text}: {told}");
        assert!(told.contains("tables.json: ") && told.lines().count() == 1, "{told}");
    }
    assert_eq!(controller.json(&["cost-table", "list"]), now, "nothing is put");
}

#[test]
fn the_tables_of_a_list_are_put_in_force_together_or_not_at_all() {
    let controller = Controller::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tables.json");
    let put = |tables: Value| {
        std::fs::write(&file, tables.to_string()).unwrap();
        controller.run(&["cost-table", "put", file.to_str().unwrap(), "-o", "json"])
    };
    let before = controller.json(&["cost-table", "list"]);
    let live = &before[0];
    // The controller knows this version with other prices.
    let mut known = table(live, 1, "shadow");
    known["ru_per_unit"]["cpu_ns"] = json!("1/7");
    let refused = put(json!([table(live, 2, "active"), known]));
    assert_eq!(refused.status.code().map(|code| code > 0), Some(true), "{}", err(&refused));
    assert_eq!(controller.json(&["cost-table", "list"]), before, "no price has changed");

    let done = put(json!([table(live, 2, "active"), table(live, 3, "shadow")]));
    assert!(done.status.success(), "{}", err(&done));
    let shown: Value = serde_json::from_slice(&done.stdout).unwrap();
    let roles = |of: &Value| json!([[of[0]["version"], of[0]["role"]], [of[1]["version"], of[1]["role"]]]);
    assert_eq!(roles(&shown), json!([[2, "active"], [3, "shadow"]]));
}
