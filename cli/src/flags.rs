//! Errors in the words of the command line: the API says `ttl_us`, who called wrote `--ttl`.

use tidegate_controller::group_fields::alterable;

use crate::error::CliError;

/// Fields of the API whose flag is called otherwise, and what it is called.
const OTHERWISE: [(&str, &str); 5] = [
    ("name", "the name"),
    ("ru_per_sec", "--rate"),
    ("burst_ru_per_sec", "--burstable"),
    ("watch_us", "--for"),
    ("digest", "--similar-to or --exact"),
];

/// Fields of other things than groups.
const OTHERS: [&str; 11] = [
    "name",
    "tenant",
    "user",
    "action",
    "group",
    "switch_group",
    "watch_us",
    "digest",
    "role",
    "groups",
    "rest_us",
];

/// The flag of a field.
fn flag_of(field: &str) -> String {
    let otherwise = OTHERWISE.iter().find(|(known, _)| *known == field);
    let alike = || format!("--{}", field.trim_end_matches("_us").replace('_', "-"));
    otherwise.map_or_else(alike, |(_, flag)| (*flag).to_owned())
}

/// The field of the API that goes by the name of its flag, with underscores or dashes.
pub(crate) fn field_of(name: &str) -> String {
    let flag = format!("--{}", name.replace('_', "-"));
    let field = alterable().find(|field| flag_of(field) == flag);
    field.map_or_else(|| name.replace('-', "_"), str::to_owned)
}

/// An error of a command whose flags are the fields of a request.
pub(crate) fn in_flags(error: CliError) -> CliError {
    match error {
        CliError::Invalid(message) => CliError::Invalid(spoken(&message)),
        CliError::Refused(message) => CliError::Refused(spoken(&message)),
        other => other,
    }
}

fn spoken(message: &str) -> String {
    if let Some((part, rest)) = message.strip_prefix("query_limit.").and_then(|rest| rest.split_once(": ")) {
        // As it is written in the rule.
        return format!("--query-limit, {}: {rest}", part.trim_end_matches("_us").to_uppercase());
    }
    if let Some(rest) = message.strip_prefix("update_mask: ") {
        // It lists fields: those that are words, too. One flag has two of them.
        return in_words(rest, true).replace("--burstable, --burstable", "--burstable");
    }
    let first = match message.split_once(": ") {
        Some((field, rest)) if field.chars().all(of_a_name) => flag(field, true).map(|flag| (flag, rest)),
        _ => None,
    };
    match first {
        Some((flag, rest)) => format!("{flag}: {}", in_words(rest, false)),
        None => in_words(message, false),
    }
}

/// The text with flags for its fields; for `all`, or for those that could be no word of the sentence.
fn in_words(said: &str, all: bool) -> String {
    let (mut text, mut word) = (String::new(), String::new());
    // The end closes the last word.
    for c in said.chars().map(Some).chain([None]) {
        if let Some(c) = c.filter(|c| of_a_name(*c)) {
            word.push(c);
            continue;
        }
        text.push_str(&flag(&word, all).unwrap_or_else(|| word.clone()));
        word.clear();
        text.extend(c);
    }
    text
}

fn of_a_name(c: char) -> bool {
    c.is_ascii_lowercase() || c == '_'
}

/// The flag for a field; for what could be a word of the sentence only when it is known to be a field.
fn flag(field: &str, is_field: bool) -> Option<String> {
    let alike = || format!("--{}", field.replace('_', "-"));
    match field {
        "expected_revision" => Some("--expect-revision".to_owned()),
        "force_to" => Some(alike()),
        _ if !alterable().chain(OTHERS).any(|known| known == field) => None,
        _ => Some(flag_of(field)).filter(|flag| is_field || field.contains('_') && *flag != alike()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_become_flags_and_words_stay_words() {
        for (said, shown) in [
            ("ttl_us: 70s is out of range", "--ttl: 70s is out of range"),
            (
                "update_mask: \"priority\" cannot be judged by a replay; these can: ru_per_sec, burst, burstable, \
                 burst_ru_per_sec, max_wait_us",
                "\"--priority\" cannot be judged by a replay; these can: --rate, --burst, --burstable, --max-wait",
            ),
            ("renew_us: 40s is more than half of ttl_us, 5s", "--renew: 40s is more than half of --ttl, 5s"),
            ("ru_per_sec: \"-5\" is no rate", "--rate: \"-5\" is no rate"),
            (
                "burst: the burst and the priority of a comment",
                "--burst: the burst and the priority of a comment",
            ),
            ("name: \"A b\" is not a group", "the name: \"A b\" is not a group"),
            (
                "group a is used by b; or delete with force_to naming",
                "group a is used by b; or delete with --force-to naming",
            ),
            (
                "group a_b exists: ttl_us differs, query_limit too",
                "group a_b exists: --ttl differs, query_limit too",
            ),
            ("query_limit.exec_elapsed_us: 1ms is short", "--query-limit, EXEC_ELAPSED: 1ms is short"),
            ("rest_us: 90000s is longer than 86400s", "--rest: 90000s is longer than 86400s"),
            ("role: \"king\" is no role of those", "--role: \"king\" is no role of those"),
            ("digest: \"x\" is no digest", "--similar-to or --exact: \"x\" is no digest"),
            ("group a was changed: expected_revision is 3", "group a was changed: --expect-revision is 3"),
            ("", ""),
        ] {
            assert_eq!(spoken(said), shown);
        }
    }
}
