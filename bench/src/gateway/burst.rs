//! Many clients that log in and ask at the same moment, beside the same at the server itself: a pool that is filled, or
//! an application that starts.
//!
//! A figure is the time from the first connection to the last answer; all sessions stay open until then. One that is
//! lost, or refused, is an error.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use super::copy::CopyProxy;
use super::load::{psql, said};
use super::stage::{Stage, plenty};
use crate::clock::Stopwatch;
use crate::error::{BenchError, failed};
use crate::row::{Kind, MS, Mark, Row};
use crate::samples::Samples;
use crate::setting::Setting;
use tidegate_test_servers::{MariaDb, MySql, Postgres};

/// Sessions at once; each takes a descriptor here, where most machines give 1,024.
const CLIENTS: usize = 500;
/// An account without a password: how a password is proven is no matter of the gateway's.
const USER: &str = "burst";
/// Time in which the servers end the sessions of a round.
const PAUSE: Duration = Duration::from_millis(500);
/// After which a session that has no answer is lost: ten times what the slowest took on two busy cores.
const PATIENCE: Duration = Duration::from_secs(50);
/// No answer is longer.
const MAX_ANSWER: usize = 64 * 1024;

/// Logs in and asks once; the session is over when what this returns is dropped.
type Open = fn(u16) -> Opened;
type Opened = std::pin::Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

/// Measures the family.
pub fn run(setting: &Setting) -> Result<Vec<Row>, BenchError> {
    let mut rows = Vec::new();
    {
        let server = Postgres::start(&["max_connections=600"]).map_err(failed("start PostgreSQL"))?;
        let trust = format!(
            "create user {USER}; \
             copy (values ('host all {USER} all trust'), ('host all all all scram-sha-256')) \
             to program 'cat > pg_hba.conf'; \
             select pg_reload_conf()"
        );
        for statement in trust.split("; ") {
            said(psql(&server, server.port(), "postgres").args(["-c", statement]))?;
        }
        let open: Open = |port| Box::pin(postgres(port));
        rows.push(compare(setting, "PostgreSQL", &server.upstream(), server.port(), open)?);
    }
    let account = format!("create user '{USER}'@'%'");
    let open: Open = |port| Box::pin(mysql(port));
    {
        // Its own queue for 1,200 sessions is 290, and some connections beyond it hear nothing for ever.
        let server = MariaDb::start(&["--max-connections=1200", "--back-log=1024"])
            .map_err(failed("start MariaDB"))?;
        server.root(&account).map_err(failed("make an account"))?;
        rows.push(compare(setting, "MariaDB", &server.upstream(), server.port(), open)?);
    }
    let server = MySql::newest_with(&["--max-connections=1200"]).map_err(failed("start MySQL"))?;
    server.root(&account).map_err(failed("make an account"))?;
    rows.push(compare(setting, "MySQL", &server.upstream(), server.port(), open)?);
    Ok(rows)
}

/// Turn by turn: the gateway, a proxy that does nothing else, the server.
fn compare(
    setting: &Setting,
    server: &str,
    upstream: &str,
    port: u16,
    open: Open,
) -> Result<Row, BenchError> {
    let mut stage = Stage::start(vec![plenty("bench")])?;
    let gateway = stage.gateway(upstream)?;
    let copy = CopyProxy::start(port)?;
    let runtime = Builder::new_multi_thread().enable_all().build().map_err(failed("start a runtime"))?;
    let ways = [("the gateway", gateway), ("a proxy that only copies", copy.port), ("no proxy", port)];
    let clients = setting.size(CLIENTS, 50);
    let mut figures = [const { Vec::new() }; 3];
    for (way, port) in ways {
        burst(&runtime, way, port, clients, open)?;
    }
    for _ in 0..setting.with_rounds(9).rounds {
        for ((way, port), figures) in ways.into_iter().zip(&mut figures) {
            figures.push(burst(&runtime, way, port, clients, open)?.as_secs_f64() * 1e3);
        }
    }
    let [ours, copied, alone] = figures.map(Samples::new);
    let case =
        format!("gateway/{server}: {clients} clients log in and ask at once, until the last has its answer");
    let note = format!("none lost; at worst {:.0} ms", ours.range().1);
    let row = Row::new(case, MS, ours).note(note);
    Ok(row.beside(Kind::Floor, CopyProxy::NAME, copied, None).beside(
        Kind::Floor,
        "no proxy",
        alone,
        Some(Mark::AtMost(2.0)),
    ))
}

