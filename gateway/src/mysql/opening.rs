//! The beginning of a connection: greeting, TLS on either side, and the client's login on its way to the server.
//!
//! Where TLS may begin, a packet is read to its end and no byte further: what follows a request for TLS is not the
//! protocol's.

use std::future::poll_fn;
use std::io;

use super::answer::Refusal;
use super::asked::Remembered;
use super::frame::{HEADER, Header};
use super::machine::Machine;
use super::protocol_error::ProtocolError;
use super::serve::Shared;
use super::step::{Bytes, Step};
use crate::session::{Link, Side};
use crate::stream::Stream;

/// Why a connection ended before its login was on its way.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpeningError {
    /// Either side breaks the protocol, or asks for what is not there. The client has had the error.
    #[error(transparent)]
    ProtocolError(#[from] ProtocolError),
    /// A socket failed.
    #[error("the connection broke before the login: {0}")]
    Io(#[from] io::Error),
}

/// A connection whose login is on its way.
pub(super) struct Opened {
    pub(super) machine: Machine<Remembered>,
    pub(super) link: Link,
}

/// What has to happen before the opening goes on.
enum Next {
    /// More has to come in from that side.
    Read(Side),
    /// That side begins TLS.
    Secure(Side),
    /// Nothing: the login is on its way, or the server has turned the client away.
    Opened,
}

/// Opens a connection; `None` when the server has turned the client away.
pub(super) async fn open(
    shared: &Shared,
    client: Stream,
    server: Stream,
) -> Result<Option<Opened>, OpeningError> {
    let link = Link::new(client, server, shared.listening.kills_abandoned);
    let mut opened = Opened { machine: Machine::new(shared.settings()), link };
    loop {
        let next = match opened.go_on() {
            Ok(next) => next,
            Err(error) => return Err(opened.broken_off(error).await),
        };
        opened.link.send().await?;
        match next {
            Next::Read(side) => opened.read(side).await?,
            Next::Secure(Side::Client) => {
                opened.link.client = shared.secure_client(opened.link.client).await?;
            }
            Next::Secure(Side::Server) => {
                opened.link.server = shared.secure_server(opened.link.server).await?;
            }
            Next::Opened => return Ok(opened.machine.is_open().then_some(opened)),
        }
    }
}

impl Opened {
    /// Does what is to be done with what has come in: with a login to its end, which its beginning is not sent without,
    /// since half of one wakes the server for nothing.
    fn go_on(&mut self) -> Result<Next, ProtocolError> {
        let mut side = Side::Server;
        loop {
            side = self.machine.opens_with().unwrap_or(side);
            let step = match side {
                Side::Client => self.machine.client(self.link.from_client.data())?,
                Side::Server => self.machine.server(self.link.from_server.data())?,
            };
            match step {
                Step::Pass(count) => self.link.pass(side, count),
                Step::Skip(count) => self.link.skip(side, count),
                Step::Swap(count, Bytes(bytes)) => self.link.swap(side, count, &bytes),
                Step::Send(to, Bytes(bytes)) => self.link.add(to, &bytes),
                Step::StartTls(side) => return Ok(Next::Secure(side)),
                // The last two come of no packet before the login's end.
                Step::More | Step::Wait | Step::Ask(_) | Step::Tell(_) => {
                    return Ok(self.machine.opens_with().map_or(Next::Opened, Next::Read));
                }
            }
        }
    }

    async fn read(&mut self, side: Side) -> io::Result<()> {
        let exactly = self.machine.may_secure(side);
        let (inbox, stream) = match side {
            Side::Client => (&mut self.link.from_client, &mut self.link.client),
            Side::Server => (&mut self.link.from_server, &mut self.link.server),
        };
        let lacks = packet(inbox.data()).saturating_sub(inbox.data().len());
        let most = if exactly { lacks } else { usize::MAX };
        match poll_fn(|cx| inbox.poll_read_at_most(cx, stream, most)).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    async fn broken_off(&mut self, error: ProtocolError) -> OpeningError {
        if let Some(packet) = self.machine.farewell(&Refusal::from(&error)) {
            self.link.to_client.add(&packet);
            self.link.last_words(false).await;
        }
        error.into()
    }
}

/// The length of the packet that begins with this, in bytes, as far as it is known.
fn packet(beginning: &[u8]) -> usize {
    Header::parse(beginning).map_or(HEADER, |header| HEADER.saturating_add(header.len))
}
