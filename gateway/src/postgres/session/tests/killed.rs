//! Runaways that go on.

use super::*;
use crate::govern::tests::ruled;

/// A statement runs, and its client has some of its rows.
async fn gives_rows(talk: &mut Talk) {
    talk.asks(&query("select 1")).await;
    let rows = message(b'D', b"\0\0").repeat(20);
    talk.server.write_all(&rows).await.unwrap();
    hears(&mut talk.client, &rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runaway_that_goes_on_is_interrupted_three_times_and_then_loses_its_client() {
    let scene = Scene::new(&ruled("kill"), false).await;
    let mut talk = scene.talk().await;
    gives_rows(&mut talk).await;
    let Talk { mut client, mut server, session } = talk;
    for _ in 0..3 {
        drop(scene.interrupt().await);
    }
    let told = rest(&mut client).await;
    assert!(told.starts_with(b"E") && told.windows(5).any(|field| field == b"FATAL"), "{told:?}");
    assert!(String::from_utf8_lossy(&told).contains("runaway of resource group own"));
    // What it goes on with is charged to its end, and it is asked for that.
    drop(scene.interrupt().await);
    server.write_all(&message(b'D', &[b'x'; 100_000])).await.unwrap();
    server.write_all(&done("SELECT 21")).await.unwrap();
    assert!(rest(&mut server).await.is_empty());
    assert!(matches!(Talk::end(session).await, Some(End::Runaway(_))));
    assert!(scene.group.consumption().usage.net_out_bytes > 100_000);
}

/// As when a server has no room for another connection just then.
#[tokio::test(flavor = "multi_thread")]
async fn a_runaway_is_interrupted_again_when_the_request_for_that_failed() {
    let scene = Scene::new(&ruled("kill"), false).await;
    let mut talk = scene.talk().await;
    gives_rows(&mut talk).await;
    let (asks, _) = soon("the server is asked", scene.listener.accept()).await.unwrap();
    // What is closed with something unread is broken off.
    soon("it has come", asks.readable()).await.unwrap();
    drop(asks);
    drop(scene.interrupt().await);
    let error = message(b'E', b"SERROR\0C57014\0\0");
    talk.server.write_all(&[&error[..], READY].concat()).await.unwrap();
    let said = unit(&mut talk.client).await;
    assert!(String::from_utf8_lossy(&said).contains("runaway of resource group own"));
    talk.asks(&query("select 2")).await;
}

/// The error of a runaway replaces the server's, and the next statement is another.
#[tokio::test(flavor = "multi_thread")]
async fn a_runaway_that_ends_leaves_its_session_usable() {
    let scene = Scene::new(&ruled("kill"), false).await;
    let mut talk = scene.talk().await;
    gives_rows(&mut talk).await;
    let asks = scene.interrupt().await;
    // Nothing of the client's passes while the request may hit it.
    talk.client.write_all(&query("select 2")).await.unwrap();
    let error = message(b'E', b"SERROR\0C57014\0Mcanceling statement\0\0");
    talk.server.write_all(&[&error[..], READY].concat()).await.unwrap();
    let said = unit(&mut talk.client).await;
    assert!(String::from_utf8_lossy(&said).contains("runaway of resource group own"));
    let early = timeout(LATER, talk.server.read_u8()).await;
    assert!(early.is_err(), "the server gets the next statement before the request is done");
    drop(asks);
    hears(&mut talk.server, &query("select 2")).await;
    talk.server.write_all(&[&error[..], READY].concat()).await.unwrap();
    hears(&mut talk.client, &[&error[..], READY].concat()).await;
}

/// There is no other way to end it than to send its client away.
#[tokio::test(flavor = "multi_thread")]
async fn a_runaway_of_a_server_that_gave_no_key_loses_its_client() {
    let scene = Scene::new(&ruled("kill"), false).await;
    let mut talk = scene.welcomed(b"").await;
    gives_rows(&mut talk).await;
    let Talk { mut client, server, session } = talk;
    let told = rest(&mut client).await;
    assert!(String::from_utf8_lossy(&told).contains("runaway of resource group own"), "{told:?}");
    drop(server);
    assert!(matches!(Talk::end(session).await, Some(End::Runaway(_))));
    assert_eq!(scene.ended("failed"), 1);
}

/// Else the request for the end of one that has ended hits the next.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_behind_a_runaway_that_has_ended_is_not_interrupted() {
    let scene = Scene::new(&ruled("kill"), false).await;
    let mut talk = scene.talk().await;
    gives_rows(&mut talk).await;
    drop(scene.interrupt().await);
    let ends = [&message(b'E', b"SERROR\0C57014\0\0")[..], READY].concat();
    talk.server.write_all(&ends).await.unwrap();
    unit(&mut talk.client).await;
    talk.asks(&query("select 2")).await;
    // Longer than a second, after which the server would be asked again.
    let again = timeout(Duration::from_millis(1_500), scene.listener.accept()).await;
    assert!(again.is_err(), "{again:?}");
    talk.server.write_all(&ends).await.unwrap();
    hears(&mut talk.client, &ends).await;
}
