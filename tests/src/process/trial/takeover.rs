//! Takeovers in a cluster: how long after `kill -9` of the controller that leads another one is ready and grants, to
//! nodes that were connected and to newcomers; and what the death of the member of etcd that leads does, alone.
//!
//! Nodes are clients of this process, so all times are of one clock.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tidegate_client::{Client, Ru, RuParts};
use tidegate_core::units::Span;
use tidegate_proto::v1::{CreateGroupRequest, StatusRequest};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::times::{Times, length, span};
use super::{Setting, definition};
use crate::process::controllers::{Controllers, SILENT};
use crate::process::error::{ClusterError, PATIENCE, refused, within};

/// Controllers.
const THREE: usize = 3;
/// Nodes that hold leases.
const HOLDERS: usize = 3;
/// The group with a limit; all nodes together ask for a sixth of it, so that only who has no lease is refused.
const LIMITED: &str = "load";
/// The group without one.
const UNLIMITED: &str = "default";
/// Between two operations of a holder.
const PAUSE: Duration = Duration::from_millis(20);
/// A holder that has a lease waits for less than this.
const WAIT: Duration = Duration::from_millis(500);
/// Between two kills: a node takes a session that lasted for less than 5 s for a failure, and would wait longer before
/// it looks for the next controller.
const SETTLES: Duration = Duration::from_millis(5_500);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// What kills of the controller that leads came to; all times are from the kill.
#[derive(Clone, Debug, Default)]
pub struct Kills {
    /// Until `/readyz` of another one says yes.
    pub ready: Times,
    /// Until the first of the connected nodes has a grant of it.
    pub first_grant: Times,
    /// Until the last of them has.
    pub last_grant: Times,
    /// Until a node that comes at the kill is admitted in a group without a limit.
    pub unlimited: Times,
    /// The same in a group with a limit.
    pub limited: Times,
    /// Operations that nodes with leases were refused, of all.
    pub refused: (u64, u64),
}

/// What kills of etcd's leader alone came to.
#[derive(Clone, Debug, Default)]
pub struct Members {
    /// Changes of the controller that leads.
    pub changes: u64,
    /// How long the controller granted nothing, by its own word.
    pub silent: Times,
    /// Until a node that comes at the kill is admitted in a group without a limit.
    pub unlimited: Times,
    /// Operations that nodes with leases were refused, of all.
    pub refused: (u64, u64),
}

/// A node that holds a lease all the time.
struct Holder {
    client: Client,
    task: JoinHandle<()>,
}

/// A cluster with its holders.
struct Field {
    controllers: Controllers,
    holders: Vec<Holder>,
    stop: Arc<AtomicBool>,
    refused: Arc<AtomicU64>,
    admitted: Arc<AtomicU64>,
}

impl Field {
    async fn new(setting: &Setting) -> Result<Self, ClusterError> {
        let mut controllers = Controllers::new(&setting.folder, &setting.load_node, THREE)?;
        (0..THREE).try_for_each(|index| controllers.start(index))?;
        let (leader, _) = controllers.successor(None).await?;
        let group = tidegate_proto::v1::Group { name: LIMITED.to_owned(), ..definition() };
        let request = CreateGroupRequest { group: Some(group), if_not_exists: false };
        let created = controllers.admin(leader).await?.create_group(request).await;
        created.map_err(|status| refused("create a group", status))?;
        let mut field = Self {
            controllers,
            holders: Vec::new(),
            stop: Arc::default(),
            refused: Arc::default(),
            admitted: Arc::default(),
        };
        for index in 0..HOLDERS {
            let client = field.client(&format!("holder-{index}")).await?;
            let task = tokio::spawn(hold(
                client.clone(),
                Arc::clone(&field.stop),
                Arc::clone(&field.refused),
                Arc::clone(&field.admitted),
            ));
            field.holders.push(Holder { client, task });
        }
        field.granted(0, Instant::now()).await?;
        Ok(field)
    }

