//! Messages that are cut off, declare a gigabyte, or come byte by byte, over both protocols and from both sides.

use std::time::Duration;

use tidegate_gateway::{Gateway, Upstream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};

use crate::common::eventually;
use crate::scene::{Scene, message, packet};

/// A client's bytes after its login, and how far it gets: the first question, and how much of which message then.
struct Cut {
    what: &'static str,
    asked: Vec<u8>,
    said: Vec<u8>,
}

fn cut(what: &'static str, asked: &[u8], said: &[u8]) -> Cut {
    Cut { what, asked: asked.to_vec(), said: said.to_vec() }
}

/// The beginning of a message of PostgreSQL's that declares so long a body.
fn declares(kind: u8, length: u32, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &length.to_be_bytes(), body].concat()
}

/// The beginning of a packet of MySQL's.
fn opens(length: usize, sequence: u8, payload: &[u8]) -> Vec<u8> {
    [&u32::try_from(length).unwrap().to_le_bytes()[..3], &[sequence], payload].concat()
}

fn halves(scene: &Scene) -> Vec<Cut> {
    let parse = [message(b'P', b"p\0select $1\0\0\0"), message(b'S', b"")].concat();
    let copy = message(b'Q', b"copy t from stdin\0");
    let load = packet(0, b"\x03load data local infile 'x' into table t");
    scene.pick(
        vec![
            cut("half a header", b"", b"Q\0\0"),
            cut("half a Query", b"", &declares(b'Q', 1_000, b"select 'half")),
            cut("half a Query beyond what is seen", b"", &declares(b'Q', 200_000, &[b'x'; 100_000])),
            cut("half a Parse", b"", &declares(b'P', 1_000, b"p\0select")),
            cut("half a Bind", &parse, &declares(b'B', 100, b"\0p\0\0")),
            cut("half a unit", &parse, &message(b'B', b"\0p\0\0\0\0\x01\0\0\0\x011\0\0")),
            cut("half a CopyData", &copy, &declares(b'd', 1_000, b"half")),
            cut("half a COPY", &copy, &message(b'd', b"whole\n")),
        ],
        vec![
            cut("half a header", b"", &[5, 0]),
            cut("half a COM_QUERY", b"", &opens(1_000, 0, b"\x03select 'half")),
            cut("half a long COM_QUERY", b"", &opens(200_000, 0, &[&[3], &[b'x'; 100_000][..]].concat())),
            cut("half a COM_STMT_PREPARE", b"", &opens(1_000, 0, b"\x16select")),
            cut("half a COM_STMT_EXECUTE", &packet(0, b"\x16select ?"), &opens(100, 0, b"\x17\x01\0\0")),
            cut("half a COM_CHANGE_USER", b"", &opens(100, 0, b"\x11raw")),
            cut("half a file's packet", &load, &opens(1_000, 2, b"half")),
            cut("half a file", &load, &packet(2, b"whole\n")),
        ],
    )
}

/// A session that has got so far.
async fn so_far(scene: &Scene, cut: &Cut) -> TcpStream {
    let mut stream = scene.raw().await;
    if !cut.asked.is_empty() {
        stream.write_all(&cut.asked).await.unwrap();
        // It has been understood when it is answered.
        let first = timeout(Duration::from_secs(20), stream.read_u8()).await;
        first.unwrap_or_else(|_| panic!("{}: no answer", cut.what)).unwrap();
    }
    stream.write_all(&cut.said).await.unwrap();
    stream
}

