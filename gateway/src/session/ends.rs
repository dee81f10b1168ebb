//! When a session is over whatever its two sides do: a login that takes too long, and the end of the gateway.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;

use tokio::time::Sleep;

use super::{Later, Listening};
use crate::clock;
use crate::seats::Seat;

/// What ends a session from outside.
pub(crate) struct Ends {
    closing: Later<()>,
    login: Option<Pin<Box<Sleep>>>,
    /// May have to be given up until the client has logged in.
    seat: Arc<Seat>,
}

/// Why it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// The client did not log in in time.
    Login,
    /// The gateway shuts down, and nothing is under way.
    Closing,
}

impl Over {
    /// The words that the client gets.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Login => "the login took too long",
            Self::Closing => "the gateway is shutting down; connect again",
        }
    }
}

impl Ends {
    pub(crate) fn new(listening: &Listening, seat: Arc<Seat>) -> Self {
        let login = clock::now().checked_add(listening.login_timeout);
        let login = login.map(|at| Box::pin(tokio::time::sleep_until(at)));
        Self { closing: listening.closing(), login, seat }
    }

    /// The login has succeeded.
    pub(crate) fn logged_in(&mut self) {
        self.login = None;
        self.seat.keep();
    }

    /// Whether it is over; `idle` when nothing is under way. The session waits for a statement that runs, up to the
    /// limit that the shutdown sets. So it heeds the shutdown only while idle.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, idle: bool) -> Option<Over> {
        if let Some(login) = &mut self.login
            && login.as_mut().poll(cx).is_ready()
        {
            return Some(Over::Login);
        }
        (idle && self.closing.as_mut().poll(cx).is_ready()).then_some(Over::Closing)
    }
}
