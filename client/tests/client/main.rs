//! The client against a fake controller that runs the real engine.

mod admission;
mod cancel;
mod fake;
mod grpc;
mod journal;
mod resolve;
mod session;
mod shutdown;
mod tower;
