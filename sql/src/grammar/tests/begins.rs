//! Where a statement begins behind comments, where a query ends that reads no table, and what is at a limit or said
//! twice.

use super::*;

/// PostgreSQL's comments hold others, MySQL's end at the first end.
#[test]
fn a_statement_begins_behind_a_comment_in_a_comment_as_the_dialect_says() {
    for begin in ["/* /* */ select 1 */", "/* /* x */ (*/", "/* /* */ with */ -- /*\n"] {
        let text = format!("{begin} SET RESOURCE GROUP shop");
        let read = Statement::parse(&text, PostgreSql).unwrap();
        assert_eq!(read, Some(Statement::SetGroup { name: "shop".into() }), "{text}");
        assert_eq!(Statement::parse(&text, MySql), Ok(None), "{text}");
    }
}

#[test]
fn dual_is_no_table_in_whatever_case_and_wherever_a_query_of_it_ends() {
    for (text, read) in [
        ("select current_resource_group(), 1 from Dual", "select current_resource_group(), 1"),
        (
            "select current_resource_group(), 1 from Dual limit 1",
            "select current_resource_group(), 1 limit 1",
        ),
        (
            "select (select 1 from dual), current_resource_group() from dual where 1",
            "select (select 1 ), current_resource_group() where 1",
        ),
        ("select `from` dual, current_resource_group()", "select \"from\" dual, current_resource_group()"),
    ] {
        let Statement::Select(select) = parse(text) else { panic!("{text}") };
        assert_eq!((select.text(), select.tables()), (read, &[][..]));
    }
    for text in [
        "select 1, current_resource_group() dual",
        "select dual.ru from tidegate.usage dual where dual.ru > 1",
        "select max(ru) dual from tidegate.usage",
    ] {
        let Statement::Select(select) = parse(text) else { panic!("{text}") };
        assert_eq!(select.text(), text, "a name of another thing");
    }
}

/// Names without quotes are the same in whatever case, those of a `WITH` as well.
#[test]
fn what_a_query_of_ours_defines_itself_is_no_table_of_the_database_in_whatever_case() {
    for text in [
        "WITH Top AS (SELECT ru FROM tidegate.usage) SELECT * FROM Top",
        "WITH top AS (SELECT ru FROM tidegate.usage) SELECT * FROM TOP t JOIN Top u ON t.ru = u.ru",
        "WITH A AS (SELECT ru FROM Tidegate.USAGE), B AS (SELECT ru FROM a) SELECT * FROM b",
        "SELECT * FROM (WITH Inner1 AS (SELECT ru FROM tidegate.usage) SELECT * FROM inner1) t",
    ] {
        for dialect in [MySql, PostgreSql, Generic] {
            let read = Statement::parse(text, dialect).unwrap();
            let Some(Statement::Select(select)) = read else { panic!("{text}: {read:?}") };
            assert_eq!(select.tables(), [VirtualTable::Usage], "{text}");
        }
    }
    let (message, code) = wrong("WITH Top AS (SELECT 1) SELECT * FROM tidegate.usage, top, Orders", MySql);
    assert!(code == Code::UNSUPPORTED && message.contains("orders"), "{message}");
}

#[test]
fn a_text_of_as_many_bytes_as_are_read_is_read() {
    let text = |bytes: usize| {
        let statement = "SET RESOURCE GROUP shop /*";
        format!("{statement}{}*/", "x".repeat(bytes - statement.len() - 2))
    };
    let most = crate::statement::MAX_TEXT;
    assert_eq!(parse(&text(most)), Statement::SetGroup { name: "shop".into() });
    let (message, code) = wrong(&text(most + 1), MySql);
    assert!(code == Code::FULL && message.contains(&most.to_string()), "{message}");
}

#[test]
fn a_watch_says_once_how_long_it_lasts_for_ever_as_well() {
    for twice in ["DURATION '5m' DURATION UNLIMITED", "DURATION UNLIMITED, DURATION '5m'"] {
        let (message, code) = wrong(&format!("QUERY WATCH ADD SQL DIGEST 00000000000000ab {twice}"), MySql);
        assert!(code == Code::SYNTAX && message.contains("given twice"), "{twice}: {message}");
    }
}

#[test]
fn a_change_names_each_field_once_where_a_way_to_burst_ends_its_limit() {
    for options in ["BURSTABLE=OFF BURST_RU_PER_SEC=DEFAULT", "BURST_RU_PER_SEC=DEFAULT BURSTABLE=UNLIMITED"]
    {
        let (_, mut fields) = altered(options);
        fields.sort_unstable();
        assert_eq!(fields, ["burst_ru_per_sec", "burstable"], "{options}");
    }
}