/// That it is closed soon.
async fn is_closed(stream: &mut TcpStream, what: &str) {
    let mut rest = vec![0; 65_536];
    let closed = async { while stream.read(&mut rest).await.is_ok_and(|count| count > 0) {} };
    assert!(timeout(Duration::from_secs(20), closed).await.is_ok(), "{what}: the session goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_stops_in_the_middle_of_a_message_disturbs_nobody_and_leaves_nothing() {
    for scene in Scene::both(|_| {}).await {
        scene.open_to_raw().await;
        assert!(!scene.says("create table t (a text)").contains("ERROR"));
        if let Scene::Postgres(stage) = &scene {
            let root =
                crate::postgres::stage::login(stage.postgres.port(), "shop", tidegate_test_servers::ROOT);
            root.await.batch_execute("grant all on t to raw").await.unwrap();
        }
        let mut silent = Vec::new();
        for cut in halves(&scene) {
            let mut stream = so_far(&scene, &cut).await;
            stream.shutdown().await.unwrap();
            is_closed(&mut stream, cut.what).await;
            silent.push(so_far(&scene, &cut).await);
        }
        // Clients that say nothing more stay, and are in no other's way.
        assert!(scene.answers(), "{}", scene.name());
        assert_eq!(scene.sessions("raw").await as usize, silent.len(), "{}", scene.name());
        drop(silent);
        eventually("all are gone", async || scene.sessions("raw").await == 0).await;
        assert_eq!(scene.says("select count(*) from t"), "0\n", "{}", scene.name());
    }
}

/// Memory of this process, in bytes: what it has asked for, used or not.
fn asked_for() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1_024
}

