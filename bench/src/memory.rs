//! Memory of groups in a node and of nodes in the controller: resident bytes of a process of its own, after less
//! before, divided by their number.

use std::io::Write as _;
use std::path::Path;

use serde_json::Value;
use tokio::runtime::Builder;

use super::child::{ask, figure, read, spawn};
use super::error::{BenchError, failed};
use super::messages;
use super::row::{BYTES, Kind, Mark, Row};
use super::samples::Samples;
use super::setting::Setting;
use super::site::{Site, capped};
use super::stock::Stock;
use super::stream::node::Nodes;
use tidegate_proto::v1;

/// Groups in use on a node.
const GROUPS: usize = 100_000;
/// Nodes of a controller.
const CLIENTS: usize = 10_000;

/// Measures the family.
pub fn run(setting: &Setting) -> Result<Vec<Row>, BenchError> {
    let setting = setting.with_rounds(3);
    let groups = setting.size(GROUPS, GROUPS / 10);
    let clients = setting.size(CLIENTS, CLIENTS / 10);
    let group = |number| capped(messages::group_name(number), "1000");
    let site = Site::with((0..groups).map(group), Vec::new())?;
    // A group that renews often falls asleep soon.
    let soon = |number| v1::Group { ttl_us: 1_000_000, renew_us: 250_000, ..group(number) };
    let soon = Site::with((0..groups).map(soon), Vec::new())?;
    let folder = tempfile::tempdir().map_err(failed("make a directory"))?;
    let (mut in_use, mut asleep) = (Vec::new(), Vec::new());
    let (mut in_controller, mut with_streams, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..setting.rounds {
        eprintln!("bench: memory: round {} of {}", round + 1, setting.rounds);
        let of_node =
            |kind, site: &Site| each(&ask(&[kind, &site.endpoint()?, &groups.to_string()])?, groups);
        in_use.push(of_node("node", &site)?);
        asleep.push(of_node("idle-node", &soon)?);
        let store = folder.path().join(format!("clients-{round}.redb"));
        fill(&store)?;
        let answer = ask(&["clients", &store.to_string_lossy(), &clients.to_string()])?;
        in_controller.push(each(&answer, clients)?);
        let store = folder.path().join(format!("streams-{round}.redb"));
        fill(&store)?;
        with_streams.push(each(&streams(&["connected", &store.to_string_lossy()], clients)?, clients)?);
        bare.push(each(&streams(&["echo"], clients)?, clients)?);
    }
    Ok(vec![
        Row::new(format!("memory/{groups} idle groups, each in a node"), BYTES, Samples::new(asleep))
            .mark(Mark::AtMost(256.0)),
        Row::new(format!("memory/{groups} groups with a lease, each in a node"), BYTES, Samples::new(in_use)),
        Row::new(
            format!("memory/{clients} clients, each in the controller"),
            BYTES,
            Samples::new(in_controller),
        )
        .note("with one lease, without the connection"),
        Row::new(
            format!("memory/{clients} clients, each with its connection"),
            BYTES,
            Samples::new(with_streams),
        )
        .beside(Kind::Floor, "connection of a bare tonic server", Samples::new(bare), None)
        .mark(Mark::AtMost(4_096.0))
        .note("the HTTP/2 connection and its buffers included"),
    ])
}

fn fill(store: &Path) -> Result<(), BenchError> {
    let groups = std::iter::once(capped(messages::group_name(0), "100000"));
    Stock { groups, tenants: Vec::new() }.fill(store)
}

fn each(answer: &Value, count: usize) -> Result<f64, BenchError> {
    Ok((figure(answer, "after")? - figure(answer, "before")?) / count as f64)
}

/// Opens as many streams to a server in a process of its own, one renewal each.
fn streams(server: &[&str], clients: usize) -> Result<Value, BenchError> {
    let mut child = spawn(server)?;
    let address = read(&mut child)?;
    let endpoint = address.get("endpoint").and_then(Value::as_str).unwrap_or_default().to_owned();
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(failed("start a runtime"))?;
    let nodes = runtime.block_on(async {
        let mut nodes = Nodes::connect(&endpoint, clients, 1).await?;
        let count = u64::try_from(clients).unwrap_or(u64::MAX);
        nodes.renew(count, 1).await.map(|_| nodes)
    })?;
    if let Some(input) = &mut child.stdin {
        writeln!(input, "measure").map_err(failed("ask for the figure"))?;
    }
    let answer = read(&mut child);
    drop(nodes);
    child.wait().map_err(failed("wait for a process"))?;
    answer
}
