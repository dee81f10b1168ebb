//! `tidegate lab`: what it prints, its page, and its errors.

use crate::support;

#[test]
fn a_report_is_one_page_that_needs_no_network() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("new").join("folder");
    let run = support::run(&["lab", "policies", "--out", out.to_str().unwrap()]);
    assert!(run.status.success(), "{run:?}");
    let page = std::fs::read_to_string(out.join("policies.html")).unwrap();
    let outside = page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    for word in ["http:", "https:", "src=", "href=", "<script", "@import", "url("] {
        assert!(!outside.contains(word), "{word}");
    }
    assert_eq!((page.matches("<svg").count(), page.matches("<h2>").count()), (7, 6));
    assert_eq!(page.matches("<table>").count(), page.matches("</table>").count());
}

#[test]
fn arrangements_are_a_row_each_and_a_panel_each() {
    let folder = tempfile::tempdir().unwrap();
    let args = [
        "lab",
        "arrangements",
        "--rate",
        "500",
        "--away",
        "1",
        "-o",
        "json",
        "--out",
        folder.path().to_str().unwrap(),
    ];
    let run = support::run(&args);
    assert!(run.status.success(), "{run:?}");
    let json: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    let rows = json["sections"][0]["tables"][0].as_array().unwrap();
    assert_eq!(rows.len(), 13);
    let page = std::fs::read_to_string(folder.path().join("arrangements.html")).unwrap();
    assert_eq!((page.matches("<svg").count(), page.matches("<table>").count()), (1, 1));
    for row in rows {
        let name = row["arrangement"].as_str().unwrap();
        assert!(row["over, B"].is_f64() && row["wait, ms"].is_f64() && row["messages/s"].is_i64(), "{row}");
        assert!(page.contains(&format!(">{name}</text>")), "{name} has no panel");
    }
}

#[test]
fn json_has_the_numbers_of_the_tables() {
    let run = support::run(&["lab", "warmup", "-o", "json", "--seed", "7"]);
    let json: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(json["seed"], 7);
    assert_eq!(
        json["sections"][0]["tables"][0][1],
        serde_json::json!({"number": "most stored", "formula": 2000, "here": 2000})
    );
}

#[test]
fn an_error_says_what_to_give() {
    let folder = tempfile::NamedTempFile::new().unwrap();
    let file = folder.path().to_str().unwrap();
    for (args, code, said) in [
        (vec!["lab", "warmup", "--factor", "1"], 2, "tidegate: cold factor 1: give 2 to 100".to_owned()),
        (vec!["lab", "warmup", "--seconds", "0"], 2, "tidegate: warm-up 0ms: give more than 0".to_owned()),
        (vec!["lab", "warmup", "--rate", "0"], 2, "tidegate: rate 0 RU/s: give more than 0".to_owned()),
        (
            vec!["lab", "warmup", "--rate", "9"],
            2,
            "tidegate: --rate 9: give 100 to 10 million operations".to_owned(),
        ),
        (
            vec!["lab", "accuracy", "--requests", "0"],
            2,
            "tidegate: --requests 0: give 1 to 1000000000 for each".to_owned(),
        ),
        (
            vec!["lab", "accuracy", "--requests", "7000000000"],
            2,
            "tidegate: --requests 7000000000: give 1 to".to_owned(),
        ),
        (vec!["lab", "accuracy", "--keys", "0"], 2, "tidegate: --keys 0: give 1 to 10000000".to_owned()),
        (vec!["lab", "accuracy", "--hours", "0"], 2, "tidegate: --hours 0: give 1 to 8784".to_owned()),
        (
            vec!["lab", "accuracy", "--limit", "0", "--requests", "9"],
            2,
            "tidegate: limit 0 RU: give more than 0".to_owned(),
        ),
        (vec!["lab", "arrangements", "--nodes", "1"], 2, "tidegate: --nodes 1: give 2 to 64".to_owned()),
        (vec!["lab", "arrangements", "--nodes", "65"], 2, "tidegate: --nodes 65: give 2 to 64".to_owned()),
        (vec!["lab", "arrangements", "--rate", "99"], 2, "tidegate: --rate 99: give 100 to 50000".to_owned()),
        (
            vec!["lab", "arrangements", "--away", "0"],
            2,
            "tidegate: --away 0: give 1 to 600 seconds".to_owned(),
        ),
        (
            vec!["lab", "arrangements", "--round-trip", "1001"],
            2,
            "tidegate: --round-trip 1001: give 0 to 1000".to_owned(),
        ),
        (vec!["lab", "arrangements", "--period", "0"], 2, "tidegate: --period 0: give 1 to 10000".to_owned()),
        (
            vec!["lab", "arrangements", "--stale", "60001"],
            2,
            "tidegate: --stale 60001: give 0 to 60000".to_owned(),
        ),
        (vec!["lab", "policies", "--out", file], 1, format!("tidegate: {file}: ")),
        (vec!["lab", "nothing"], 2, "unrecognized subcommand".to_owned()),
    ] {
        let run = support::run(&args);
        let error = String::from_utf8(run.stderr).unwrap();
        assert_eq!(run.status.code(), Some(code), "{args:?}: {error}");
        assert!(error.contains(&said), "{args:?}: {error}");
    }
}

