//! The console of a controller with ten thousand groups and statement templates: how long pages take, what those who
//! look at live ones cost, and what renewals lose by it. The controller is the shipped binary in a process of its own.

mod browser;
mod paint;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use tidegate_proto::v1;
use tidegate_proto::v1::statements_client::StatementsClient;
use tidegate_test_servers::free_port;
use tidegate_tests::process::child::Process;
use tokio::runtime::{Builder, Runtime};

use super::clock::{Stopwatch, wall_micros};
use super::contest::{Work, contest};
use super::error::{BenchError, failed};
use super::messages;
use super::row::{BYTES, Kind, MS, Mark, PER_S, PERCENT, Row};
use super::samples::Samples;
use super::setting::Setting;
use super::shipped;
use super::site::capped;
use super::stock::Stock;
use super::stream::node::{Nodes, groups_per_second};
use browser::{Viewers, get, named};

/// Groups, and statement templates.
const MANY: usize = 10_000;
/// Pages whose time is measured: the first of a list, one from its middle, a search, and one of a group.
const PAGES: [&str; 7] = [
    "/console",
    "/console/groups",
    "/console/groups?skip=5000",
    "/console/statements",
    "/console/statements?skip=5000",
    "/console/statements?q=table_77",
    "/console/groups/tenant-00077",
];
/// The page that viewers look at.
const VIEW: &str = "/console";
/// Viewers when there are many.
const VIEWERS: usize = 10;
/// Time in which the CPU of a number of viewers is counted: the kernel counts in hundredths of a second.
const WATCHED: Duration = Duration::from_secs(15);
/// Time between two reports of a node, and two live parts.
const EVERY: Duration = Duration::from_secs(1);
/// Rounds of counting.
const ROUNDS: usize = 5;
/// Groups that are in use while viewers look: as many as the console keeps by name.
const USED: usize = 1_000;
/// Streams, and groups a message, of nodes beside viewers.
const SHAPE: (usize, usize) = (64, 100);
/// Renewals of one stream on their way.
const WINDOW: usize = 16;
/// Rows of one report of statements.
const ROWS: usize = 1_000;

/// Measures the family.
pub fn run(setting: &Setting) -> Result<Vec<Row>, BenchError> {
    let folder = tempfile::tempdir().map_err(failed("make a directory"))?;
    let many = setting.size(MANY, MANY / 10);
    let ports = [free_port(), free_port()];
    let [grpc, http] = ports.map(|port| port.map_err(failed("find a free port")));
    let (grpc, http) = (grpc?, http?);
    let controller = controller(folder.path(), many, grpc, http)?;
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(failed("start a runtime"))?;
    let endpoint = format!("http://127.0.0.1:{grpc}");
    runtime.block_on(report_statements(&endpoint, many))?;
    let mut nodes = runtime.block_on(Nodes::connect(&endpoint, SHAPE.0, SHAPE.1))?;
    // So that there is something to see.
    runtime.block_on(nodes.renew(SHAPE.0 as u64, 1))?;
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, http));
    let mut rows =
        vec![first_page(server)?, runtime.block_on(paint::first_paint(setting, server, VIEW, many))?];
    rows.extend(pages(setting, server, many)?);
    let mut used = runtime.block_on(Nodes::connect(&endpoint, 1, setting.size(USED, USED / 10)))?;
    let mut use_them = || runtime.block_on(used.renew(1, 1)).map(|_| ());
    rows.extend(viewers(setting, server, &controller, &mut use_them, many)?);
    rows.push(beside_viewers(setting, server, &runtime, &mut nodes)?);
    drop(nodes);
    controller.kill();
    Ok(rows)
}

fn controller(folder: &Path, many: usize, grpc: u16, http: u16) -> Result<Process, BenchError> {
    let groups = (0..many).map(|number| capped(messages::group_name(number), "100000"));
    Stock { groups, tenants: Vec::new() }.fill(&folder.join("tidegate.redb"))?;
    let mut command = Command::new(shipped::tidegate()?);
    command.arg("controller").arg("--data").arg(folder);
    command.args(["--listen", &format!("127.0.0.1:{grpc}"), "--http", &format!("127.0.0.1:{http}")]);
    shipped::serving(command, "controller", folder, http)
}

/// Templates as a gateway reports them, one in each group.
async fn report_statements(endpoint: &str, many: usize) -> Result<(), BenchError> {
    let client = StatementsClient::connect(endpoint.to_owned()).await;
    let mut client = client.map_err(failed("connect a gateway"))?;
    let rows: Vec<_> = (0..many).map(statement).collect();
    for (seq, rows) in (1..).zip(rows.chunks(ROWS)) {
        let report = v1::ReportStatementsRequest {
            gateway: "bench".to_owned(),
            incarnation: 1,
            seq,
            rows: rows.to_vec(),
            evicted: 0,
        };
        client.report_statements(report).await.map_err(failed("report statements"))?;
    }
    Ok(())
}

