//! Prints definitions as the statements that make them: what is printed is read back as the same definition.

use std::fmt::Write as _;

use tidegate_cost_model::SqlDialect;
use tidegate_proto::v1;

use crate::duration::duration_text;

/// `CREATE RESOURCE GROUP ..` with every setting that does not follow from another.
pub fn create_group_text(group: &v1::Group, dialect: SqlDialect) -> String {
    let mut options = Vec::new();
    let mut option = |name: &str, value: &str| {
        if !value.is_empty() {
            options.push(format!("{name}={value}"));
        }
    };
    let rate = if group.ru_per_sec.is_empty() { "unlimited" } else { &group.ru_per_sec };
    option("RU_PER_SEC", &rate.to_ascii_uppercase());
    option("PRIORITY", &group.priority.to_ascii_uppercase());
    option("BURSTABLE", &group.burstable.to_ascii_uppercase());
    option("BURST_RU_PER_SEC", &group.burst_ru_per_sec);
    option("BURST", &group.burst);
    if !group.parent.is_empty() {
        option("PARENT", &quoted_name(&group.parent, dialect));
    }
    if group.weight > 0 {
        option("WEIGHT", &group.weight.to_string());
    }
    for (name, us) in [("TTL", group.ttl_us), ("RENEW", group.renew_us)] {
        if us > 0 {
            option(name, &format!("'{}'", duration_text(us)));
        }
    }
    option("FALLBACK", &group.fallback.to_ascii_uppercase());
    option("MAX_DEBT", &group.max_debt);
    if let Some(limit) = &group.query_limit {
        option("QUERY_LIMIT", &format!("({})", limit_text(limit, |name| quoted_name(name, dialect))));
    }
    if !group.comment.is_empty() {
        option("COMMENT", &quoted_string(&group.comment, dialect));
    }
    format!("CREATE RESOURCE GROUP {} {}", quoted_name(&group.name, dialect), options.join(", "))
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
