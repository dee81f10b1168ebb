//! The beginning of a connection: greeting, TLS on either side, and the client's login on its way to the server.
//!
//! Packets are read one at a time and no byte further, since what follows a request for TLS is not the protocol's.

use std::io;

use tokio::io::AsyncReadExt as _;

use super::answer::Refusal;
use super::asked::Remembered;
use super::fault::Fault;
use super::frame::{HEADER, Header};
use super::machine::{LOOK_LIMIT, Machine};
use super::serve::Shared;
use super::step::{Bytes, Side, Step};
use crate::stream::Stream;

/// Why a connection ended before its login was on its way.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpeningError {
    /// Either side breaks the protocol, or asks for what is not there. The client has had the error.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// A socket failed.
    #[error("the connection broke before the login: {0}")]
    Io(#[from] io::Error),
}

/// A connection whose login is on its way.
pub(super) struct Opened {
    pub(super) machine: Machine<Remembered>,
    pub(super) client: Stream,
    pub(super) server: Stream,
}

/// Opens a connection; `None` when the server has turned the client away.
pub(super) async fn open(
    shared: &Shared,
    client: Stream,
    server: Stream,
) -> Result<Option<Opened>, OpeningError> {
    let mut opened = Opened { machine: Machine::new(shared.settings()), client, server };
    opened = opened.turn(shared, Side::Server).await?;
    while opened.machine.awaits_login() {
        opened = opened.turn(shared, Side::Client).await?;
    }
    Ok(opened.machine.is_open().then_some(opened))
}

impl Opened {
    /// Reads a packet of that side, and does what is to be done with it.
    async fn turn(mut self, shared: &Shared, side: Side) -> Result<Self, OpeningError> {
        let mut packet = vec![0; HEADER];
        self.stream(side).read_exact(&mut packet).await?;
        let len = Header::parse(&packet).map(|header| header.len).unwrap_or_default();
        if len <= LOOK_LIMIT {
            packet.resize(HEADER + len, 0);
            self.stream(side).read_exact(packet.get_mut(HEADER..).unwrap_or_default()).await?;
        }
        let mut rest = packet.as_slice();
        loop {
            let step = match side {
                Side::Client => self.machine.client(rest),
                Side::Server => self.machine.server(rest),
            };
            let step = match step {
                Ok(step) => step,
                Err(fault) => return Err(self.broken_off(fault).await),
            };
            let other = match side {
                Side::Client => Side::Server,
                Side::Server => Side::Client,
            };
            let taken = match step {
                Step::More | Step::Wait => return Ok(self),
                Step::Pass(taken) => {
                    self.stream(other).send(rest.get(..taken).unwrap_or_default()).await?;
                    taken
                }
                Step::Skip(taken) => taken,
                Step::Swap(taken, Bytes(bytes)) => {
                    self.stream(other).send(&bytes).await?;
                    taken
                }
                Step::Send(to, Bytes(bytes)) => {
                    self.stream(to).send(&bytes).await?;
                    0
                }
                Step::StartTls(Side::Client) => {
                    self.client = shared.secure_client(self.client).await?;
                    0
                }
                Step::StartTls(Side::Server) => {
                    self.server = shared.secure_server(self.server).await?;
                    0
                }
                // Neither comes before a login.
                Step::Ask(_) | Step::Tell(_) => 0,
            };
            rest = rest.get(taken..).unwrap_or_default();
            if rest.is_empty() && !self.machine.is_securing() {
                return Ok(self);
            }
        }
    }

    fn stream(&mut self, side: Side) -> &mut Stream {
        match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        }
    }

    async fn broken_off(&mut self, fault: Fault) -> OpeningError {
        if let Some(packet) = self.machine.farewell(&Refusal::from(&fault)) {
            self.client.end(&packet).await;
        }
        fault.into()
    }
}