/// Checks that `work`, which declares several gigabytes, makes the gateway reserve no memory for them.
async fn asks_for_little(what: &str, work: impl AsyncFnOnce()) {
    let before = asked_for();
    work().await;
    let more = asked_for().saturating_sub(before);
    // Other tests run in this process meanwhile.
    assert!(more < 1_000_000_000, "{what}: {more} bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gigabyte_that_is_declared_is_not_held() {
    for scene in Scene::both(|_| {}).await {
        scene.open_to_raw().await;
        let piece = vec![b'x'; 1_000_000];
        let declared = scene.pick(
            vec![
                declares(b'Q', 0x3fff_ffff, b"select '"),
                declares(b'P', 0x3fff_ffff, b"p\0select '"),
                declares(b'B', 0x3fff_ffff, b"\0p\0"),
                declares(b'd', 0x3fff_ffff, b""),
                declares(b'z', 0x3fff_ffff, b""),
            ],
            // A packet declares 16 MB, and that another follows.
            vec![
                opens(0xff_ffff, 0, b"\x03select '"),
                opens(0xff_ffff, 0, b"\x16select '"),
                opens(0xff_ffff, 0, b"\x17\x01\0\0\0"),
                opens(0xff_ffff, 0, b"\x18\x01\0\0\0"),
                opens(0xff_ffff, 0, b"\x11raw"),
            ],
        );
        asks_for_little(scene.name(), async || {
            let mut all = Vec::new();
            for said in &declared {
                let mut stream = scene.raw().await;
                stream.write_all(said).await.unwrap();
                for _ in 0..10 {
                    // Streamed, refused, or waiting to be taken: never held.
                    if !matches!(
                        timeout(Duration::from_millis(200), stream.write_all(&piece)).await,
                        Ok(Ok(()))
                    ) {
                        break;
                    }
                }
                all.push(stream);
            }
            assert!(scene.answers(), "{}", scene.name());
        })
        .await;
        // No message has such a length; nor has a first packet.
        let (too_long, first) = scene.pick(
            (declares(b'Q', 0x4000_0000, b"x"), b"\x40\0\0\0\0\x03\0\0".to_vec()),
            (Vec::new(), opens(0xff_ffff, 1, &[0; 100])),
        );
        if !too_long.is_empty() {
            let mut stream = scene.raw().await;
            stream.write_all(&too_long).await.unwrap();
            is_closed(&mut stream, "a message that is too long").await;
        }
        let mut stream = TcpStream::connect(("127.0.0.1", scene.port())).await.unwrap();
        stream.write_all(&first).await.unwrap();
        is_closed(&mut stream, "a first packet that is too long").await;
        assert!(scene.answers(), "{}", scene.name());
    }
}

/// A server that says this to every client; if `waits`, once the client has said something.
async fn liar(says: Vec<u8>, waits: bool) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let says = says.clone();
            tokio::spawn(async move {
                if waits {
                    drop(stream.read(&mut [0; 1_024]).await);
                }
                drop(stream.write_all(&says).await);
                let piece = vec![b'x'; 1_000_000];
                for _ in 0..32 {
                    if stream.write_all(&piece).await.is_err() {
                        return;
                    }
                }
                std::future::pending::<()>().await;
            });
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_s_gigabyte_is_not_held_either() {
    let (controller, _folder) = crate::common::controller().await;
    let ready = [message(b'R', &[0; 4]), message(b'Z', b"I")].concat();
    let cases = [
        ("postgres", "a login", declares(b'R', 0x3fff_ffff, &[0, 0, 0, 10])),
        ("postgres", "an error", declares(b'E', 0x3fff_ffff, b"SFATAL\0")),
        ("postgres", "a row", [&ready[..], &declares(b'D', 0x3fff_ffff, &[0, 1])].concat()),
        (
            "postgres",
            "the end of a statement",
            [&ready[..], &declares(b'C', 0x3fff_ffff, b"SELECT")].concat(),
        ),
        ("postgres", "more than there is", declares(b'R', 0xffff_ffff, b"")),
        ("mysql", "a greeting", opens(0xff_ffff, 0, &[10])),
        ("mysql", "an error", opens(0xff_ffff, 0, &[255, 21, 4])),
    ];
    asks_for_little("servers", async || {
        for (protocol, what, says) in cases {
            let port = liar(says, protocol == "postgres").await;
            let gateway =
                crate::postgres::stage::gateway(&controller, 1, &what.replace(' ', "-"), |config| {
                    config.listeners[0].upstream =
                        Upstream::parse(&format!("{protocol}://127.0.0.1:{port}")).unwrap();
                })
                .await;
            let mut all = Vec::new();
            for _ in 0..3 {
                let mut stream = TcpStream::connect(gateway.addresses[0]).await.unwrap();
                stream.write_all(b"\0\0\0\x20\0\x03\0\0user\0raw\0database\0shop\0\0").await.unwrap();
                // The gateway passes the bytes on or refuses them; the test reads some of them.
                let mut some = vec![0; 1_000_000];
                drop(timeout(Duration::from_millis(300), stream.read_exact(&mut some)).await);
                all.push(stream);
            }
            drop(all);
        }
    })
    .await;
}

/// Connects so often and drips a byte at a time of this, of each connection every 100 ms, until aborted.
fn drip(gateway: &Gateway, connections: usize, said: &'static [u8]) -> tokio::task::JoinHandle<()> {
    let address = gateway.addresses[0];
    tokio::spawn(async move {
        let all = (0..connections).map(|_| async {
            loop {
                let Ok(mut stream) = TcpStream::connect(address).await else { continue };
                for byte in said {
                    if stream.write_all(&[*byte]).await.is_err() {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                // What is said, is said; it waits for the end.
                let mut rest = [0; 256];
                while stream.read(&mut rest).await.is_ok_and(|count| count > 0) {}
            }
        });
        futures_util::future::join_all(all).await;
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn who_drips_bytes_locks_nobody_out() {
    const PLACES: usize = 20;
    for scene in Scene::both(|config| config.max_sessions = PLACES).await {
        let gateway = match &scene {
            Scene::Postgres(stage) => &stage.gateway,
            Scene::MySql(stage) => &stage.gateway,
        };
        // A login, a broken TLS handshake, and silence.
        let login = b"\0\0\0\x20\0\x03\0\0user\0raw";
        let drips =
            [drip(gateway, PLACES / 2, login), drip(gateway, PLACES / 2, &[]), drip(gateway, 4, &[22, 3, 1])];
        tokio::time::sleep(Duration::from_millis(500)).await;
        // Refused at most until those are known to be slow, again and again.
        for _ in 0..3 {
            let began = Instant::now();
            while !scene.answers() {
                assert!(began.elapsed() < Duration::from_secs(25), "{}: locked out", scene.name());
            }
        }
        drips.iter().for_each(tokio::task::JoinHandle::abort);
    }
}
