//! A governed SQL node: admission before each operation, metering around it, settlement after it, and a log of it
//! all.

mod admission_log;
mod final_counters;
mod governor;
mod log_line;
mod transaction;

pub(crate) use admission_log::AdmissionLog;
pub(crate) use final_counters::FinalCounters;
pub(crate) use governor::{Governor, NotRun, Operation, Ran};
pub(crate) use log_line::LogLine;
pub(crate) use transaction::Transaction;
