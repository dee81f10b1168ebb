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
