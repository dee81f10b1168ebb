//! Good and bad texts, as tables.

use tidegate_cost_model::SqlDialect::{Generic, MySql, PostgreSql};
use tidegate_cost_model::{SqlDialect, Template};
use tidegate_proto::v1;

use super::parse_query_limit;
use crate::code::Code;
use crate::digest::exact_digest;
use crate::statement::{Principal, Statement, WatchedText};
use crate::tables::VirtualTable;

fn parse(text: &str) -> Statement {
    parse_in(text, MySql)
}

fn parse_in(text: &str, dialect: SqlDialect) -> Statement {
    Statement::parse(text, dialect).unwrap_or_else(|error| panic!("{text}: {error}")).expect(text)
}

/// The error of a text that is ours and wrong.
fn wrong(text: &str, dialect: SqlDialect) -> (String, Code) {
    match Statement::parse(text, dialect) {
        Err(error) => (error.to_string(), error.code()),
        Ok(statement) => panic!("{text}: {statement:?}"),
    }
}

fn altered(options: &str) -> (v1::Group, Vec<&'static str>) {
    match parse(&format!("ALTER RESOURCE GROUP g {options}")) {
        Statement::AlterGroup { group, fields, if_exists: false } => (*group, fields),
        other => panic!("{other:?}"),
    }
}

#[test]
fn groups_are_created_altered_and_dropped() {
    let text = "create resource group if not exists `Shop.EU-1` ru_per_sec = 500.5 burstable priority high;";
    let Statement::CreateGroup { group, if_not_exists: true } = parse(text) else { panic!() };
    assert_eq!((group.name.as_str(), group.ru_per_sec.as_str()), ("shop.eu-1", "500.5"));
    assert_eq!((group.burstable.as_str(), group.priority.as_str()), ("moderated", "high"));
    let (group, fields) = altered("RU_PER_SEC UNLIMITED, PRIORITY=LOW");
    assert_eq!((group.ru_per_sec.as_str(), group.priority.as_str()), ("unlimited", "low"));
    assert_eq!(fields, ["ru_per_sec", "priority"]);
    assert_eq!(
        parse("ALTER RESOURCE GROUP IF EXISTS default BURST=DEFAULT"),
        Statement::AlterGroup {
            group: Box::new(v1::Group {
                name: "default".into(),
                burst: "default".into(),
                ..v1::Group::default()
            }),
            fields: vec!["burst"],
            if_exists: true,
        }
    );
    let dropped = |name: &str, if_exists| Statement::DropGroup { name: name.into(), if_exists };
    assert_eq!(parse("DROP RESOURCE GROUP rg1"), dropped("rg1", false));
    assert_eq!(parse_in("drop resource group if exists \"RG-1\" ;", PostgreSql), dropped("rg-1", true));
    assert_eq!(parse_in("drop resource group `default`", PostgreSql), dropped("default", false));
    assert_eq!(parse_in("drop resource group `a`", Generic), dropped("a", false));
}

#[test]
fn changes_are_proposed_applied_and_withdrawn() {
    let Statement::Propose { group, fields } =
        parse("alter resource group Shop propose burstable = off, burst 5;")
    else {
        panic!()
    };
    assert_eq!((group.name.as_str(), group.burst_ru_per_sec.as_str()), ("shop", "default"));
    assert_eq!(fields, ["burstable", "burst", "burst_ru_per_sec"]);
    let name = || "shop".to_owned();
    assert_eq!(parse("ALTER RESOURCE GROUP shop APPLY PROPOSAL"), Statement::ApplyProposal { name: name() });
    let withdrawn = parse_in("alter resource group \"Shop\" withdraw proposal ;", PostgreSql);
    assert_eq!(withdrawn, Statement::WithdrawProposal { name: name() });
    assert_eq!(parse("show resource group proposal `shop`"), Statement::ShowProposal { name: name() });
    for (text, told) in [
        ("ALTER RESOURCE GROUP IF EXISTS shop PROPOSE BURST=5", "leave IF EXISTS out"),
        ("ALTER RESOURCE GROUP shop PROPOSE", "RU_PER_SEC"),
        ("ALTER RESOURCE GROUP shop APPLY", "PROPOSAL"),
        ("ALTER RESOURCE GROUP shop APPLY PROPOSAL now", "end of the statement"),
        ("SHOW RESOURCE GROUP PROPOSAL", "name of a resource group"),
    ] {
        let (error, code) = wrong(text, MySql);
        assert!(code == Code::SYNTAX && error.contains(told), "{text}: {error}");
    }
}