    async fn client(&self, name: &str) -> Result<Client, ClusterError> {
        let client = Client::builder(self.controllers.endpoints(), name).start();
        client.map_err(|error| refused("start a node", error))
    }

    /// Waits until all holders have a grant of a leadership after `epoch`: when the first had one, and the last.
    async fn granted(&self, epoch: u64, from: Instant) -> Result<(Span, Span), ClusterError> {
        let waits = self.holders.iter().map(|holder| {
            let before = holder.client.counts().grants;
            granted(holder.client.clone(), before, epoch, from)
        });
        let waits: Vec<_> = waits.map(tokio::spawn).collect();
        let mut times = Times::default();
        for wait in waits {
            let span = within("a grant", wait).await?;
            times.add(span.map_err(|error| refused("wait for a grant", error))?);
        }
        Ok((times.at(0), times.at(1_000)))
    }

    /// Lets a newcomer be admitted in a group; when it was.
    fn newcomer(&self, number: u64, group: &'static str, from: Instant) -> JoinHandle<Option<Span>> {
        let client = Client::builder(self.controllers.endpoints(), format!("new-{group}-{number}")).start();
        tokio::spawn(async move {
            let client = client.ok()?;
            let asked = crate::process::finding::found(&client, group).await.ok()?;
            loop {
                // Before it is connected it is refused, or has a fallback, which is none of a controller's grants.
                if client.counts().grants > 0
                    && let Ok(permit) = asked.try_acquire(Ru::whole(1))
                {
                    let took = span(from);
                    permit.cancel();
                    let _ = client.shutdown().await;
                    return Some(took);
                }
                if let Ok(permit) = asked.acquire(Ru::whole(1), LOOK).await {
                    permit.cancel();
                }
                tokio::time::sleep(LOOK).await;
            }
        })
    }

    async fn end(self) -> (u64, u64) {
        self.stop.store(true, Ordering::Relaxed);
        for holder in self.holders {
            let _ = holder.task.await;
            let _ = holder.client.shutdown().await;
        }
        let refused = self.refused.load(Ordering::Relaxed);
        (refused, refused + self.admitted.load(Ordering::Relaxed))
    }
}

/// Kills the controller that leads so many times; every so many, a newcomer of the group with a limit waits for the end
/// of recovery, which takes longest.
///
/// # Errors
/// A process does not do what it should.
pub async fn kills(setting: &Setting, kills: u64, limited_every: u64) -> Result<Kills, ClusterError> {
    let mut field = Field::new(setting).await?;
    let mut outcome = Kills::default();
    for number in 0..kills {
        let (leader, epoch) = field.controllers.successor(None).await?;
        let others = field.controllers.rest_addresses();
        let others = others.into_iter().enumerate().filter(|(index, _)| *index != leader).map(|(_, at)| at);
        let from = Instant::now();
        field.controllers.kill(leader);
        let ready = tokio::task::spawn_blocking({
            let others: Vec<SocketAddr> = others.collect();
            move || ready(&others, from)
        });
        let unlimited = field.newcomer(number, UNLIMITED, from);
        let limited =
            number.is_multiple_of(limited_every.max(1)).then(|| field.newcomer(number, LIMITED, from));
        let (first, last) = field.granted(epoch, from).await?;
        outcome.first_grant.add(first);
        outcome.last_grant.add(last);
        outcome.ready.add(joined(within("a ready controller", ready).await?)?);
        outcome.unlimited.add(joined(within("a newcomer", unlimited).await?)?);
        if let Some(limited) = limited {
            outcome.limited.add(joined(within("a newcomer", limited).await?)?);
        }
        field.controllers.start(leader)?;
        field.controllers.stands_by(leader).await?;
        tokio::time::sleep(SETTLES).await;
    }
    outcome.refused = field.end().await;
    Ok(outcome)
}

