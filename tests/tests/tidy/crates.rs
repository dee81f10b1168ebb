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
        ("traces", &["tls"]),
        ("consensus", &["tls"]),
        ("console", &["core", "cost-model", "proto"]),
        ("controller", &["consensus", "console", "core", "cost-model", "listener", "proto", "tls", "traces"]),
        ("sql", &["cost-model", "proto"]),
        ("gateway", &["client", "cost-model", "listener", "proto", "sql", "tls", "traces"]),
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
                "traces",
            ],
        ),
        ("test-servers", &[]),
        ("sim", &["controller", "core", "proto"]),
        ("lab", &["core", "sim"]),
        ("properties", &["controller", "core", "cost-model", "gateway", "listener", "proto", "sql", "tls"]),
        ("fuzz", &["properties"]),
        ("tests", &["client", "core", "proto", "sim", "test-servers"]),
        (
            "bench",
            &[
                "client",
                "consensus",
                "controller",
                "core",
                "cost-model",
                "lab",
                "proto",
                "sim",
                "test-servers",
                "tests",
                "tls",
            ],
        ),
    ])
}

fn dependencies(name: &str) -> Vec<String> {
    listed(name, "dependencies")
}

fn listed(name: &str, section: &str) -> Vec<String> {
    table(name, section).into_iter().map(|(used, _)| used).collect()
}

/// Our crates that it asks features of.
fn with_features(name: &str, section: &str) -> Vec<String> {
    let asks = |said: &toml::Value| said.get("features").is_some();
    let ours =
        table(name, section).into_iter().filter(|(used, said)| used.starts_with("tidegate-") && asks(said));
    ours.map(|(used, _)| used).collect()
}

fn table(name: &str, section: &str) -> toml::Table {
    let text = fs::read_to_string(root().join(name).join("Cargo.toml")).unwrap();
    let manifest: toml::Table = text.parse().unwrap();
    manifest.get(section).and_then(toml::Value::as_table).cloned().unwrap_or_default()
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
    let above = ["tidegate-tests", "tidegate-lab", "tidegate-bench", "tidegate-properties"];
    for name in CRATES {
        let used = listed(name, "dev-dependencies");
        let found = used.iter().find(|used| above.contains(&used.as_str()));
        assert_eq!(found, None, "{name}: a circle: what its tests share belongs into a crate of its own");
    }
}

/// A feature that one crate asks of another changes what the other is for all that are built beside it: the command would be
/// built once more for each set of programs, and could carry what is there for tests.
#[test]
fn a_crate_asks_features_of_ours_only_for_tests_and_properties() {
    for name in CRATES.iter().filter(|name| **name != "properties") {
        for used in with_features(name, "dependencies") {
            assert!(
                used == "tidegate-proto",
                "{name} asks features of {used}: give them a crate of their own"
            );
        }
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
