//! `tidegate gateway` as a process, between real clients and real databases of both protocols.

mod away;
mod both;
mod memory;
mod secrets;
mod settings;
mod stage;
mod still;
