//! The settings that a controller would have, each with where it comes from.

use std::path::{Path, PathBuf};

use tidegate_controller::config::Authentication;
use tidegate_controller::{Config, ConfigError};
use tidegate_tls::Clients;

use super::Finding;
use crate::command::controller::STORE;

const AREA: &str = "settings";
/// Bytes of a file of settings; a real one has a few hundred.
const MAX_FILE: u64 = 1_024 * 1_024;

/// What was given.
#[derive(Clone, Debug, Default)]
pub(crate) struct SettingFacts {
    /// The file and its text, or why it cannot be read.
    pub(crate) file: Option<(PathBuf, Result<String, String>)>,
    /// Flag, setting and value.
    pub(crate) flags: Vec<(&'static str, &'static str, String)>,
    /// `TIDEGATE_LOG`, and what is wrong with it.
    pub(crate) log: Option<(String, Result<(), String>)>,
    pub(crate) endpoint: String,
    pub(crate) endpoint_from: &'static str,
}

/// Reads a file of settings.
pub(crate) fn read(path: &Path) -> Result<String, String> {
    let length = std::fs::metadata(path).map_err(|error| error.to_string())?.len();
    if length > MAX_FILE {
        return Err(format!("it has {length} bytes, which no settings have"));
    }
    std::fs::read_to_string(path).map_err(|error| error.to_string())
}

/// The store of a directory of data.
pub(crate) fn store_in(data: &Path) -> String {
    data.join(STORE).display().to_string()
}

/// Judges the settings, and what they come to; the defaults where they are wrong.
pub(crate) fn judge(facts: &SettingFacts) -> (Vec<Finding>, Config) {
    let mut findings = Vec::new();
    let (origin, mut table) = from_file(facts, &mut findings);
    for (_, setting, value) in &facts.flags {
        table.insert((*setting).to_owned(), toml::Value::String(value.clone()));
    }
    let config = without_faults(&mut table, &origin, &mut findings);
    let from = |setting: &str| {
        let flag = facts.flags.iter().find(|(_, name, _)| *name == setting);
        match flag {
            _ if !table.contains_key(setting) => "default".to_owned(),
            Some((flag, ..)) => (*flag).to_owned(),
            None => origin.clone(),
        }
    };
    findings.extend(
        in_force(&config)
            .into_iter()
            .map(|(setting, value)| Finding::ok(AREA, format!("{setting} = {value} ({})", from(setting)))),
    );
    findings.push(Finding::ok(AREA, format!("endpoint = {} ({})", facts.endpoint, facts.endpoint_from)));
    match &facts.log {
        Some((text, Err(error))) => findings.push(Finding::failed(
            AREA,
            format!("TIDEGATE_LOG={text}: {error}"),
            "write a filter such as info or tidegate_controller=debug, or unset it",
        )),
        Some((text, Ok(()))) => {
            findings.push(Finding::ok(AREA, format!("log filter = {text} (TIDEGATE_LOG)")));
        }
        None => {}
    }
    (findings, config)
}

