//! A node as the controller knows it.

use serde::Serialize;
use tidegate_proto::v1;

/// One process that holds leases.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct NodeView {
    pub(crate) client: String,
    pub(crate) incarnation: u64,
    pub(crate) agent: String,
    pub(crate) connected: bool,
    pub(crate) silent_us: u64,
    pub(crate) leases: u32,
    pub(crate) messages: u64,
    pub(crate) process_cpu_ns: u64,
    pub(crate) metered_cpu_ns: u64,
    pub(crate) resident_bytes: u64,
}

/// A node that was forgotten.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ForgottenView {
    pub(crate) client: String,
    /// How many starts of it were known.
    pub(crate) incarnations: u32,
}

impl From<v1::ClientInfo> for NodeView {
    fn from(client: v1::ClientInfo) -> Self {
        let node = client.node.unwrap_or_default();
        Self {
            client: client.client,
            incarnation: client.incarnation,
            agent: client.agent,
            connected: client.connected,
            silent_us: client.silent_us,
            leases: client.leases,
            messages: client.messages,
            process_cpu_ns: node.process_cpu_ns,
            metered_cpu_ns: node.metered_cpu_ns,
            resident_bytes: node.resident_bytes,
        }
    }
}

impl NodeView {
    /// Share of the process's CPU that some group was charged for, in percent; empty when it is not known.
    pub(crate) fn attributed(&self) -> String {
        let share = self.metered_cpu_ns.saturating_mul(100).checked_div(self.process_cpu_ns);
        share.map(|percent| format!("{}%", percent.min(100))).unwrap_or_default()
    }
}
