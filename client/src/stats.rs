//! The figures that `Client::stats` returns.

use crate::hub::{Hub, Link};
use crate::process::ProcessTotals;
use crate::shared::Counts;

/// A look at a client, for metrics and people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientStats {
    /// The session.
    pub link: Link,
    /// Events since the client started.
    pub counts: Counts,
    /// Number of this start of the node.
    pub incarnation: u64,
    /// Groups known.
    pub groups: usize,
    /// Groups that have a lease or something to do; the others sleep.
    pub awake: usize,
    /// Bindings known, and the revision of the controller's definitions they reflect.
    pub bindings: usize,
    /// Newest revision of the controller's definitions seen.
    pub revision: u64,
    /// Name and version of the table that is charged.
    pub cost_table: (String, u32),
    /// Name and version of the table that is only counted.
    pub shadow_table: Option<(String, u32)>,
    /// CPU and memory of the process, at most 5 s old; `None` where the operating system does not report them.
    pub process: Option<ProcessTotals>,
    /// CPU metered in all groups, in nanoseconds.
    pub metered_cpu_ns: u64,
    /// How far the machine's clock ran off its raw one in the last minute, in ppm; `None` while that is no more than
    /// leases allow for.
    pub clock_slew_ppm: Option<u32>,
}

impl ClientStats {
    pub(crate) fn read(hub: &Hub) -> Self {
        let tables = hub.shared.prices.tables();
        // First, as it has every group count what its threads did.
        let metered_cpu_ns = hub.agenda.awake.metered_cpu_ns();
        let named = |table: &tidegate_cost_model::CostTable| (table.name().to_owned(), table.version());
        Self {
            link: hub.link.borrow().clone(),
            counts: hub.shared.counters.read(),
            incarnation: hub.incarnation,
            groups: hub.registry.len(),
            awake: hub.agenda.awake.len(),
            bindings: hub.bindings(),
            revision: *hub.revision.borrow(),
            cost_table: named(&tables.active),
            shadow_table: tables.shadow.as_ref().map(named),
            process: hub.process.read(hub.shared.clock.now()),
            metered_cpu_ns,
            clock_slew_ppm: hub.shared.slewed_by(),
        }
    }

    /// Share of the process's CPU that no group was charged for, 0 to 1: background work, the runtime, and what is
    /// not metered. `None` when the process's CPU is not known.
    pub fn unattributed_share(&self) -> Option<f64> {
        let total = self.process?.cpu_ns;
        let rest = total.saturating_sub(self.metered_cpu_ns);
        (total > 0).then(|| rest as f64 / total as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unattributed_share_is_what_metering_missed() {
        let stats = |cpu_ns, metered_cpu_ns| ClientStats {
            process: Some(ProcessTotals { cpu_ns, resident_bytes: 1 }),
            metered_cpu_ns,
            ..ClientStats::default()
        };
        assert_eq!(stats(400, 300).unattributed_share(), Some(0.25));
        // The meters resolve nanoseconds and the process milliseconds, so the sum may run ahead.
        assert_eq!(stats(400, 500).unattributed_share(), Some(0.0));
        assert_eq!(stats(0, 0).unattributed_share(), None);
        assert_eq!(ClientStats::default().unattributed_share(), None);
    }
}
