//! Fuzz targets: what any input at all may do to the parts that read what others send.
//!
//! A target is a function of bytes that panics when a property does not hold. The fuzz engine in `fuzz/` calls them,
//! and so does an ordinary test with every file of `fuzz/corpus/`.

#![expect(clippy::expect_used, reason = "a target stops at the first surprise")]

mod config;
mod console;
mod core;
mod fingerprint;
mod grants;
mod identity;
mod input;
mod memory;
mod requests;
mod rest;
mod sql;
mod store;

/// A target: its name, which is that of its corpus, and what it does with an input.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: [Target; 13] = [
    ("config", config::run),
    ("console", console::run),
    ("core", core::run),
    ("fingerprint", fingerprint::run),
    ("grants", grants::run),
    ("identities", identity::certificates),
    ("jwt", identity::jwt),
    ("mysql", tidegate_gateway::fuzzing::mysql),
    ("postgres", tidegate_gateway::fuzzing::postgres),
    ("rest", rest::run),
    ("sql", sql::run),
    ("store", store::run),
    ("tokens", identity::tokens),
];

/// Runs one input through the target of this name.
///
/// # Panics
/// When a property does not hold, or there is no such target.
pub fn run(name: &str, input: &[u8]) {
    let target = TARGETS.iter().find(|(known, _)| *known == name);
    let (_, run) = target.expect("a target of this name");
    run(input);
}
