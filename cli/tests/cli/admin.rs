//! The administration commands against a real controller process.

use std::io::Write as _;
use std::process::Stdio;

use crate::support::Controller;
use serde_json::json;

#[test]
fn groups_are_created_altered_shown_and_deleted() {
    let controller = Controller::start();
    let created =
        controller.json(&["group", "create", "shop", "--rate", "2000 RU/s", "--comment", "checkout"]);
    assert_eq!((&created["changed"], &created["group"]["ru_per_sec"]), (&json!(true), &json!("2000")));
    let again = controller.json(&[
        "group",
        "create",
        "shop",
        "--rate",
        "2000",
        "--comment",
        "checkout",
        "--if-not-exists",
    ]);
    assert_eq!(again["changed"], json!(false));
    assert!(controller.refused(&["group", "create", "shop", "--rate", "5"]).contains("shop"));

    controller.ok(&["group", "create", "analytics", "--rate", "500"]);
    controller.ok(&[
        "group",
        "create",
        "boards",
        "--parent",
        "analytics",
        "--rate",
        "100",
        "--burst",
        "50",
        "--burstable",
        "moderated:200",
        "--priority",
        "high",
        "--weight",
        "3",
        "--ttl",
        "4s",
        "--renew",
        "1s",
        "--fallback",
        "10",
        "--fallback-total",
        "40",
        "--max-debt",
        "7",
    ]);
    let shown = controller.json(&["group", "show", "boards"]);
    let expected = [
        ("parent", json!("analytics")),
        ("burst", json!("50")),
        ("burstable", json!("moderated")),
        ("burst_ru_per_sec", json!("200")),
        ("priority", json!("high")),
        ("weight", json!(3)),
        ("ttl_us", json!(4_000_000)),
        ("renew_us", json!(1_000_000)),
        ("fallback", json!("10")),
        ("fallback_total", json!("40")),
        ("max_debt", json!("7")),
    ];
    for (field, value) in expected {
        assert_eq!(shown[field], value, "{field}");
    }

    let revision = shown["revision"].as_u64().unwrap();
    let stale = (revision + 1_000).to_string();
    let said = controller.refused(&["group", "alter", "boards", "--rate", "90", "--expect-revision", &stale]);
    assert!(said.contains("revision"), "{said}");
    let current = revision.to_string();
    let altered =
        controller.json(&["group", "alter", "boards", "--rate", "90", "--expect-revision", &current]);
    assert_eq!((&altered["group"]["ru_per_sec"], &altered["group"]["burst"]), (&json!("90"), &json!("50")));
    assert_eq!(controller.run(&["group", "alter", "boards"]).status.code(), Some(2));

    let table = controller.ok(&["group", "list"]);
    assert!(table.starts_with("GROUP") && table.contains("moderated, to 200 RU/s"), "{table}");
    assert_eq!(controller.json(&["group", "list"]).as_array().unwrap().len(), 4, "with `default`");

    let said = controller.refused(&["group", "delete", "analytics"]);
    assert!(said.contains("boards"), "{said}");
    let deleted = controller.json(&["group", "delete", "analytics", "--force-to", "shop"]);
    assert_eq!((&deleted["deleted"], &deleted["moved_count"]), (&json!(true), &json!(1)));
    assert_eq!(controller.json(&["group", "delete", "analytics", "--if-exists"])["deleted"], json!(false));
    let said = controller.refused(&["group", "show", "analytics"]);
    assert!(said.contains("group analytics does not exist"), "{said}");
    for (flag, value) in [
        ("--rate", "-5"),
        ("--ttl", "90s"),
        ("--renew", "90s"),
        ("--priority", "urgent"),
        ("--max-wait", "1us"),
    ] {
        let rate = if flag == "--rate" { &[][..] } else { &["--rate", "5"] };
        let said = controller.wrong(&[&["group", "create", "x", flag, value], rate].concat());
        assert!(said.contains(&format!("{flag}: ")) && !said.contains("_us"), "{said}");
    }
}

