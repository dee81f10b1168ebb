//! Every setting of a process has a flag, or stands in a list here with the reason why it has none.

use std::collections::BTreeMap;

use tidegate_controller::{Config, ConfigError};

use crate::support::{out, run};

/// Flags of a command, as its help names them.
fn flags(command: &str) -> Vec<String> {
    let help = out(&run(&[command, "--help"]));
    let words =
        help.lines().filter(|line| line.trim_start().starts_with('-')).flat_map(str::split_whitespace);
    let flags: Vec<String> = words.filter_map(|word| word.strip_prefix("--")).map(str::to_owned).collect();
    assert!(flags.contains(&"help".to_owned()), "{help}");
    flags
}

fn dashed(setting: &str) -> String {
    setting.replace('_', "-")
}

#[test]
fn every_setting_of_a_controller_has_a_flag() {
    let renamed: BTreeMap<&str, &str> = [
        ("store", "data"),
        ("grpc_listen", "listen"),
        ("http_listen", "http"),
        ("http_hosts", "http-host"),
        ("etcd_endpoints", "etcd"),
    ]
    .into();
    // A name that no setting has is answered with those that there are.
    let errors = Config::parse("no_such_setting = 1").unwrap_err();
    let [ConfigError::Unknown { known, .. }] = errors.as_slice() else { panic!("{errors:?}") };
    let flags = flags("controller");
    // A rule, a provider and a webhook have parts, which a flag would need a language of its own for.
    for setting in known.split(", ").filter(|setting| !["identity", "provider", "webhook"].contains(setting))
    {
        let flag = renamed.get(setting).map_or_else(|| dashed(setting), |flag| (*flag).to_owned());
        assert!(flags.contains(&flag), "{setting}: --{flag} is not among {flags:?}");
    }
}

/// A file's settings are read into the same fields as the flags, so the file's names are all there are.
#[test]
fn every_setting_of_a_gateway_has_a_flag() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    std::fs::write(&file, "no_such_setting = 1\n").unwrap();
    let said = crate::support::err(&run(&["gateway", "--config", file.to_str().unwrap()]));
    let (_, known) = said.split_once("expected one of ").unwrap_or_else(|| panic!("{said}"));
    let known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
    assert!(known.len() > 20, "{said}");
    let flags = flags("gateway");
    for setting in known {
        assert!(flags.contains(&dashed(setting)), "{setting} is not among {flags:?}");
    }
}

#[test]
fn every_setting_of_a_client_has_a_flag_of_node_and_gateway_or_a_reason() {
    // Setting: the flag of `node`, and of `gateway`, or why there is none.
    let known: BTreeMap<&str, [Result<&str, &str>; 2]> = [
        ("agent", [Err("it is the program's own name"); 2]),
        (
            "limits",
            [
                Err("one statement runs at a time"),
                Err("a session waits with one statement, so --max-sessions bounds them"),
            ],
        ),
        ("journal_dir", [Ok("journal"), Ok("journal")]),
        ("patience", [Err("the client's five seconds are what people wait for a command"); 2]),
        (
            "drift_ppm",
            [Err("the default is a hundred times what a quartz does, and a faster clock is noticed and said");
                2],
        ),
        ("idle_after", [Err("it saves memory with thousands of groups, and the default does that"); 2]),
        (
            "fallback_until_connected",
            [Err("without a controller it says so and ends"), Ok("admit-without-lease")],
        ),
        ("tls", [Ok("ca"), Ok("controller-ca")]),
        ("token", [Ok("token-file"), Ok("controller-token-file")]),
        ("transport", [Err("it is code"); 2]),
    ]
    .into();
    let source = include_str!("../../../client/src/builder.rs");
    let settings: Vec<&str> = source
        .lines()
        .filter_map(|line| line.strip_prefix("    pub fn ")?.split_once("(mut self"))
        .map(|(setting, _)| setting)
        .collect();
    assert_eq!(settings.len(), known.len(), "{settings:?}");
    let commands = ["node", "gateway"].map(|command| (command, flags(command)));
    for setting in settings {
        let of = known.get(setting).unwrap_or_else(|| panic!("{setting} has neither a flag nor a reason"));
        for ((command, flags), flag) in commands.iter().zip(of) {
            let Ok(flag) = flag else { continue };
            assert!(flags.iter().any(|known| known == flag), "{command}: {setting}: --{flag}");
        }
    }
}
