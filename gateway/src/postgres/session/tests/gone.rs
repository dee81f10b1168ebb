//! Clients, servers and gateways that go away in the middle of something.

use super::*;

/// Else a statement of hours goes on for a client that is gone, as one behind it waits for its end.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_closes_is_noticed_though_its_next_statement_waits_for_the_one_before_it() {
    let scene = Scene::new("", true).await;
    let mut talk = scene.talk().await;
    talk.asks(&query("select hours")).await;
    scene.owes().await;
    let Talk { mut client, mut server, session } = talk;
    client.write_all(&query("select behind")).await.unwrap();
    drop(client);
    drop(scene.interrupt().await);
    server.write_all(&message(b'E', b"C57014\0\0")).await.unwrap();
    server.write_all(READY).await.unwrap();
    assert!(rest(&mut server).await.is_empty(), "what waited has left the queue");
    assert!(matches!(Talk::end(session).await, Some(End::Client)));
    assert_eq!((scene.ended("ok"), scene.ended("failed")), (0, 1));
}

/// The server comes to it later, and works for the client that is gone.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_has_behind_a_unit_that_needed_no_admission_is_ended_and_charged() {
    let scene = Scene::new("", true).await;
    let mut talk = scene.talk().await;
    let parse = [message(b'P', b"p\0select from locked\0\0\0"), message(b'S', b"")].concat();
    talk.asks(&[parse, query("select hours")].concat()).await;
    let Talk { client, mut server, session } = talk;
    drop(client);
    // It is asked again until it has come to the end of all.
    drop(scene.interrupt().await);
    server.write_all(&[&message(b'1', b""), READY].concat()).await.unwrap();
    drop(scene.interrupt().await);
    let rows = message(b'D', &[b'x'; 1_000]).repeat(100);
    server.write_all(&rows).await.unwrap();
    server.write_all(&message(b'E', b"C57014\0\0")).await.unwrap();
    server.write_all(READY).await.unwrap();
    assert!(rest(&mut server).await.is_empty());
    assert!(matches!(Talk::end(session).await, Some(End::Client)));
    assert_eq!(scene.ended("failed"), 1);
    let consumed = scene.group.consumption();
    assert_eq!((consumed.operations, consumed.usage.net_out_bytes > 100_000), (1, true), "{consumed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_whose_server_goes_away_has_failed() {
    let scene = Scene::new("", false).await;
    let mut talk = scene.talk().await;
    talk.asks(&query("select 1")).await;
    let row = message(b'D', &[b'x'; 100_000]);
    let Talk { mut client, mut server, session } = talk;
    server.write_all(&row).await.unwrap();
    drop(server);
    // What it said before still comes.
    assert_eq!(rest(&mut client).await.len(), row.len());
    assert!(matches!(Talk::end(session).await, Some(End::Server)));
    assert_eq!((scene.ended("ok"), scene.ended("failed")), (0, 1));
    assert!(scene.group.consumption().usage.net_out_bytes >= 100_000, "it is charged");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_gets_all_of_a_result_though_the_gateway_shuts_down() {
    let scene = Scene::new("", false).await;
    let mut talk = scene.talk().await;
    talk.asks(&query("select 1")).await;
    let result = [message(b'D', &[b'x'; 50_000]), done("SELECT 1")].concat();
    talk.server.write_all(&result).await.unwrap();
    eventually("the server has ended it", || scene.ended("ok") == 1).await;
    scene.closing.send_replace(true);
    tokio::time::sleep(LATER).await;
    let Talk { mut client, server: _server, session } = talk;
    let heard = rest(&mut client).await;
    assert!(heard.starts_with(&result), "it is cut off after {} bytes", heard.len());
    assert!(heard[result.len()..].windows(7).any(|field| field == b"C57P01\0"), "and is told why it ends");
    assert!(matches!(Talk::end(session).await, Some(End::Told(_))));
}

/// One that says no more gets its answers, and the server the same end.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_says_no_more_gets_the_answers_to_all_that_it_said() {
    let scene = Scene::new("", false).await;
    let mut talk = scene.talk().await;
    talk.client.write_all(&query("select 1")).await.unwrap();
    talk.client.write_all(&query("select 2")).await.unwrap();
    talk.client.shutdown().await.unwrap();
    assert_eq!(rest(&mut talk.server).await, [query("select 1"), query("select 2")].concat());
    let reached = || format!("{:?}", scene.shared.cancels).contains("Key of process");
    assert!(reached(), "requests to cancel reach it");
    let answers = done("SELECT 1").repeat(2);
    talk.server.write_all(&answers).await.unwrap();
    let Talk { mut client, server, session } = talk;
    drop(server);
    assert_eq!(rest(&mut client).await, answers);
    assert!(matches!(Talk::end(session).await, Some(End::Server)));
    assert_eq!(scene.ended("ok"), 2);
    assert!(!reached(), "and reach it no longer");
}