#[test]
fn every_option_is_read() {
    let (group, fields) = altered(
        "PARENT=top WEIGHT=3 BURST=.5, BURST_RU_PER_SEC=900, TTL='4s' RENEW=\"1.5s\" FALLBACK STOP FALLBACK_TOTAL=40 MAX_DEBT=0 MAX_WAIT '3s' \
         COMMENT='it''s \\\\ free' BURSTABLE=MODERATED",
    );
    let expected = v1::Group {
        parent: "top".into(),
        weight: 3,
        burst: "0.5".into(),
        burst_ru_per_sec: "900".into(),
        ttl_us: 4_000_000,
        renew_us: 1_500_000,
        fallback: "stop".into(),
        fallback_total: "40".into(),
        max_debt: "0".into(),
        max_wait_us: 3_000_000,
        comment: "it's \\ free".into(),
        burstable: "moderated".into(),
        name: "g".into(),
        ..v1::Group::default()
    };
    assert_eq!(group, expected);
    assert_eq!(fields.len(), 12);
    for (text, burstable) in [
        ("", "moderated"),
        ("=TRUE", "moderated"),
        (" OFF", "off"),
        ("=false", "off"),
        ("=UNLIMITED", "unlimited"),
    ] {
        let (group, fields) = altered(&format!("BURSTABLE{text}"));
        assert_eq!(group.burstable, burstable, "{text}");
        assert_eq!(fields.contains(&"burst_ru_per_sec"), burstable != "moderated", "{text}");
    }
    let (open, _) = altered("PARENT=NULL FALLBACK_TOTAL=DEFAULT MAX_DEBT=DEFAULT BURSTABLE=OFF");
    let words = [open.parent, open.fallback_total, open.max_debt, open.burst_ru_per_sec];
    assert_eq!(words, ["/", "none", "default", "default"], "what is lifted is said by name");
    for text in ["DEMOTE_TO = Spill", "DEMOTE_TO 'spill'", "DEMOTE_TO=`spill`, WEIGHT=2"] {
        let (group, fields) = altered(text);
        assert_eq!(
            (group.demote_to.as_str(), fields.first().copied()),
            ("spill", Some("demote_to")),
            "{text}"
        );
    }
    assert_eq!(altered("DEMOTE_TO=NULL PARENT='Top'").0.demote_to, "/");
    assert_eq!(altered("DEMOTE_TO=NULL PARENT='Top'").0.parent, "top");
    assert_eq!(altered("PARENT=NULL FALLBACK=12.5 TTL=DEFAULT WEIGHT DEFAULT").0.fallback, "12.5");
}

#[test]
fn quotas_are_read() {
    for (text, quota) in [
        ("QUOTA = 1000000 PER DAY", "1000000 per day"),
        ("QUOTA .5 RU per Month 'Europe/Berlin'", "0.5 per month Europe/Berlin"),
        ("QUOTA=5 PER HOUR \"Asia/Kathmandu\", WEIGHT=2", "5 per hour Asia/Kathmandu"),
        ("QUOTA='7 per minute'", "7 per minute"),
        ("QUOTA = 10000 REQUESTS PER DAY", "10000 requests per day"),
        ("QUOTA 1 Request PER HOUR 'Asia/Kathmandu'", "1 request per hour Asia/Kathmandu"),
        ("QUOTA='7 requests per minute'", "7 requests per minute"),
        ("QUOTA = 5000 RU PER Rolling HOUR", "5000 per rolling hour"),
        ("QUOTA = 7 REQUESTS PER ROLLING MONTH, WEIGHT 2", "7 requests per rolling month"),
        ("QUOTA NONE", "none"),
    ] {
        let (group, fields) = altered(text);
        assert_eq!((group.quota.as_str(), fields.first().copied()), (quota, Some("quota")), "{text}");
    }
    for (text, remedy) in [
        ("QUOTA=5 PER WEEK", "MONTH"),
        ("QUOTA=5", "PER"),
        ("QUOTA=5 REQUESTS", "PER"),
        ("QUOTA=5 PER ROLLING", "MONTH"),
        ("QUOTA=5 PER ROLLING WEEK", "MONTH"),
        ("QUOTA=5 QUERIES PER DAY", "PER"),
        ("QUOTA=REQUESTS PER DAY", "10000 REQUESTS PER DAY"),
        ("QUOTA=5 PER DAY Europe/Berlin", "'Europe/Berlin'"),
        ("QUOTA=-5 PER DAY", "1000000 PER DAY"),
        ("QUOTA=5e3 PER DAY", "plain digits"),
        ("QUOTA=5 PER DAY QUOTA=NONE", "twice"),
    ] {
        let (said, _) = wrong(&format!("ALTER RESOURCE GROUP g {text}"), MySql);
        assert!(said.contains(remedy), "{text}: {said}");
    }
}

