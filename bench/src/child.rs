//! Measurements of memory and of a start, each in a fresh process of this same binary, so that nothing else is in it.
//!
//! The process prints one line of JSON and ends. `bench --child` runs them; they are no part of its interface.

use std::io::{self, BufRead as _, Write as _};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_client::{Client, GroupError, Limits, Usage};
use tidegate_controller::Controller;
use tidegate_controller::clock::Clock;
use tidegate_controller::service::{EntryIn, RenewIn, Service, ServiceConfig};
use tidegate_controller::store::{RedbStore, Store as _, Table};
use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::exchange::Ask;
use tidegate_core::group::{GroupId, GroupSpec};
use tidegate_core::units::{Rate, Time};
use tokio::runtime::{Builder, Runtime};

use super::clock::{Stopwatch, process_cpu};
use super::error::{BenchError, failed};
use super::messages;
use super::secure::strangers;
use super::shipped::resident;
use super::site::config;
use super::stream::echo::Echo;
use super::stream::node::Nodes;

/// Groups a node asks for at once: as many as go into one renewal.
const AT_ONCE: usize = 1_000;

/// What a process of its own measures.
pub fn run(args: &[String]) -> Result<Value, BenchError> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["controller", store, idle_ms] => {
            controller(Path::new(store), Duration::from_millis(number(idle_ms)?))
        }
        ["engine", groups] => engine(u32::try_from(number(groups)?).unwrap_or(0)),
        ["store", store] => store_cache(Path::new(store)),
        ["connected", store] => connected(Path::new(store)),
        ["strangers", port, each] => {
            let port = u16::try_from(number(port)?).unwrap_or(0);
            strangers::come(port, usize::try_from(number(each)?).unwrap_or(0))
        }
        ["echo"] => echo(),
        ["clients", store, count] => clients(Path::new(store), number(count)?),
        ["node", endpoint, groups] => node(endpoint, usize::try_from(number(groups)?).unwrap_or(0), false),
        ["idle-node", endpoint, groups] => {
            node(endpoint, usize::try_from(number(groups)?).unwrap_or(0), true)
        }
        other => Err(BenchError::Wrong(format!("{other:?}: no such measurement"))),
    }
}

/// Runs one, to its end.
pub fn ask(args: &[&str]) -> Result<Value, BenchError> {
    let mut child = spawn(args)?;
    let answer = read(&mut child);
    child.wait().map_err(failed("wait for a process"))?;
    answer
}

/// Starts one whose standard input is open.
pub fn spawn(args: &[&str]) -> Result<Child, BenchError> {
    let own = std::env::current_exe().map_err(failed("find this binary"))?;
    let mut command = Command::new(own);
    command.arg("--child").args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().map_err(failed("start a process of this binary"))
}

/// The next line it prints.
pub fn read(child: &mut Child) -> Result<Value, BenchError> {
    let mut line = Vec::new();
    if let Some(output) = &mut child.stdout {
        // Byte by byte, so that nothing of the next line is taken.
        let mut byte = [0_u8; 1];
        while io::Read::read(output, &mut byte).map_err(failed("hear a process"))? == 1 && byte != *b"\n" {
            line.extend(byte);
        }
    }
    serde_json::from_slice(&line).map_err(failed("understand a process of this binary"))
}

/// A figure of its answer.
pub fn figure(answer: &Value, name: &str) -> Result<f64, BenchError> {
    let figure = answer.get(name).and_then(Value::as_f64);
    figure.ok_or_else(|| BenchError::Wrong(format!("a process told {answer} and no {name}")))
}

fn number(text: &str) -> Result<u64, BenchError> {
    text.parse().map_err(failed(format!("read {text} as a number")))
}

/// Bytes of this process in memory.
fn resident_bytes() -> Result<u64, BenchError> {
    resident(std::process::id())
}

fn runtime() -> Result<Runtime, BenchError> {
    Builder::new_multi_thread().enable_all().build().map_err(failed("start a runtime"))
}

/// Start to first grant, memory then, and CPU while idle.
fn controller(store: &Path, idle: Duration) -> Result<Value, BenchError> {
    let runtime = runtime()?;
    let watch = Stopwatch::start();
    let running = runtime.block_on(Controller::start(config(store))).map_err(failed("start a controller"))?;
    let listening = watch.elapsed();
    let endpoint = format!("http://{}", running.grpc_addr);
    let node = runtime.block_on(async {
        let mut node = Nodes::connect(&endpoint, 1, 1).await?;
        node.renew(1, 1).await.map(|_| node)
    })?;
    let granted = watch.elapsed();
    drop(node);
    let resident = resident_bytes()?;
    let (before, wall) = (process_cpu(), Stopwatch::start());
    runtime.block_on(async { tokio::time::sleep(idle).await });
    let cpu = process_cpu().saturating_sub(before).as_secs_f64() / wall.elapsed().as_secs_f64();
    runtime.block_on(running.shutdown()).map_err(failed("stop a controller"))?;
    Ok(json!({
        "listening_s": listening.as_secs_f64(),
        "granted_s": granted.as_secs_f64(),
        "resident": resident,
        "idle_cpu_ms_per_s": cpu * 1e3,
    }))
}

