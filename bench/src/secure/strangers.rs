//! Strangers at the door: connections that say nothing, and connections that never end their handshake, beside nodes
//! that renew. With them and without them in turns, in one run; the controller and the strangers have a process each.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use serde_json::{Value, json};
use tidegate_test_servers::free_port;
use tidegate_tests::process::child::Process;
use tidegate_tls::Clients;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::certificates::Certificates;
use crate::child::{figure, read, spawn};
use crate::error::{BenchError, failed};
use crate::messages;
use crate::row::{BYTES, Kind, Mark, Row, US};
use crate::samples::Samples;
use crate::setting::Setting;
use crate::shipped::{self, resident};
use crate::site::capped;
use crate::stock::Stock;
use crate::stream::node::Nodes;

/// Strangers of each kind.
const EACH: usize = 2_000;
/// Streams, and groups a message.
const SHAPE: (usize, usize) = (16, 10);
/// Time between renewals of a stream: a node with some hundred groups sends as many messages.
const EVERY: Duration = Duration::from_millis(20);
/// Renewals of each stream in a round: 12 s, so that each has the moment when the controller ends all that have been
/// there for 10 s, and they come again.
const RENEWALS: usize = 600;
/// Descriptors of a process besides those of strangers.
const BESIDES: usize = 200;
/// Rounds with strangers and without.
const ROUNDS: usize = 5;
/// Time in which a stranger that was closed comes again, at random within it.
const AGAIN: Duration = Duration::from_secs(2);
/// The beginning of a hello of TLS that says it is longer.
const HELLO: [u8; 11] = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
/// Time between bytes of a slow one.
const DRIP: Duration = Duration::from_millis(500);