#[test]
fn rules_against_runaways_are_read() {
    let (group, _) = altered(
        "QUERY_LIMIT=(EXEC_ELAPSED='60s', RU=10.5 ROWS=7, ACTION=SWITCH_GROUP(`slow`) WATCH=SIMILAR DURATION '10m')",
    );
    let expected = v1::QueryLimit {
        exec_elapsed_us: 60_000_000,
        ru: "10.5".into(),
        rows: 7,
        action: "switch_group".into(),
        switch_group: "slow".into(),
        watch: "similar".into(),
        watch_us: 600_000_000,
    };
    assert_eq!(group.query_limit.as_ref(), Some(&expected));
    for none in ["QUERY_LIMIT=NULL", "QUERY_LIMIT ()"] {
        let (group, fields) = altered(none);
        assert_eq!((group.query_limit, fields), (None, vec!["query_limit"]));
    }
    let killed =
        v1::QueryLimit { rows: 5, action: "kill".into(), watch: "exact".into(), ..Default::default() };
    for text in ["ROWS=5, ACTION=KILL, WATCH=EXACT DURATION=UNLIMITED", "(ACTION KILL WATCH EXACT ROWS 5)"] {
        assert_eq!(parse_query_limit(text).unwrap(), Some(killed.clone()));
    }
    assert_eq!(parse_query_limit("NULL").unwrap(), None);
    for text in
        ["", "(", "ROWS=5", "(ROWS=5, ACTION=KILL", "ACTION=KILL", "ROWS=0 ACTION=KILL", "NULL NULL", "'"]
    {
        assert!(parse_query_limit(text).is_err(), "{text}");
    }
}

#[test]
fn users_and_databases_are_bound() {
    let bound = |tenant: &str, user: &str, group: &str| Statement::Bind {
        principal: Principal { tenant: tenant.into(), user: user.into() },
        group: group.into(),
    };
    for (text, statement) in [
        ("ALTER USER Ann RESOURCE GROUP Shop", bound("", "Ann", "shop")),
        ("alter user 'ann'@'%' resource group shop;", bound("", "ann", "shop")),
        ("ALTER USER ann@localhost RESOURCE GROUP `default`", bound("", "ann", "default")),
        ("ALTER USER `ann`@`%` RESOURCE GROUP default", bound("", "ann", "default")),
        ("ALTER USER \"a@b.c\"@localhost RESOURCE GROUP \"x\"", bound("", "a@b.c", "x")),
        ("ALTER USER ann IN DATABASE store RESOURCE GROUP x", bound("store", "ann", "x")),
        ("ALTER DATABASE `Store-1` RESOURCE GROUP x", bound("Store-1", "", "x")),
    ] {
        assert_eq!(parse(text), statement, "{text}");
    }
    assert_eq!(parse_in("ALTER USER Ann RESOURCE GROUP x", PostgreSql), bound("", "ann", "x"));
    assert_eq!(
        parse_in("ALTER USER \"Ann\" IN DATABASE Shop RESOURCE GROUP x", PostgreSql),
        bound("shop", "Ann", "x")
    );
    assert_eq!(parse_in("ALTER USER 'ann'@'%' RESOURCE GROUP x", PostgreSql), bound("", "ann", "x"));
    assert_eq!(parse_in("ALTER USER ann@localhost RESOURCE GROUP x", PostgreSql), bound("", "ann", "x"));
    assert_eq!(parse_in("ALTER USER ann@'%' RESOURCE GROUP x", Generic), bound("", "ann", "x"));
}

