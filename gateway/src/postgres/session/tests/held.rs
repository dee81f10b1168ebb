//! Statements that wait for others, or for their group.

use tokio::sync::oneshot;

use super::*;
use crate::clock;
use crate::govern::{Denied, InTransaction, Policy};
use crate::postgres::key::Key;
use crate::session::Pending;

/// Else the reset, whose answer comes later, undoes the choice that the client made behind it.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_is_chosen_behind_a_reset_stays_chosen() {
    let scene = Scene::new("", false).await;
    scene.stage.group("other", "").await;
    let mut talk = scene.talk().await;
    let set = "set resource group other";
    let extended = [
        message(b'P', format!("\0{set}\0\0\0").as_bytes()),
        message(b'B', b"\0\0\0\0\0\0\0\0"),
        message(b'E', b"\0\0\0\0\0"),
        message(b'S', b""),
    ];
    for set in [query(set), extended.concat()] {
        talk.client.write_all(&[query("discard all"), set].concat()).await.unwrap();
        hears(&mut talk.server, &query("discard all")).await;
        // Time to choose too early.
        tokio::time::sleep(LATER).await;
        talk.server.write_all(&done("DISCARD ALL")).await.unwrap();
        hears(&mut talk.client, &done("DISCARD ALL")).await;
        let synced = async {
            // The Sync of the extended protocol is the server's.
            if talk.server.read_u8().await.is_ok() {
                talk.server.write_all(READY).await.unwrap();
            }
            std::future::pending::<()>().await;
        };
        let said = tokio::select! { said = unit(&mut talk.client) => said, () = synced => Vec::new() };
        assert!(said.windows(4).any(|tag| tag == b"SET\0"), "{:?}", String::from_utf8_lossy(&said));
        let asks = query("select current_resource_group()");
        talk.client.write_all(&asks).await.unwrap();
        let said = unit(&mut talk.client).await;
        assert!(said.windows(5).any(|name| name == b"other"), "{:?}", String::from_utf8_lossy(&said));
    }
}

/// It is outside by the time the server comes to it.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_sent_behind_the_end_of_a_transaction_is_not_admitted_as_a_part_of_it() {
    let policy = Policy { in_transaction: InTransaction::Owe, ..Policy::default() };
    let scene = Scene::on(Stage::with(policy, None).await, "max_wait = '1ms'", |_| ()).await;
    let mut talk = scene.talk().await;
    talk.asks(&query("begin")).await;
    let begun = [message(b'C', b"BEGIN\0"), message(b'Z', b"T")].concat();
    talk.server.write_all(&begun).await.unwrap();
    hears(&mut talk.client, &begun).await;
    scene.owes().await;
    // A part of it owes.
    talk.asks(&query("select 1")).await;
    let row = [message(b'C', b"SELECT 1\0"), message(b'Z', b"T")].concat();
    talk.server.write_all(&row).await.unwrap();
    hears(&mut talk.client, &row).await;
    talk.client.write_all(&[query("commit"), query("select 2")].concat()).await.unwrap();
    hears(&mut talk.server, &query("commit")).await;
    talk.server.write_all(&done("COMMIT")).await.unwrap();
    hears(&mut talk.client, &done("COMMIT")).await;
    let refused = unit(&mut talk.client).await;
    assert!(refused.starts_with(b"E"), "{:?}", String::from_utf8_lossy(&refused));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_waits_is_cancelled_by_its_client_or_goes_when_its_group_has_paid() {
    let scene = Scene::new("", false).await;
    let mut talk = scene.talk().await;
    scene.owes_ru(3_000).await;
    talk.client.write_all(&query("select 1")).await.unwrap();
    eventually("it waits", || scene.group.state().waiting == 1).await;
    scene.shared.cancels.tell(&Key::read(KEY).unwrap());
    let said = unit(&mut talk.client).await;
    assert!(said.windows(7).any(|field| field == b"C57014\0"), "{said:?}");
    eventually("it waits no longer", || scene.group.state().waiting == 0).await;
    // At 1,000 RU/s, some seconds. A request to cancel holds for what waited then.
    talk.asks(&query("select 2")).await;
    talk.server.write_all(&done("SELECT 1")).await.unwrap();
    hears(&mut talk.client, &done("SELECT 1")).await;
}

/// Else a client that reads nothing holds up the queue of its group.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_whose_server_is_gone_leaves_the_queue_before_its_client_has_read_all() {
    // A session gives its client ten seconds to read, which a busy machine may not have had.
    for _ in 0..5 {
        let scene = Scene::new("", false).await;
        let mut talk = scene.talk().await;
        scene.owes().await;
        talk.client.write_all(&query("select 1")).await.unwrap();
        eventually("it waits", || scene.group.state().waiting == 1).await;
        // More than the client's socket holds, and less than makes the gateway stop to read.
        talk.server.write_all(&message(b'N', &[b'x'; 60_000])).await.unwrap();
        let gone = clock::now();
        drop(talk.server);
        eventually("it has left the queue", || scene.group.state().waiting == 0).await;
        tokio::time::sleep(LATER).await;
        let is_over = talk.session.is_finished();
        drop(talk.client);
        assert!(matches!(Talk::end(talk.session).await, Some(End::Server)));
        if !is_over {
            return;
        }
        assert!(gone.elapsed() >= Duration::from_secs(10), "it left with the session");
    }
    panic!("it left with the session");
}

