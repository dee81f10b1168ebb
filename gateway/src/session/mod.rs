//! One client's session, whatever its protocol: bytes of both sides through the protocol's machine, admission before
//! statements, metering while they run.
//!
//! One task, one poll function. Nothing waits for anything else: while a statement waits for admission the server's
//! side goes on, while a result is held back the client's side does.

mod ends;
mod link;
mod listening;
mod outlasting;
mod pace;
mod protocol;
#[cfg(test)]
pub(crate) mod tests;
mod waiting;
mod watching;

use std::fmt::{Debug, Display};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tidegate_client::Group;

pub(crate) use ends::{Ends, Over};
pub(crate) use link::{Link, LinkError, Read};
pub(crate) use listening::Listening;
pub(crate) use pace::{Due, Pace};
pub(crate) use protocol::{Judged, Next, Protocol, Side};
pub(crate) use waiting::Pending;

use crate::govern::{Backend, Denied, Ended, Governor, Login, Progress, Running, Subject};
use crate::seats::Seat;

/// Something a session waits for while it goes on.
pub(crate) type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// How a session ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The client closed the connection or said that it would.
    Client,
    /// The server closed the connection.
    Server,
    /// The client gets the reason.
    Told(Over),
    /// The client of a runaway that the server does not interrupt gets the reason, too.
    Runaway(Denied),
}

/// Why a session broke off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError<E: Debug + Display> {
    /// What that side sent does not follow the protocol.
    #[error("from the {0}: {1}")]
    Protocol(Side, E),
    /// A connection failed.
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// A statement whose response has come to its end.
pub(crate) struct Finished {
    pub(crate) running: Box<Running>,
    pub(crate) progress: Progress,
    pub(crate) failed: bool,
}

/// A statement that the server is to interrupt.
#[derive(Default)]
struct Killing {
    killed: Option<Killed>,
    /// Asks the server to; the client's side waits for it, so that it hits nothing else.
    asking: Option<Later<io::Result<()>>>,
    /// The statement goes on, and its session ends in its place, with this error for the client.
    must_end: Option<Denied>,
    /// Its client is gone, and the server has said that it interrupts it.
    outlasts: bool,
}

struct Killed {
    /// The error for its client.
    denied: Denied,
    /// How often the server was asked.
    asked: u32,
}

/// A client's session.
pub(crate) struct Session<P: Protocol> {
    pub(crate) protocol: P,
    pub(crate) shared: Arc<P::Shared>,
    pub(crate) governor: Arc<Governor>,
    pub(crate) link: Link,
    pub(crate) login: Login,
    /// Who pays; `None` until that is known.
    subject: Option<Result<Subject, Denied>>,
    /// The group chosen by `SET RESOURCE GROUP`; outlives a change of the database.
    chosen: Option<Group>,
    pub(crate) backend: Option<Backend>,
    pub(crate) finding: Option<Later<Option<Backend>>>,
    pub(crate) pending: Option<Pending<P>>,
    /// Its response goes out first, and then it is counted: the client need not wait for that.
    answered: Option<Finished>,
    killing: Killing,
    /// The client is gone, or was sent away.
    dismissed: bool,
    pace: Pace,
    pub(crate) ends: Ends,
}

impl<P: Protocol> Session<P> {
    /// A session on these connections, of which at most the login is on its way.
    pub(crate) fn new(
        protocol: P,
        shared: Arc<P::Shared>,
        link: Link,
        login: Login,
        seat: Arc<Seat>,
    ) -> Self {
        let listening: &Listening = (*shared).as_ref();
        Self {
            governor: Arc::clone(&listening.governor),
            ends: Ends::new(listening, seat),
            protocol,
            shared,
            link,
            login,
            subject: None,
            chosen: None,
            backend: None,
            finding: None,
            pending: None,
            answered: None,
            killing: Killing::default(),
            dismissed: false,
            pace: Pace::new(),
        }
    }