#[test]
fn statements_are_watched() {
    let text = "QUERY WATCH ADD RESOURCE GROUP rg1 ACTION SWITCH_GROUP(rg2) SQL TEXT SIMILAR TO 'select * from t where a = 5'";
    let template = Template::new(MySql, "select * from t where a = 5");
    let similar = WatchedText {
        matching: "similar",
        digest: template.fingerprint().to_string(),
        template: template.text().to_owned(),
    };
    assert_eq!(
        parse(text),
        Statement::AddWatch {
            group: Some("rg1".into()),
            action: "switch_group".into(),
            switch_group: "rg2".into(),
            watched: similar,
            watch_us: None,
        }
    );
    let Statement::AddWatch { group: None, action, watched, watch_us, .. } =
        parse("query watch add sql text exact to 'select 1;', duration '10m', action = kill")
    else {
        panic!()
    };
    assert_eq!((action.as_str(), watch_us, watched.matching), ("kill", Some(600_000_000), "exact"));
    assert_eq!(watched.digest, exact_digest("select 1"));
    for (digits, matching) in [(16, "similar"), (64, "exact")] {
        let text = format!("QUERY WATCH ADD SQL DIGEST '{}' DURATION UNLIMITED", "A".repeat(digits));
        let Statement::AddWatch { watched, watch_us: None, .. } = parse(&text) else { panic!() };
        assert_eq!((watched.matching, watched.digest), (matching, "a".repeat(digits)));
    }
    assert_eq!(parse("QUERY WATCH REMOVE 17"), Statement::RemoveWatch { id: 17 });
    let all = Statement::RemoveWatches { group: "rg1".into() };
    assert_eq!(parse("query watch remove resource group RG1;"), all);
}

#[test]
fn sessions_are_asked_and_changed() {
    assert_eq!(parse("SET RESOURCE GROUP Rg1"), Statement::SetGroup { name: "rg1".into() });
    assert_eq!(parse("SHOW CREATE RESOURCE GROUP a"), Statement::ShowCreateGroup { name: "a".into() });
    assert_eq!(parse("SHOW RESOURCE GROUPS ;"), Statement::ShowGroups);
    for (text, column) in [
        ("SELECT CURRENT_RESOURCE_GROUP()", "CURRENT_RESOURCE_GROUP()"),
        ("select current_resource_group ( ) as g;", "g"),
        ("select current_resource_group() g from dual", "g"),
    ] {
        assert_eq!(parse(text), Statement::CurrentGroup { column: column.into() }, "{text}");
    }
    for (text, inner) in [
        ("EXPLAIN RU SELECT 1", "SELECT 1"),
        ("/* x */ explain ru -- y\n update t set a = ';' /* z */ ;", "update t set a = ';'"),
        ("EXPLAIN RU SELECT 'tidegate.usage'", "SELECT 'tidegate.usage'"),
    ] {
        assert_eq!(parse(text), Statement::ExplainRu(inner.into()), "{text}");
    }
}

#[test]
fn queries_of_our_tables_are_found() {
    use VirtualTable::{ResourceGroups, Statements, Usage};
    for (text, tables) in [
        ("SELECT * FROM information_schema.resource_groups", vec![ResourceGroups]),
        ("select s.ru from `tidegate` . `STATEMENTS` s where s.kind = \"x\"", vec![Statements]),
        (
            "(SELECT 1 FROM tidegate.usage UNION SELECT 2 FROM tidegate.statements) ORDER BY 1",
            vec![Statements, Usage],
        ),
        ("with u as (select * from tidegate.usage) select * from u, dual", vec![Usage]),
        ("select * from tidegate.usage where resource_group = current_resource_group()", vec![Usage]),
        ("select (select max(ru) from tidegate.usage)", vec![Usage]),
        ("select 1, current_resource_group()", vec![]),
        ("select concat('in ', current_resource_group()) from dual", vec![]),
    ] {
        let Statement::Select(select) = parse(text) else { panic!("{text}") };
        assert_eq!(select.tables(), tables, "{text}");
    }
    let Statement::Select(select) = parse_in("SELECT \"ru\" FROM \"tidegate\".\"usage\"", PostgreSql) else {
        panic!()
    };
    assert_eq!(select.text(), "SELECT \"ru\" FROM \"tidegate\".\"usage\"");
    let Statement::Select(select) =
        parse("SELECT/**/`a``b`, \"x'y\\n\" FROM tidegate.usage WHERE a <=> 1 && b || c -- end")
    else {
        panic!()
    };
    assert_eq!(select.text(), "SELECT \"a`b\", 'x''y\n' FROM tidegate.usage WHERE a IS 1 AND b OR c");
    // Elsewhere they are no AND and no OR.
    let Statement::Select(select) = parse_in("SELECT a || 'b' FROM tidegate.usage WHERE c && d", PostgreSql)
    else {
        panic!()
    };
    assert_eq!(select.text(), "SELECT a || 'b' FROM tidegate.usage WHERE c && d");
    assert_eq!(parse("TRUNCATE TABLE tidegate.statements"), Statement::ResetStatements);
    assert_eq!(parse("truncate `tidegate`.statements;"), Statement::ResetStatements);
}