/// Replays a file; returns the answer.
fn replayed(file: &std::path::Path, more: &[&str]) -> serde_json::Value {
    let run =
        support::run(&[&["lab", "what-if", "-o", "json", "--from", file.to_str().unwrap()], more].concat());
    assert!(run.status.success(), "{run:?}");
    serde_json::from_slice(&run.stdout).unwrap()
}

/// The rows of a table of the answer.
fn rows(answer: &serde_json::Value, table: usize) -> &Vec<serde_json::Value> {
    answer["sections"][0]["tables"][table].as_array().unwrap()
}

#[test]
fn a_file_is_replayed_under_settings_in_force_and_proposed_with_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("usage.csv");
    let lines: String =
        (0..600).map(|second| format!("{second},{}\n", if second % 10 < 2 { 900 } else { 100 })).collect();
    std::fs::write(&file, format!("time,ru\n{lines}")).unwrap();
    let out = folder.path().join("lab");
    let set = ["--set", "rate=300", "--set", "burst=300", "--recorded", "rate=2000", "--patience", "1us"];
    let answer = replayed(&file, &[&set[..], &["--out", out.to_str().unwrap()]].concat());
    // 10 s want 2,600 RU: 300 wait in the bucket, and each of the two busy seconds yields 300 more.
    let throttled = |row: &serde_json::Value| row["RU throttled"].as_str().unwrap().to_owned();
    let all: Vec<_> = rows(&answer, 1).iter().map(throttled).collect();
    assert_eq!(all[..2], ["0.00 %", "0.00 %"], "2,000 a second");
    let even: f64 = all[2].trim_end_matches(" %").parse().unwrap();
    assert!((34.0..36.5).contains(&even), "900 of 2,600: {all:?}");
    assert_eq!(rows(&answer, 1)[3]["of the time"], "20.00 %");
    // Twice 600 of 2,600 go beyond 300 a second, and of the second at once too: 99 of 100 parts must come within 100 ms.
    let cheapest: f64 = rows(&answer, 2)[0]["RU/s"].as_f64().unwrap();
    assert!((500.0..900.0).contains(&cheapest), "{cheapest}");
    let page = std::fs::read_to_string(out.join("what-if.html")).unwrap();
    let outside = page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    for word in ["http:", "https:", "src=", "href=", "<script", "@import", "url("] {
        assert!(!outside.contains(word), "{word}");
    }
    assert_eq!((page.matches("<svg").count(), page.matches("<table>").count()), (1, 3));
    assert!(page.contains("proposed: 300 RU/s") && !page.contains("NaN"));
}

#[test]
fn a_quota_that_rolls_is_replayed_and_one_of_requests_needs_their_number() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("usage.csv");
    let lines: String = (0..610).map(|second| format!("{second},10,5\n")).collect();
    std::fs::write(&file, format!("time,ru,operations\n{lines}")).unwrap();
    // 30 of each 61 seconds.
    for quota in ["quota=300 per rolling minute", "quota=150 requests per rolling minute"] {
        let set = ["--set", "rate=100", "--set", quota, "--recorded", quota, "--recorded", "rate=100"];
        let answer = replayed(&file, &[&set[..], &["--patience", "1us"]].concat());
        for row in rows(&answer, 1) {
            assert_eq!(row["RU throttled"], "50.81 %");
            assert!(row["quota"].as_str().unwrap().ends_with(" in any 60s"), "{row}");
        }
    }
    std::fs::write(&file, "time,ru\n0,10\n1,10\n").unwrap();
    let asked = ["--set", "rate=5", "--set", "quota=5 requests per rolling day"];
    let run = support::run(&[&["lab", "what-if", "--from", file.to_str().unwrap()], &asked[..]].concat());
    assert!(support::err(&run).contains("needs the number of operations"), "{run:?}");
}

