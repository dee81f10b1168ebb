//! What sessions of both protocols have in common: the two connections, when a statement is looked at, when a session
//! is over, and what all sessions of a listener share.

mod ends;
mod link;
mod listening;
mod pace;

use std::pin::Pin;

pub(crate) use ends::{Ends, Over};
pub(crate) use link::{Link, LinkError, Read};
pub(crate) use listening::Listening;
pub(crate) use pace::{Due, Pace};

/// Something a session waits for while it goes on.
pub(crate) type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;