#[test]
fn what_is_the_databases_goes_to_the_database() {
    for text in [
        "",
        ";",
        "SELECT 'tidegate.usage'",
        "SELECT tidegate.usage FROM tidegate",
        "SELECT resource_groups FROM t",
        "SELECT * FROM tidegate.orders",
        "SELECT * FROM a.tidegate.usage",
        "SELECT resource_group, count(*) FROM audit GROUP BY 1",
        "SELECT this is no sql about tidegate.usage",
        "SELECT 'open FROM tidegate.usage",
        "ALTER USER ann IDENTIFIED BY 'RESOURCE GROUP x'",
        "ALTER DATABASE d SET search_path = \"RESOURCE GROUP\"",
        "ALTER USER ann RESOURCE",
        "CREATE USER ann",
        "EXPLAIN RU",
        "EXPLAIN ru id",
        "INSERT INTO tidegate.orders VALUES (1)",
        "DELETE FROM tidegate.orders; SELECT 1",
        "TRUNCATE TABLE tidegate.orders",
        "CREATE DEFINER=`a`@`b` PROCEDURE p() BEGIN SET RESOURCE GROUP x; SELECT 1; END",
        "create definer = a@b procedure p() begin select 1; set resource group x; end",
        "CREATE OR REPLACE FUNCTION f() RETURNS int RETURN 1; DROP RESOURCE GROUP x",
        "CREATE TRIGGER t AFTER INSERT ON o FOR EACH ROW BEGIN DELETE FROM p; SET RESOURCE GROUP x; END",
        "ALTER TABLE t RENAME resource group; ALTER USER ann IDENTIFIED BY 'x'",
        "CREATE TABLE resource group; CREATE USER ann",
        "SELECT CURRENT_RESOURCE_GROUP() AS",
        "SELECT CURRENT_RESOURCE_GROUP() AS a b",
        "SELECT ';'; SELECT 'SET RESOURCE GROUP x'",
        "SELECT ';SET RESOURCE GROUP x'",
        "WITH x AS (SELECT 1 AS resource_group) SELECT * FROM x",
    ] {
        for dialect in [MySql, PostgreSql, Generic] {
            assert_eq!(Statement::parse(text, dialect), Ok(None), "{text}");
        }
    }
}

