//! What proving who calls costs: the grant stream under TLS with certificates of both sides beside the same without
//! TLS, handshakes, and the check of a token.

pub(super) mod certificates;
pub mod strangers;

use std::cell::RefCell;
use std::time::Duration;

use tidegate_controller::audit::Actor;
use tidegate_proto::v1;
use tidegate_tls::Dial;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tonic::transport::Uri;
use tower::Service as _;

use super::clock::Stopwatch;
use super::contest::{Work, contest};
use super::error::{BenchError, failed};
use super::messages;
use super::row::{Kind, Mark, PER_S, Row, US};
use super::samples::Samples;
use super::setting::Setting;
use super::site::{Site, capped};
use super::stream::node::{Nodes, Talk, groups_per_second};
use certificates::Certificates;

/// Streams, and groups a message.
const SHAPE: (usize, usize) = (64, 100);
/// Renewals of one stream on their way when throughput is measured.
const WINDOW: usize = 16;
/// Handshakes under way at a time.
const AT_ONCE: usize = 16;
/// Tokens of the controller: as many as it takes.
const TOKENS: usize = 10_000;
/// Time for a connection.
const WITHIN: Duration = Duration::from_secs(20);

/// Measures the family.
pub fn run(setting: &Setting) -> Result<Vec<Row>, BenchError> {
    let groups = || (0..SHAPE.1).map(|number| capped(messages::group_name(number), "100000"));
    let certificates = Certificates::create()?;
    let plain = Site::with(groups(), Vec::new())?;
    let secured = Site::under(certificates.server(), groups())?;
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(failed("start a runtime"))?;
    let (streams, groups) = SHAPE;
    let endpoint = plain.endpoint()?;
    let mut without = runtime.block_on(Nodes::connect(&endpoint, streams, groups))?;
    let mut with = runtime.block_on(certificates.connect(secured.port()?, streams, groups))?;
    let mut rows = vec![throughput(setting, &runtime, &mut with, &mut without)?];
    drop((with, without));
    let mut without = runtime.block_on(Nodes::connect(&endpoint, 1, groups))?;
    let mut with = runtime.block_on(certificates.connect(secured.port()?, 1, groups))?;
    rows.push(added(setting, &runtime, &mut with, &mut without)?);
    rows.push(handshakes(setting, &certificates, secured.port()?)?);
    rows.push(tokens(setting, &plain)?);
    Ok(rows)
}

fn throughput(
    setting: &Setting,
    runtime: &Runtime,
    with: &mut Nodes,
    without: &mut Nodes,
) -> Result<Row, BenchError> {
    let mut contenders: [Work<'_>; 2] = [
        Box::new(|count| runtime.block_on(with.renew(count, WINDOW)).map(|talk| talk.took)),
        Box::new(|count| runtime.block_on(without.renew(count, WINDOW)).map(|talk| talk.took)),
    ];
    let samples = contest(setting, &mut contenders)?;
    let per_second = |samples| groups_per_second(samples, SHAPE.1);
    let case = format!("secure/{} streams, {} a message, groups", SHAPE.0, SHAPE.1);
    let row = Row::new(case, PER_S, per_second(samples.first()));
    let plain = per_second(samples.get(1));
    Ok(row.beside(Kind::Floor, "without TLS", plain, Some(Mark::AtLeast(0.85))))
}

/// What TLS adds to the median of the time to an answer, round by round.
fn added(
    setting: &Setting,
    runtime: &Runtime,
    with: &mut Nodes,
    without: &mut Nodes,
) -> Result<Row, BenchError> {
    let rounds = RefCell::new([Vec::new(), Vec::new()]);
    let keep = |side: usize, talk: Talk| -> Duration {
        if let Some(talks) = rounds.borrow_mut().get_mut(side) {
            talks.push(talk.quantile_us(1, 2));
        }
        talk.took
    };
    let mut contenders: [Work<'_>; 2] = [
        Box::new(|count| runtime.block_on(with.renew(count, 1)).map(|talk| keep(0, talk))),
        Box::new(|count| runtime.block_on(without.renew(count, 1)).map(|talk| keep(1, talk))),
    ];
    contest(setting, &mut contenders)?;
    drop(contenders);
    let [with, without] = rounds.into_inner();
    // Those before the last were for finding the length of a round.
    let last = |all: Vec<f64>| {
        let skipped = all.len().saturating_sub(setting.rounds);
        Samples::new(all.into_iter().skip(skipped).collect())
    };
    let case = format!("secure/1 stream, {} a message, p50 of an answer that TLS adds", SHAPE.1);
    Ok(Row::new(case, US, last(with).less(&last(without))).mark(Mark::AtMost(100.0)))
}

/// Whole handshakes with certificates of both sides, those of the client included.
fn handshakes(setting: &Setting, certificates: &Certificates, port: u16) -> Result<Row, BenchError> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(failed("start a runtime"))?;
    let uri: Uri = format!("https://localhost:{port}").parse().map_err(failed("name a server"))?;
    let dial = Dial::new(certificates.client(), WITHIN);
    let shake = |count: u64| {
        runtime.block_on(async {
            let (watch, mut running) = (Stopwatch::start(), JoinSet::<Result<(), BenchError>>::new());
            for _ in 0..count {
                if running.len() >= AT_ONCE
                    && let Some(ended) = running.join_next().await
                {
                    ended.map_err(failed("shake hands"))??;
                }
                let (mut dial, uri) = (dial.clone(), uri.clone());
                running.spawn(async move { dial.call(uri).await.map(drop).map_err(failed("shake hands")) });
            }
            while let Some(ended) = running.join_next().await {
                ended.map_err(failed("shake hands"))??;
            }
            Ok(watch.elapsed())
        })
    };
    let samples = contest(setting, &mut [Box::new(shake)])?;
    let samples = samples.into_iter().next().unwrap_or_else(|| Samples::new(Vec::new()));
    let row = Row::new("secure/handshakes, client and server", PER_S, samples.map(|ns| 1e9 / ns));
    Ok(row.mark(Mark::AtLeast(500.0)).note("TLS 1.3, P-256, certificates of both sides, no resumption"))
}

fn tokens(setting: &Setting, site: &Site) -> Result<Row, BenchError> {
    let count = setting.size(TOKENS, TOKENS / 20);
    let calls = site.controller()?.service().tokens();
    let mut texts = Vec::new();
    for number in 0..count {
        let name = format!("it-{number}");
        let wish =
            v1::CreateTokenRequest { name, role: "viewer".to_owned(), ..v1::CreateTokenRequest::default() };
        let (_, secret) = calls.create(&Actor::new(None, "bench"), &wish).map_err(failed("make a token"))?;
        texts.push(secret.reveal().to_owned());
    }
    let mut next = texts.iter().cycle();
    let check = |count: u64| {
        let watch = Stopwatch::start();
        for _ in 0..count {
            let text = next.next().map_or("", String::as_str);
            if std::hint::black_box(calls.identify(text)).is_none() {
                return Err(BenchError::Wrong("a token is not known".to_owned()));
            }
        }
        Ok(watch.elapsed())
    };
    let samples = contest(setting, &mut [Box::new(check)])?;
    let samples = samples.into_iter().next().unwrap_or_else(|| Samples::new(Vec::new()));
    let case = format!("secure/check of one of {count} tokens");
    Ok(Row::new(case, US, samples.map(|ns| ns / 1e3)).mark(Mark::AtMost(2.0)))
}
