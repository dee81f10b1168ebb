//! The options of a resource group, in any order, with or without commas, each once.
//!
//! Out: a group with the fields that were given, and their names. Numbers are passed on as written: the controller
//! decides what is allowed.

use sqlparser::tokenizer::Token;
use tidegate_proto::v1;

use super::query_limit;
use crate::cursor::Cursor;
use crate::duration::parse_duration;
use crate::error::SqlError;

/// Options and the fields of the admin API they set. The first three are TiDB's, as is QUERY_LIMIT.
const OPTIONS: [(&str, &str); 19] = [
    ("RU_PER_SEC", "ru_per_sec"),
    ("PRIORITY", "priority"),
    ("BURSTABLE", "burstable"),
    ("QUERY_LIMIT", "query_limit"),
    ("PARENT", "parent"),
    ("WEIGHT", "weight"),
    ("BURST", "burst"),
    ("BURST_RU_PER_SEC", "burst_ru_per_sec"),
    ("TTL", "ttl_us"),
    ("RENEW", "renew_us"),
    ("FALLBACK", "fallback"),
    ("FALLBACK_TOTAL", "fallback_total"),
    ("MAX_DEBT", "max_debt"),
    ("MAX_WAIT", "max_wait_us"),
    ("ENFORCEMENT", "enforcement"),
    ("POLICY", "policy"),
    ("QUOTA", "quota"),
    ("DEMOTE_TO", "demote_to"),
    ("COMMENT", "comment"),
];

/// All options to the end of the statement; at least one.
pub(super) fn options(cursor: &mut Cursor<'_>) -> Result<(Box<v1::Group>, Vec<&'static str>), SqlError> {
    let mut group = Box::<v1::Group>::default();
    let mut fields = Vec::new();
    loop {
        let field = option(cursor)?;
        if fields.contains(&field) {
            return Err(cursor.error_before("this option is given twice; leave one of them out"));
        }
        fields.push(field);
        if field == "burstable" {
            burstable(cursor, &mut group)?;
        } else {
            cursor.take_token(&Token::Eq);
            value(cursor, field, &mut group)?;
        }
        if !cursor.take_token(&Token::Comma) && cursor.peek().is_none() {
            break;
        }
    }
    // As TiDB prints its group `default`: above no rate there is nothing to burst to. A rate that it gets later is its
    // cap, unless a later statement says otherwise.
    if group.ru_per_sec == "unlimited" && group.burstable == "moderated" && group.burst_ru_per_sec.is_empty()
    {
        "off".clone_into(&mut group.burstable);
    }
    // The most a group may burst to has a meaning with MODERATED only, and would be refused beside the others.
    let bursts_otherwise = fields.contains(&"burstable") && group.burstable != "moderated";
    if bursts_otherwise && !fields.contains(&"burst_ru_per_sec") {
        fields.push("burst_ru_per_sec");
    }
    Ok((group, fields))
}