fn statement(number: usize) -> v1::StatementRow {
    let calls = number as u64 + 1;
    let now = wall_micros() / 1_000;
    v1::StatementRow {
        group: messages::group_name(number),
        fingerprint: format!("{number:016x}"),
        kind: "select".to_owned(),
        template: format!(
            "select a, b, c from table_{number} where tenant = ? and id in (?) order by b limit ?"
        ),
        calls,
        cpu_micro_ru: 2_000_000 * i64::try_from(calls).unwrap_or(0),
        read_micro_ru: 1_000_000 * i64::try_from(calls).unwrap_or(0),
        max_micro_ru: 4_000_000,
        rows: 10 * calls,
        elapsed_us: 1_500 * calls,
        first_unix_ms: now,
        last_unix_ms: now,
        ..v1::StatementRow::default()
    }
}

/// Bytes of the first page with what it names: without them nothing is shown.
fn first_page(server: SocketAddr) -> Result<Row, BenchError> {
    let page = get(server, VIEW)?;
    let mut bytes = page.len();
    for asset in named(&page) {
        bytes += get(server, &asset)?.len();
    }
    let row = Row::new("console/the first page, with style, script and icon", BYTES, one(bytes as f64));
    Ok(row.mark(Mark::AtMost(150_000.0)))
}

fn pages(setting: &Setting, server: SocketAddr, many: usize) -> Result<Vec<Row>, BenchError> {
    let mut work: Vec<Work<'_>> = Vec::new();
    for page in PAGES {
        work.push(Box::new(move |count| {
            let watch = Stopwatch::start();
            for _ in 0..count {
                get(server, page)?;
            }
            Ok(watch.elapsed())
        }));
    }
    let samples = contest(setting, &mut work)?;
    let row = |(page, samples): (&str, Samples)| {
        let case = format!("console/{page}, {many} groups and templates");
        Row::new(case, MS, samples.map(|ns| ns / 1e6)).mark(Mark::AtMost(100.0))
    };
    Ok(PAGES.into_iter().zip(samples).map(row).collect())
}

/// What one viewer takes of a core, and what each further one takes, beside a node that reports each second.
fn viewers(
    setting: &Setting,
    server: SocketAddr,
    controller: &Process,
    use_groups: &mut dyn FnMut() -> Result<(), BenchError>,
    many: usize,
) -> Result<Vec<Row>, BenchError> {
    let watched = setting.size(WATCHED, WATCHED / 10);
    let mut percent = |count: usize| -> Result<f64, BenchError> {
        let viewers = Viewers::come(server, VIEW, count)?;
        let busy = || controller.processor_time().map_err(failed("read the controller's CPU time"));
        let (before, watch) = (busy()?, Stopwatch::start());
        while watch.elapsed() < watched {
            let second = Stopwatch::start();
            use_groups()?;
            thread::park_timeout(EVERY.saturating_sub(second.elapsed()));
        }
        let cpu = busy()?.saturating_sub(before).as_secs_f64() / watch.elapsed().as_secs_f64();
        viewers.go()?;
        Ok(100.0 * cpu)
    };
    let (mut first, mut further) = (Vec::new(), Vec::new());
    for _ in 0..setting.with_rounds(ROUNDS).rounds {
        let [none, one, all] = [percent(0)?, percent(1)?, percent(VIEWERS)?];
        first.push(one - none);
        further.push((all - one) / (VIEWERS - 1) as f64);
    }
    let case = |what: &str| format!("console/{what}, of a core, {many} groups and templates");
    let first = Row::new(case("the first viewer of a live page"), PERCENT, Samples::new(first));
    let further = Row::new(case(&format!("each up to viewer {VIEWERS}")), PERCENT, Samples::new(further));
    Ok(vec![first.mark(Mark::AtMost(1.0)), further.mark(Mark::AtMost(0.2))])
}

fn beside_viewers(
    setting: &Setting,
    server: SocketAddr,
    runtime: &Runtime,
    nodes: &mut Nodes,
) -> Result<Row, BenchError> {
    let nodes = std::cell::RefCell::new(nodes);
    let renew = |count| runtime.block_on(nodes.borrow_mut().renew(count, WINDOW)).map(|talk| talk.took);
    let watched = |count| {
        let viewers = Viewers::come(server, VIEW, VIEWERS)?;
        let took = renew(count)?;
        viewers.go().map(|()| took)
    };
    // Parts come once a second: a round has several of them.
    let setting = Setting { round: setting.size(Duration::from_secs(5), setting.round), ..*setting };
    let samples = contest(&setting, &mut [Box::new(watched), Box::new(renew)])?;
    let per_second = |samples| groups_per_second(samples, SHAPE.1);
    let case = format!("console/{} streams, {} a message, {VIEWERS} viewers, groups", SHAPE.0, SHAPE.1);
    let row = Row::new(case, PER_S, per_second(samples.first()));
    Ok(row.beside(Kind::Floor, "without viewers", per_second(samples.get(1)), Some(Mark::AtLeast(0.98))))
}

fn one(figure: f64) -> Samples {
    Samples::new(vec![figure])
}
