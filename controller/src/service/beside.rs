//! What a service has to do with beside its own state: each is set once, as the controller starts, if it is there.

use std::sync::{Arc, OnceLock};

use tidegate_tls::Server;
use tidegate_traces::Traces;

use crate::alarms::Alarms;
use crate::cluster::{Gate, Roster};

/// What is beside the service.
#[derive(Default)]
pub(crate) struct Beside {
    /// TLS of the listeners, which status and metrics report.
    pub(crate) tls: OnceLock<Arc<Server>>,
    /// Alarms, which the status reports.
    pub(crate) alarms: OnceLock<Arc<Alarms>>,
    /// Where spans go, if they are recorded.
    pub(crate) traces: OnceLock<Traces>,
    /// The controllers of its cluster.
    pub(crate) cluster: OnceLock<Arc<Roster>>,
    /// What answers to nodes wait at, if they wait for a beat.
    pub(crate) gate: OnceLock<Arc<Gate>>,
}