#[test]
fn a_limit_goes_into_shadow_and_back_by_every_way_and_never_by_an_empty_text() {
    let controller = Controller::start();
    let enforcement = || controller.json(&["group", "show", "shop"])["enforcement"].clone();
    controller.ok(&["group", "create", "shop", "--rate", "5", "--enforcement", "Shadow"]);
    assert_eq!(enforcement(), json!("shadow"));
    let shown = controller.ok(&["sql", "SHOW CREATE RESOURCE GROUP shop"]);
    assert!(shown.contains("ENFORCEMENT=SHADOW"), "{shown}");
    controller.ok(&["sql", "ALTER RESOURCE GROUP shop ENFORCEMENT = ON"]);
    assert_eq!(enforcement(), json!("on"));
    controller.ok(&["sql", "ALTER RESOURCE GROUP shop ENFORCEMENT SHADOW, RU_PER_SEC = 6"]);
    assert_eq!(enforcement(), json!("shadow"));
    controller.ok(&["sql", "ALTER RESOURCE GROUP shop RU_PER_SEC = 7"]);
    assert_eq!(enforcement(), json!("shadow"), "an ALTER keeps what it does not name");
    let said = controller.wrong(&["group", "alter", "shop", "--enforcement", "off"]);
    assert!(said.contains("\"off\" is none of \"on\", \"shadow\""), "{said}");
    controller.wrong(&["group", "alter", "shop", "--enforcement", ""]);
    assert_eq!(enforcement(), json!("shadow"));
    controller.ok(&["group", "alter", "shop", "--enforcement", "on"]);
    assert_eq!(enforcement(), json!("on"));
}

