//! Every form that TiDB's grammar has for what tidegate does, and for what it says by name that it does not do.

use super::*;

/// TiDB's statements end with each of these; all of them are read, or refused by name.
fn each(heads: &[&str], tails: &[&str]) -> Vec<String> {
    heads.iter().flat_map(|head| tails.iter().map(move |tail| format!("{head} {tail}"))).collect()
}

#[test]
fn every_form_of_a_definition_is_read() {
    let heads = [
        "create resource group x ru_per_sec=2000",
        "CREATE RESOURCE GROUP IF NOT EXISTS `x` RU_PER_SEC 2000 ,",
        "create resource group default ru_per_sec = unlimited",
        "alter resource group x ru_per_sec=UNLIMITED,",
        "alter resource group if exists `default`",
        "alter resource group x priority = medium,",
    ];
    let tails = [
        "burstable",
        "BURSTABLE = MODERATED",
        "burstable=unlimited",
        "burstable off",
        "query_limit=null",
        "QUERY_LIMIT=()",
        "query_limit=(exec_elapsed '10s' action dryrun)",
        "query_limit (exec_elapsed=\"10m\", action=cooldown)",
        "query_limit=( action kill exec_elapsed='10m' )",
        "query_limit=(exec_elapsed '10s' ru 100 action switch_group(y))",
        "query_limit=(ru=7 watch=similar duration '10m' action cooldown)",
        "query_limit=(exec_elapsed '9s' action cooldown watch exact)",
        "query_limit=(exec_elapsed '8s' action cooldown watch exact duration = unlimited)",
        "query_limit=(exec_elapsed '7s' action cooldown watch exact duration 'UNLIMITED')",
        "query_limit=(exec_elapsed '7s' action cooldown watch exact duration \"unlimited\");",
    ];
    for text in each(&heads, &tails) {
        parse(&text);
    }
    for text in
        each(&["alter resource group x"], &["ru_per_sec=1 burstable priority low", "burstable ru_per_sec=9"])
    {
        parse(&text);
    }
    for text in each(&["drop resource group"], &["x;", "DEFAULT", "if exists x", "if exists `x`;"]) {
        parse(&text);
    }
}

#[test]
fn without_a_rate_there_is_nothing_to_burst_to() {
    for text in ["RU_PER_SEC=UNLIMITED, BURSTABLE", "BURSTABLE=MODERATED RU_PER_SEC=UNLIMITED"] {
        let (group, fields) = altered(text);
        assert_eq!((group.ru_per_sec.as_str(), group.burstable.as_str()), ("unlimited", "off"), "{text}");
        assert!(fields.contains(&"burst_ru_per_sec"));
    }
    // The controller refuses contradictions.
    let (group, _) = altered("RU_PER_SEC=UNLIMITED, BURSTABLE, BURST_RU_PER_SEC=5");
    assert_eq!(group.burstable, "moderated");
}

#[test]
fn an_empty_name_is_the_group_of_everyone_else() {
    let set = Statement::SetGroup { name: "default".into() };
    for (text, dialect) in [
        ("set resource group ``;", MySql),
        ("set resource group default", MySql),
        ("set resource group `default`", MySql),
        ("SET RESOURCE GROUP ``", PostgreSql),
        ("SET RESOURCE GROUP \"\"", PostgreSql),
        ("SET RESOURCE GROUP ''", PostgreSql),
        ("SET RESOURCE GROUP ``", Generic),
    ] {
        assert_eq!(parse_in(text, dialect), set, "{text}");
    }
    for text in ["ALTER USER ann RESOURCE GROUP ``", "alter user 'ann'@'%' resource group ''"] {
        let Statement::Bind { group, .. } = parse(text) else { panic!("{text}") };
        assert_eq!(group, "default");
    }
}

#[test]
fn a_digest_needs_no_quotes() {
    let digits = "b13858789fce00208f9a262c99621b7045f4869807cd4e6568008ae7ca19a377";
    for (digest, matching) in
        [(digits, "exact"), (&digits[1..17], "similar"), ("12e45678901e3456", "similar")]
    {
        for quoted in [digest.to_owned(), format!("'{digest}'"), format!("`{digest}`"), digest.to_uppercase()]
        {
            for text in [
                format!("query watch add sql digest {quoted}"),
                format!("query watch add sql digest {quoted}, action kill resource group g"),
            ] {
                let Statement::AddWatch { watched, .. } = parse(&text) else { panic!("{text}") };
                assert_eq!((watched.digest.as_str(), watched.matching), (digest, matching), "{text}");
            }
        }
    }
}

#[test]
fn every_form_of_what_is_not_done_is_named() {
    for (what, texts) in [
        (
            "CALIBRATE RESOURCE",
            each(
                &["calibrate resource"],
                &[
                    "",
                    "workload tpcc",
                    "workload oltp_read_write",
                    "start_time '2023-04-01 13:00:00'",
                    "start_time '2023-04-01 13:00:00' end_time='2023-04-01 16:00:00'",
                    "start_time date_sub(now(), interval 1 hour) duration '20m',",
                    "duration '10m', start_time now()",
                    "workload = oltp_read_only duration interval 10 minute",
                ],
            ),
        ),
        (
            "BACKGROUND",
            each(
                &["create resource group x ru_per_sec=1000", "alter resource group default burstable=off,"],
                &[
                    "background = (task_types='')",
                    "background (task_types 'br,lightning', utilization_limit 50)",
                    "background=()",
                    "background NULL",
                ],
            ),
        ),
        (
            "PROCESSED_KEYS",
            each(
                &["create resource group x ru_per_sec=1000 query_limit"],
                &["=(processed_keys=100)", "(exec_elapsed '10s' processed_keys 100 action dryrun)"],
            ),
        ),
        (
            "PLAN",
            each(
                &["query watch add", "query watch add resource group rg1 action = kill"],
                &["plan digest `5e3d`", "plan digest @digest1", "sql text plan to 'select 1'"],
            ),
        ),
        (
            "without an ACTION",
            each(&["alter resource group x query_limit"], &["= (exec_elapsed '10s')", "(ru=100)"]),
        ),
        (
            "a RESOURCE GROUP",
            each(&["create user 'ann'@'%' identified by 'x'"], &["resource group `default`"]),
        ),
        (
            "beside RESOURCE GROUP",
            each(
                &["alter user ann"],
                &["comment 'x' resource group rg1", "resource group rg1 password expire never"],
            ),
        ),
    ] {
        for text in texts {
            let (message, code) = wrong(&text, MySql);
            assert!(message.contains(what), "{text}: {message}");
            assert_eq!(code, Code::UNSUPPORTED, "{text}");
        }
    }
}
