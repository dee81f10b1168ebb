//! Thousands of nodes, each a client with a connection of its own, and a controller that for a minute gets a tenth of the
//! processor time that they need. It is stopped and let go on in turns, which no scheduler softens.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_client::transport::{Inbound, Opening, Transport};
use tidegate_client::{Client, Refused, Ru, RuParts};
use tidegate_core::units::{Rate, Time};
use tidegate_proto::v1::grants_client::GrantsClient;
use tidegate_proto::v1::{ClientMessage, Group, ServerMessage, WatchEvent, WatchRequest};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};

use super::{Admitted, GROUP, Setting, Trial};
use crate::process::child::Process;
use crate::process::error::{ClusterError, io};
use crate::process::finding::found;
use crate::process::log::{MachineClock, machine_micros};

/// RU/s of each node's share of the cap. Together they offer [`OFFERED`] hundredths of it.
const SHARE: i64 = 2;
/// Per cent of the cap that is offered.
const OFFERED: u64 = 120;
/// The cost of an operation: each node asks for one every few hundred milliseconds.
const COST: Ru = Ru::whole(1);
/// Longest wait of an operation.
const WAIT: Duration = Duration::from_secs(2);
/// Nodes that connect in a second.
const ARRIVE: usize = 1_000;
/// Without overload before it, and after.
const CALM: Duration = Duration::from_secs(20);
/// How long the overload lasts.
const LASTS: Duration = Duration::from_secs(60);
/// The controller goes on once in this time.
const PERIOD: Duration = Duration::from_millis(500);
/// It gets one part in so many of what it used before.
const TIMES: u32 = 10;

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// What was admitted.
    pub admitted: Admitted,
    /// RU/s of the cap.
    pub rate: i64,
    /// Processor time of the controller in a second before the overload.
    pub needs: Duration,
    /// Seconds at which the overload began and ended.
    pub overload: (usize, usize),
    /// Seconds after its end until nine tenths of the rate are used.
    pub recovered: Option<usize>,
}

/// What all nodes share.
struct Crowd {
    endpoint: String,
    admitted: Mutex<Vec<(Time, Ru)>>,
    clock: MachineClock,
    over: AtomicBool,
}

/// Lets the load of so many nodes run over an overload.
///
/// # Errors
/// A process does not do what it should.
pub async fn run(setting: &Setting, nodes: usize, lease: Duration) -> Result<Outcome, ClusterError> {
    let rate = SHARE * i64::try_from(nodes).unwrap_or(i64::MAX);
    let ttl_us = u64::try_from(lease.as_micros()).unwrap_or(u64::MAX);
    let group = Group { ru_per_sec: rate.to_string(), ttl_us, ..Group::default() };
    let mut trial = Trial::new(setting, 0, group).await?;
    let clock = MachineClock::start().map_err(io("read the clock"))?;
    let crowd = Arc::new(Crowd {
        endpoint: trial.cluster.endpoint(),
        admitted: Mutex::default(),
        clock,
        over: AtomicBool::new(false),
    });
    let mut tasks = JoinSet::new();
    trial.begin()?;
    for node in 0..nodes {
        tasks.spawn(labour(Arc::clone(&crowd), node));
        if node % 100 == 99 {
            sleep(Duration::from_secs(100) / u32::try_from(ARRIVE).unwrap_or(1)).await;
        }
    }
    let Some(mut controller) = trial.cluster.controller.take() else {
        return Err(ClusterError::Refused { what: "run".to_owned(), reason: "no controller".to_owned() });
    };
    // Half of the calm lets leases settle.
    sleep(CALM / 2).await;
    let before = controller.processor_time()?;
    sleep(CALM / 2).await;
    let needs =
        controller.processor_time()?.saturating_sub(before) * 2 / u32::try_from(CALM.as_secs()).unwrap_or(1);
    let from = trial.seconds();
    starve(&mut controller, needs).await?;
    let to = trial.seconds();
    sleep(CALM).await;
    crowd.over.store(true, Ordering::Relaxed);
    tasks.shutdown().await;
    let admitted = std::mem::take(&mut *crowd.admitted.lock().unwrap_or_else(PoisonError::into_inner));
    let admitted = Admitted::new(Time(trial.begun_us), Rate::whole(rate), Ru::whole(rate), admitted);
    let series = &admitted.series;
    let served = |second: &usize| series.least(*second, second + 1) >= Ru::whole(rate * 9 / 10);
    let recovered = (to..series.len()).find(served).map(|second| second - to);
    Ok(Outcome { rate, needs, overload: (from, to), recovered, admitted })
}