#[test]
fn what_is_ours_and_wrong_says_where_and_what() {
    for (text, place, part) in [
        ("CREATE RESOURCE GROUP", "line 1, column 22, near \"\"", "expected the name of a resource group"),
        ("CREATE RESOURCE GROUP ``", "column 23", "at least one character"),
        ("CREATE RESOURCE GROUP g", "column 24", "expected RU_PER_SEC, PRIORITY, BURSTABLE, QUERY_LIMIT"),
        ("CREATE RESOURCE GROUP g PRIORITY=LOW", "column 37", "RU_PER_SEC = UNLIMITED"),
        (
            "CREATE RESOURCE GROUP g\nRU_PER_SEC=-5",
            "line 2, column 12, near \"-\"",
            "a number of RU/s, or UNLIMITED",
        ),
        ("CREATE RESOURCE GROUP g RU_PER_SEC=0.0000001", "near \"0.0000001\"", "at most 6 digits"),
        ("CREATE RESOURCE GROUP g RU_PER_SEC=1e3", "near \"1e3\"", "RU/s, or UNLIMITED, as plain digits"),
        ("CREATE RESOURCE GROUP g RU_PER_SEC=1.5e3", "near \"1.5e3\"", "RU/s, or UNLIMITED, as plain digits"),
        ("CREATE RESOURCE GROUP g RU_PER_SEC=5.", "near \"5.\"", "RU/s, or UNLIMITED, as plain digits"),
        ("CREATE RESOURCE GROUP g RU_PER_SEC='5'", "column 36", "a number of RU/s"),
        ("CREATE RESOURCE GROUP g RU_PER_SEC=5, RU_PER_SEC=6", "column 39", "given twice"),
        ("CREATE RESOURCE GROUP g RU_PER_SEC=5,", "column 38", "expected RU_PER_SEC"),
        (
            "CREATE RESOURCE GROUP g RU_PER_SEC=5 PRIORITY=HIGHT",
            "near \"HIGHT\"",
            "expected LOW, MEDIUM or HIGH",
        ),
        (
            "CREATE RESOURCE GROUP g RU_PER_SEC=5 EXEC_ELAPSED='5s'",
            "EXEC_ELAPSED",
            "belongs into QUERY_LIMIT",
        ),
        ("CREATE RESOURCE GROUP g RU_PER_SEC=5 BURSTABLE=5", "near \"5\"", "MODERATED, UNLIMITED, OFF"),
        ("CREATE RESOURCE GROUP a-b RU_PER_SEC=5", "near \"-\"", "write `a…`"),
        ("CREATE RESOURCE GROUP 'g' RU_PER_SEC=5", "column 23", "the name of a resource group"),
        ("CREATE RESOURCE GROUP g RU_PER_SEC=5 COMMENT='x", "column 46", "nterminated"),
        ("ALTER RESOURCE GROUP g TTL=5s", "column 28", "a duration such as '5s'"),
        ("ALTER RESOURCE GROUP g TTL='5'", "column 28", "is not a duration"),
        ("ALTER RESOURCE GROUP g WEIGHT=1.5", "near \"1.5\"", "a whole number"),
        ("ALTER RESOURCE GROUP g QUERY_LIMIT=5", "near \"5\"", "expected ("),
        ("ALTER RESOURCE GROUP g QUERY_LIMIT=)", "near \")\"", "expected ("),
        (
            "ALTER RESOURCE GROUP g QUERY_LIMIT=(5)",
            "near \"5\"",
            "expected EXEC_ELAPSED, RU, ROWS, ACTION or",
        ),
        ("ALTER RESOURCE GROUP g QUERY_LIMIT=(RU=5 ACTION=KILL,)", "near \")\"", "expected EXEC_ELAPSED"),
        ("ALTER RESOURCE GROUP g QUERY_LIMIT=RU=5, ACTION=KILL)", "near \")\"", "expected EXEC_ELAPSED"),
        ("ALTER RESOURCE GROUP g QUERY_LIMIT=(RU=5 RU=6 ACTION=KILL)", "near \"RU\"", "given twice"),
        ("ALTER RESOURCE GROUP g QUERY_LIMIT=(RU=0 ACTION=KILL)", "near \"0\"", "0 is no limit"),
        ("ALTER RESOURCE GROUP g QUERY_LIMIT=(EXEC_ELAPSED='0s' ACTION=KILL)", "0s", "longer than nothing"),
        (
            "ALTER RESOURCE GROUP g QUERY_LIMIT=(RU=5, ACTION=KIL)",
            "near \"KIL\"",
            "DRYRUN, COOLDOWN, KILL or",
        ),
        ("ALTER RESOURCE GROUP g QUERY_LIMIT=(RU=5, ACTION=SWITCH_GROUP)", "near \")\"", "expected ("),
        ("DROP RESOURCE GROUP IF g", "near \"g\"", "the end of the statement"),
        ("QUERY WATCH", "near \"\"", "expected ADD or REMOVE"),
        ("QUERY WATCH REMOVE x", "near \"x\"", "the number of a watch"),
        ("QUERY WATCH ADD RESOURCE GROUP g", "near \"\"", "SQL TEXT"),
        ("QUERY WATCH ADD SQL DIGEST 'abc'", "'abc'", "16 hexadecimal digits"),
        ("QUERY WATCH ADD SQL TEXT EXACT TO 'a; b'", "'a; b'", "one statement, not 2"),
        ("QUERY WATCH ADD SQL PLAIN TO 'a'", "near \"PLAIN\"", "expected TEXT or DIGEST"),
        ("QUERY WATCH ADD SQL TEXT EXACT TO 'a ''b'", "near \"'a", "in the statement: "),
        ("ALTER RESOURCE GROUP g PARENT=''", "column 31", "a group has a name; write it, or NULL"),
        ("ALTER RESOURCE GROUP g QUERY_LIMIT=(RU=5, ACTION=SWITCH_GROUP(x", "near \"\"", "expected )"),
        ("ALTER USER '' RESOURCE GROUP g", "column 12", "expected the name of a user"),
        ("ALTER USER ''@'%' RESOURCE GROUP g", "column 12", "expected the name of a user"),
        ("ALTER USER @localhost RESOURCE GROUP g", "near \"@localhost\"", "expected the name of a user"),
        ("ALTER USER CURRENT_USER RESOURCE GROUP g", "CURRENT_USER", "not a function"),
        ("ALTER USER Session_User() RESOURCE GROUP g", "near \"Session_User\"", "not a function"),
        ("ALTER USER user RESOURCE GROUP g", "near \"user\"", "not a function"),
        ("SELECT * FROM tidegate.usage WHERE", "near \"SELECT\"", "cannot read this query"),
        ("SELECT * FROM tidegate.usage) LIMIT 1", "near \"SELECT\"", "Expected: the end, found: )"),
        ("EXPLAIN RU EXPLAIN RU SELECT 1", "near \"EXPLAIN\"", "second EXPLAIN"),
    ] {
        let (message, code) = wrong(text, MySql);
        assert!(message.contains(place) && message.contains(part), "{text}: {message}");
        assert_eq!(code, Code::SYNTAX, "{text}");
    }
}

