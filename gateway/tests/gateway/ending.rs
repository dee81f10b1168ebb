//! The end of a gateway, whatever its clients are at.

use std::time::Duration;

use tidegate_gateway::{Config, Gateway, Listener, Upstream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// Longer than a shutdown takes, and much shorter than what it must not wait for.
const PATIENCE: Duration = Duration::from_secs(60);
const FOR_EVER: Duration = Duration::from_secs(86_400);

/// What a server says to a login that needs no password.
const WELCOME: &[u8] = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";

/// A gateway that waits for ever, for a login and for statements at a shutdown.
async fn patient(scheme: &str, database: &TcpListener) -> Gateway {
    let upstream = Upstream::parse(&format!("{scheme}://{}", database.local_addr().unwrap())).unwrap();
    let config = Config {
        endpoints: vec!["http://127.0.0.1:1".to_owned()],
        identity: "gw".to_owned(),
        listeners: vec![Listener { listen: "127.0.0.1:0".parse().unwrap(), upstream }],
        grace: FOR_EVER,
        login_timeout: FOR_EVER,
        ..Config::default()
    };
    Gateway::start(config).await.unwrap()
}

/// Clients that have logged in and ask for nothing, and such as have said nothing or half a word, do not hold it up.
#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_waits_for_no_client_that_has_no_statement() {
    let database = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = patient("postgres", &database).await;
    let connect = || TcpStream::connect(gateway.addresses[0]);
    let mut silent = connect().await.unwrap();
    let mut halting = connect().await.unwrap();
    halting.write_all(b"\0\0\0").await.unwrap();
    let mut idle = connect().await.unwrap();
    let startup = b"\0\0\0\x12\0\x03\0\0user\0ann\0\0";
    idle.write_all(startup).await.unwrap();
    let (mut server, _) = database.accept().await.unwrap();
    let mut heard = [0; 18];
    server.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, startup);
    server.write_all(WELCOME).await.unwrap();
    let mut heard = vec![0; WELCOME.len()];
    idle.read_exact(&mut heard).await.unwrap();
    assert_eq!(heard, WELCOME);
    timeout(PATIENCE, gateway.shutdown()).await.expect("it ends");
    let mut told = Vec::new();
    idle.read_to_end(&mut told).await.unwrap();
    assert!(told.windows(7).any(|field| field == b"C57P01\0"), "{told:?}");
    for client in [&mut silent, &mut halting] {
        told.clear();
        drop(client.read_to_end(&mut told).await);
        assert_eq!(told, b"");
    }
}

/// In MySQL's protocol the server speaks first.
#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_waits_for_no_server_that_has_not_greeted() {
    let database = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = patient("mysql", &database).await;
    let mut client = TcpStream::connect(gateway.addresses[0]).await.unwrap();
    let _silent = database.accept().await.unwrap();
    timeout(PATIENCE, gateway.shutdown()).await.expect("it ends");
    let mut told = Vec::new();
    drop(client.read_to_end(&mut told).await);
    assert_eq!(told, b"");
}
