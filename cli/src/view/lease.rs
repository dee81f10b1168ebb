//! Leases, and the state of the groups they are in.

use serde::Serialize;
use tidegate_proto::v1;

/// What one node holds in one group. Rates are RU/s, amounts RU, as decimal text.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LeaseView {
    pub(crate) group: String,
    pub(crate) client: String,
    pub(crate) incarnation: u64,
    pub(crate) rate: String,
    pub(crate) committed: String,
    pub(crate) cap: String,
    pub(crate) lump: String,
    pub(crate) demand: String,
    pub(crate) backlog: String,
    pub(crate) debt: String,
    pub(crate) waiting: u64,
    pub(crate) expires_in_us: u64,
}

/// All leases of one group together.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct GroupStateView {
    pub(crate) group: String,
    pub(crate) committed: String,
    pub(crate) pool: String,
    pub(crate) demand: String,
    pub(crate) leases: u32,
    pub(crate) bound_rate: String,
}

impl From<v1::LeaseInfo> for LeaseView {
    fn from(lease: v1::LeaseInfo) -> Self {
        Self {
            group: lease.group,
            client: lease.client,
            incarnation: lease.incarnation,
            rate: lease.rate,
            committed: lease.committed,
            cap: lease.cap,
            lump: lease.lump,
            demand: lease.demand,
            backlog: lease.backlog,
            debt: lease.debt,
            waiting: lease.waiting,
            expires_in_us: lease.expires_in_us,
        }
    }
}

impl From<v1::GroupState> for GroupStateView {
    fn from(state: v1::GroupState) -> Self {
        Self {
            group: state.group,
            committed: state.committed,
            pool: state.pool,
            demand: state.demand,
            leases: state.leases,
            bound_rate: state.bound_rate,
        }
    }
}
