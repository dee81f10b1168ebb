//! The MySQL client/server protocol, as spoken by MySQL and MariaDB, seen from between the two.
//!
//! A `Machine` is fed what has been read from each side and says what becomes of it, by ranges of the input:
//! packets are passed as they are, and of a statement no more is seen than the beginning of its text. It decides
//! nothing about admission: it asks before the first byte of a statement goes to the server, and tells when the
//! response has ended. It has no clock, no sockets and no buffers of its own. The rest is its shell: `opening` until the
//! login is on its way, `session` from there, `control` for what cannot be said on the client's connection.
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
mod fault;
mod frame;
mod from_client;
mod from_server;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzed;
mod greeting;
mod logging_in;
mod login;
mod machine;
mod named;
mod opening;
mod outstanding;
mod own;
mod prepared;
mod public_key;
mod reader;
mod reply;
mod serve;
mod session;
mod settings;
mod step;
#[cfg(test)]
mod tests;
mod thread;
mod warnings;

pub(crate) use control::Control;
pub(crate) use serve::{Shared, serve};
