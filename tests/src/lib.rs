//! Test support of tidegate with real processes: runs the binaries, stops, kills and cuts them off, and reads what the
//! nodes logged.

pub mod process;
