//! Texts of both dialects, and what they say of names.

use proptest::prelude::*;

use super::*;

fn read(text: &str, dialect: SqlDialect) -> Option<Naming<String>> {
    Naming::parse(text.as_bytes(), dialect, true)
}

fn postgres(text: &str) -> Option<Naming<String>> {
    read(text, SqlDialect::PostgreSql)
}

fn mysql(text: &str) -> Option<Naming<String>> {
    read(text, SqlDialect::MySql)
}

fn prepare(name: &str, statement: &str) -> Option<Naming<String>> {
    let statement = (!statement.is_empty()).then(|| statement.to_owned());
    Some(Naming::Prepare { name: name.to_owned(), statement })
}

fn execute(name: &str) -> Option<Naming<String>> {
    Some(Naming::Execute { name: name.to_owned() })
}

fn forget(name: &str) -> Option<Naming<String>> {
    Some(Naming::Forget { name: name.to_owned() })
}

#[test]
fn what_postgresql_prepares_is_the_text_behind_as() {
    for (text, name, statement) in [
        ("PREPARE p AS select 1", "p", "select 1"),
        (" /* a /* b */ */ prepare P(int, numeric(10, 2)) as\n select $1 ; -- c", "p", "select $1"),
        ("prepare \"P \"\"x\" as values (';', $$;$$, E'\\';')", "P \"x", "values (';', $$;$$, E'\\';')"),
        ("prepare p as /*+ RESOURCE_GROUP(g) */ select 'ä'", "p", "/*+ RESOURCE_GROUP(g) */ select 'ä'"),
        ("prepare as as select 1", "as", "select 1"),
    ] {
        assert_eq!(postgres(text), prepare(name, statement), "{text}");
    }
    let long = "x".repeat(62);
    assert_eq!(postgres(&format!("prepare {long}é as select 1")), prepare(&long, "select 1"));
    assert_eq!(postgres(&format!("execute {long}yz")), execute(&format!("{long}y")));
}

#[test]
fn what_postgresql_runs_and_gives_up_is_named() {
    assert_eq!(postgres("execute p"), execute("p"));
    assert_eq!(postgres("EXECUTE \"P\" (1, ';');;"), execute("P"));
    assert_eq!(postgres("deallocate P"), forget("p"));
    assert_eq!(postgres("deallocate prepare p;"), forget("p"));
    assert_eq!(postgres("deallocate prepare"), forget("prepare"));
    assert_eq!(postgres("deallocate \"all\""), forget("all"));
    for text in ["deallocate all", "DEALLOCATE PREPARE ALL"] {
        assert_eq!(postgres(text), Some(Naming::ForgetAll), "{text}");
    }
}

#[test]
fn what_mysql_prepares_is_a_string_without_quotes_and_escapes() {
    for (text, name, statement) in [
        ("PREPARE s FROM 'select 1'", "s", "select 1"),
        ("# c\nprepare `S x` from \"select ';', \"\"a\"\"\";", "s x", "select ';', \"a\""),
        ("prepare s from 'select ''a'', \\'b\\\\\\'\\n, \\x, \\%'", "s", "select 'a', 'b\\'\n, x, \\%"),
        ("prepare s from 'select' \" 1\"", "s", "select 1"),
        ("prepare s from @a", "s", ""),
        ("prepare s from concat('select ', 1)", "s", ""),
        ("prepare s from 'select 1' + 1", "s", ""),
    ] {
        assert_eq!(mysql(text), prepare(name, statement), "{text}");
    }
}

#[test]
fn what_mysql_runs_and_gives_up_is_named() {
    for text in ["execute S", "EXECUTE `s` USING @a, @b;"] {
        assert_eq!(mysql(text), execute("s"), "{text}");
    }
    for text in ["execute immediate", "execute Immediate using @a"] {
        assert_eq!(mysql(text), execute("immediate"), "{text}");
    }
    for text in ["execute immediate 'select ?' using 1", "EXECUTE IMMEDIATE 'select' ' ?'"] {
        assert_eq!(mysql(text), Some(Naming::Immediate { statement: "select ?".into() }), "{text}");
    }
    for text in ["deallocate prepare s", "DROP PREPARE `S`"] {
        assert_eq!(mysql(text), forget("s"), "{text}");
    }
}

