//! The settings of alarms, and of those who are told: `[[webhook]]`.

use tidegate_core::quota::SPENT_PERCENT;
use tidegate_core::units::Span;
use toml::Table;

use super::access::{groups, text};
use super::provider::{path, texts};
use super::reader::{Reader, mismatch};
use crate::alarms::{AlarmSettings, Kind, Thresholds, Webhook, address};
use crate::name::GroupName;
use crate::quantity::cut;

/// Webhooks: each has a task, a queue of about half a megabyte at most, and a connection while it is told.
const MAX_WEBHOOKS: usize = 16;
/// Range of the times: shorter than a report of a node says nothing, and after a day nobody calls it an alarm.
const TIMES: (Span, Span) = (Span::secs(1), Span::secs(24 * 3_600));
/// The parts of a webhook, in an error.
const PARTS: &str = "name, url, secret_file, ca, kinds, groups, plaintext";

/// Takes the settings out of the text.
pub(super) fn alarms(reader: &mut Reader) -> AlarmSettings {
    let default = Thresholds::default();
    let mut time = |key| reader.span(key, TIMES.0, TIMES.1);
    let (throttled_for, resolved_after) = (time("alarm_throttled_for"), time("alarm_resolved_after"));
    let thresholds = Thresholds {
        throttled_for: throttled_for.unwrap_or(default.throttled_for),
        resolved_after: resolved_after.unwrap_or(default.resolved_after),
        quota_percent: reader
            .number("alarm_quota_percent", 1, SPENT_PERCENT - 1)
            .unwrap_or(default.quota_percent),
    };
    let webhooks = reader.tables("webhook", MAX_WEBHOOKS, webhook).unwrap_or_default();
    for (at, one) in webhooks.iter().enumerate() {
        if webhooks.iter().take(at).any(|other| other.name == one.name) {
            reader.refuse("webhook", &format!("{:?} is the name of another; each has its own", one.name));
        }
    }
    AlarmSettings { thresholds, webhooks }
}

fn webhook(mut table: Table) -> Result<Webhook, String> {
    let missing = |key: &str, what: &str| format!("{key}: is missing; write {what}");
    let name = text(&mut table, "name")?.ok_or_else(|| missing("name", "how logs and metrics call it"))?;
    let plaintext = match table.remove("plaintext") {
        None => false,
        Some(toml::Value::Boolean(value)) => value,
        Some(other) => return Err(format!("plaintext: {}", mismatch(&other, "true or false"))),
    };
    let url = match table.remove("url") {
        Some(toml::Value::String(url)) => address(&url, plaintext)?,
        // What is there may be a secret.
        Some(_) => return Err("url: is no text; write https://HOST/PATH in quotes".to_owned()),
        None => return Err(missing("url", "https://HOST/PATH")),
    };
    let secret_file = path(&mut table, "secret_file")?.ok_or_else(|| {
        missing("secret_file", "a file with the secret that signs, for the controller only")
    })?;
    let authorities = path(&mut table, "ca")?;
    let kinds = table.remove("kinds").map(|value| texts("kinds", value)).transpose()?.unwrap_or_default();
    let groups = table.remove("groups").map(groups).transpose()?.unwrap_or_default();
    if let Some(unknown) = table.keys().next() {
        return Err(format!("{}: unknown; the parts are {PARTS}", cut(unknown)));
    }
    // As the catalog writes them: names have no case.
    let known = |group: &String| GroupName::parse(group).map(|name| name.to_string());
    let groups =
        groups.iter().map(known).collect::<Result<_, _>>().map_err(|error| format!("groups: {error}"))?;
    let kinds = kinds.iter().map(|word| kind(word)).collect::<Result<_, _>>()?;
    let webhook = Webhook { name, url, secret_file, authorities, kinds, groups };
    webhook.check()?;
    Ok(webhook)
}

fn kind(word: &str) -> Result<Kind, String> {
    let known = Kind::ALL.map(Kind::as_str).join(", ");
    Kind::parse(word).ok_or_else(|| format!("kinds: {:?} is none of {known}", cut(word)))
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    const HOOK: &str =
        "[[webhook]]\nname = \"ops\"\nurl = \"https://hooks.example/s3cret\"\nsecret_file = \"s\"\n";

    fn refused(text: &str) -> String {
        let errors = Config::parse(text).unwrap_err();
        errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn every_setting_of_alarms_is_read() {
        let settings = format!(
            "alarm_throttled_for = \"5s\"\nalarm_resolved_after = \"2m\"\nalarm_quota_percent = 90\n{HOOK}\
             ca = \"ca.pem\"\nkinds = [\"throttled\", \"quota_spent\"]\ngroups = [\"Shop\"]\nplaintext = false\n"
        );
        let alarms = Config::parse(&settings).unwrap().alarms;
        let thresholds =
            Thresholds { throttled_for: Span::secs(5), resolved_after: Span::secs(120), quota_percent: 90 };
        assert_eq!(alarms.thresholds, thresholds);
        let webhook = Webhook {
            name: "ops".to_owned(),
            url: address("https://hooks.example/s3cret", false).unwrap(),
            secret_file: "s".into(),
            authorities: Some("ca.pem".into()),
            kinds: vec![Kind::Throttled, Kind::QuotaSpent],
            groups: vec!["shop".to_owned()],
        };
        assert_eq!(alarms.webhooks, [webhook]);
        assert_eq!(Config::parse("").unwrap().alarms, AlarmSettings::default());
    }

    #[test]
    fn a_wrong_webhook_is_told_by_its_number_and_its_part_and_never_by_its_address() {
        for (more, said) in [
            ("kinds = [\"all\"]", "kinds: \"all\" is none of throttled, quota_high"),
            ("kinds = 5", "kinds: 5"),
            ("groups = [\"a b\"]", "groups: "),
            ("colour = 1", "colour: unknown"),
            ("plaintext = 1", "plaintext: 1"),
            ("secret_file = \"\"", "secret_file"),
        ] {
            let text = if more.starts_with("secret_file") {
                HOOK.replace("secret_file = \"s\"", more)
            } else {
                format!("{HOOK}{more}\n")
            };
            let refused = refused(&text);
            assert!(refused.starts_with("webhook: rule 1: ") && refused.contains(said), "{more}: {refused}");
        }
        for (from, to, said) in [
            ("https:", "http:", "plaintext = true"),
            ("https:", "gopher:", "url: is no address"),
            ("https://", "https://ann@", "has a user"),
            ("\"https://hooks.example/s3cret\"", "[\"s3cret\"]", "url: is no text"),
            ("name = \"ops\"\n", "", "name: is missing"),
            ("name = \"ops\"", "name = \"a b\"", "name: "),
            ("url", "address", "url: is missing"),
            ("secret_file", "secret", "secret_file: is missing"),
        ] {
            let refused = refused(&HOOK.replace(from, to));
            assert!(refused.contains(said) && !refused.contains("s3cret"), "{to}: {refused}");
        }
        assert!(refused(&format!("{HOOK}{HOOK}")).contains("\"ops\" is the name of another"));
        assert!(refused("alarm_quota_percent = 99").contains("1 to 98"));
        assert!(refused("alarm_throttled_for = \"1ms\"").contains("alarm_throttled_for"));
        let plain = HOOK.replace("https:", "http:") + "plaintext = true\n";
        assert!(Config::parse(&plain).is_ok());
        assert!(refused(&format!("{plain}ca = \"ca.pem\"\n")).contains("ca: has no effect"));
    }
}