fn option(cursor: &mut Cursor<'_>) -> Result<&'static str, SqlError> {
    if cursor.sees("BACKGROUND") {
        let instead = "give the work a group of its own with PRIORITY = LOW";
        return Err(SqlError::unsupported("BACKGROUND", instead));
    }
    for inside in ["EXEC_ELAPSED", "ACTION", "WATCH"] {
        if cursor.sees(inside) {
            return Err(cursor.error("this belongs into QUERY_LIMIT = ( .. )"));
        }
    }
    cursor.choice(&OPTIONS)
}

fn burstable(cursor: &mut Cursor<'_>, group: &mut v1::Group) -> Result<(), SqlError> {
    const WAYS: [(&str, &str); 5] = [
        ("MODERATED", "moderated"),
        ("UNLIMITED", "unlimited"),
        ("OFF", "off"),
        ("TRUE", "moderated"),
        ("FALSE", "off"),
    ];
    // Alone it is MODERATED, as in TiDB's current grammar: a burst without bound should be said.
    let said = cursor.take_token(&Token::Eq) || WAYS.iter().any(|(word, _)| cursor.sees(word));
    let way = if said { cursor.choice(&WAYS)? } else { "moderated" };
    way.clone_into(&mut group.burstable);
    Ok(())
}

fn value(cursor: &mut Cursor<'_>, field: &str, group: &mut v1::Group) -> Result<(), SqlError> {
    match field {
        "ru_per_sec" => group.ru_per_sec = rate(cursor, "a number of RU/s, or UNLIMITED", &["UNLIMITED"])?,
        "priority" => {
            let priority = cursor.choice(&[("LOW", "low"), ("MEDIUM", "medium"), ("HIGH", "high")])?;
            priority.clone_into(&mut group.priority);
        }
        "policy" => group.policy = policy(cursor)?,
        "enforcement" => {
            cursor.choice(&[("ON", "on"), ("SHADOW", "shadow")])?.clone_into(&mut group.enforcement);
        }
        "query_limit" => group.query_limit = query_limit::rule(cursor)?,
        "parent" => group.parent = group_or_none(cursor)?,
        "demote_to" => group.demote_to = group_or_none(cursor)?,
        "quota" => group.quota = quota(cursor)?,
        "weight" if cursor.take(&["DEFAULT"]) => group.weight = 0,
        "weight" => group.weight = cursor.integer("a whole number from 1 to 10000, or DEFAULT")?,
        "burst" => group.burst = amount(cursor, "a number of RU, or DEFAULT", "default")?,
        "burst_ru_per_sec" => {
            group.burst_ru_per_sec = amount(cursor, "a number of RU/s, or DEFAULT", "default")?
        }
        "fallback_total" => {
            group.fallback_total = amount(cursor, "a number of RU/s, or DEFAULT", "none")?;
        }
        "max_debt" => group.max_debt = amount(cursor, "a number of RU, or DEFAULT", "default")?,
        "ttl_us" => group.ttl_us = period(cursor)?,
        "renew_us" => group.renew_us = period(cursor)?,
        "max_wait_us" => group.max_wait_us = period(cursor)?,
        "fallback" => {
            group.fallback = rate(cursor, "STOP, UNLIMITED, or a number of RU/s", &["STOP", "UNLIMITED"])?;
        }
        _ => cursor.string("a comment in quotes")?.clone_into(&mut group.comment),
    }
    Ok(())
}

/// The name of a group, also in the quotes of a string; or `NULL`, the API's `/`.
fn group_or_none(cursor: &mut Cursor<'_>) -> Result<String, SqlError> {
    if cursor.take(&["NULL"]) {
        return Ok("/".to_owned());
    }
    match cursor.string("the name of a resource group") {
        Ok("") => Err(cursor.error_before("a group has a name; write it, or NULL for none")),
        Ok(name) => Ok(name.to_ascii_lowercase()),
        Err(_) => cursor.group(),
    }
}

/// A number, or one of these words, in lower case.
fn rate(cursor: &mut Cursor<'_>, what: &str, words: &[&str]) -> Result<String, SqlError> {
    for word in words {
        if cursor.take(&[*word]) {
            return Ok(word.to_ascii_lowercase());
        }
    }
    cursor.decimal(what)
}

/// A quota as the API writes it: `1000000 PER DAY 'Europe/Berlin'`, `10000 REQUESTS PER ROLLING HOUR`, either in quotes, or
/// `NONE`.
fn quota(cursor: &mut Cursor<'_>) -> Result<String, SqlError> {
    const WHAT: &str = "a quota such as 1000000 PER DAY, 5000 PER ROLLING HOUR or 10000 REQUESTS PER DAY 'Europe/Berlin', or NONE";
    const PERIODS: [(&str, &str); 4] =
        [("MINUTE", "minute"), ("HOUR", "hour"), ("DAY", "day"), ("MONTH", "month")];
    if cursor.take(&["NONE"]) {
        return Ok("none".to_owned());
    }
    if let Ok(whole) = cursor.string(WHAT) {
        return Ok(whole.to_owned());
    }
    let amount = cursor.decimal(WHAT)?;
    let units = [("REQUESTS", " requests"), ("REQUEST", " request"), ("RU", "")];
    let unit = units.into_iter().find(|(word, _)| cursor.take(&[word])).map_or("", |(_, unit)| unit);
    cursor.expect(&["PER"])?;
    let rolling = if cursor.take(&["ROLLING"]) { "rolling " } else { "" };
    let period = cursor.choice(&PERIODS)?;
    if let Ok(zone) = cursor.string("a zone") {
        return Ok(format!("{amount}{unit} per {rolling}{period} {zone}"));
    }
    let option = OPTIONS.iter().any(|(option, _)| cursor.sees(option));
    if !option && matches!(cursor.peek(), Some(Token::Word(_))) {
        return Err(cursor.expected("a zone in quotes, such as 'Europe/Berlin', or another option"));
    }
    Ok(format!("{amount}{unit} per {rolling}{period}"))
}

/// A policy as the API writes it; that of a rate that warms up is `WARM_UP('10s', 3)`, where one or both may be left out.
fn policy(cursor: &mut Cursor<'_>) -> Result<String, SqlError> {
    const POLICIES: [(&str, &str); 3] =
        [("TOKEN_BUCKET", "token_bucket"), ("PACED", "paced"), ("WARM_UP", "warm_up")];
    let word = cursor.choice(&POLICIES)?;
    if word != "warm_up" || !cursor.take_token(&Token::LParen) {
        return Ok(word.to_owned());
    }
    let period = duration(cursor, "the length of the warm-up in quotes, such as '10s'")?;
    let factor = if cursor.take_token(&Token::Comma) {
        format!(", {}", cursor.integer::<u32>("the cold factor, a whole number from 2 to 100")?)
    } else {
        String::new()
    };
    if !cursor.take_token(&Token::RParen) {
        return Err(cursor.expected("a closing parenthesis, as in WARM_UP('10s', 3)"));
    }
    Ok(format!("{word}({}{factor})", seconds(period)))
}

/// A time as the API prints it.
fn seconds(us: u64) -> String {
    let text = format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
    format!("{}s", text.trim_end_matches('0').trim_end_matches('.'))
}

/// A number, or the word of the API for the default.
fn amount(cursor: &mut Cursor<'_>, what: &str, default: &str) -> Result<String, SqlError> {
    if cursor.take(&["DEFAULT"]) { Ok(default.to_owned()) } else { cursor.decimal(what) }
}

/// Microseconds, or 0 for the default.
fn period(cursor: &mut Cursor<'_>) -> Result<u64, SqlError> {
    if cursor.take(&["DEFAULT"]) { Ok(0) } else { duration(cursor, "a duration such as '5s', or DEFAULT") }
}

/// A duration in quotes, in microseconds.
pub(super) fn duration(cursor: &mut Cursor<'_>, what: &str) -> Result<u64, SqlError> {
    let text = cursor.string(what)?;
    parse_duration(text).map_err(|error| cursor.error_before(&error.to_string()))
}