#[test]
fn what_stands_behind_a_statement_is_not_passed_over() {
    for text in [
        "DROP RESOURCE GROUP g",
        "SHOW CREATE RESOURCE GROUP g",
        "SHOW RESOURCE GROUP PROPOSAL g",
        "SHOW RESOURCE GROUPS",
        "SET RESOURCE GROUP g",
        "ALTER RESOURCE GROUP g APPLY PROPOSAL",
        "ALTER RESOURCE GROUP g WITHDRAW PROPOSAL",
        "QUERY WATCH REMOVE 17",
        "QUERY WATCH REMOVE RESOURCE GROUP g",
        "TRUNCATE TABLE tidegate.statements",
    ] {
        parse(text);
        let (message, code) = wrong(&format!("{text} FOR 5"), MySql);
        let place = format!("column {}, near \"FOR\": expected the end of the statement", text.len() + 2);
        assert!(code == Code::SYNTAX && message.contains(&place), "{text}: {message}");
    }
}

/// The names of groups in other quotes than the dialect's, whose quotes the error shows.
#[test]
fn a_name_that_needs_quotes_is_shown_in_those_of_the_dialect() {
    for (dialect, shown) in [(MySql, "write `a…`"), (PostgreSql, "write \"a…\""), (Generic, "write \"a…\"")]
    {
        let (message, code) = wrong("DROP RESOURCE GROUP a-b", dialect);
        assert!(code == Code::SYNTAX && message.contains(shown), "{message}");
    }
}

