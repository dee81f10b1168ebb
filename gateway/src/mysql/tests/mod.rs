//! Tests of whole connections: captured sessions, refusals, TLS, and input of any kind.

mod answers;
mod anything;
mod commands;
mod counts;
mod farewells;
mod files;
mod instead;
mod killed;
mod limits;
pub(super) mod link;
mod logins;
mod names;
mod parts;
mod passwords;
pub(super) mod payers;
mod prepared;
mod refusals;
mod sessions;
mod tls;
mod turns;

use super::answer::{Answer, Refusal};
use super::captured;
use super::command::Command;
use super::machine::{Decision, INPUT_LIMIT, Machine};
use super::outstanding::PIPELINE_LIMIT;
use super::prepared::PREPARED_LIMIT;
use super::protocol_error::ProtocolError;
use super::settings::{ClientTls, Settings};
use super::step;
