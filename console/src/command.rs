//! The same change in other words: as a command and as a statement, for people who copy it into a script.

use crate::form::Changed;

/// The flag of a field, and the option of SQL; empty where SQL has none.
const WORDS: [(&str, &str, &str); 19] = [
    ("parent", "--parent", "PARENT"),
    ("ru_per_sec", "--rate", "RU_PER_SEC"),
    ("burst", "--burst", "BURST"),
    ("burstable", "--burstable", "BURSTABLE"),
    ("burst_ru_per_sec", "--burstable", "BURST_RU_PER_SEC"),
    ("priority", "--priority", "PRIORITY"),
    ("weight", "--weight", "WEIGHT"),
    ("ttl_us", "--ttl", "TTL"),
    ("renew_us", "--renew", "RENEW"),
    ("fallback", "--fallback", "FALLBACK"),
    ("fallback_total", "--fallback-total", "FALLBACK_TOTAL"),
    ("max_debt", "--max-debt", "MAX_DEBT"),
    ("comment", "--comment", "COMMENT"),
    ("max_wait_us", "--max-wait", "MAX_WAIT"),
    ("owner", "--owner", ""),
    ("enforcement", "--enforcement", "ENFORCEMENT"),
    ("policy", "--policy", "POLICY"),
    ("quota", "--quota", "QUOTA"),
    ("demote_to", "--demote-to", "DEMOTE_TO"),
];

/// Fields that are a length of time.
const TIMES: [&str; 3] = ["ttl_us", "renew_us", "max_wait_us"];

/// The command of the shell: `verb` is `create` or `alter`; a revision is expected where it is not 0.
pub fn shell(verb: &str, group: &str, changed: &[Changed], revision: u64) -> String {
    let mut text = format!("tidegate group {verb} {}", quoted(group));
    for change in changed {
        let Some((_, flag, _)) = WORDS.iter().find(|(field, ..)| *field == change.field) else { continue };
        let of = |field: &str| changed.iter().find(|of| of.field == field).map(|of| of.after.as_str());
        let value = match change.field.as_str() {
            // One flag has both.
            "burst_ru_per_sec" if of("burstable").is_some() => continue,
            "burst_ru_per_sec" => format!("moderated:{}", change.after),
            "burstable" => match (change.after.as_str(), of("burst_ru_per_sec")) {
                ("moderated", Some(rate)) => format!("moderated:{rate}"),
                (word, _) => word.to_owned(),
            },
            // An empty word lifts nothing there; these mean the default.
            field if change.after.is_empty() && TIMES.contains(&field) => "0s".to_owned(),
            "weight" if change.after.is_empty() => "1".to_owned(),
            _ => change.after.clone(),
        };
        // Behind a space, the shell's parser takes it for another flag.
        let between = if value.starts_with('-') { '=' } else { ' ' };
        text.push_str(&format!(" {flag}{between}{}", quoted(&value)));
    }
    if revision != 0 {
        text.push_str(&format!(" --expect-revision {revision}"));
    }
    text
}

/// The statement: `verb` is `CREATE` or `ALTER`.
pub fn sql(verb: &str, group: &str, changed: &[Changed]) -> String {
    let mut text = format!("{verb} RESOURCE GROUP `{}`", group.replace('`', "``"));
    let mut lacks = Vec::new();
    for change in changed {
        let Some((field, _, option)) = WORDS.iter().find(|(field, ..)| *field == change.field) else {
            continue;
        };
        if option.is_empty() {
            lacks.push(*field);
            continue;
        }
        text.push_str(&format!(" {option} = {}", value(field, &change.after)));
    }
    text.push(';');
    if !lacks.is_empty() {
        text.push_str(&format!(" -- SQL does not set {}", lacks.join(", ")));
    }
    text
}

/// What stands behind an option of SQL.
fn value(field: &str, after: &str) -> String {
    // The name stands in backquotes: it is a statement of MySQL, where a backslash escapes.
    let string = |text: &str| format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"));
    match (field, after) {
        ("weight", "") | ("fallback_total", "none") => "DEFAULT".to_owned(),
        (field, "") if TIMES.contains(&field) => "DEFAULT".to_owned(),
        (field, text) if TIMES.contains(&field) => string(text),
        ("comment" | "parent" | "demote_to", text) => string(text),
        ("policy", text) => policy(&text.to_ascii_lowercase()),
        (_, word)
            if !word.is_empty()
                && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.')) =>
        {
            word.to_uppercase()
        }
        (_, text) => string(text),
    }
}

/// `PACED`, or `WARM_UP('10s', 3)`.
fn policy(text: &str) -> String {
    let inside =
        text.strip_prefix("warm_up").and_then(|rest| rest.trim().strip_prefix('(')?.strip_suffix(')'));
    match inside.and_then(|inside| inside.split_once(',')) {
        Some((period, factor)) => format!("WARM_UP('{}', {})", period.trim(), factor.trim()),
        None => text.to_uppercase(),
    }
}

