//! Prints definitions as the statements that make them: what is printed is read back as the same definition.

use std::fmt::Write as _;

use tidegate_cost_model::SqlDialect;
use tidegate_proto::v1;

use crate::duration::duration_text;

/// `CREATE RESOURCE GROUP ..` with every setting that does not follow from another.
pub fn create_group_text(group: &v1::Group, dialect: SqlDialect) -> String {
    let mut options = Vec::new();
    let mut option = |name: &str, value: &str| {
        // Words of the API for what is left open anyway.
        if !["", "default", "none"].contains(&value) {
            options.push(format!("{name}={value}"));
        }
    };
    let rate = if group.ru_per_sec.is_empty() { "unlimited" } else { &group.ru_per_sec };
    option("RU_PER_SEC", &rate.to_ascii_uppercase());
    option("PRIORITY", &group.priority.to_ascii_uppercase());
    option("BURSTABLE", &group.burstable.to_ascii_uppercase());
    option("BURST_RU_PER_SEC", &group.burst_ru_per_sec);
    option("BURST", &group.burst);
    if !["", "/"].contains(&group.parent.as_str()) {
        option("PARENT", &quoted_name(&group.parent, dialect));
    }
    if group.weight > 0 {
        option("WEIGHT", &group.weight.to_string());
    }
    for (name, us) in [("TTL", group.ttl_us), ("RENEW", group.renew_us), ("MAX_WAIT", group.max_wait_us)] {
        if us > 0 {
            option(name, &format!("'{}'", duration_text(us)));
        }
    }
    option("FALLBACK", &group.fallback.to_ascii_uppercase());
    option("FALLBACK_TOTAL", &group.fallback_total);
    option("MAX_DEBT", &group.max_debt);
    if group.enforcement == "shadow" {
        option("ENFORCEMENT", "SHADOW");
    }
    if group.policy != "token_bucket" {
        option("POLICY", &policy_text(&group.policy));
    }
    option("QUOTA", &quota_text(&group.quota, dialect));
    if !["", "/"].contains(&group.demote_to.as_str()) {
        option("DEMOTE_TO", &quoted_name(&group.demote_to, dialect));
    }
    if let Some(limit) = &group.query_limit {
        option("QUERY_LIMIT", &format!("({})", limit_text(limit, |name| quoted_name(name, dialect))));
    }
    if !group.comment.is_empty() {
        option("COMMENT", &quoted_string(&group.comment, dialect));
    }
    format!("CREATE RESOURCE GROUP {} {}", quoted_name(&group.name, dialect), options.join(", "))
}

/// The options that a proposal names, as an `ALTER` has them.
pub(crate) fn changes_text(group: &v1::Group, fields: &[String]) -> String {
    let option = |field: &String| match field.as_str() {
        "ru_per_sec" => format!("RU_PER_SEC={}", group.ru_per_sec.to_ascii_uppercase()),
        "burst" => format!("BURST={}", group.burst.to_ascii_uppercase()),
        "burstable" => format!("BURSTABLE={}", group.burstable.to_ascii_uppercase()),
        "burst_ru_per_sec" => format!("BURST_RU_PER_SEC={}", group.burst_ru_per_sec.to_ascii_uppercase()),
        "policy" => format!("POLICY={}", policy_text(&group.policy)),
        "quota" => format!("QUOTA={}", quota_text(&group.quota, SqlDialect::MySql)),
        "max_wait_us" if group.max_wait_us == 0 => "MAX_WAIT=DEFAULT".to_owned(),
        "max_wait_us" => format!("MAX_WAIT='{}'", duration_text(group.max_wait_us)),
        // A field of a later controller.
        other => other.to_owned(),
    };
    fields.iter().map(option).collect::<Vec<_>>().join(", ")
}