/// Every setting, and its value.
fn in_force(config: &Config) -> Vec<(&'static str, String)> {
    let (none, tls) = (|| "none".to_owned(), config.tls.as_ref());
    let (authorities, demand) = match tls.map(|tls| &tls.clients) {
        None | Some(Clients::Anonymous) => (None, "none"),
        Some(Clients::Optional(path)) => (Some(path), "optional"),
        Some(Clients::Required(path)) => (Some(path), "required"),
    };
    let is_required = config.authentication() == Authentication::Required;
    let hosts = config.http_hosts.join(", ");
    let (thresholds, traces) = (config.alarms.thresholds, config.traces.as_ref());
    let cluster = config.cluster.as_ref();
    let etcd = cluster.map(|cluster| cluster.etcd.written());
    let etcd = etcd.as_ref();
    let file = |path: Option<&PathBuf>| path.map_or_else(none, |path| path.display().to_string());
    vec![
        ("store", config.store.display().to_string()),
        ("grpc_listen", config.grpc_listen.to_string()),
        ("http_listen", config.http_listen.to_string()),
        ("http_hosts", if hosts.is_empty() { "none".to_owned() } else { hosts }),
        ("tls_cert", tls.map_or_else(none, |tls| tls.certificate.display().to_string())),
        ("tls_key", tls.map_or_else(none, |tls| tls.key.display().to_string())),
        ("tls_client_ca", file(authorities)),
        ("tls_client_crl", file(tls.and_then(|tls| tls.revoked.as_ref()))),
        ("tls_clients", demand.to_owned()),
        ("plaintext_off_loopback", config.plaintext_off_loopback.to_string()),
        ("authentication", if is_required { "required" } else { "off" }.to_owned()),
        ("anonymous_role", config.access.anonymous_role.map_or_else(none, |role| role.to_string())),
        ("identity", format!("{} rules", config.access.rules.iter().count())),
        ("provider", format!("{} providers", config.access.providers.len())),
        ("allow_remote", config.allow_remote.to_string()),
        ("capacity", config.capacity.map_or_else(|| "unlimited".to_owned(), |rate| rate.to_string())),
        ("drift_ppm", config.drift_ppm.to_string()),
        ("margin", config.margin.to_string()),
        ("fence", config.fence.map_or_else(|| "none".to_owned(), |fence| fence.to_string())),
        ("alarm_throttled_for", thresholds.throttled_for.to_string()),
        ("alarm_resolved_after", thresholds.resolved_after.to_string()),
        ("alarm_quota_percent", thresholds.quota_percent.to_string()),
        ("webhook", format!("{} webhooks", config.alarms.webhooks.len())),
        ("trace_endpoint", traces.map_or_else(none, |traces| traces.endpoint.to_string())),
        ("trace_sample", traces.map_or_else(none, |traces| traces.share.to_string())),
        ("trace_headers_file", file(traces.and_then(|traces| traces.headers_file.as_ref()))),
        ("trace_ca", file(traces.and_then(|traces| traces.authorities.as_ref()))),
        ("trace_plaintext_off_loopback", traces.is_some_and(|traces| traces.plaintext).to_string()),
        ("etcd_endpoints", etcd.map_or_else(none, |etcd| etcd.endpoints.join(", "))),
        ("etcd_ca", file(etcd.and_then(|etcd| etcd.ca.as_ref()))),
        ("etcd_cert", file(etcd.and_then(|etcd| etcd.cert.as_ref()))),
        ("etcd_key", file(etcd.and_then(|etcd| etcd.key.as_ref()))),
        ("etcd_user", etcd.and_then(|etcd| etcd.user.clone()).unwrap_or_else(none)),
        ("etcd_password_file", file(etcd.and_then(|etcd| etcd.password_file.as_ref()))),
        ("etcd_plaintext_off_loopback", etcd.is_some_and(|etcd| etcd.plaintext).to_string()),
        ("cluster_name", cluster.map_or_else(none, |cluster| cluster.name.clone())),
        ("cluster_prefix", cluster.map_or_else(none, |cluster| cluster.prefix.clone())),
        ("cluster_address", cluster.and_then(|cluster| cluster.address.clone()).unwrap_or_else(none)),
        ("cluster_seed", cluster.is_some_and(|cluster| cluster.seed).to_string()),
        ("cluster_strict", cluster.is_some_and(|cluster| cluster.strict).to_string()),
    ]
}

/// The settings of the file, and what it is called.
fn from_file(facts: &SettingFacts, findings: &mut Vec<Finding>) -> (String, toml::Table) {
    let Some((path, text)) = &facts.file else { return ("(no file)".to_owned(), toml::Table::new()) };
    let origin = path.display().to_string();
    let read = text.as_ref().map_err(Clone::clone);
    let parsed =
        read.and_then(|text| text.parse::<toml::Table>().map_err(|error| error.message().to_owned()));
    let table = parsed.unwrap_or_else(|error| {
        let remedy = "name a file of settings in TOML; `tidegate controller --help` shows one";
        findings.push(Finding::failed(AREA, format!("{origin}: {error}"), remedy));
        toml::Table::new()
    });
    (origin, table)
}