#[test]
fn a_log_of_requests_and_the_history_of_a_controller_are_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("access.log");
    let line = |second: u32, status: u32| {
        format!(
            "::1 - - [10/Oct/2000:13:55:{second:02} -0700] \"GET / HTTP/1.1\" {status} 5 \"-\" \"curl\"\n"
        )
    };
    let log: String = (0..40).map(|at| line(at / 4, if at % 4 == 3 { 503 } else { 200 })).collect();
    std::fs::write(&file, log).unwrap();
    let answer = replayed(&file, &["--set", "rate=4", "--request-cost", "2"]);
    let recorded = &rows(&answer, 0)[0];
    assert_eq!(
        (&recorded["RU charged"], &recorded["RU wanted"], &recorded["refused"]),
        (&60.into(), &80.into(), &10.into())
    );
    // Of 80 RU in ten seconds the quota leaves half; it is as much of the cap.
    let answer = replayed(&file, &["--set", "quota=40 per hour", "--request-cost", "2"]);
    let proposed = &rows(&answer, 1)[0];
    assert_eq!((&proposed["RU throttled"], &proposed["quota"]), (&"50.00 %".into(), &40.into()));
    let controller = support::Controller::start();
    controller.ok(&["group", "create", "shop", "--rate", "5"]);
    let said = controller.refused(&["lab", "what-if", "--group", "none", "--set", "rate=4"]);
    assert!(said.contains("group none does not exist"), "{said}");
    let said = controller.wrong(&["lab", "what-if", "--group", "shop", "--set", "rate=4", "--last", "1440h"]);
    assert!(said.contains("nothing was recorded; choose another time or group"), "{said}");
}

