//! Logins that take too long, and what comes of the others.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_takes_too_long_is_ended() {
    let scene = Scene::with("", |listening| listening.login_timeout = Duration::from_secs(1)).await;
    let Talk { mut client, server: _server, session } = scene.begun(&Arc::new(Seats::new(1))).await;
    let told = rest(&mut client).await;
    assert!(told.windows(7).any(|field| field == b"C57014\0"), "{told:?}");
    assert!(String::from_utf8_lossy(&told).contains("the login took too long"));
    assert!(matches!(Talk::end(session).await, Some(End::Told(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_succeeded_keeps_its_seat_and_has_no_limit() {
    let welcome = [&message(b'R', &[0; 4])[..], &message(b'K', KEY), READY].concat();
    let mut limit = Duration::from_secs(1);
    let (_scene, seats, mut talk) = loop {
        let scene = Scene::with("", |listening| listening.login_timeout = limit).await;
        let seats = Arc::new(Seats::new(1));
        let mut talk = scene.begun(&seats).await;
        let mut heard = vec![0; welcome.len()];
        let sent = talk.server.write_all(&welcome).await.is_ok();
        let came = soon("the login ends", talk.client.read_exact(&mut heard)).await.is_ok();
        if sent && came && heard == welcome {
            break (scene, seats, talk);
        }
        // A machine may be too slow for a short limit.
        limit *= 2;
        assert!(limit < PATIENCE);
    };
    // Longer than a login takes before it may have to give way, and than this one may take.
    tokio::time::sleep(Duration::from_millis(3_100).max(limit * 2)).await;
    assert!(seats.enter().is_none(), "it would have to give way");
    talk.asks(&query("select 1")).await;
    talk.server.write_all(&done("SELECT 1")).await.unwrap();
    hears(&mut talk.client, &done("SELECT 1")).await;
}

/// A server that asks for no password, or has got it, runs such a statement before the gateway hears of the login.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_is_sent_ahead_of_the_login_s_end_waits_for_it_and_is_charged() {
    let scene = Scene::new("", false).await;
    let mut talk = scene.begun(&Arc::new(Seats::new(1))).await;
    let password = message(b'p', b"secret\0");
    talk.client.write_all(&[password.clone(), query("select 1")].concat()).await.unwrap();
    hears(&mut talk.server, &password).await;
    let early = timeout(LATER, talk.server.read_u8()).await;
    assert!(early.is_err(), "{early:?}");
    let welcome = [&message(b'R', &[0; 4])[..], &message(b'K', KEY), READY].concat();
    talk.server.write_all(&welcome).await.unwrap();
    hears(&mut talk.client, &welcome).await;
    hears(&mut talk.server, &query("select 1")).await;
    talk.server.write_all(&done("SELECT 1")).await.unwrap();
    hears(&mut talk.client, &done("SELECT 1")).await;
    eventually("it is counted", || scene.ended("ok") == 1).await;
}

/// A client that has no password goes.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_may_leave_before_the_login_s_end() {
    let scene = Scene::new("", false).await;
    let mut talk = scene.begun(&Arc::new(Seats::new(1))).await;
    talk.asks(&message(b'X', &[])).await;
}