/// Memory that the grant engine keeps for groups, without their names and definitions.
fn engine(groups: u32) -> Result<Value, BenchError> {
    let before = resident_bytes()?;
    let mut engine = Engine::new(Time(0), EngineConfig::default());
    for number in 0..groups {
        let id = GroupId(GroupId::DEFAULT.0 + 1 + number);
        let put = engine.put_group(Time(0), id, GroupSpec::capped(Rate::whole(1_000)));
        put.map_err(|error| BenchError::Wrong(format!("a group is refused: {error:?}")))?;
    }
    let after = resident_bytes()?;
    Ok(json!({ "before": before, "after": after, "committed": engine.group_view(GroupId::ROOT).is_some() }))
}

/// Memory that the store keeps once all groups are read, as at a start.
fn store_cache(path: &Path) -> Result<Value, BenchError> {
    let before = resident_bytes()?;
    let store = RedbStore::open(path).map_err(failed("open a store"))?;
    let mut rows = 0_u64;
    let count = &mut |_: &[u8], _: &[u8]| {
        rows += 1;
        Ok(ControlFlow::Continue(()))
    };
    store.scan(Table::Groups, &[], count).map_err(failed("read a store"))?;
    let after = resident_bytes()?;
    Ok(json!({ "before": before, "after": after, "rows": rows }))
}

/// Memory before and after the caller has opened streams; it says when by a line.
fn connected(store: &Path) -> Result<Value, BenchError> {
    let runtime = runtime()?;
    let running = runtime.block_on(Controller::start(config(store))).map_err(failed("start a controller"))?;
    around_streams(&format!("http://{}", running.grpc_addr))
}

/// The same of a bare gRPC server that keeps nothing of its nodes.
fn echo() -> Result<Value, BenchError> {
    around_streams(&Echo::start()?.endpoint())
}

fn around_streams(endpoint: &str) -> Result<Value, BenchError> {
    let before = resident_bytes()?;
    let mut output = io::stdout().lock();
    writeln!(output, "{}", json!({ "endpoint": endpoint }))
        .and_then(|()| output.flush())
        .map_err(failed("tell the address"))?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).map_err(failed("hear the caller"))?;
    let after = resident_bytes()?;
    Ok(json!({ "before": before, "after": after }))
}

/// Memory that a controller keeps for nodes, each with one lease, without their connections.
fn clients(store: &Path, clients: u64) -> Result<Value, BenchError> {
    let store = RedbStore::open(store).map_err(failed("open a store"))?;
    let settings = ServiceConfig::default();
    let service = Service::load(Arc::new(store), settings, Clock::start()).map_err(failed("load a store"))?;
    let before = resident_bytes()?;
    let mut sessions = Vec::new();
    for number in 0..clients {
        let session =
            service.leasing().hello(&format!("node-{number:05}"), 1, "bench").map_err(failed("say hello"))?;
        let ask = Ask { demand: Rate::whole(1), ..Ask::default() };
        let entry = EntryIn { group: messages::group_name(0), ask: Ok((ask, Vec::new())) };
        let request = RenewIn { seq: 1, entries: vec![entry], ..RenewIn::default() };
        let renewed = service.leasing().renew(session.client, session.session, request);
        renewed.map_err(|error| BenchError::Wrong(error.to_string()))?;
        sessions.push(session);
    }
    let after = resident_bytes()?;
    Ok(json!({ "before": before, "after": after, "sessions": sessions.len() }))
}

/// Memory that a node keeps for groups that were used once: for groups with leases, or for groups used one after
/// another, so that all sleep in the end.
fn node(endpoint: &str, groups: usize, asleep: bool) -> Result<Value, BenchError> {
    let runtime = runtime()?;
    let limits = Limits { groups: groups + 1, waiters: 1_000 };
    let builder = Client::builder([endpoint], "bench-node").limits(limits).patience(Duration::from_secs(60));
    let idle_after = Duration::from_secs(if asleep { 0 } else { 3_600 });
    let client = runtime.block_on(builder.idle_after(idle_after).connect());
    let client = client.map_err(failed("connect a client"))?;
    let before = resident_bytes()?;
    let names: Vec<usize> = (0..groups).collect();
    for chunk in names.chunks(AT_ONCE) {
        let used: Vec<_> = chunk
            .iter()
            .map(|number| {
                let (client, name) = (client.clone(), messages::group_name(*number));
                runtime.spawn(async move {
                    let group = client.group(&name).await?;
                    group.charge(&Usage { cpu_ns: 1_000_000, net_out_bytes: 500, ..Usage::default() });
                    Ok::<_, GroupError>(())
                })
            })
            .collect();
        for answer in used {
            let answer = runtime.block_on(answer).map_err(failed("use a group"))?;
            answer.map_err(failed("use a group"))?;
        }
        while asleep && client.stats().awake > 0 {
            runtime.block_on(async { tokio::time::sleep(Duration::from_millis(50)).await });
        }
    }
    let after = resident_bytes()?;
    Ok(json!({ "before": before, "after": after, "awake": client.stats().awake }))
}
