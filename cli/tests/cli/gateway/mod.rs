//! `tidegate gateway` as a process, between real clients and real databases of both protocols.

mod away;
mod both;
mod memory;
mod secrets;
mod stage;
mod still;