/// `PACED`, or `WARM_UP('10s', 3)`.
fn policy_text(policy: &str) -> String {
    let settings = policy.split_once('(').and_then(|(name, rest)| Some((name, rest.strip_suffix(')')?)));
    let Some((name, settings)) = settings else { return policy.to_ascii_uppercase() };
    let (period, factor) = settings.split_once(',').unwrap_or((settings, ""));
    let factor = if factor.is_empty() { String::new() } else { format!(", {}", factor.trim()) };
    format!("{}('{}'{factor})", name.to_ascii_uppercase(), period.trim())
}

/// `1000000 PER DAY 'Europe/Berlin'`, `10000 REQUESTS PER DAY`.
fn quota_text(quota: &str, dialect: SqlDialect) -> String {
    // The zone is what follows the period; a window that rolls has none.
    let (amount, window) = quota.split_once(" per ").unwrap_or((quota, ""));
    let (rolling, window) =
        window.strip_prefix("rolling ").map_or(("", window), |window| ("ROLLING ", window));
    let mut words = window.splitn(2, ' ');
    let period = words.next().filter(|period| !period.is_empty());
    let period = period.map(|period| format!(" PER {rolling}{}", period.to_ascii_uppercase()));
    let zone = words.next().map(|zone| format!(" {}", quoted_string(zone, dialect)));
    amount.to_ascii_uppercase() + &period.unwrap_or_default() + &zone.unwrap_or_default()
}

/// A rule against runaway statements as TiDB shows it: `EXEC_ELAPSED='20s', ACTION=KILL, WATCH=EXACT DURATION='1m0s'`.
pub fn query_limit_text(limit: &v1::QueryLimit) -> String {
    let plain = |name: &str| {
        let word = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let begins = name.starts_with(|c: char| c.is_ascii_alphabetic());
        if word && begins { name.to_owned() } else { quoted_name(name, SqlDialect::MySql) }
    };
    limit_text(limit, plain)
}

fn limit_text(limit: &v1::QueryLimit, name: impl Fn(&str) -> String) -> String {
    let mut parts = Vec::new();
    if limit.exec_elapsed_us > 0 {
        parts.push(format!("EXEC_ELAPSED='{}'", duration_text(limit.exec_elapsed_us)));
    }
    if !limit.ru.is_empty() {
        parts.push(format!("RU={}", limit.ru));
    }
    if limit.rows > 0 {
        parts.push(format!("ROWS={}", limit.rows));
    }
    parts.push(format!("ACTION={}", action_text(&limit.action, &limit.switch_group, name)));
    if !limit.watch.is_empty() {
        let mut watch = format!("WATCH={} DURATION=", limit.watch.to_ascii_uppercase());
        if limit.watch_us == 0 {
            watch.push_str("UNLIMITED");
        } else {
            // Writing into a text does not fail.
            let _ = write!(watch, "'{}'", duration_text(limit.watch_us));
        }
        parts.push(watch);
    }
    parts.join(", ")
}

fn action_text(action: &str, switch_group: &str, name: impl Fn(&str) -> String) -> String {
    match action {
        "switch_group" => format!("SWITCH_GROUP({})", name(switch_group)),
        _ => action.to_ascii_uppercase(),
    }
}

/// A name in the quotes of the dialect.
pub(crate) fn quoted_name(name: &str, dialect: SqlDialect) -> String {
    match dialect {
        SqlDialect::MySql => format!("`{}`", name.replace('`', "``")),
        SqlDialect::Generic | SqlDialect::PostgreSql | SqlDialect::SQLite => {
            format!("\"{}\"", name.replace('"', "\"\""))
        }
    }
}

