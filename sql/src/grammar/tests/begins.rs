//! Where a statement begins behind comments.

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
