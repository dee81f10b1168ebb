//! Clients, servers and gateways that go away in the middle of something.

use tidegate_cost_model::{SqlDialect, Template};

use super::*;
use crate::govern::{Known, SqlText};
use crate::postgres::machine::Machine;
use crate::postgres::serve::serve;
use crate::postgres::session::Postgres;
use crate::session::{Over, Protocol as _};

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

/// A server that cannot get rid of its rows does not notice that it is to end.
#[tokio::test(flavor = "multi_thread")]
async fn a_result_whose_client_is_gone_is_taken_to_its_end_though_its_group_owes() {
    let scene = Scene::new("", true).await;
    let mut talk = scene.talk().await;
    talk.asks(&query("select hours")).await;
    scene.owes().await;
    let Talk { client, mut server, session } = talk;
    drop(client);
    drop(scene.interrupt().await);
    // Held for the debt, a MiB of it passes in ten seconds; read at looks only, as much passes in one.
    let rows = message(b'D', &[b'x'; 100_000]).repeat(100);
    let taken = async {
        for _ in 0..10 {
            server.write_all(&rows).await.unwrap();
        }
        let ends = [&message(b'E', b"C57014\0\0")[..], READY].concat();
        server.write_all(&ends).await.unwrap();
        assert!(rest(&mut server).await.is_empty());
    };
    let taken = soon("all of it is taken", taken);
    // It is asked for the end each second.
    let asked = async {
        loop {
            drop(scene.interrupt().await);
        }
    };
    tokio::select! {
        () = taken => {}
        never = asked => never,
    }
    assert!(matches!(Talk::end(session).await, Some(End::Client)));
    let consumed = scene.group.consumption();
    assert_eq!(
        (scene.ended("failed"), consumed.usage.net_out_bytes > 100_000_000),
        (1, true),
        "{consumed:?}"
    );
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

/// Else the last words become a part of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_notification_on_its_way_is_whole_before_a_shutdown_ends_its_session() {
    let scene = Scene::new("", false).await;
    let mut talk = scene.talk().await;
    let notification = message(b'A', &[&b"\0\0\0\x01news\0"[..], &[b'x'; 1_000], b"\0"].concat());
    let (begins, ends) = notification.split_at(500);
    talk.server.write_all(begins).await.unwrap();
    hears(&mut talk.client, begins).await;
    scene.closing.send_replace(true);
    // Time to say goodbye too early.
    tokio::time::sleep(LATER).await;
    talk.server.write_all(ends).await.unwrap();
    hears(&mut talk.client, ends).await;
    let told = rest(&mut talk.client).await;
    assert!(told.starts_with(b"E") && told.windows(7).any(|field| field == b"C57P01\0"), "{told:?}");
    assert!(matches!(Talk::end(talk.session).await, Some(End::Told(_))));
}

/// The client would take it for a part of that.
#[test]
fn a_session_that_is_ended_in_the_middle_of_a_message_has_no_last_words() {
    let unknown = Known::new(Arc::new(Template::new(SqlDialect::PostgreSql, "")), SqlText::Unseen);
    let machine = Machine::new(unknown, false);
    let mut protocol = Postgres { machine, described: None, wanted_cancel: Arc::default(), is_behind: false };
    let asks = message(b'R', &[&[0, 0, 0, 10][..], &[b'x'; 100]].concat());
    let (mut begins, mut out) = (asks, Vec::new());
    let ends = begins.split_off(50);
    for (said, may_speak) in [(&b""[..], true), (&begins, false), (&ends, true)] {
        protocol.machine.server(said, &mut out, 1_000).unwrap();
        for over in [Over::Login, Over::Closing] {
            assert_eq!(protocol.farewell(&Ok(End::Told(over))).is_some(), may_speak, "{over:?}: {out:?}");
        }
    }
}

/// Else it waits for a login until the end of the time that statements have.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_has_not_said_all_of_its_first_packet_does_not_hold_up_a_shutdown() {
    for said in [&b""[..], b"\0\0"] {
        let scene = Scene::with("", |listening| listening.login_timeout = 100 * PATIENCE).await;
        let (mut client, near) = narrow().await;
        let (address, seat) = (client.local_addr().unwrap(), Arc::new(Seats::new(1)).enter().unwrap().0);
        client.write_all(said).await.unwrap();
        let shared = Arc::clone(&scene.shared);
        let served = tokio::spawn(serve(shared, Stream::Tcp(near), address, Ok(Arc::new(seat))));
        scene.closing.send_replace(true);
        assert_eq!(rest(&mut client).await, b"");
        soon("its seat is free", served).await.unwrap();
    }
}

/// It has the time that statements have then.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_waits_as_the_gateway_shuts_down_may_still_run() {
    let scene = Scene::new("", false).await;
    let mut talk = scene.talk().await;
    scene.owes_ru(2_000).await;
    talk.client.write_all(&query("select 1")).await.unwrap();
    eventually("it waits", || scene.group.state().waiting == 1).await;
    scene.closing.send_replace(true);
    hears(&mut talk.server, &query("select 1")).await;
    talk.server.write_all(&done("SELECT 1")).await.unwrap();
    hears(&mut talk.client, &done("SELECT 1")).await;
    let told = rest(&mut talk.client).await;
    assert!(told.windows(7).any(|field| field == b"C57P01\0"), "{told:?}");
    assert!(matches!(Talk::end(talk.session).await, Some(End::Told(_))));
}

/// Else its session waits for the rest of it for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_in_the_middle_of_a_message_is_gone_for_the_server_too() {
    let scene = Scene::new("", false).await;
    for half in [&query("select 1")[..7], &message(b'd', &[b'x'; 100])[..50], b"Q"] {
        let Talk { mut client, mut server, session } = scene.talk().await;
        client.write_all(half).await.unwrap();
        client.shutdown().await.unwrap();
        let heard = rest(&mut server).await;
        assert!(half.starts_with(&heard), "{heard:?}");
        drop(server);
        assert!(matches!(Talk::end(session).await, Some(End::Server)));
    }
}
