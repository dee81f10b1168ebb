//! Where a statement begins behind comments, and where a query ends that reads no table.

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
}
