//! Logins that take too long, and what comes of the others.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_takes_too_long_is_ended_and_one_that_succeeded_keeps_its_seat() {
    // Longer than a login takes before it may have to give way.
    let (limit, long) = (Duration::from_secs(1), Duration::from_millis(3_100));
    let scene = Scene::with("", |listening| listening.login_timeout = limit).await;
    let seats = Arc::new(Seats::new(1));
    let Talk { mut client, server: _server, session } = scene.begun(&seats).await;
    let told = rest(&mut client).await;
    assert!(told.windows(7).any(|field| field == b"C57014\0"), "{told:?}");
    assert!(String::from_utf8_lossy(&told).contains("the login took too long"));
    assert!(matches!(Talk::end(session).await, Some(End::Told(_))));

    let mut talk = scene.begun(&seats).await;
    let welcome = [&message(b'R', &[0; 4])[..], &message(b'K', KEY), READY].concat();
    talk.server.write_all(&welcome).await.unwrap();
    hears(&mut talk.client, &welcome).await;
    tokio::time::sleep(long).await;
    assert!(seats.enter().is_none(), "it would have to give way");
    talk.asks(&query("select 1")).await;
    talk.server.write_all(&done("SELECT 1")).await.unwrap();
    hears(&mut talk.client, &done("SELECT 1")).await;
}