/// The configuration of all settings but the wrong ones, which are reported and taken out.
fn without_faults(table: &mut toml::Table, origin: &str, findings: &mut Vec<Finding>) -> Config {
    loop {
        let errors = match Config::parse(&table.to_string()) {
            Ok(config) => return config,
            Err(errors) => errors,
        };
        let before = table.len();
        for error in &errors {
            let remedy = format!("correct it in {origin} or in the flags");
            findings.push(Finding::failed(AREA, error.to_string(), remedy));
            if let ConfigError::Unknown { key, .. } = error {
                table.remove(key);
            }
            if let ConfigError::Value { key, .. } = error {
                table.remove(*key);
            }
        }
        if table.len() == before {
            table.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    fn judged(facts: &SettingFacts) -> (Vec<String>, Vec<String>, Config) {
        let (findings, config) = judge(facts);
        let (failed, ok): (Vec<_>, Vec<_>) =
            findings.into_iter().partition(|finding| finding.verdict == Verdict::Failed);
        let texts = |findings: Vec<Finding>| findings.into_iter().map(|finding| finding.found).collect();
        (texts(failed), texts(ok), config)
    }

    #[test]
    fn each_value_says_where_it_comes_from() {
        let text = "grpc_listen = \"127.0.0.1:1\"\ndrift_ppm = 7\n".to_owned();
        let facts = SettingFacts {
            file: Some(("/etc/t.toml".into(), Ok(text))),
            flags: vec![("--listen", "grpc_listen", "127.0.0.1:2".into())],
            ..SettingFacts::default()
        };
        let (failed, ok, config) = judged(&facts);
        assert!(failed.is_empty(), "{failed:?}");
        for line in [
            "grpc_listen = 127.0.0.1:2 (--listen)",
            "drift_ppm = 7 (/etc/t.toml)",
            "http_listen = 127.0.0.1:7421 (default)",
        ] {
            assert!(ok.iter().any(|found| found == line), "{line}: {ok:?}");
        }
        assert_eq!(config.grpc_listen.port(), 2);
    }

    /// A value of its own for each setting.
    const ALL: [(&str, &str, &str); 34] = [
        ("store", "\"/data/a.redb\"", "/data/a.redb"),
        ("grpc_listen", "\"127.0.0.1:1\"", "127.0.0.1:1"),
        ("http_listen", "\"127.0.0.1:2\"", "127.0.0.1:2"),
        ("http_hosts", "[\"a.example\", \"b.example\"]", "a.example, b.example"),
        ("tls_cert", "\"/c.pem\"", "/c.pem"),
        ("tls_key", "\"/k.pem\"", "/k.pem"),
        ("tls_client_ca", "\"/ca.pem\"", "/ca.pem"),
        ("tls_client_crl", "\"/crl.pem\"", "/crl.pem"),
        ("tls_clients", "\"optional\"", "optional"),
        ("authentication", "\"required\"", "required"),
        ("anonymous_role", "\"viewer\"", "viewer"),
        ("capacity", "\"5000\"", "5000 RU/s"),
        ("drift_ppm", "7", "7"),
        ("margin", "\"150ms\"", "150ms"),
        ("fence", "\"20s\"", "20s"),
        ("alarm_throttled_for", "\"31s\"", "31s"),
        ("alarm_resolved_after", "\"32s\"", "32s"),
        ("alarm_quota_percent", "81", "81"),
        ("trace_endpoint", "\"https://192.0.2.1:4318/s3cret\"", "https://192.0.2.1:4318"),
        ("trace_sample", "\"0.25\"", "0.25"),
        ("trace_headers_file", "\"/headers\"", "/headers"),
        ("trace_ca", "\"/trace-ca.pem\"", "/trace-ca.pem"),
        ("trace_plaintext_off_loopback", "true", "true"),
        ("etcd_endpoints", "[\"https://e1:1\", \"https://e2:2\"]", "https://e1:1, https://e2:2"),
        ("etcd_ca", "\"/etcd-ca.pem\"", "/etcd-ca.pem"),
        ("etcd_cert", "\"/etcd-c.pem\"", "/etcd-c.pem"),
        ("etcd_key", "\"/etcd-k.pem\"", "/etcd-k.pem"),
        ("etcd_user", "\"ann\"", "ann"),
        ("etcd_password_file", "\"/password\"", "/password"),
        ("cluster_name", "\"c1\"", "c1"),
        ("cluster_prefix", "\"ours/\"", "ours/"),
        ("cluster_address", "\"https://c1:3\"", "https://c1:3"),
        ("cluster_seed", "true", "true"),
        ("cluster_strict", "true", "true"),
    ];

    #[test]
    fn each_setting_is_shown_with_its_own_value() {
        let lines = |settings: &mut dyn Iterator<Item = (&str, &str)>| -> String {
            settings.map(|(name, text)| format!("{name} = {text}\n")).collect()
        };
        let text = lines(&mut ALL.iter().map(|(name, text, _)| (*name, *text)));
        let file =
            |text: String| SettingFacts { file: Some(("f".into(), Ok(text))), ..SettingFacts::default() };
        let (failed, ok, _) = judged(&file(text.clone()));
        assert!(failed.is_empty(), "{failed:?}");
        let shown =
            |ok: &[String], line: &str| assert!(ok.iter().any(|found| found == line), "{line}: {ok:?}");
        for (name, _, value) in ALL {
            shown(&ok, &format!("{name} = {value} (f)"));
        }
        let required = text.replace("\"optional\"", "\"required\"");
        shown(&judged(&file(required)).1, "tls_clients = required (f)");
        let (_, ok, _) = judged(&SettingFacts::default());
        for line in ["tls_clients = none", "fence = none", "capacity = unlimited", "etcd_user = none"] {
            shown(&ok, &format!("{line} (default)"));
        }
    }

    #[test]
    fn every_setting_is_shown() {
        let errors = Config::parse("no_such_setting = 1").unwrap_err();
        let [ConfigError::Unknown { known, .. }] = errors.as_slice() else { panic!("{errors:?}") };
        let (_, ok, _) = judged(&SettingFacts::default());
        for setting in known.split(", ") {
            assert!(ok.iter().any(|found| found.starts_with(&format!("{setting} = "))), "{setting}: {ok:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_and_the_rest_is_judged_with_the_defaults() {
        let wrong = |text: &str| {
            let file = Some(("f".into(), Ok(text.to_owned())));
            judged(&SettingFacts { file, ..SettingFacts::default() })
        };
        let (failed, _, config) = wrong("colour = \"red\"\nmargin = \"1 day\"\ndrift_ppm = 7\n");
        assert_eq!((failed.len(), config.drift_ppm), (2, 7));
        assert_eq!(wrong("grpc_listen = ").0.len(), 1);
        let missing = SettingFacts {
            file: Some(("f".into(), Err("no such file".into()))),
            log: Some(("x=y=z".into(), Err("bad".into()))),
            ..SettingFacts::default()
        };
        let (failed, _, config) = judged(&missing);
        assert_eq!((failed.len(), config), (2, Config::default()));
    }
}
