//! Nodes on the wire: streams that renew as fast as they are answered, with so many renewals on their way.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_proto::v1;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};
use v1::client_message::Kind as Ask;
use v1::grants_client::GrantsClient;
use v1::server_message::Kind as Answer;

use crate::clock::{Stopwatch, wall_micros};
use crate::error::{BenchError, failed};
use crate::messages;
use crate::samples::Samples;

/// More than are ever on their way.
const QUEUE: usize = 64;

/// The nodes of a shape, all of one server.
pub(crate) struct Nodes {
    nodes: Vec<Node>,
}

/// One stream.
struct Node {
    asks: mpsc::Sender<v1::ClientMessage>,
    answers: Streaming<v1::ServerMessage>,
    groups: usize,
    seq: u64,
}

/// How a number of renewals went.
pub(crate) struct Talk {
    pub(crate) took: Duration,
    /// The time of each renewal.
    times: Vec<Duration>,
}

impl Talk {
    /// The time of each renewal.
    pub(crate) fn times(self) -> Vec<Duration> {
        self.times
    }

    /// The time within which `part` of `whole` answers came, in microseconds.
    pub(crate) fn quantile_us(&self, part: usize, whole: usize) -> f64 {
        let mut sorted = self.times.clone();
        sorted.sort_unstable();
        let place = sorted.len().saturating_sub(1) * part / whole;
        sorted.get(place).map_or(f64::NAN, |time| time.as_nanos() as f64 / 1e3)
    }
}

/// Groups a second of the rounds of a contender that renews this many in each operation.
pub(crate) fn groups_per_second(samples: Option<&Samples>, groups: usize) -> Samples {
    let samples = samples.cloned().unwrap_or_else(|| Samples::new(Vec::new()));
    samples.map(|ns| groups as f64 * 1e9 / ns)
}

impl Nodes {
    /// Opens the streams.
    pub(crate) async fn connect(endpoint: &str, streams: usize, groups: usize) -> Result<Self, BenchError> {
        let mut nodes = Vec::new();
        for number in 0..streams {
            nodes.push(Node::open(endpoint, &format!("node-{streams}-{groups}-{number}"), groups).await?);
        }
        Ok(Self { nodes })
    }

    /// The same, each over a channel of its own that `channel` opens, under client ids that begin so.
    pub(crate) async fn connect_by(
        channel: impl AsyncFn() -> Result<Channel, BenchError>,
        begin: &str,
        streams: usize,
        groups: usize,
    ) -> Result<Self, BenchError> {
        let mut nodes = Vec::new();
        for number in 0..streams {
            let name = format!("{begin}node-{streams}-{groups}-{number}");
            nodes.push(Node::over(channel().await?, &name, groups).await?);
        }
        Ok(Self { nodes })
    }

    /// `count` renewals, shared by the streams, each with at most `window` of them on their way.
    pub(crate) async fn renew(&mut self, count: u64, window: usize) -> Result<Talk, BenchError> {
        let streams = u64::try_from(self.nodes.len()).unwrap_or(1).max(1);
        // No stream without a renewal, and the same number for each.
        let each = count.div_ceil(streams);
        let watch = Stopwatch::start();
        let mut running = JoinSet::new();
        for mut node in self.nodes.drain(..) {
            running.spawn(async move {
                let times = node.talk(each, window).await;
                times.map(|times| (node, times))
            });
        }
        let mut all = Vec::new();
        while let Some(ended) = running.join_next().await {
            let (node, times) = ended.map_err(failed("run a stream"))??;
            self.nodes.push(node);
            all.extend(times);
        }
        let took = watch.elapsed();
        // The caller divides by what it asked for.
        let done = u32::try_from(each.saturating_mul(streams)).unwrap_or(u32::MAX);
        let asked = u32::try_from(count).unwrap_or(u32::MAX);
        Ok(Talk { took: took * asked / done, times: all })
    }
}

impl Node {
    async fn open(endpoint: &str, name: &str, groups: usize) -> Result<Self, BenchError> {
        let endpoint = Endpoint::from_shared(endpoint.to_owned()).map_err(failed("name a server"))?;
        let channel = endpoint.tcp_nodelay(true).connect().await.map_err(failed("connect"))?;
        Self::over(channel, name, groups).await
    }

    async fn over(channel: Channel, name: &str, groups: usize) -> Result<Self, BenchError> {
        let (asks, asked) = mpsc::channel(QUEUE);
        let hello = v1::Hello {
            protocol_min: 1,
            protocol_max: 1,
            client_id: name.to_owned(),
            incarnation: wall_micros(),
            agent: "bench".to_owned(),
            ..v1::Hello::default()
        };
        send(&asks, Ask::Hello(hello)).await?;
        let answers = GrantsClient::new(channel).session(ReceiverStream::new(asked)).await;
        let mut answers = answers.map_err(failed("open a stream"))?.into_inner();
        let welcome = answers.message().await.map_err(failed("be welcomed"))?;
        match welcome.and_then(|message| message.kind) {
            Some(Answer::Welcome(_)) => Ok(Self { asks, answers, groups, seq: 0 }),
            other => Err(BenchError::Wrong(format!("a hello was answered with {other:?}"))),
        }
    }

    async fn talk(&mut self, count: u64, window: usize) -> Result<Vec<Duration>, BenchError> {
        let mut times = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
        let mut waiting: VecDeque<(u64, Stopwatch)> = VecDeque::with_capacity(window);
        let mut sent = 0;
        while sent < count || !waiting.is_empty() {
            if sent < count && waiting.len() < window {
                self.seq += 1;
                sent += 1;
                let renew = messages::renew(self.seq, self.groups);
                waiting.push_back((self.seq, Stopwatch::start()));
                send(&self.asks, Ask::Renew(renew)).await?;
                continue;
            }
            let answer = self.answers.message().await.map_err(failed("hear an answer"))?;
            match answer.and_then(|message| message.kind) {
                Some(Answer::Granted(granted)) => {
                    let Some((seq, since)) = waiting.pop_front() else { continue };
                    if granted.seq != seq || granted.entries.len() != self.groups {
                        let problem = format!(
                            "renewal {seq} of {} groups was answered as {} with {}",
                            self.groups,
                            granted.seq,
                            granted.entries.len()
                        );
                        return Err(BenchError::Wrong(problem));
                    }
                    times.push(since.elapsed());
                }
                Some(Answer::Lower(_)) => {}
                other => return Err(BenchError::Wrong(format!("a renewal was answered with {other:?}"))),
            }
        }
        Ok(times)
    }
}

async fn send(asks: &mpsc::Sender<v1::ClientMessage>, ask: Ask) -> Result<(), BenchError> {
    asks.send(v1::ClientMessage { kind: Some(ask) }).await.map_err(failed("send"))
}
