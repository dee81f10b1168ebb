//! The machine and the tools that the figures were measured with.

use std::fs;
use std::process::Command;

/// Crates that are measured or measured against.
const CRATES: [&str; 8] = ["governor", "tokio", "tonic", "prost", "redb", "axum", "sqlparser", "rustix"];

/// Names and values, for people and for the JSON.
pub fn facts() -> Vec<(&'static str, String)> {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    vec![
        ("cpu", field("/proc/cpuinfo", "model name")),
        ("cores", cores.to_string()),
        ("memory", field("/proc/meminfo", "MemTotal")),
        ("kernel", line("/proc/sys/kernel/osrelease")),
        ("frequency governor", line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
        ("load at the end", line("/proc/loadavg")),
        ("toolchain", toolchain()),
        ("commit", commit()),
        ("versions", versions().join(", ")),
    ]
}

fn line(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| "not told".to_owned(), |text| text.trim().to_owned())
}

fn field(path: &str, name: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let value = text.lines().find_map(|line| line.split_once(':').filter(|(key, _)| key.trim() == name));
    value.map_or_else(|| "not told".to_owned(), |(_, value)| value.trim().to_owned())
}

fn toolchain() -> String {
    let text = include_str!("../../rust-toolchain.toml");
    let channel = text.lines().find_map(|line| line.strip_prefix("channel = "));
    format!("rustc {}, release profile", channel.unwrap_or("not told").trim_matches('"'))
}

fn commit() -> String {
    let run = |args: &[&str]| {
        let output = Command::new("git").current_dir(env!("CARGO_MANIFEST_DIR")).args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(revision) = run(&["rev-parse", "--short", "HEAD"]) else {
        return "not told".to_owned();
    };
    let changed =
        run(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|text| !text.is_empty());
    if changed { format!("{revision} with changes") } else { revision }
}

fn versions() -> Vec<String> {
    let lock: toml::Table = include_str!("../../Cargo.lock").parse().unwrap_or_default();
    let packages = lock.get("package").and_then(toml::Value::as_array).into_iter().flatten();
    let named = packages.filter_map(|package| {
        let text = |key| package.get(key).and_then(toml::Value::as_str);
        let (name, version) = (text("name")?, text("version")?);
        CRATES.contains(&name).then(|| format!("{name} {version}"))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_crate_measured_has_a_version() {
        assert_eq!(versions().len(), CRATES.len(), "{:?}", versions());
        assert!(facts().iter().all(|(_, value)| !value.is_empty()));
    }
}