#[test]
fn what_is_read_in_more_than_one_way_says_nothing() {
    for text in [
        "",
        "select 1",
        "prepare",
        "prepare p",
        "prepare p as",
        "prepare p as select 1; execute p",
        "prepare p (int as select 1",
        "prepare p as select 'open",
        "prepare transaction 'x'",
        "prepare \"\" as select 1",
        "execute",
        "execute p q",
        "explain execute p",
        "create table t as execute p",
        "deallocate",
        "deallocate p q",
        "deallocate all p",
    ] {
        assert_eq!(postgres(text), None, "{text}");
    }
    for text in [
        "prepare s from 'select 1'; select 2",
        "prepare s from 'open",
        "prepare é from 'select 1'",
        "prepare `s ` from 'select 1'",
        "prepare s /*!50000 from 'select 1' */",
        "prepare s from 'select \\f'",
        "execute s s",
        "execute immediate concat('a', 'b')",
        "execute immediate 'a' + 'b'",
        "deallocate s",
        "drop table s",
    ] {
        assert_eq!(mysql(text), None, "{text}");
    }
    // Without escapes the text is another than the tokenizer's, be it one or none.
    for escaped in [&b"prepare s from 'select \\'"[..], b"prepare s from 'select \\n 1'"] {
        assert_eq!(Naming::parse(escaped, SqlDialect::MySql, false), None);
    }
    assert_eq!(Naming::parse(b"execute \xff", SqlDialect::MySql, true), None);
}

#[test]
fn ordinary_statements_are_told_by_their_first_word() {
    for text in
        ["select 1", "delete prepare", "EXPLAIN SELECT 1", "drop table t", "", "--", "/* execute", "(p)"]
    {
        assert!(!may_name(text.as_bytes()), "{text}");
    }
    for text in ["\n execute p", "-- x\nDROP /* y */ PREPARE p", "Deallocate p", "PREPARE"] {
        assert!(may_name(text.as_bytes()), "{text}");
    }
}

#[test]
fn what_may_rename_in_passing_is_told_by_its_words() {
    for text in
        ["CALL p()", "SELECT ?; prepare s FROM ?", "BEGIN NOT ATOMIC EXECUTE s; END", &"x".repeat(8_192)]
    {
        assert!(may_rename(text), "{text}");
    }
    for text in ["", "SELECT ? FROM calls", "UPDATE t SET prepared = ?", "SELECT call_id, _execute FROM t"] {
        assert!(!may_rename(text), "{text}");
    }
}

#[test]
fn a_name_stays_what_it_is_whatever_becomes_of_its_statement() {
    let name = || "p".to_owned();
    let statement = "select 1".to_owned();
    for (text, expected) in [
        ("prepare p as select 1", Naming::Prepare { name: name(), statement: Some(8) }),
        ("execute p", Naming::Execute { name: name() }),
        ("deallocate p", Naming::Forget { name: name() }),
        ("deallocate all", Naming::ForgetAll),
    ] {
        assert_eq!(postgres(text).map(|naming| naming.map(|text| text.len())), Some(expected), "{text}");
    }
    let immediate = Naming::Immediate { statement }.map(|text| text.len());
    assert_eq!(immediate, Naming::Immediate { statement: 8 });
    let unknown: Naming<String> = Naming::Prepare { name: name(), statement: None };
    assert_eq!(unknown.map(|text| text.len()), Naming::Prepare { name: name(), statement: None });
}

proptest! {
    /// Names and texts come out as they were put in, whatever is in them.
    #[test]
    fn what_is_quoted_comes_out_as_it_was(name in "[a-z;'\"` é]{1,20}", statement in "[a-z0-9;'\"\\\\ ä\n]{1,40}") {
        let quoted = name.replace('"', "\"\"");
        let text = format!("prepare \"{quoted}\" as select $q${statement}$q$");
        prop_assert_eq!(postgres(&text), prepare(&name, &format!("select $q${statement}$q$")));
        prop_assert_eq!(postgres(&format!("execute \"{quoted}\"")), execute(&name));
        let escaped = statement.replace('\\', "\\\\").replace('\'', "''");
        let text = format!("prepare s from '{escaped}'");
        if !READ_OTHERWISE.iter().any(|letter| text.contains(letter)) {
            prop_assert_eq!(mysql(&text), prepare("s", &statement));
        }
    }

    /// Nothing panics, and an unclear text is not read.
    #[test]
    fn any_text_is_survived(
        words in prop::collection::vec("(?i)prepare|execute|deallocate|drop|immediate|all|from|as|p|'q;'|\"r\"|[(;,@`'/*-]|\\PC", 0..12),
        mysql in any::<bool>(),
        escapes in any::<bool>(),
    ) {
        let dialect = if mysql { SqlDialect::MySql } else { SqlDialect::PostgreSql };
        let text = words.join(" ");
        let naming = Naming::parse(text.as_bytes(), dialect, escapes);
        prop_assert!(naming.is_none() || may_name(text.as_bytes()));
    }
}
