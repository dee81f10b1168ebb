//! The diagnostics of the gateway's own answers, as clients ask for them.

use std::process::Command;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Statement};
use tidegate_test_servers::ROOT;

use super::stage::{Stage, error, ruled, value};
use crate::common::says;

async fn shown(session: &mut Conn, question: &str) -> Vec<(String, u16, String)> {
    session.query(question).await.unwrap()
}

/// Level and code of each.
pub(super) async fn warnings(session: &mut Conn) -> Vec<(String, u16)> {
    shown(session, "show warnings").await.into_iter().map(|(level, code, _)| (level, code)).collect()
}

pub(super) fn one(level: &str, code: u16) -> Vec<(String, u16)> {
    vec![(level.to_owned(), code)]
}

#[tokio::test(flavor = "multi_thread")]
async fn warnings_are_those_of_the_last_statement_of_server_or_gateway() {
    let stage = Stage::new().await;
    let mut admin = stage.admin().await;
    admin.query_drop("select cast('x' as int)").await.unwrap();
    assert_eq!(warnings(&mut admin).await, one("Warning", 1292), "the server's");
    admin.query_drop("create resource group g ru_per_sec = 5").await.unwrap();
    assert_eq!(admin.get_warnings(), 0);
    assert_eq!(warnings(&mut admin).await, [], "what the server said before is of another statement");
    admin.query_drop("create resource group if not exists g ru_per_sec = 7").await.unwrap();
    assert_eq!(admin.get_warnings(), 1);
    for question in ["show warnings", "/* app */ SHOW WARNINGS LIMIT 1;", "show warnings limit 0, 5"] {
        let shown = shown(&mut admin, question).await;
        let [(level, code, message)] = shown.as_slice() else { panic!("{shown:?}") };
        assert_eq!((level.as_str(), *code), ("Note", 8248));
        assert!(message.contains("g exists already"), "{message}");
    }
    assert_eq!(shown(&mut admin, "show errors").await, []);
    assert_eq!(value::<u32>(&mut admin, "show count(*) warnings").await, 1);
    assert_eq!(value::<u32>(&mut admin, "select @@warning_count").await, 1);
    assert_eq!(value::<u32>(&mut admin, "select @@error_count").await, 0);
    admin.exec_drop("drop resource group if exists nothing", ()).await.unwrap();
    assert_eq!((admin.get_warnings(), warnings(&mut admin).await), (1, one("Note", 8249)));
    // Errors are among them.
    assert_eq!(error(admin.query_drop("create resource group g ru_per_sec = 7").await).0, 8248);
    assert_eq!(warnings(&mut admin).await, one("Error", 8248));
    assert_eq!(value::<u32>(&mut admin, "show count(*) errors").await, 1);
    // And the server's again, which are those of the last statement that reads a table.
    admin.query_drop("select count(*) from seq_1_to_2").await.unwrap();
    assert_eq!(warnings(&mut admin).await, []);
    assert!(admin.query_drop("select nothing").await.is_err());
    assert_eq!(warnings(&mut admin).await, one("Error", 1054));
}

/// Level and code of each, over the binary protocol.
async fn told(session: &mut Conn, question: &Statement) -> Vec<(String, u16)> {
    let rows: Vec<(String, u16, String)> = session.exec(question, ()).await.unwrap();
    rows.into_iter().map(|(level, code, _)| (level, code)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_question_about_warnings_is_answered_by_whom_the_statement_was() {
    let stage = Stage::new().await;
    let admin = &mut stage.admin().await;
    let question = admin.prep("show warnings").await.unwrap();
    let counts = admin.prep("select @@warning_count, @@error_count").await.unwrap();
    assert_eq!(told(admin, &question).await, []);
    admin.query_drop("create resource group g ru_per_sec = 5").await.unwrap();
    for _ in 0..2 {
        admin.query_drop("create resource group if not exists g ru_per_sec = 7").await.unwrap();
        for _ in 0..2 {
            assert_eq!(told(admin, &question).await, one("Note", 8248));
            assert_eq!(admin.exec_first(&counts, ()).await.unwrap(), Some((1, 0)));
        }
        // The columns of the gateway's answers, which clients keep, are the server's.
        admin.query_drop("drop table if exists nowhere").await.unwrap();
        assert_eq!(told(admin, &question).await, one("Note", 1051));
    }
    admin.query_drop("drop resource group if exists nothing").await.unwrap();
    // Preparing a question asks nothing yet.
    let errors = admin.prep("/* app */ SHOW ERRORS;").await.unwrap();
    assert_eq!(told(admin, &errors).await, []);
    assert_eq!(told(admin, &question).await, one("Note", 8249));
    assert_eq!(error(admin.query_drop("drop resource group nothing").await).0, 8249);
    assert_eq!(told(admin, &question).await, one("Error", 8249));
    assert_eq!(told(admin, &errors).await, one("Error", 8249));
    assert_eq!(admin.exec_first(&counts, ()).await.unwrap(), Some((1, 1)));
    assert!(admin.query_drop("select nothing").await.is_err());
    assert_eq!(told(admin, &errors).await, one("Error", 1054));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runaway_and_a_refused_statement_leave_the_error_that_was_told() {
    let stage = Stage::new().await;
    let (_admin, mut ann) = ruled(&stage, "exec_elapsed = '300ms', action = kill").await;
    assert_eq!(error(ann.query_drop("select sleep(60)").await).0, 8253);
    assert_eq!(warnings(&mut ann).await, one("Error", 8253));
    assert_eq!(error(ann.query_drop("create resource group mine ru_per_sec = 1").await).0, 1227);
    assert_eq!(warnings(&mut ann).await, one("Error", 1227));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_mariadb_client_shows_the_notes_of_the_gateway() {
    let stage = Stage::new().await;
    drop(stage.admin().await);
    let (user, password) = ROOT;
    let mut client = Command::new("mariadb");
    client.args(["--no-defaults", "-h127.0.0.1", "--show-warnings", "--force", "-vvv"]);
    client.args([&format!("-u{user}"), &format!("-p{password}"), &format!("-P{}", stage.port()), "shop"]);
    let script = b"drop resource group if exists nothing; drop resource group nothing; select 40 + 2;";
    let said = tokio::task::block_in_place(|| String::from_utf8(says(&mut client, script)).unwrap());
    assert!(said.contains("0 rows affected, 1 warning"), "{said}");
    assert!(said.contains("Note (Code 8249): ") && said.contains("nothing does not exist"), "{said}");
    assert!(said.contains("ERROR 8249 (HY000)") && said.matches("(Code ").count() == 1, "{said}");
}