    /// Runs to the end. A statement that is under way then is interrupted, and settled when it ends.
    pub(crate) async fn run(&mut self) -> Result<End, SessionError<P::Error>> {
        let end = poll_fn(|cx| self.poll(cx)).await;
        // What waits leaves its queue at once: nobody asks any more whether its turn has come.
        self.pending = None;
        if let Some(words) = self.protocol.farewell(&end) {
            self.link.to_client.add(&words);
        }
        let server_is_gone = matches!(end, Ok(End::Server));
        if server_is_gone {
            // Before its client takes what is left: the server's thread may be another connection's by then.
            self.count_all();
        }
        self.link.last_words(server_is_gone).await;
        self.protocol.leave(&self.shared);
        if !server_is_gone {
            self.outlast().await;
            self.count_all();
        }
        end
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<End, SessionError<P::Error>>> {
        loop {
            let mut moved = match self.poll_server(cx)? {
                Some(end) => return Poll::Ready(Ok(end)),
                None => self.link.poll_write(cx)?,
            };
            self.count_answered();
            match self.poll_client(cx)? {
                Poll::Ready(Some(end)) => return Poll::Ready(Ok(end)),
                Poll::Ready(None) => moved = true,
                Poll::Pending => {}
            }
            moved |= self.link.poll_write(cx)?;
            // Behind the client's side, which may have begun a statement.
            moved |= self.poll_watch(cx);
            if let Some(end) = self.poll_end(cx) {
                return Poll::Ready(Ok(end));
            }
            if !moved {
                return Poll::Pending;
            }
        }
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Option<End> {
        if let Some(denied) = self.killing.must_end.take() {
            return Some(End::Runaway(denied));
        }
        // What its client has not got yet belongs to the statement.
        let idle = self.protocol.is_idle() && self.pending.is_none() && self.link.to_client.has_gone_out();
        self.ends.poll(cx, idle).map(End::Told)
    }

    /// Takes what the server sent. `None` when there is nothing more now.
    fn poll_server(&mut self, cx: &mut Context<'_>) -> Result<Option<End>, SessionError<P::Error>> {
        while self.link.to_client.room() > 0 {
            let event = self.protocol.server(&mut self.link);
            match event.map_err(|error| SessionError::Protocol(Side::Server, error))? {
                Some(event) => P::happened(self, event),
                None if self.link.to_client.room() == 0 || self.pace.holds() => return Ok(None),
                None => match self.link.poll_server(cx)? {
                    Poll::Pending => return Ok(None),
                    Poll::Ready(Read::Closed) => return Ok(Some(End::Server)),
                    Poll::Ready(Read::More) => {}
                },
            }
        }
        Ok(None)
    }

    /// Takes what the client sent. Ready when something changed.
    fn poll_client(&mut self, cx: &mut Context<'_>) -> Result<Poll<Option<End>>, SessionError<P::Error>> {
        if self.killing.asking.is_some() {
            return Ok(Poll::Pending);
        }
        if self.pending.is_some() {
            return self.poll_pending(cx);
        }
        loop {
            let next = self.protocol.client(&mut self.link, &self.governor);
            match next.map_err(|error| SessionError::Protocol(Side::Client, error))? {
                Next::Wait => return self.poll_waiting(cx),
                Next::More(wanted) => {
                    self.link.from_client.reserve(wanted);
                    match self.link.poll_client(cx)? {
                        Poll::Pending => return Ok(Poll::Pending),
                        Poll::Ready(Read::Closed) => return Ok(Poll::Ready(Some(End::Client))),
                        Poll::Ready(Read::More) => {}
                    }
                }
                Next::Event(event) => {
                    P::happened(self, event);
                    return Ok(Poll::Ready(None));
                }
                Next::Ask(ask) => {
                    match self.judge(ask).map_err(|error| SessionError::Protocol(Side::Client, error))? {
                        Judged::NotYet => return self.poll_waiting(cx),
                        Judged::Answered => return Ok(Poll::Ready(None)),
                        Judged::Goes if self.pending.is_some() => return Ok(Poll::Ready(None)),
                        Judged::Goes => {}
                    }
                }
            }
        }
    }

    /// A response has ended, and its last bytes have not gone out yet. Returns the error that it was killed with.
    pub(crate) fn ended(&mut self) -> Option<Denied> {
        self.count_answered();
        self.pace.ended();
        self.killing.killed.take().map(|killed| killed.denied)
    }

    /// A statement whose response goes out before it is counted.
    pub(crate) fn count_later(&mut self, finished: Option<Finished>) {
        self.answered = finished;
    }

    /// Counts the statement whose response has gone out.
    pub(crate) fn count_answered(&mut self) -> Option<Ended> {
        let finished = self.answered.take()?;
        Some(self.count(finished))
    }

    /// Counts what has ended, and what will not come to its end.
    fn count_all(&mut self) {
        self.count_answered();
        for finished in self.protocol.abandon() {
            self.count(finished);
        }
    }

    /// Counts a statement that has ended.
    pub(crate) fn count(&mut self, finished: Finished) -> Ended {
        let Finished { running, progress, failed } = finished;
        let work = running.work(progress);
        let goes_on = self.protocol.in_transaction();
        let counted = self.backend.as_mut().map(|backend| backend.end(&work, goes_on));
        running.end(counted, progress, failed)
    }
}