/// The server does not take it back with the rest of its unit, unlike `RESET ALL`.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_given_up_with_all_settings_though_what_comes_behind_fails() {
    let scene = Scene::new("", false).await;
    scene.stage.group("other", "").await;
    for (tag, left) in [("DISCARD ALL", "own"), ("RESET", "other")] {
        let mut talk = scene.talk().await;
        talk.client.write_all(&query("set resource group other")).await.unwrap();
        unit(&mut talk.client).await;
        let text = if tag == "RESET" { "reset all" } else { "discard all" };
        let run = |text: &str| {
            let parse = message(b'P', format!("\0{text}\0\0\0").as_bytes());
            [parse, message(b'B', &[0; 8]), message(b'E', &[0; 5])].concat()
        };
        talk.asks(&[run(text), run("select 1 / 0"), message(b'S', b"")].concat()).await;
        let bound = [message(b'1', &[]), message(b'2', &[])].concat();
        let done = message(b'C', format!("{tag}\0").as_bytes());
        let failed = [&message(b'E', b"C22012\0\0")[..], READY].concat();
        let said = [&bound[..], &done, &bound, &failed].concat();
        talk.server.write_all(&said).await.unwrap();
        hears(&mut talk.client, &said).await;
        talk.client.write_all(&query("select current_resource_group()")).await.unwrap();
        let said = unit(&mut talk.client).await;
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains(left), "{tag}: {said:?}");
    }
}

/// The server says the same of one setting that is reset as of all.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_given_up_by_the_text_that_resets_all_and_by_no_other() {
    let scene = Scene::new("", false).await;
    scene.stage.group("other", "").await;
    let mut talk = scene.talk().await;
    for (text, tags, left) in [
        ("reset all", &["RESET"][..], "own"),
        ("select 1; reset all", &["SELECT 1", "RESET"], "own"),
        ("reset work_mem", &["RESET"], "other"),
        ("discard all", &["DISCARD ALL"], "own"),
        ("discard temp", &["DISCARD TEMP"], "other"),
    ] {
        talk.client.write_all(&query("set resource group other")).await.unwrap();
        unit(&mut talk.client).await;
        talk.asks(&query(text)).await;
        let ends: Vec<u8> =
            tags.iter().flat_map(|tag| message(b'C', format!("{tag}\0").as_bytes())).collect();
        let said = [&ends[..], READY].concat();
        talk.server.write_all(&said).await.unwrap();
        hears(&mut talk.client, &said).await;
        talk.client.write_all(&query("select current_resource_group()")).await.unwrap();
        let said = unit(&mut talk.client).await;
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains(left), "{text}: {said:?}");
    }
}

/// As of a pool that connects before the controller is there.
#[tokio::test(flavor = "multi_thread")]
async fn that_nobody_paid_at_the_login_is_no_answer_to_a_statement_that_comes_later() {
    let scene = Scene::new("", false).await;
    for is_awaited in [true, false] {
        let (mut client, near) = narrow().await;
        let (to_server, server) = tokio::join!(scene.shared.connect(), scene.listener.accept());
        let (ends, mut server) = ((Stream::Tcp(near), to_server.unwrap()), server.unwrap().0);
        let (seat, _) = Arc::new(Seats::new(1)).enter().unwrap();
        let login = Login { tenant: "shop".into(), user: "root".into(), ..Login::default() };
        let mut session = begin(Arc::clone(&scene.shared), ends, login, b"startup", Arc::new(seat));
        // It has logged in.
        let events = [message(b'R', &[0; 4]), READY.to_vec()].concat();
        let (used, _) = session.protocol.machine.server(&events, &mut Vec::new(), 1_000).unwrap();
        session.protocol.machine.server(&events[used..], &mut Vec::new(), 1_000).unwrap();
        let (looked, look) = oneshot::channel();
        let (asked, asks) = oneshot::channel();
        let (over, is_over) = oneshot::channel();
        let found = async move {
            looked.send(()).unwrap();
            asks.await.unwrap();
            over.send(()).unwrap();
            Err(Denied::cancelled())
        };
        session.pending = Some(Pending::Subject(Box::pin(found), None));
        let session = tokio::spawn(async move { session.run().await.ok() });
        hears(&mut server, b"startup").await;
        look.await.unwrap();
        if is_awaited {
            client.write_all(&query("select 1")).await.unwrap();
            // The session reads it while it waits.
            tokio::time::sleep(LATER).await;
        }
        asked.send(()).unwrap();
        is_over.await.unwrap();
        if is_awaited {
            let said = unit(&mut client).await;
            assert!(said.windows(7).any(|field| field == b"C57014\0"), "{said:?}");
        }
        client.write_all(&query("select 2")).await.unwrap();
        hears(&mut server, &query("select 2")).await;
        drop((client, server));
        Talk::end(session).await;
    }
}