#[test]
fn what_is_not_built_says_so() {
    for (text, part) in [
        ("CALIBRATE RESOURCE WORKLOAD TPCC", "CALIBRATE RESOURCE"),
        ("ALTER RESOURCE GROUP g BACKGROUND=(TASK_TYPES='br')", "BACKGROUND"),
        ("ALTER RESOURCE GROUP g QUERY_LIMIT=(PROCESSED_KEYS=5, ACTION=KILL)", "PROCESSED_KEYS"),
        ("ALTER RESOURCE GROUP g QUERY_LIMIT=(RU=5, ACTION=KILL, WATCH=PLAN)", "PLAN"),
        ("QUERY WATCH ADD PLAN DIGEST 'x'", "PLAN"),
        ("QUERY WATCH ADD SQL TEXT PLAN TO 'x'", "PLAN"),
        ("CREATE USER ann RESOURCE GROUP g", "ALTER USER"),
        ("ALTER RESOURCE GROUP g QUERY_LIMIT=(ROWS=5)", "a QUERY_LIMIT without an ACTION"),
        ("ALTER RESOURCE GROUP g QUERY_LIMIT=(ACTION=KILL)", "a QUERY_LIMIT without a limit"),
        ("ALTER USER ann IDENTIFIED BY 'x' RESOURCE GROUP g", "another change beside RESOURCE GROUP"),
        ("ALTER USER ann RESOURCE GROUP g ACCOUNT LOCK", "another change beside RESOURCE GROUP"),
        ("ALTER USER a, b RESOURCE GROUP g", "another change beside RESOURCE GROUP"),
        ("ALTER USER ann@'10.0.0.1' RESOURCE GROUP g", "a user of one host (10.0.0.1)"),
        ("ALTER USER 'bob'@'10.0.0.%' RESOURCE GROUP g", "a user of one host (10.0.0.%)"),
        ("ALTER USER bob@'%%' RESOURCE GROUP g", "a user of one host (%%)"),
        ("QUERY WATCH ADD RESOURCE GROUP @g SQL TEXT SIMILAR TO 'x'", "the variable @g"),
        ("QUERY WATCH ADD SQL TEXT EXACT TO @text", "the variable @text"),
        ("QUERY WATCH ADD SQL DIGEST @digest", "the variable @digest"),
        ("QUERY WATCH REMOVE RESOURCE GROUP @g", "the variable @g"),
        ("SELECT CURRENT_RESOURCE_GROUP(), ?", "write the values"),
        ("DELETE FROM tidegate.statements WHERE calls = 1", "TRUNCATE TABLE tidegate.statements"),
        ("UPDATE tidegate.usage SET ru = 0", "a change of tidegate.usage"),
        ("INSERT INTO tidegate.bindings VALUES ('a')", "a change of tidegate.bindings"),
        ("REPLACE INTO tidegate.bindings VALUES ('a')", "a change of tidegate.bindings"),
        ("TRUNCATE tidegate.usage", "a change of tidegate.usage"),
        ("SELECT * FROM tidegate.usage WHERE ru > ?", "write the values"),
        ("EXPLAIN RU SHOW RESOURCE GROUPS", "costs no RU"),
        (
            "SELECT * FROM tidegate.usage, orders",
            "tidegate.usage is kept by tidegate and orders by the database",
        ),
        ("SELECT * FROM a.b WHERE g IN (SELECT resource_group FROM tidegate.usage)", "a.b by the database"),
        ("SELECT CURRENT_RESOURCE_GROUP() FROM orders", "CURRENT_RESOURCE_GROUP()"),
    ] {
        let (message, code) = wrong(text, MySql);
        assert!(message.contains(part), "{text}: {message}");
        assert_eq!(code, Code::UNSUPPORTED, "{text}");
    }
}

#[test]
fn one_of_several_is_sent_alone() {
    let long = format!("SET RESOURCE GROUP {}", "x".repeat(64));
    let cut = format!("SET RESOURCE GROUP {}…", "x".repeat(41));
    for (text, named) in [
        ("SELECT 1; SET RESOURCE GROUP x", "SET RESOURCE GROUP x"),
        ("SET RESOURCE GROUP x; SELECT 1;", "SET RESOURCE GROUP x"),
        ("SHOW RESOURCE GROUPS; SHOW RESOURCE GROUPS", "SHOW RESOURCE GROUPS"),
        ("SELECT 1; SELECT * FROM tidegate.usage", "SELECT * FROM tidegate.usage"),
        ("BEGIN; ALTER USER a RESOURCE GROUP x", "ALTER USER a RESOURCE GROUP x"),
        ("SELECT 1; CREATE RESOURCE GROUP", "CREATE RESOURCE GROUP"),
        ("DROP PROCEDURE p; SET RESOURCE GROUP x", "SET RESOURCE GROUP x"),
        ("CREATE TABLE p (a int); SET RESOURCE GROUP x", "SET RESOURCE GROUP x"),
        ("CREATE TABLE `procedure` (a int); SET RESOURCE GROUP x", "SET RESOURCE GROUP x"),
        (&format!("SELECT 1; {long}"), &cut),
    ] {
        let (message, code) = wrong(text, MySql);
        assert_eq!(
            message,
            format!(
                "a text with several statements holds one for tidegate: {named:?}; send that alone, since the \
                 others go to the database"
            ),
            "{text}"
        );
        assert_eq!(code, Code::SYNTAX);
    }
}

#[test]
fn places_are_those_of_the_characters() {
    let text = "/* ä */ CREATE RESOURCE GROUP g\n RU_PER_SEC = é";
    let error = Statement::parse(text, PostgreSql).unwrap_err();
    assert_eq!(error.position(), Some(text.chars().count()), "{error}");
}

#[test]
fn long_texts_are_refused_or_passed_on() {
    let comment = "x".repeat(crate::statement::MAX_TEXT);
    let (message, _) = wrong(&format!("SET RESOURCE GROUP g /* {comment} */"), MySql);
    assert!(message.contains("bytes"), "{message}");
    let text = format!("SELECT '{comment}' FROM tidegate.usage");
    assert_eq!(Statement::parse(&text, MySql), Ok(None));
}

mod begins;
mod forms;
