//! The console in a real browser, served by a real controller with a real node under load: what people do there, and
//! what they see.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

mod changes;
mod looks;
mod outage;
mod stage;
