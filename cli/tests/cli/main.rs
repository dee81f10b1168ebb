//! The real binary, run as people and programs run it.

#[cfg(test)]
mod admin;
#[cfg(test)]
mod apply;
#[cfg(test)]
mod asked;
#[cfg(test)]
mod between;
#[cfg(test)]
mod calls;
#[cfg(test)]
mod cluster;
#[cfg(test)]
mod completion;
#[cfg(test)]
mod console;
#[cfg(test)]
mod contexts;
#[cfg(test)]
mod controller;
#[cfg(test)]
mod cost_tables;
#[cfg(test)]
mod demo;
#[cfg(test)]
mod demotion;
#[cfg(test)]
mod doctor;
#[cfg(test)]
mod edit;
#[cfg(test)]
mod gateway;
#[cfg(test)]
mod lab;
#[cfg(test)]
mod names;
#[cfg(test)]
mod node;
#[cfg(test)]
mod policy;
#[cfg(test)]
mod proposals;
#[cfg(test)]
mod quota;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod runaways;
#[cfg(test)]
mod secrets;
#[cfg(test)]
mod set_up;
#[cfg(test)]
mod settings;
#[cfg(test)]
mod several;
#[cfg(test)]
mod sockets;
#[cfg(test)]
mod sql;
#[cfg(test)]
mod store;
#[cfg(test)]
mod support;
#[cfg(test)]
mod terminal;
#[cfg(test)]
mod tls;
#[cfg(test)]
mod tokens;
#[cfg(test)]
mod told;
#[cfg(test)]
mod unread;
#[cfg(test)]
mod waits;
#[cfg(test)]
mod webhook;
