//! What crates use of each other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::{CRATES, root};

/// Our crates that each may use, as ARCHITECTURE.md says.
fn allowed() -> BTreeMap<&'static str, &'static [&'static str]> {
    BTreeMap::from([
        ("core", [].as_slice()),
        ("proto", &[]),
        ("cpu-clock", &[]),
        ("cost-model", &["core"]),
        ("tls", &[]),
        ("client", &["core", "cost-model", "cpu-clock", "proto", "tls"]),
        ("listener", &["tls"]),
        ("console", &["core", "cost-model", "proto"]),
        ("controller", &["console", "core", "cost-model", "listener", "proto", "tls"]),
        ("sql", &["cost-model", "proto"]),
        ("gateway", &["client", "cost-model", "listener", "proto", "sql", "tls"]),
        (
            "cli",
            &[
                "client",
                "controller",
                "core",
                "cost-model",
                "cpu-clock",
                "gateway",
                "lab",
                "proto",
                "sql",
                "tls",
            ],
        ),
        ("test-servers", &[]),
        (
            "tests",
            &["client", "controller", "core", "cost-model", "gateway", "proto", "sql", "test-servers", "tls"],
        ),
        ("lab", &["client", "controller", "core", "cost-model", "proto", "test-servers", "tests", "tls"]),
        ("fuzz", &["tests"]),
    ])
}

fn dependencies(name: &str) -> Vec<String> {
    listed(name, "dependencies")
}

fn listed(name: &str, section: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(name).join("Cargo.toml")).unwrap();
    let manifest: toml::Table = text.parse().unwrap();
    let table = manifest.get(section).and_then(toml::Value::as_table);
    table.map(|table| table.keys().cloned().collect()).unwrap_or_default()
}

#[test]
fn a_crate_uses_what_stands_below_it() {
    let allowed = allowed();
    assert_eq!(allowed.keys().copied().collect::<BTreeSet<_>>(), BTreeSet::from(CRATES));
    for (name, may) in allowed {
        for used in dependencies(name) {
            let Some(ours) = used.strip_prefix("tidegate-") else { continue };
            assert!(may.contains(&ours), "{name} uses {ours}: against ARCHITECTURE.md, The house");
        }
    }
}

#[test]
fn the_tests_of_a_crate_need_none_that_stands_above_it() {
    let above = ["tidegate-tests", "tidegate-lab"];
    for name in CRATES {
        let used = listed(name, "dev-dependencies");
        let found = used.iter().find(|used| above.contains(&used.as_str()));
        assert_eq!(found, None, "{name}: a circle: what its tests share belongs into a crate of its own");
    }
}

#[test]
fn the_command_carries_no_tests_and_no_benchmarks() {
    let read = |path: &str| -> toml::Table {
        fs::read_to_string(root().join(path).join("Cargo.toml")).unwrap().parse().unwrap()
    };
    let workspace = read(".");
    for name in ["tidegate-lab", "tidegate-tests"] {
        let dependency = &workspace["workspace"]["dependencies"][name];
        assert_eq!(
            dependency["default-features"].as_bool(),
            Some(false),
            "{name}: bare unless asked otherwise"
        );
    }
    assert!(read("cli")["dependencies"]["tidegate-lab"].get("features").is_none(), "cli takes the bare lab");
    for (name, carried) in [("lab", "test-servers"), ("tests", "test-servers"), ("tests", "gateway")] {
        let dependency = &read(name)["dependencies"][&format!("tidegate-{carried}")];
        assert_eq!(dependency["optional"].as_bool(), Some(true), "{name} needs {carried} behind a feature");
    }
}

#[test]
fn core_uses_nothing() {
    assert_eq!(dependencies("core"), Vec::<String>::new());
}

#[test]
fn every_crate_has_a_row_in_the_house() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    // The fuzz targets are a workspace of their own, and a line each.
    for name in CRATES.iter().filter(|name| **name != "fuzz") {
        assert!(text.contains(&format!("| `{name}/` |")), "ARCHITECTURE.md, The house: no row for {name}/");
    }
}