#[test]
fn what_groups_below_consumed_is_replayed_with_the_group() {
    let controller = support::Controller::start();
    controller.ok(&["group", "create", "shop", "--rate", "500"]);
    // Paced, so that the second statement waits.
    let paced = ["--rate", "5", "--policy", "paced"];
    controller.ok(&[&["group", "create", "till", "--parent", "shop"][..], &paced].concat());
    controller.ok(&["bind", "add", "till", "--user", "ann"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("work.sql");
    std::fs::write(&file, "create table t(a); insert into t values (1);").unwrap();
    controller.ok(&["node", "--user", "ann", "--sql", file.to_str().unwrap()]);
    let of = |group: &str, more: &[&str]| {
        let asked = ["lab", "what-if", "--group", group, "--set", "rate=4"];
        controller.json(&[&asked[..], more].concat())
    };
    let (shop, till) = (of("shop", &[]), of("till", &["--resolution", "hour", "--last", "2160h"]));
    for answer in [&shop, &till] {
        assert_eq!(rows(answer, 0)[0]["operations"], 2);
    }
    assert_eq!(rows(&shop, 0)[0]["RU charged"], rows(&till, 0)[0]["RU charged"]);
    let said = |answer: &serde_json::Value| answer["sections"][0]["text"][0].as_str().unwrap().to_owned();
    assert!(said(&shop).starts_with("History of shop and the group below it at "), "{}", said(&shop));
    assert!(said(&till).starts_with("History of till at "), "{}", said(&till));
    // As long as one answer holds and a second: the second part begins behind all that was recorded.
    let lasting = |last: &str| of("shop", &["--last", last])["sections"].clone();
    assert_eq!(lasting(&format!("{}s", 10_079 * 60 + 1)), lasting("24h"));
    for (resolution, last, kept) in
        [("second", "601s", "10m"), ("minute", "2161h", "2160h"), ("hour", "2161h", "2160h")]
    {
        let more = ["--set", "rate=4", "--resolution", resolution, "--last", last];
        let error = controller.wrong(&[&["lab", "what-if", "--group", "shop"], &more[..]].concat());
        let told =
            format!("--last \"{last}\": a controller keeps each {resolution} for {kept}; give at most that");
        assert!(error.contains(&told), "{error}");
    }
}

#[test]
fn a_question_that_makes_no_replay_says_what_to_give() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.csv");
    let file = path.to_str().unwrap();
    for (text, more, said) in [
        ("time,ru\n1,2\n2,3\n", vec!["--set", "rate=0"], "ru_per_sec: \"0\" is out of range"),
        ("time,ru\n1,2\n2,3\n", vec!["--set", "burst=5"], "ru_per_sec: without a limit nothing is throttled"),
        ("time,ru\n1,2\n2,3\n", vec!["--set", "quota=5 per week"], "quota: \"week\" is none of"),
        ("time,ru\n1,2\n2,3\n", vec!["--set", "rate"], "rate has no value; write rate=VALUE"),
        ("time,ru\n1,2\n2,3\n", vec!["--set", "limit=5"], "\"limit\" is no setting; write rate=RU/s"),
        ("time,ru\n1,2\n2,3\n", vec!["--set", "rate=5", "--set", "rate=6"], "rate is given twice"),
        (
            "time,ru\n1,2\n2,3\n",
            vec!["--set", "rate=5", "--last", "1h"],
            "bad.csv\" is a CSV file; leave it out, or give another --from",
        ),
        (
            "time,ru\n1,2\n2,3\n",
            vec!["--set", "rate=5", "--resolution", "hour"],
            "--resolution is of a controller",
        ),
        (
            "time,ru\n1,2\n2,3\n",
            vec!["--set", "rate=5", "--request-cost", "1"],
            "--request-cost is of an access log",
        ),
        ("time,ru\n1,2\n2,3\n", vec!["--set", "rate=5", "--p99-wait", "0s"], "--p99-wait: \"0s\" is no time"),
        ("time,ru\n1,2\n2,-3\n", vec!["--set", "rate=5"], "bad.csv: line 3: ru: \"-3\" is out of range"),
        ("{\"ru\": 5}\n", vec!["--set", "rate=5"], "bad.csv: line 1 has no column \"time\" and \"ru\""),
        ("", vec!["--set", "rate=5"], "bad.csv: the file is empty"),
        ("time,ru\n", vec!["--set", "rate=5"], "nothing was recorded"),
    ] {
        std::fs::write(&path, text).unwrap();
        let run = support::run(&[&["lab", "what-if", "--from", file], &more[..]].concat());
        let error = support::err(&run);
        assert!(run.status.code() == Some(2) && error.contains(said), "{text:?} {more:?}: {error}");
    }
    let log = "::1 - - [10/Oct/2000:13:55:37 -0700] \"GET / HTTP/1.1\" 200 1\n";
    std::fs::write(&path, log).unwrap();
    for cost in ["0", "-1", "much"] {
        let cost = format!("--request-cost={cost}");
        let run = support::run(&["lab", "what-if", "--from", file, "--set", "rate=5", &cost]);
        assert!(run.status.code() == Some(2) && support::err(&run).contains("--request-cost \""), "{cost}");
    }
    for (option, of) in
        [("--every=1m", "a CSV file"), ("--last=1h", "a controller"), ("--resolution=minute", "a controller")]
    {
        let run = support::run(&["lab", "what-if", "--from", file, "--set", "rate=5", option]);
        let name = option.split_once('=').unwrap().0;
        let said = format!("{name} is of {of}, and {file:?} is an access log; leave it out");
        assert!(
            run.status.code() == Some(2) && support::err(&run).contains(&said),
            "{option}: {}",
            support::err(&run)
        );
    }
    for (more, said) in [
        (&[][..], "--group is missing"),
        (
            &["--group", "shop", "--every", "1m"],
            "--every is of a CSV file, and \"controller\" is a controller; leave it out",
        ),
        (&["--group", "shop", "--recorded", "rate=5"], "--recorded is of a CSV file or an access log, and"),
        (&["--group", "shop", "--request-cost", "2"], "--request-cost is of an access log, and"),
        (&["--group", "shop", "--last", "0s"], "--last: \"0s\" is no time"),
        (&["--group", "shop", "--patience", "0s"], "--patience: \"0s\" is no time"),
    ] {
        let run = support::run(&[&["lab", "what-if", "--set", "rate=5"], more].concat());
        let error = support::err(&run);
        assert!(run.status.code() == Some(2) && error.contains(said), "{more:?}: {error}");
    }
}
