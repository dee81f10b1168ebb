//! The MySQL client/server protocol, as spoken by MySQL and MariaDB, seen from between the two.
//!
//! A `Machine` takes the bytes read from each side and returns what to do with them, as ranges of the input: it passes
//! packets as they are, and sees only the beginning of a statement's text. It decides nothing about admission: it asks
//! before the first byte of a statement goes to the server, and reports when the response has ended. It has no clock,
//! no sockets and no buffers of its own. The rest is its shell: `opening` until the login is on its way, `session` from
//! there, `control` for what cannot be said on the client's connection.
//!
//! What bounds it: `INPUT_LIMIT` bytes of input at once, `PIPELINE_LIMIT` awaited responses, `WAITING_ANSWERS_LIMIT`
//! and one answer of `ANSWER_LIMIT`, `PREPARED_LIMIT` prepared statements and as many names for some, names of
//! `NAME_LIMIT`.
//!
//! *Source*: MySQL "Client/Server Protocol", MariaDB "Client/Server Protocol", and captures of real sessions.

mod answer;
mod asked;
mod auth;
mod bunch;
mod capability;
#[cfg(test)]
mod captured;
mod command;
mod control;
mod ending;
mod frame;
mod from_client;
mod from_server;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzed;
mod greeting;
mod handshake;
mod login;
mod machine;
mod moment;
mod named;
mod opening;
mod outstanding;
mod own;
mod parts;
mod prepared;
mod protocol_error;
mod public_key;
mod reader;
mod reply;
mod serve;
mod session;
mod settings;
mod statements;
mod step;
#[cfg(test)]
mod tests;
mod thread;
mod warnings;
mod wire;

pub(crate) use control::Control;
pub(crate) use serve::{Shared, serve};
