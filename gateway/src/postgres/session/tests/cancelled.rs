//! Requests to cancel that come while no seat is free, or nothing is under way. They need no seat: what they end may be
//! what takes the seats.

use super::super::super::serve::serve;
use tokio::task::yield_now;

use super::*;
use crate::clock;
use crate::postgres::key::Key;

/// How long a result is held for the debt of a group that says nothing else.
const HOLD: Duration = Duration::from_secs(10);

/// A request to cancel, for which there is no seat: its connection, and what serves it.
async fn request(scene: &Scene) -> (TcpStream, JoinHandle<()>) {
    let (mut client, near) = narrow().await;
    let (address, full) = (client.local_addr().unwrap(), Err("no seat is free".to_owned()));
    let served = tokio::spawn(serve(Arc::clone(&scene.shared), Stream::Tcp(near), address, full));
    let request = [&16_u32.to_be_bytes()[..], &CODE.to_be_bytes(), KEY].concat();
    client.write_all(&request).await.unwrap();
    (client, served)
}

/// The server closes the connection of the request, and the gateway that of the client, without a word.
async fn done_with(asks: TcpStream, (mut client, served): (TcpStream, JoinHandle<()>)) {
    drop(asks);
    assert_eq!(String::from_utf8_lossy(&rest(&mut client).await), "");
    soon("the request has ended", served).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_is_cancelled_while_no_seat_is_free() {
    let scene = Scene::new("", false).await;
    let mut talk = scene.talk().await;
    talk.asks(&query("select 1")).await;
    let request = request(&scene).await;
    done_with(scene.interrupt().await, request).await;
    let cancelled = [&message(b'E', b"SERROR\0C57014\0\0")[..], READY].concat();
    talk.server.write_all(&cancelled).await.unwrap();
    hears(&mut talk.client, &cancelled).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_waits_is_cancelled_while_no_seat_is_free() {
    let scene = Scene::new("", false).await;
    let mut talk = scene.talk().await;
    scene.owes().await;
    talk.client.write_all(&query("select 1")).await.unwrap();
    eventually("it waits", || scene.group.state().waiting == 1).await;
    let request = request(&scene).await;
    let said = unit(&mut talk.client).await;
    assert!(said.windows(7).any(|field| field == b"C57014\0"), "{said:?}");
    eventually("it waits no longer", || scene.group.state().waiting == 0).await;
    done_with(scene.interrupt().await, request).await;
}

/// The server's word of it is behind what is held.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_whose_result_is_held_for_debt_shows_at_once_that_it_is_cancelled() {
    let scene = Scene::new("", false).await;
    let mut talk = scene.talk().await;
    talk.asks(&query("select 1")).await;
    scene.owes().await;
    // More than it was admitted for; from the first look on, none of its rows passes.
    let row = message(b'D', &[b'x'; 100_000]);
    while timeout(LATER, async {
        talk.server.write_all(&row).await.unwrap();
        hears(&mut talk.client, &row).await;
    })
    .await
    .is_ok()
    {}
    let cancelled = [&message(b'E', b"SERROR\0C57014\0\0")[..], READY].concat();
    talk.server.write_all(&cancelled).await.unwrap();
    let held = clock::now();
    let request = request(&scene).await;
    let asks = scene.interrupt().await;
    // Not before the server has acted on the request: what it sends until then would use up what may pass.
    let early = timeout(LATER, talk.client.read_u8()).await;
    done_with(asks, request).await;
    let said = unit(&mut talk.client).await;
    assert!(early.is_err() && said.ends_with(&cancelled), "{early:?}");
    assert!(held.elapsed() < HOLD / 2, "its hold was over: {:?}", held.elapsed());
}

/// As by a client that gives up before the first rows.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_is_cancelled_before_its_result_is_held_shows_that_at_once() {
    let scene = Scene::new("", false).await;
    let mut talk = scene.talk().await;
    talk.asks(&query("select 1")).await;
    let request = request(&scene).await;
    done_with(scene.interrupt().await, request).await;
    scene.owes().await;
    let held = clock::now();
    // More than it was admitted for, behind which it is looked at.
    let row = message(b'D', &[b'x'; 100_000]);
    for _ in 0..11 {
        talk.server.write_all(&row).await.unwrap();
        hears(&mut talk.client, &row).await;
    }
    tokio::time::sleep(LATER).await;
    let cancelled = [&message(b'E', b"SERROR\0C57014\0\0")[..], READY].concat();
    talk.server.write_all(&cancelled).await.unwrap();
    hears(&mut talk.client, &cancelled).await;
    assert!(held.elapsed() < HOLD / 2, "its hold was over: {:?}", held.elapsed());
}

/// Such a request comes late, as its statement has ended meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_comes_while_nothing_is_under_way_cancels_no_later_statement() {
    let scene = Scene::new("", false).await;
    let mut talk = scene.talk().await;
    scene.owes_ru(3_000).await;
    scene.shared.cancels.tell(&Key::read(KEY).unwrap());
    talk.client.write_all(&query("select 1")).await.unwrap();
    // At 1,000 RU/s, some seconds: it waits, and could be cancelled.
    hears(&mut talk.server, &query("select 1")).await;
    talk.server.write_all(&done("SELECT 1")).await.unwrap();
    hears(&mut talk.client, &done("SELECT 1")).await;
}

/// With the controller gone, what is known of a group comes after seconds. Meanwhile a statement waits, behind the login.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_whose_payer_is_looked_up_is_cancelled_by_a_request_that_comes_after_it() {
    let mut scene = Scene::new("", false).await;
    scene.stage.lose_controller().await;
    let welcome = [&message(b'R', &[0; 4])[..], &message(b'K', KEY), READY].concat();
    for early in [true, false] {
        let mut talk = scene.begun_as("/*+ RESOURCE_GROUP(unheard_of) */", &Arc::new(Seats::new(1))).await;
        talk.server.write_all(&welcome).await.unwrap();
        hears(&mut talk.client, &welcome).await;
        let cancel = || scene.shared.cancels.tell(&Key::read(KEY).unwrap());
        if early {
            cancel();
            let answer = timeout(LATER, talk.client.read_u8()).await;
            assert!(answer.is_err(), "{answer:?}");
            talk.asks(&query("select 1")).await;
            continue;
        }
        talk.client.write_all(&query("select 1")).await.unwrap();
        let cancels = async {
            loop {
                cancel();
                yield_now().await;
            }
        };
        let said = tokio::select! {
            said = unit(&mut talk.client) => said,
            never = cancels => never,
        };
        assert!(said.windows(7).any(|field| field == b"C57014\0"), "{said:?}");
    }
}