/// A word of the shell as it is, anything else in quotes.
fn quoted(text: &str) -> String {
    let is_plain =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | ':' | '@' | '%' | '+');
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(of: &[(&str, &str)]) -> Vec<Changed> {
        let change = |(field, after): &(&str, &str)| Changed {
            field: (*field).to_owned(),
            before: String::new(),
            after: (*after).to_owned(),
        };
        of.iter().map(change).collect()
    }

    #[test]
    fn values_are_quoted_for_the_shell_and_for_sql() {
        let changes = changed(&[
            ("ru_per_sec", "50.5"),
            ("comment", "Bob's; `rm`"),
            ("quota", "5 per day"),
            ("owner", "x"),
        ]);
        assert_eq!(
            shell("alter", "shop", &changes, 7),
            "tidegate group alter shop --rate 50.5 --comment 'Bob'\\''s; `rm`' --quota '5 per day' --owner x --expect-revision 7"
        );
        assert_eq!(
            sql("ALTER", "shop", &changes),
            "ALTER RESOURCE GROUP `shop` RU_PER_SEC = 50.5 COMMENT = 'Bob''s; `rm`' QUOTA = '5 per day'; -- SQL does not set owner"
        );
    }

    #[test]
    fn times_policies_and_what_is_left_open_are_written_as_each_language_takes_them() {
        for (field, after, flag, option) in [
            ("ttl_us", "5s", "--ttl 5s", "TTL = '5s'"),
            ("renew_us", "1s", "--renew 1s", "RENEW = '1s'"),
            ("max_wait_us", "", "--max-wait 0s", "MAX_WAIT = DEFAULT"),
            ("weight", "", "--weight 1", "WEIGHT = DEFAULT"),
            ("weight", "7", "--weight 7", "WEIGHT = 7"),
            ("policy", "warm_up(10s, 3)", "--policy 'warm_up(10s, 3)'", "POLICY = WARM_UP('10s', 3)"),
            ("policy", "paced", "--policy paced", "POLICY = PACED"),
            ("fallback_total", "none", "--fallback-total none", "FALLBACK_TOTAL = DEFAULT"),
            ("parent", "/", "--parent /", "PARENT = '/'"),
            ("fallback", "conservative:10", "--fallback conservative:10", "FALLBACK = 'conservative:10'"),
            ("fallback_total", "50", "--fallback-total 50", "FALLBACK_TOTAL = 50"),
            ("burst", "default", "--burst default", "BURST = DEFAULT"),
            ("max_debt", "5.5", "--max-debt 5.5", "MAX_DEBT = 5.5"),
            ("max_wait_us", "500ms", "--max-wait 500ms", "MAX_WAIT = '500ms'"),
            ("ttl_us", "", "--ttl 0s", "TTL = DEFAULT"),
            ("renew_us", "", "--renew 0s", "RENEW = DEFAULT"),
            ("priority", "high", "--priority high", "PRIORITY = HIGH"),
            ("enforcement", "shadow", "--enforcement shadow", "ENFORCEMENT = SHADOW"),
            ("policy", "token_bucket", "--policy token_bucket", "POLICY = TOKEN_BUCKET"),
            ("quota", "none", "--quota none", "QUOTA = NONE"),
            ("demote_to", "slow", "--demote-to slow", "DEMOTE_TO = 'slow'"),
            ("comment", "", "--comment ''", "COMMENT = ''"),
            ("comment", "plain", "--comment plain", "COMMENT = 'plain'"),
            // Not another flag.
            ("comment", "-f x", "--comment='-f x'", "COMMENT = '-f x'"),
            ("comment", "--yes", "--comment=--yes", "COMMENT = '--yes'"),
            // Not the end of a string.
            ("comment", "C:\\new\\", "--comment 'C:\\new\\'", "COMMENT = 'C:\\\\new\\\\'"),
            ("comment", "\\' or", "--comment '\\'\\'' or'", "COMMENT = '\\\\'' or'"),
        ] {
            let change = changed(&[(field, after)]);
            assert_eq!(shell("alter", "a", &change, 0), format!("tidegate group alter a {flag}"));
            assert_eq!(sql("ALTER", "a", &change), format!("ALTER RESOURCE GROUP `a` {option};"));
        }
    }

    #[test]
    fn one_flag_has_how_a_group_bursts_and_how_far() {
        let both = changed(&[("burstable", "moderated"), ("burst_ru_per_sec", "900")]);
        assert_eq!(shell("create", "a", &both, 0), "tidegate group create a --burstable moderated:900");
        let rate = changed(&[("burst_ru_per_sec", "900")]);
        assert_eq!(shell("alter", "a", &rate, 0), "tidegate group alter a --burstable moderated:900");
        let open = changed(&[("burst_ru_per_sec", "default"), ("burstable", "moderated")]);
        assert_eq!(shell("alter", "a", &open, 0), "tidegate group alter a --burstable moderated:default");
        let off = changed(&[("burstable", "off")]);
        assert_eq!(shell("alter", "a", &off, 0), "tidegate group alter a --burstable off");
    }
}