/// One of them, and the end of all its sessions.
fn burst(
    runtime: &Runtime,
    way: &str,
    port: u16,
    clients: usize,
    open: Open,
) -> Result<Duration, BenchError> {
    let (took, sessions) = runtime.block_on(async {
        let began = Stopwatch::start();
        let mut opening: JoinSet<io::Result<TcpStream>> = (0..clients).map(|_| open(port)).collect();
        let mut sessions = Vec::with_capacity(clients);
        let ended = async {
            while let Some(session) = opening.join_next().await {
                sessions.push(session.map_err(io::Error::other).flatten());
            }
        };
        let in_time = tokio::time::timeout(PATIENCE, ended).await.is_ok();
        let silent = || Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer in {PATIENCE:?}")));
        if !in_time {
            sessions.extend(std::iter::repeat_with(silent).take(opening.len()));
        }
        (began.elapsed(), sessions)
    });
    let lost: Vec<io::Error> = sessions.into_iter().filter_map(Result::err).collect();
    std::thread::park_timeout(PAUSE);
    match lost.first() {
        None => Ok(took),
        Some(error) => Err(BenchError::Wrong(format!(
            "through {way} {} of {clients} sessions were lost: {error}",
            lost.len()
        ))),
    }
}

async fn postgres(port: u16) -> io::Result<TcpStream> {
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    server.set_nodelay(true)?;
    let words = format!("user\0{USER}\0database\0postgres\0\0");
    let mut startup = length_of(words.len() + 8)?.to_be_bytes().to_vec();
    startup.extend(196_608_u32.to_be_bytes());
    startup.extend(words.as_bytes());
    server.write_all(&startup).await?;
    ready(&mut server).await?;
    let query = b"select 1\0";
    let mut message = vec![b'Q'];
    message.extend(length_of(query.len() + 4)?.to_be_bytes());
    message.extend(query);
    server.write_all(&message).await?;
    ready(&mut server).await?;
    Ok(server)
}

/// Reads messages of PostgreSQL until it says that it is ready.
async fn ready(server: &mut TcpStream) -> io::Result<()> {
    loop {
        let kind = server.read_u8().await?;
        let length = server.read_u32().await?.saturating_sub(4);
        let body = exactly(server, length).await?;
        match kind {
            b'Z' => return Ok(()),
            b'E' => return Err(io::Error::other(String::from_utf8_lossy(&body).into_owned())),
            b'R' if body != [0; 4] => return Err(io::Error::other("it asks for a password")),
            _ => {}
        }
    }
}

async fn mysql(port: u16) -> io::Result<TcpStream> {
    /// The capabilities of protocol 4.1: transactions, an authentication plugin and its name.
    const CAPABILITIES: u32 = 0x8_a200;
    /// A definition and a row of one column, with the number of columns before and ends behind both.
    const PACKETS: usize = 5;
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    server.set_nodelay(true)?;
    let greeting = packet(&mut server).await?;
    // The name of the server's way to prove a password is the last text of it.
    let plugin = greeting.split(|byte| *byte == 0).rfind(|text| !text.is_empty()).unwrap_or_default();
    let mut login = CAPABILITIES.to_le_bytes().to_vec();
    login.extend(0x100_0000_u32.to_le_bytes());
    login.push(45);
    login.extend([0; 23]);
    login.extend(USER.as_bytes());
    login.extend([0, 0]);
    login.extend(plugin);
    login.push(0);
    send(&mut server, 1, &login).await?;
    loop {
        match packet(&mut server).await?.first() {
            Some(0) => break,
            // Another way to prove a password that is not there.
            Some(0xfe) => send(&mut server, 3, &[]).await?,
            Some(1) => {}
            other => return Err(io::Error::other(format!("a login is answered with {other:?}"))),
        }
    }
    send(&mut server, 0, b"\x03select 1").await?;
    for _ in 0..PACKETS {
        packet(&mut server).await?;
    }
    Ok(server)
}

/// A packet of MySQL's protocol; an error when it is one.
async fn packet(server: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = server.read_u32_le().await? & 0xff_ffff;
    let body = exactly(server, length).await?;
    match body.as_slice() {
        [0xff, text @ ..] => Err(io::Error::other(String::from_utf8_lossy(text).into_owned())),
        _ => Ok(body),
    }
}

async fn send(server: &mut TcpStream, number: u8, body: &[u8]) -> io::Result<()> {
    let header = length_of(body.len())? | u32::from(number) << 24;
    server.write_all(&[&header.to_le_bytes(), body].concat()).await
}

fn length_of(bytes: usize) -> io::Result<u32> {
    u32::try_from(bytes).map_err(io::Error::other)
}

async fn exactly(server: &mut TcpStream, length: u32) -> io::Result<Vec<u8>> {
    let length = usize::try_from(length).ok().filter(|length| *length <= MAX_ANSWER);
    let mut body = vec![0; length.ok_or_else(|| io::Error::other("an answer is too long"))?];
    server.read_exact(&mut body).await?;
    Ok(body)
}
