//! What a statement leaves behind: the diagnostics of the gateway's own answers, and an open transaction.

use tidegate_client::{Ru, RuParts};
use tidegate_sql::Naming;

use super::*;

/// An OK with an open transaction.
const BEGUN: &[u8] = b"\x00\x00\x00\x03\x00\x00\x00";

impl Talk {
    /// A statement of the gateway's own leaves a note, which it shows.
    async fn leaves_a_note(&mut self) {
        self.client.write_all(&command(3, "drop resource group if exists nothing")).await.unwrap();
        // Done, with a warning.
        heard(&mut self.client, packet(1, OK).len()).await;
        self.answers("show warnings", "nothing does not exist").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn diagnostics_of_the_gateway_end_with_what_the_server_does_next() {
    let prepared: &[u8] = &[0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let unsupported: &[u8] = b"\xff\x0f\x05#HY000no";
    let stage = Stage::new().await;
    let mut talk = Talk::new(&stage).await;
    for (next, answer) in [
        (command(3, "select 1"), OK),
        (command(31, ""), OK),
        (command(17, "root\0\0shop\0"), OK),
        (command(22, "select 1"), prepared),
        (command(22, "select"), unsupported),
        // MySQL prepares no such question, and has an error then.
        (command(22, "show warnings"), unsupported),
    ] {
        talk.leaves_a_note().await;
        talk.passes(next, answer).await;
        talk.passes(command(3, "show warnings"), OK).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_gateway_refuses_leaves_its_error_until_the_next_statement() {
    let stage = Stage::new().await;
    let mut talk = Talk::new(&stage).await;
    talk.client.write_all(&command(3, "drop resource group nowhere")).await.unwrap();
    let length = heard(&mut talk.client, 4).await[0];
    let error = heard(&mut talk.client, usize::from(length)).await;
    assert!(error[0] == 0xff && String::from_utf8_lossy(&error).contains("nowhere"), "{error:?}");
    talk.answers("show errors", "nowhere").await;
    talk.leaves_a_note().await;
}

/// It would wait for ever for a group in debt, and keep the locks of its transaction.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_transaction_that_is_sent_behind_its_beginning_does_not_wait_for_its_group() {
    let stage = Stage::new().await;
    let group = stage.group("own", "").await;
    let mut talk = Talk::new(&stage).await;
    talk.client.write_all(&command(3, "set resource group own")).await.unwrap();
    heard(&mut talk.client, packet(1, OK).len()).await;
    let (begin, commit) = (command(3, "begin"), command(3, "commit"));
    talk.client.write_all(&begin).await.unwrap();
    assert_eq!(heard(&mut talk.server, begin.len()).await, begin);
    group.charge_ru(RuParts::flat(Ru::whole(1_000_000)));
    eventually("it owes", || group.remaining().is_some_and(|left| !left.is_positive())).await;
    talk.client.write_all(&commit).await.unwrap();
    // Time to ask the group too early.
    tokio::time::sleep(LATER).await;
    talk.server.write_all(&packet(1, BEGUN)).await.unwrap();
    assert_eq!(heard(&mut talk.server, commit.len()).await, commit);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_is_not_seen_to_its_end_may_have_changed_any_name() {
    let stage = Stage::new().await;
    let renames = |whole| {
        let (sql, command) = (&b"select 1"[..], Command::Query);
        let statement = step::Statement { number: 1, command, sql, whole, template: None, explained: false };
        Asked::of(&stage.governor, &statement).renames(true)
    };
    assert!(matches!(renames(false), Some(Naming::ForgetAll)));
    assert!(renames(true).is_none());
}

/// What came before may give the name to another statement, or change what is a string.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_about_names_waits_for_what_was_sent_before_it() {
    let stage = Stage::new().await;
    let mut talk = Talk::new(&stage).await;
    let (first, second) = (command(3, "prepare s from 'select 1'"), command(3, "execute s"));
    talk.client.write_all(&[&first[..], &second].concat()).await.unwrap();
    assert_eq!(heard(&mut talk.server, first.len()).await, first);
    let early = timeout(LATER, talk.server.read_u8()).await;
    assert!(early.is_err(), "{early:?}");
    talk.server.write_all(&packet(1, OK)).await.unwrap();
    assert_eq!(heard(&mut talk.server, second.len()).await, second);
    // Where neither is about names, nothing waits.
    let both = command(3, "select 1").repeat(2);
    talk.server.write_all(&packet(1, OK)).await.unwrap();
    talk.client.write_all(&both).await.unwrap();
    assert_eq!(heard(&mut talk.server, both.len()).await, both);
}
