//! Ending leases and watches whose time is over.

use std::collections::BTreeMap;

use tidegate_core::units::Time;

use crate::leasing::LeasingCalls;
use crate::limits::EXPIRE_EVERY;
use crate::service::State;

impl LeasingCalls<'_> {
    /// Ends what is over, and returns when to look again.
    pub fn expire(&self) -> Time {
        let now = self.service.clock().now();
        let mut state = self.service.lock();
        self.expire_in(&mut state, now);
        if state.convictions.expire(self.service.clock().unix_ms()) {
            self.service.statements().rules_changed();
        }
        let recovering = state.leasing.recovery(self.service.clock().now()).0 > 0;
        self.service.metrics.recovering.set(i64::from(recovering));
        let latest = now.after(EXPIRE_EVERY);
        state.leasing.engine.next_expiry().map_or(latest, |next| next.min(latest))
    }

    /// The same under the lock. One moment can end several leases; the metric counts moments.
    pub(crate) fn expire_in(&self, state: &mut State, now: Time) {
        while let Some(next) = state.leasing.engine.next_expiry().filter(|next| *next <= now) {
            state.leasing.engine.expire(next);
            self.service.metrics.expired.inc();
            if state.leasing.engine.next_expiry() == Some(next) {
                break;
            }
        }
        self.push_lowers(state, &BTreeMap::new());
    }
}