/// Measures the family.
pub fn run(setting: &Setting) -> Result<Vec<Row>, BenchError> {
    let (each, renewals) = (setting.size(EACH, EACH / 10), setting.size(RENEWALS, RENEWALS / 5));
    may_open(2 * each + BESIDES)?;
    let certificates = Certificates::create()?;
    let port = free_port().map_err(failed("find a free port"))?;
    let controller = controller(&certificates, port)?;
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(failed("start a runtime"))?;
    let mut nodes = runtime.block_on(certificates.connect(port, SHAPE.0, SHAPE.1))?;
    let (mut alone, mut beside, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    renew(&runtime, &mut nodes, renewals)?;
    // Once, since an allocator keeps what strangers took for the next ones.
    let before = resident(controller.id())? as f64;
    let rounds = setting.with_rounds(ROUNDS).rounds;
    for round in 0..rounds {
        eprintln!("bench: strangers: round {} of {rounds}", round + 1);
        alone.push(renew(&runtime, &mut nodes, renewals)?);
        let mut strangers = spawn(&["strangers", &port.to_string(), &each.to_string()])?;
        read(&mut strangers)?;
        beside.push(renew(&runtime, &mut nodes, renewals)?);
        memory.push(resident(controller.id())? as f64);
        drop(strangers.stdin.take());
        let open = figure(&read(&mut strangers)?, "open")?;
        strangers.wait().map_err(failed("wait for a process"))?;
        // A controller that turned them all away would not be tried.
        if open < each as f64 {
            return Err(BenchError::Wrong(format!("{open} strangers of {} were there at the end", 2 * each)));
        }
    }
    drop(nodes);
    controller.kill();
    let case = format!("strangers/p99 of a renewal beside {each} silent and {each} slow connections");
    let row = Row::new(case, US, Samples::new(beside));
    let row = row.beside(Kind::Floor, "without them", Samples::new(alone), Some(Mark::AtMost(2.0)));
    let memory = Row::new("strangers/memory of the controller", BYTES, Samples::new(memory));
    let memory = memory.beside(Kind::Floor, "before the first", Samples::new(vec![before]), None);
    Ok(vec![row, memory])
}

/// A controller of the shipped binary that demands certificates.
fn controller(certificates: &Certificates, port: u16) -> Result<Process, BenchError> {
    let folder = certificates.folder();
    let groups = (0..SHAPE.1).map(|number| capped(messages::group_name(number), "100000"));
    Stock { groups, tenants: Vec::new() }.fill(&folder.join("tidegate.redb"))?;
    let mut command = Command::new(shipped::tidegate()?);
    command.arg("controller").arg("--data").arg(folder);
    command.args(["--listen", &format!("127.0.0.1:{port}"), "--http", "127.0.0.1:0"]);
    let files = certificates.server();
    command.arg("--tls-cert").arg(&files.certificate).arg("--tls-key").arg(&files.key);
    if let Clients::Required(authorities) = &files.clients {
        command.arg("--tls-client-ca").arg(authorities);
    }
    shipped::serving(command, "controller", folder, port)
}

/// Refuses to begin where strangers or the controller could not open so many sockets.
fn may_open(needed: usize) -> Result<(), BenchError> {
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if usize::try_from(allowed).is_ok_and(|allowed| allowed < needed) {
        let problem =
            format!("{needed} file descriptors are needed and {allowed} allowed: ulimit -n {needed}");
        return Err(BenchError::Wrong(problem));
    }
    Ok(())
}

/// The 99th percentile of the time to an answer, in microseconds.
fn renew(runtime: &Runtime, nodes: &mut Nodes, renewals: usize) -> Result<f64, BenchError> {
    runtime.block_on(async {
        let mut every = interval(EVERY);
        every.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut times = Vec::new();
        let streams = u64::try_from(SHAPE.0).unwrap_or(1);
        for _ in 0..renewals {
            every.tick().await;
            times.extend(nodes.renew(streams, 1).await?.times());
        }
        times.sort_unstable();
        let place = times.len().saturating_sub(1) * 99 / 100;
        Ok(times.get(place).map_or(f64::NAN, |time| time.as_nanos() as f64 / 1e3))
    })
}

/// The strangers, in a process of their own: says when all were there once, and at the end how many are.
pub(crate) fn come(port: u16, each: usize) -> Result<Value, BenchError> {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(failed("start a runtime"))?;
    let open = Arc::new(AtomicUsize::new(0));
    runtime.block_on(async {
        for number in 0..2 * each {
            tokio::spawn(stranger(port, number % 2 == 0, Arc::clone(&open)));
        }
        // Some are closed again by then.
        let all = async {
            while open.load(Ordering::Relaxed) < 2 * each * 9 / 10 {
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(Duration::from_secs(60), all).await.map_err(failed("connect the strangers"))
    })?;
    let mut output = std::io::stdout().lock();
    writeln!(output, "{}", json!({ "ready": true }))
        .and_then(|()| output.flush())
        .map_err(failed("say that they are there"))?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(failed("hear the caller"))?;
    Ok(json!({ "open": open.load(Ordering::Relaxed) }))
}

/// One of them, who comes again whenever it is closed.
async fn stranger(port: u16, is_silent: bool, open: Arc<AtomicUsize>) {
    loop {
        if let Ok(stream) = connect(port).await {
            open.fetch_add(1, Ordering::Relaxed);
            stay(stream, is_silent).await;
            open.fetch_sub(1, Ordering::Relaxed);
        }
        let share = f64::from(rand::random::<u32>()) / f64::from(u32::MAX);
        sleep(AGAIN.mul_f64(share)).await;
    }
}

async fn connect(port: u16) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from(([127, 0, 0, 2], 0)))?;
    socket.connect(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)).await
}

/// Until the controller closes it.
async fn stay(mut stream: TcpStream, is_silent: bool) {
    let mut rest = [0; 64];
    if is_silent {
        let _ = stream.read(&mut rest).await;
        return;
    }
    let _ = stream.write_all(&HELLO).await;
    loop {
        if timeout(DRIP, stream.read(&mut rest)).await.is_ok() || stream.write_all(&[0]).await.is_err() {
            return;
        }
    }
}