/// A string in the quotes of the dialect.
pub(crate) fn quoted_string(text: &str, dialect: SqlDialect) -> String {
    let text = text.replace('\'', "''");
    match dialect {
        SqlDialect::MySql => format!("'{}'", text.replace('\\', "\\\\")),
        SqlDialect::Generic | SqlDialect::PostgreSql | SqlDialect::SQLite => format!("'{text}'"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::grammar::parse_query_limit;
    use crate::statement::Statement;

    fn name() -> impl Strategy<Value = String> {
        "[a-z0-9][a-z0-9._-]{0,63}"
    }

    /// A decimal as the controller prints it.
    fn decimal() -> impl Strategy<Value = String> {
        prop_oneof![
            (1_u64..1_000_000_000).prop_map(|whole| whole.to_string()),
            (0_u64..1_000, 1_u32..1_000_000)
                .prop_map(|(whole, part)| format!("{whole}.{}", format!("{part:06}").trim_end_matches('0'))),
        ]
    }

    /// A quota as the controller prints it.
    fn quota() -> impl Strategy<Value = String> {
        let per = prop_oneof![Just("minute"), Just("hour"), Just("day"), Just("month")];
        let zone = prop_oneof![
            Just(""),
            Just(" Europe/Berlin"),
            Just(" America/Port-au-Prince"),
            Just(" Etc/GMT+2")
        ];
        let requests = (2_u64..=1_000_000_000_000).prop_map(|number| format!("{number} requests"));
        let amount = prop_oneof![3 => decimal(), 2 => requests, 1 => Just("1 request".to_owned())];
        let fixed = (per, zone).prop_map(|(per, zone)| format!("{per}{zone}"));
        let rolling = prop_oneof![Just("rolling minute".to_owned()), Just("rolling month".to_owned())];
        (amount, prop_oneof![3 => fixed, 1 => rolling])
            .prop_map(|(amount, window)| format!("{amount} per {window}"))
    }

    fn action() -> impl Strategy<Value = (String, String)> {
        let plain = prop_oneof![Just("dryrun"), Just("cooldown"), Just("kill")];
        prop_oneof![
            plain.prop_map(|action| (action.to_owned(), String::new())),
            name().prop_map(|group| ("switch_group".to_owned(), group)),
        ]
    }

    fn limit() -> impl Strategy<Value = v1::QueryLimit> {
        let watch = prop_oneof![
            Just((String::new(), 0)),
            (prop_oneof![Just("exact".to_owned()), Just("similar".to_owned())], any::<u64>()),
        ];
        let ru = prop_oneof![Just(String::new()), decimal()];
        (1..u64::MAX, ru, any::<u64>(), action(), watch).prop_map(
            |(exec_elapsed_us, ru, rows, action, watch)| v1::QueryLimit {
                exec_elapsed_us,
                ru,
                rows,
                action: action.0,
                switch_group: action.1,
                watch: watch.0,
                watch_us: watch.1,
            },
        )
    }

    fn group() -> impl Strategy<Value = v1::Group> {
        let or_empty = |text: BoxedStrategy<String>| prop_oneof![Just(String::new()), text];
        let rate = || prop_oneof![Just("unlimited".to_owned()), decimal()];
        let texts = (
            name(),
            or_empty(name().boxed()),
            rate(),
            or_empty(decimal().boxed()),
            prop_oneof![Just("off"), Just("moderated"), Just("unlimited")],
            or_empty(decimal().boxed()),
            prop_oneof![Just("low"), Just("medium"), Just("high")],
            prop_oneof![Just("stop".to_owned()), rate()],
            or_empty(decimal().boxed()),
            "\\PC{0,40}",
            or_empty(decimal().boxed()),
            (
                prop_oneof![Just(""), Just("shadow")],
                prop_oneof![
                    Just(""),
                    Just("paced"),
                    Just("warm_up"),
                    Just("warm_up(10s)"),
                    Just("warm_up(1.5s, 3)")
                ],
                or_empty(quota().boxed()),
                or_empty(name().boxed()),
            ),
        );
        let numbers =
            (0..=10_000_u32, any::<u64>(), any::<u64>(), any::<u64>(), proptest::option::of(limit()));
        (texts, numbers).prop_map(|(texts, (weight, ttl_us, renew_us, max_wait_us, query_limit))| v1::Group {
            name: texts.0,
            parent: texts.1,
            burst: texts.3,
            // Above no rate there is nothing to burst to.
            burstable: match (texts.2.as_str(), texts.4, texts.5.as_str()) {
                ("unlimited", "moderated", "") => "off".to_owned(),
                (_, burstable, _) => burstable.to_owned(),
            },
            ru_per_sec: texts.2,
            burst_ru_per_sec: texts.5,
            priority: texts.6.to_owned(),
            weight,
            ttl_us,
            renew_us,
            fallback: texts.7,
            fallback_total: texts.10,
            max_debt: texts.8,
            comment: texts.9,
            enforcement: texts.11.0.to_owned(),
            policy: texts.11.1.to_owned(),
            quota: texts.11.2,
            demote_to: texts.11.3,
            query_limit,
            max_wait_us,
            ..v1::Group::default()
        })
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back_as_the_same_group(group in group()) {
            for dialect in [SqlDialect::MySql, SqlDialect::PostgreSql, SqlDialect::Generic] {
                let text = create_group_text(&group, dialect);
                let read = Statement::parse(&text, dialect);
                let expected = Statement::CreateGroup { group: Box::new(group.clone()), if_not_exists: false };
                prop_assert_eq!(read, Ok(Some(expected)), "{}", text);
            }
        }

        #[test]
        fn a_rule_is_read_back(limit in limit()) {
            prop_assert_eq!(parse_query_limit(&query_limit_text(&limit)), Ok(Some(limit)));
        }
    }

    #[test]
    fn changes_are_printed_as_an_alteration_has_them() {
        let group = v1::Group {
            ru_per_sec: "unlimited".into(),
            burst: "default".into(),
            burstable: "off".into(),
            burst_ru_per_sec: "default".into(),
            policy: "warm_up(10s, 3)".into(),
            quota: "5 per day".into(),
            ..v1::Group::default()
        };
        let longer = v1::Group { max_wait_us: 1_500_000, ..group.clone() };
        for (group, field, text) in [
            (&group, "ru_per_sec", "RU_PER_SEC=UNLIMITED"),
            (&group, "burst", "BURST=DEFAULT"),
            (&group, "burstable", "BURSTABLE=OFF"),
            (&group, "burst_ru_per_sec", "BURST_RU_PER_SEC=DEFAULT"),
            (&group, "policy", "POLICY=WARM_UP('10s', 3)"),
            (&group, "quota", "QUOTA=5 PER DAY"),
            (&group, "max_wait_us", "MAX_WAIT=DEFAULT"),
            (&longer, "max_wait_us", "MAX_WAIT='1.5s'"),
        ] {
            assert_eq!(changes_text(group, &[field.to_owned()]), text);
            let read = Statement::parse(&format!("ALTER RESOURCE GROUP g {text}"), SqlDialect::MySql);
            assert!(
                matches!(&read, Ok(Some(Statement::AlterGroup { fields, .. })) if fields.contains(&field)),
                "{read:?}"
            );
        }
        let later = ["burstable".to_owned(), "of_later".to_owned()];
        assert_eq!(changes_text(&group, &later), "BURSTABLE=OFF, of_later");
    }

    #[test]
    fn cells_look_as_tidbs_do() {
        let limit = v1::QueryLimit {
            exec_elapsed_us: 20_000_000,
            action: "switch_group".into(),
            switch_group: "y".into(),
            watch: "similar".into(),
            watch_us: 600_000_000,
            ..v1::QueryLimit::default()
        };
        let text = "EXEC_ELAPSED='20s', ACTION=SWITCH_GROUP(y), WATCH=SIMILAR DURATION='10m0s'";
        assert_eq!(query_limit_text(&limit), text);
        let group = v1::Group { name: "y".into(), ru_per_sec: "4000".into(), ..v1::Group::default() };
        assert_eq!(create_group_text(&group, SqlDialect::MySql), "CREATE RESOURCE GROUP `y` RU_PER_SEC=4000");
        let bare = v1::Group { name: "y".into(), ..v1::Group::default() };
        let text = "CREATE RESOURCE GROUP `y` RU_PER_SEC=UNLIMITED";
        assert_eq!(create_group_text(&bare, SqlDialect::MySql), text);
    }
}
