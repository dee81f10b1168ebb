//! The running account of one request: settles its permit once, when the response body ends or is dropped.

use std::sync::Arc;

use http::HeaderMap;
use tidegate_core::units::Ru;
use tidegate_core::usage::Usage;

use super::estimate::Estimator;
use super::{Policy, limit};
use crate::meter::{CpuTimer, UsageRecorder};
use crate::permit::Permit;

/// A request's usage so far, and the permit that pays for it.
#[derive(Debug)]
pub(super) struct Account {
    permit: Option<Permit<'static>>,
    usage: Usage,
    recorder: UsageRecorder,
    estimator: Arc<Estimator>,
    tells_limits: bool,
}

impl Account {
    pub(super) fn open(
        permit: Permit<'static>,
        recorder: UsageRecorder,
        policy: &Policy,
        received: u64,
    ) -> Self {
        let usage = Usage { net_in_bytes: received, ..Usage::default() };
        let Policy { ref estimator, tells_limits, .. } = *policy;
        Self { permit: Some(permit), usage, recorder, estimator: Arc::clone(estimator), tells_limits }
    }

    /// Runs `work` and counts its CPU.
    pub(super) fn metered<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let timer = CpuTimer::begin();
        let value = work();
        self.usage.cpu_ns = self.usage.cpu_ns.saturating_add(timer.elapsed_ns());
        value
    }

    /// Counts bytes of the response body.
    pub(super) fn sent(&mut self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.usage.net_out_bytes = self.usage.net_out_bytes.saturating_add(bytes);
    }

    /// The charge for what was used so far and `to_send` bytes of body.
    pub(super) fn charge_with(&self, to_send: u64) -> Ru {
        let body = Usage { net_out_bytes: to_send, ..Usage::default() };
        self.permit.as_ref().map_or(Ru::ZERO, |permit| permit.price(&self.total().plus(&body)).total())
    }

    /// RU left in this node's bucket of the group.
    pub(super) fn remaining(&self) -> Option<Ru> {
        self.permit.as_ref().and_then(Permit::remaining)
    }

    /// Writes what is left of the group's quota, if it has one. What the request costs beyond its estimate so far is
    /// used as well.
    pub(super) fn write_limits(&self, headers: &mut HeaderMap, charge: Ru) {
        let Some(permit) = self.permit.as_ref().filter(|_| self.tells_limits) else { return };
        if let Some(quota) = permit.quota_left(charge) {
            limit::write(headers, permit.group(), &quota, None);
        }
    }

    /// Settles.
    pub(super) fn close(&mut self) {
        if let Some(permit) = self.permit.take() {
            let charge = permit.settle(&self.total());
            self.estimator.learn(charge.total());
        }
    }

    fn total(&self) -> Usage {
        self.usage.plus(&self.recorder.sum())
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.close();
    }
}