/// Kills the member of etcd that leads so many times.
///
/// # Errors
/// A process does not do what it should.
pub async fn members(setting: &Setting, kills: u64) -> Result<Members, ClusterError> {
    let mut field = Field::new(setting).await?;
    let mut outcome = Members::default();
    for number in 0..kills {
        let (leader, epoch) = field.controllers.successor(None).await?;
        let Some(member) = tokio::task::block_in_place(|| field.controllers.etcd.leader()) else {
            return Err(refused("find the member that leads", "none says so"));
        };
        let from = Instant::now();
        let killed = tokio::task::block_in_place(|| field.controllers.etcd.kill(member));
        killed.map_err(|error| refused("kill a member", error))?;
        let unlimited = field.newcomer(number, UNLIMITED, from);
        outcome.silent.add(silence(&field.controllers, leader).await?);
        outcome.unlimited.add(joined(within("a newcomer", unlimited).await?)?);
        let (after, later) = field.controllers.successor(None).await?;
        outcome.changes += u64::from((after, later) != (leader, epoch));
        let back = tokio::task::block_in_place(|| {
            field.controllers.etcd.run(member).and_then(|()| field.controllers.etcd.wait())
        });
        back.map_err(|error| refused("start a member", error))?;
    }
    outcome.refused = field.end().await;
    Ok(outcome)
}

/// How long a controller says that it grants nothing: until it has granted for twice a fence, so that an election of
/// etcd is over.
async fn silence(controllers: &Controllers, leader: usize) -> Result<Span, ClusterError> {
    const CALM: Duration = Duration::from_secs(3);
    let mut admin = controllers.admin(leader).await?;
    let (mut silent, mut last) = (None, Instant::now());
    let begun = Instant::now();
    while last.elapsed() < CALM && begun.elapsed() < PATIENCE {
        if let Ok(Ok(said)) = tokio::time::timeout(WAIT, admin.status(StatusRequest {})).await
            && said.into_inner().warnings.iter().any(|warning| warning.starts_with(SILENT))
        {
            last = Instant::now();
            silent.get_or_insert(last);
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(silent.map_or(Span(0), |from| length(last.duration_since(from))))
}

async fn hold(client: Client, stop: Arc<AtomicBool>, refused: Arc<AtomicU64>, admitted: Arc<AtomicU64>) {
    let Ok(group) = crate::process::finding::found(&client, LIMITED).await else { return };
    // The first lease takes its time.
    while group.acquire(Ru::whole(1), WAIT).await.is_err() {}
    while !stop.load(Ordering::Relaxed) {
        match group.acquire(Ru::whole(1), WAIT).await {
            Ok(permit) => {
                permit.settle_ru(RuParts::flat(Ru::whole(1)));
                admitted.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => drop(refused.fetch_add(1, Ordering::Relaxed)),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// When a client has its next grant, if that is of a leadership after `epoch`. Who led before is dead.
async fn granted(client: Client, before: u64, epoch: u64, from: Instant) -> Span {
    loop {
        if client.link().epoch > epoch && client.counts().grants > before {
            return span(from);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// When one of these says that it is ready.
fn ready(controllers: &[SocketAddr], from: Instant) -> Option<Span> {
    let says = |address: &SocketAddr| {
        let mut stream = TcpStream::connect_timeout(address, WAIT).ok()?;
        stream.set_read_timeout(Some(WAIT)).ok()?;
        write!(stream, "GET /readyz HTTP/1.0\r\nHost: {address}\r\n\r\n").ok()?;
        let mut head = [0; 12];
        stream.read_exact(&mut head).ok()?;
        head.ends_with(b"200").then_some(())
    };
    while from.elapsed() < PATIENCE {
        if controllers.iter().any(|address| says(address).is_some()) {
            return Some(span(from));
        }
        std::thread::park_timeout(LOOK);
    }
    None
}

fn joined(done: Result<Option<Span>, tokio::task::JoinError>) -> Result<Span, ClusterError> {
    let done = done.map_err(|error| refused("wait", error))?;
    done.ok_or_else(|| refused("wait", "nothing came in time"))
}