/// Both streams of a node over one connection, so that a process may have ten thousand: the shipped transport makes one
/// for each.
struct OneConnection(Channel);

impl OneConnection {
    fn new(endpoint: &str) -> Result<Self, tonic::transport::Error> {
        let endpoint = Endpoint::from_shared(endpoint.to_owned())?;
        Ok(Self(endpoint.connect_timeout(Duration::from_secs(4)).tcp_nodelay(true).connect_lazy()))
    }
}

impl Transport for OneConnection {
    fn session(&self, _endpoint: &str, outbound: mpsc::Receiver<ClientMessage>) -> Opening<ServerMessage> {
        let mut client = GrantsClient::new(self.0.clone());
        Box::pin(async move {
            let stream = client.session(ReceiverStream::new(outbound)).await?.into_inner();
            Ok(Box::pin(stream) as Inbound<ServerMessage>)
        })
    }

    fn watch(&self, _endpoint: &str, request: WatchRequest) -> Opening<WatchEvent> {
        let mut client = GrantsClient::new(self.0.clone());
        Box::pin(async move {
            let stream = client.watch(request).await?.into_inner();
            Ok(Box::pin(stream) as Inbound<WatchEvent>)
        })
    }
}

/// Gives the controller a part of what it needs.
async fn starve(controller: &mut Process, needs: Duration) -> Result<(), ClusterError> {
    let runs = needs.mul_f64(PERIOD.as_secs_f64()) / TIMES;
    let begun = Instant::now();
    let mut next = begun;
    while begun.elapsed() < LASTS {
        controller.stop().await?;
        next += PERIOD;
        sleep_until(next - runs).await;
        controller.go_on();
        sleep_until(next).await;
    }
    Ok(())
}

async fn join(
    crowd: &Crowd,
    node: usize,
) -> Result<(Client, tidegate_client::Group), Box<dyn Error + Send + Sync>> {
    let transport = OneConnection::new(&crowd.endpoint)?;
    let client =
        Client::builder([crowd.endpoint.as_str()], format!("node-{node}")).transport(transport).start()?;
    let group = found(&client, GROUP).await?;
    Ok((client, group))
}

/// Operations at even times, however long they wait.
async fn labour(crowd: Arc<Crowd>, node: usize) {
    let (_client, group) = match join(&crowd, node).await {
        Ok(joined) => joined,
        Err(error) => return eprintln!("trial: node {node}: {error}"),
    };
    let every = Duration::from_secs(100) / u32::try_from(SHARE.unsigned_abs() * OFFERED).unwrap_or(1);
    let mut next = Instant::now();
    while !crowd.over.load(Ordering::Relaxed) {
        next += every;
        sleep_until(next).await;
        let asked = machine_micros();
        match group.acquire(COST, WAIT).await {
            Ok(permit) => {
                let at = crowd.clock.micros(permit.admitted_at()).max(asked);
                permit.settle_ru(RuParts::flat(COST));
                crowd.admitted.lock().unwrap_or_else(PoisonError::into_inner).push((Time(at), COST));
            }
            Err(Refused::Throttled { .. } | Refused::Unavailable { .. }) => {}
            Err(refused) => return eprintln!("trial: node {node}: {refused}"),
        }
        next = next.max(Instant::now() - WAIT);
    }
}