#[test]
fn an_owner_is_set_shown_written_out_and_removed() {
    let controller = Controller::start();
    controller.ok(&["group", "create", "shop", "--rate", "5", "--owner", "Ann, 555-0101"]);
    let owned = || controller.json(&["group", "show", "shop"])["owner"].clone();
    assert_eq!(owned(), json!("Ann, 555-0101"));
    let wide = controller.ok(&["group", "list", "-o", "wide"]);
    assert!(wide.contains("OWNER") && wide.contains("Ann, 555-0101"), "{wide}");
    assert!(!controller.ok(&["group", "list"]).contains("OWNER"));
    let shown = controller.ok(&["group", "show", "shop"]);
    assert!(shown.contains("owner") && shown.contains("Ann, 555-0101"), "{shown}");

    let written = controller.ok(&["group", "list", "-o", "yaml"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("groups.yaml");
    let path = file.to_str().unwrap();
    std::fs::write(&file, &written).unwrap();
    assert_eq!(controller.run(&["diff", "-f", path]).status.code(), Some(0), "{written}");
    std::fs::write(&file, written.replace("Ann", "Bob")).unwrap();
    let differs = controller.run(&["diff", "-f", path]);
    assert_eq!(differs.status.code(), Some(1));
    let difference = String::from_utf8(differs.stdout).unwrap();
    assert!(difference.contains("-owner: \"Ann") && difference.contains("+owner: \"Bob"), "{difference}");
    controller.ok(&["apply", "-f", path]);
    controller.ok(&["sql", "ALTER RESOURCE GROUP shop RU_PER_SEC=7"]);
    assert_eq!(owned(), json!("Bob, 555-0101"));

    let said = controller.wrong(&["group", "alter", "shop", "--owner", &"ö".repeat(201)]);
    assert!(said.contains("--owner: 201 characters are too many: at most 200"), "{said}");
    controller.ok(&["group", "alter", "shop", "--owner", ""]);
    assert_eq!(owned(), json!(""));
}

#[test]
fn bindings_decide_who_pays() {
    let controller = Controller::start();
    controller.ok(&["group", "create", "shop", "--rate", "2000"]);
    controller.ok(&["group", "create", "reports", "--rate", "200"]);
    let bound = controller.json(&["bind", "add", "shop", "--tenant", "store"]);
    assert_eq!((&bound["changed"], &bound["previous"]), (&json!(true), &json!("")));
    controller.ok(&["bind", "add", "reports", "--tenant", "store", "--user", "ann"]);
    let resolve = |user: &str| controller.json(&["resolve", "--tenant", "store", "--user", user]);
    assert_eq!(resolve("ann"), json!({"group": "reports", "matched": "user in tenant"}));
    assert_eq!(resolve("bob"), json!({"group": "shop", "matched": "tenant"}));
    assert_eq!(controller.json(&["resolve", "--user", "eve"])["group"], json!("default"));
    assert_eq!(controller.json(&["bind", "list"]).as_array().unwrap().len(), 2);
    assert_eq!(controller.json(&["bind", "list", "shop"])[0]["tenant"], json!("store"));
    assert_eq!(controller.ok(&["bind", "list", "--group", "shop", "-o", "name"]), "store\t\n");
    assert_eq!(controller.json(&["bind", "remove", "--tenant", "store"])["removed"], json!(true));
    let said = controller.refused(&["bind", "remove", "--tenant", "store"]);
    assert!(said.contains("tenant store has no binding"), "{said}");
    let missing = controller.json(&["bind", "remove", "--tenant", "store", "--if-exists"]);
    assert_eq!(missing["removed"], json!(false));
    assert_eq!(resolve("bob")["group"], json!("default"));
    let said = controller.refused(&["bind", "add", "nowhere", "--user", "ann"]);
    assert!(said.contains("nowhere"), "{said}");
}

#[test]
fn a_list_of_several_pages_has_each_thing_once_and_in_order() {
    let controller = Controller::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("many.yaml");
    let group = |number: u32| format!("kind: Group\nname: g{number:04}\nru_per_sec: 1\n---\n");
    let binding = |tenant: &str, user: &str| {
        format!("kind: Binding\ntenant: \"{tenant}\"\nuser: \"{user}\"\ngroup: default\n---\n")
    };
    // Tenants come first, then users, then users of a tenant, among whom the first page of bindings ends. The second one
    // of groups, with `default`, has two.
    let groups: String = (0..1_001).map(group).collect();
    let mut bound: Vec<_> = (0..990).map(|number| (format!("a{number:04}"), String::new())).collect();
    bound.extend(["ann", "bob"].map(|user| (String::new(), user.to_owned())));
    bound.extend((10..23).map(|number| ("z".to_owned(), format!("u{number}"))));
    let bindings: String = bound.iter().map(|(tenant, user)| binding(tenant, user)).collect();
    std::fs::write(&file, groups + &bindings).unwrap();
    controller.ok(&["apply", "-f", file.to_str().unwrap()]);
    let listed = controller.json(&["bind", "list"]);
    let text = |row: &serde_json::Value, field: &str| row[field].as_str().unwrap().to_owned();
    let rows = |listed: &serde_json::Value| {
        let rows = listed.as_array().unwrap().iter();
        rows.map(|row| (text(row, "tenant"), text(row, "user"))).collect::<Vec<_>>()
    };
    assert!(rows(&listed) == bound, "{} rows", rows(&listed).len());
    assert!(rows(&controller.json(&["bind", "list", "default"])) == bound);
    let names = controller.ok(&["group", "list", "-o", "name"]);
    let mut expected = vec!["default".to_owned()];
    expected.extend((0..1_001).map(|number| format!("g{number:04}")));
    assert!(names.lines().eq(&expected), "{} names", names.lines().count());
    let top = controller.json(&["top", "--once"]);
    assert!(top.as_array().unwrap().iter().map(|row| text(row, "group")).eq(expected), "top");
}

#[test]
fn changes_are_in_the_audit_log_with_their_actor() {
    let controller = Controller::start();
    controller.ok(&["--actor", "ann", "group", "create", "shop", "--rate", "2000"]);
    controller.ok(&["--actor", "bob", "group", "alter", "shop", "--rate", "1000"]);
    let entries = controller.json(&["audit", "--limit", "2"]);
    let actor = |index: usize| entries[index]["actor"].as_str().unwrap().to_owned();
    assert!(actor(0).starts_with("bob") && actor(1).starts_with("ann"), "{entries}");
    assert_eq!(entries[0]["after"]["ru_per_sec"], json!("1000"));
    assert!(controller.ok(&["audit"]).contains("ru_per_sec: 2000 -> 1000"));
    controller.ok(&["group", "create", "other", "--rate", "5"]);
    controller.ok(&["bind", "add", "shop", "--tenant", "shop"]);
    for of_shop in [&["audit", "Shop"][..], &["audit", "--group", "shop"]] {
        let entries = controller.json(of_shop);
        let actions = |at: usize| (&entries[at]["action"], &entries[at]["subject"]);
        assert_eq!(actions(0), (&json!("alter group"), &json!("shop")), "{entries}");
        assert_eq!((actions(1).0, entries.as_array().unwrap().len()), (&json!("create group"), 2));
    }
    assert_eq!(controller.json(&["audit", "never"]), json!([]));
    let odd = controller.wrong(&["audit", "a b"]);
    assert!(odd.contains("group: ") && odd.contains("[a-z0-9._-]"), "{odd}");
}

#[test]
fn cost_tables_are_listed_and_replaced() {
    let controller = Controller::start();
    let tables = controller.json(&["cost-table", "list"]);
    assert_eq!((&tables[0]["name"], &tables[0]["role"]), (&json!("tidb-v1"), &json!("active")));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("prices.toml");
    let path = file.to_str().unwrap();
    std::fs::write(
        &file,
        "name = \"mine\"\nversion = 1\nreplicas = 1\n[coefficients]\ncpu_ns = \"x\"\nwind = \"1\"\n",
    )
    .unwrap();
    let said = controller.refused(&["cost-table", "put", path]);
    assert!(said.contains("prices.toml") && said.contains("cpu_ns") && said.contains("wind"), "{said}");
    std::fs::write(&file, "\n").unwrap();
    let said = controller.refused(&["cost-table", "put", path]);
    assert!(said.contains("prices.toml: is empty"), "{said}");
    std::fs::write(
        &file,
        "name = \"mine\"\nversion = 1\nreplicas = 1\n[coefficients]\ncpu_ns = \"1/1000000\"\n",
    )
    .unwrap();
    let tables = controller.json(&["cost-table", "put", path, "--shadow"]);
    assert_eq!((&tables[1]["name"], &tables[1]["role"]), (&json!("mine"), &json!("shadow")));
    assert_eq!(controller.json(&["cost-table", "list"]).as_array().unwrap().len(), 2);
}

#[test]
fn statements_run_governed_and_are_accounted_for() {
    let controller = Controller::start();
    controller.ok(&["group", "create", "shop", "--rate", "2000"]);
    controller.ok(&["bind", "add", "shop", "--user", "ann"]);
    let mut node = crate::support::tidegate()
        .args(["--endpoint", &controller.endpoint, "--output", "json", "node", "--user", "ann"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // The command had no name for it, so it has one of its own.
    let pid = format!("-{}", node.id());
    let sql = "create table t(a); insert into t values (1), (2); -- done\nselect a from t; select nothing;";
    node.stdin.take().unwrap().write_all(sql.as_bytes()).unwrap();
    let output = node.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "the last statement fails");
    let lines: Vec<serde_json::Value> =
        crate::support::out(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 4);
    assert_eq!((&lines[1]["changed"], &lines[2]["rows"]), (&json!(2), &json!(2)));
    assert_eq!((&lines[0]["group"], &lines[2]["error"]), (&json!("shop"), &json!("")));
    assert!(lines[3]["error"].as_str().unwrap().contains("nothing"));
    let charged: i64 = lines.iter().map(|line| line["charged_micro_ru"].as_i64().unwrap()).sum();

    let identity = controller.json(&["client", "list"])[0]["client"].as_str().unwrap().to_owned();
    assert!(identity.starts_with("sql-node-") && identity.ends_with(&pid), "{identity}");
    let usage = controller.json(&["usage", "shop", "--per-client"]);
    let rows = usage.as_array().unwrap();
    let of_node = rows.iter().find(|row| row["client"] == json!(identity)).unwrap();
    assert_eq!(of_node["total"]["total_micro_ru"], json!(charged));
    assert_eq!(of_node["total"]["operations"], json!(4));
    let table = controller.ok(&["usage"]);
    for column in ["RU TOTAL", "CPU RU", "READ RU", "WRITE RU", "NETWORK RU", "FLAT RU"] {
        assert!(table.contains(column), "{column}: {table}");
    }
    assert!(controller.json(&["usage", "shop", "--history", "minute"]).is_array());
    assert!(controller.json(&["lease", "list"])["groups"].is_array());
    assert!(controller.ok(&["client", "list"]).starts_with("CLIENT"));
    assert!(controller.ok(&["lease", "list", "shop"]).starts_with("GROUP"));
}

#[test]
fn a_look_at_the_controller() {
    let controller = Controller::start();
    controller.ok(&["group", "create", "shop", "--rate", "2000"]);
    let status = controller.json(&["status"]);
    assert_eq!((&status["groups"], &status["recovery_us"]), (&json!(2), &json!(0)));
    assert!(controller.ok(&["status"]).contains(&controller.endpoint));
    assert!(controller.ok(&["top", "--once"]).contains("2 unused groups are left out"));
    let top = controller.ok(&["top", "--once", "--all"]);
    assert!(top.starts_with("GROUP") && top.contains("shop"), "{top}");
    assert_eq!(controller.json(&["top", "--once"]).as_array().unwrap().len(), 2);
    assert_eq!(controller.stop(), Some(0));
}

#[test]
fn a_reader_that_goes_away_ends_top_quietly() {
    let controller = Controller::start();
    let mut top = crate::support::tidegate()
        .args(["--endpoint", &controller.endpoint, "top", "--interval", "100ms"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut stdout = std::io::BufReader::new(top.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
    drop(stdout);
    let output = top.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{}", crate::support::err(&output));
}

#[test]
fn a_node_is_forgotten_by_its_name_or_not_at_all() {
    let controller = Controller::start();
    let unknown = controller.refused(&["client", "forget", "nobody"]);
    assert!(unknown.contains("client nobody does not exist"), "{unknown}");
    let odd = controller.wrong(&["client", "forget", "a b"]);
    assert!(odd.contains("client: ") && odd.contains("[A-Za-z0-9._-]"), "{odd}");
    assert!(!controller.ok(&["audit"]).contains("forget"), "nothing was done");
}

/// Each field with its value, as YAML writes it where it needs no quotes.
fn parts_of(value: &serde_json::Value, parts: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(fields) => fields.iter().for_each(|(name, value)| match value {
            serde_json::Value::Number(number) => parts.push(format!("{name}: {number}\n")),
            serde_json::Value::Bool(so) => parts.push(format!("{name}: {so}\n")),
            other => {
                parts.push(format!("{name}:"));
                parts_of(other, parts);
            }
        }),
        serde_json::Value::Array(values) => values.iter().for_each(|value| parts_of(value, parts)),
        serde_json::Value::String(text) if text.chars().all(|c| c.is_ascii_alphanumeric()) => {
            parts.push(text.clone());
        }
        _ => {}
    }
}

#[test]
fn every_list_has_the_same_shapes() {
    let controller = Controller::start();
    controller.ok(&["group", "create", "shop", "--rate", "2000", "--comment", "a\u{202e}b"]);
    controller.ok(&["bind", "add", "shop", "--tenant", "yes", "--user", "1e3"]);
    controller.ok(&[
        "watch",
        "add",
        "--group",
        "shop",
        "--similar-to",
        "00000000000000ab",
        "--action",
        "kill",
    ]);
    let endpoint = format!("{}\n", controller.endpoint);
    for (list, names) in [
        (&["group", "list"][..], "default\nshop\n"),
        (&["group", "show", "shop"], "shop\n"),
        (&["bind", "list"], "yes\t1e3\n"),
        (&["resolve", "--tenant", "yes"], "default\n"),
        (&["usage"], ""),
        (&["client", "list"], ""),
        (&["lease", "list"], ""),
        (&["cost-table", "list"], "tidb-v1\n"),
        (&["statement", "list"], ""),
        (&["watch", "list"], "1\n"),
        (&["runaway", "list"], ""),
        (&["audit"], "3\n2\n1\n"),
        (&["status"], &endpoint),
        (&["top", "--once"], ""),
    ] {
        let shaped = |shape| controller.ok(&[list, &["-o", shape]].concat());
        assert!(shaped("table").lines().count() <= shaped("wide").lines().count(), "{list:?}");
        assert_eq!(shaped("name"), names, "{list:?}");
        let (yaml, json) = (shaped("yaml"), shaped("json"));
        let document = yaml.strip_suffix("...\n").unwrap_or_else(|| panic!("{list:?}: {yaml}"));
        let mut parts = Vec::new();
        parts_of(&serde_json::from_str(&json).unwrap(), &mut parts);
        for part in parts.iter().filter(|part| !part.starts_with("uptime_us:")) {
            assert!(document.contains(part.as_str()), "{list:?}: {part}: {yaml}");
        }
    }
    let wide = controller.ok(&["group", "list", "-o", "wide"]);
    assert!(wide.contains("FALLBACK") && wide.contains("a\\u{202e}b"), "{wide}");
    // Texts that YAML 1.1 takes for a boolean or a number stay texts.
    let yaml = controller.ok(&["bind", "list", "-o", "yaml"]);
    assert!(["tenant: \"yes\"", "tenant: 'yes'"].iter().any(|text| yaml.contains(text)), "{yaml}");
    assert!(["user: \"1e3\"", "user: '1e3'"].iter().any(|text| yaml.contains(text)), "{yaml}");
    let coloured = controller.ok(&["group", "list", "--color", "always"]);
    assert!(coloured.starts_with("\u{1b}[1mGROUP") && !controller.ok(&["group", "list"]).contains('\u{1b}'));
}

#[test]
fn a_list_of_cost_tables_can_be_put_again() {
    let controller = Controller::start();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tables.json");
    let before = controller.ok(&["cost-table", "list", "-o", "json"]);
    std::fs::write(&file, &before).unwrap();
    controller.ok(&["cost-table", "put", file.to_str().unwrap()]);
    assert_eq!(controller.ok(&["cost-table", "list", "-o", "json"]), before);
    let next = before.replace("\"version\": 1", "\"version\": 2");
    std::fs::write(&file, next).unwrap();
    let put = controller.json(&["cost-table", "put", file.to_str().unwrap()]);
    assert_eq!(put[0]["version"], json!(2));
}

#[test]
fn a_watched_list_prints_what_changes_and_outlives_its_controller() {
    let mut controller = Controller::start();
    let mut watch = crate::support::tidegate()
        .args([
            "--endpoint",
            &controller.endpoint,
            "group",
            "list",
            "-o",
            "json",
            "-w",
            "--interval",
            "100ms",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = |output: Box<dyn std::io::Read>| std::io::BufRead::lines(std::io::BufReader::new(output));
    let mut seen = lines(Box::new(watch.stdout.take().unwrap()));
    let mut told = lines(Box::new(watch.stderr.take().unwrap()));
    let mut groups = || {
        let look: serde_json::Value = serde_json::from_str(&seen.next().unwrap().unwrap()).unwrap();
        look.as_array().unwrap().len()
    };
    assert_eq!(groups(), 1);
    controller.ok(&["group", "create", "a", "--rate", "1"]);
    assert_eq!(groups(), 2, "a line for a change, and none without");
    controller.kill();
    let away = told.next().unwrap().unwrap();
    assert!(away.contains("cannot reach the controller") && away.ends_with("trying again"), "{away}");
    controller.again();
    assert_eq!(told.next().unwrap().unwrap(), "the controller is back");
    controller.ok(&["group", "create", "b", "--rate", "1"]);
    assert_eq!(groups(), 3);
    rustix::process::kill_process(rustix::process::Pid::from_child(&watch), rustix::process::Signal::INT)
        .unwrap();
    assert_eq!(watch.wait().unwrap().code(), Some(0));
}

#[test]
fn the_port_of_rest_is_named_as_what_it_is() {
    let controller = Controller::start();
    let output = crate::support::run(&["status", "--endpoint", &controller.rest]);
    assert_eq!(output.status.code(), Some(2));
    let said = crate::support::err(&output);
    assert!(said.contains("this is the REST listener") && said.contains(&controller.endpoint), "{said}");
}
