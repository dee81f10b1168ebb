//! What every group of a client needs: clock, prices, journal and counters.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use tidegate_core::group::Fallback;
use tidegate_core::node::{NodeConfig, RoundTrip};

use tidegate_core::slew::Slew;
use tidegate_core::units::{Span, Time};

use crate::clock::Clock;
use crate::journal::Journal;
use crate::known::Known;
use crate::names::GroupName;
use crate::pricing::Prices;
use crate::sync::{AtomicBool, Mutex};

/// State shared by the groups, the tasks and the handles of one client.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    pub(crate) config: NodeConfig,
    pub(crate) prices: Prices,
    pub(crate) journal: Option<Journal>,
    /// What groups may admit without a controller, as the last one said.
    pub(crate) known: Option<Known>,
    pub(crate) counters: Counters,
    /// Set once; nothing is admitted from then on.
    pub(crate) closing: AtomicBool,
    /// How long answers of the controller take.
    round_trip: Mutex<RoundTrip>,
    /// How far the clock runs off the machine's raw one.
    slew: Mutex<Slew>,
}

impl Shared {
    #[cfg(test)]
    pub(crate) fn new(config: NodeConfig, journal: Option<Journal>) -> Arc<Self> {
        Self::with_known(config, journal, None)
    }

    /// The same with what is known of groups.
    pub(crate) fn with_known(
        config: NodeConfig,
        journal: Option<Journal>,
        known: Option<Known>,
    ) -> Arc<Self> {
        Arc::new(Self {
            clock: Clock::start(),
            config,
            prices: Prices::default(),
            journal,
            known,
            counters: Counters::default(),
            closing: AtomicBool::new(false),
            round_trip: Mutex::default(),
            slew: Mutex::default(),
        })
    }

    /// How long answers of the controller take, over all groups.
    pub(crate) fn round_trip(&self) -> RoundTrip {
        *self.round_trip.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An answer took so long.
    pub(crate) fn answered_within(&self, span: Span) {
        self.round_trip.lock().unwrap_or_else(PoisonError::into_inner).measured(span);
    }

    /// How far the clock runs off, in ppm, where that is more than leases allow for.
    pub(crate) fn slewed_by(&self) -> Option<u32> {
        self.slew.lock().unwrap_or_else(PoisonError::into_inner).beyond(self.config.drift_ppm)
    }

    /// Compares the clock with the raw one, both as they are read now. Returns whether that shows more drift than the
    /// leases in hand allow for.
    pub(crate) fn compare_clocks(&self, (used, raw): (Time, Time)) -> bool {
        let before = self.slewed_by();
        self.slew.lock().unwrap_or_else(PoisonError::into_inner).look(used, raw);
        let after = self.slewed_by();
        let more = after > before;
        match (before, after) {
            (_, Some(ppm)) if more => {
                let allowed = self.config.drift_ppm;
                tracing::warn!(
                    ppm,
                    allowed,
                    "this machine's clock is slewed by more than leases allow for: they are cut by as much; limit it, \
                     for chrony with maxslewrate"
                );
            }
            (Some(_), None) => tracing::info!("this machine's clock is no longer slewed"),
            _ => {}
        }
        more
    }

    /// Brings what is known of groups to disk.
    pub(crate) fn keep_known(&self, now: Time, ends: bool) {
        if let Some(known) = &self.known {
            known.save(now, ends);
        }
    }

    /// The fallback of a group until a controller answers for it.
    pub(crate) fn fallback_of(&self, group: &GroupName) -> Fallback {
        if group.is_not_given() {
            return Fallback::Stop;
        }
        let known = self.known.as_ref().and_then(|known| known.of(group));
        known.unwrap_or(self.config.fallback)
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $field:ident,)*) => {
        /// Events counted where their result is known.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $field: Counter,)*
        }

        /// How often something happened since the client started.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counts {
            $($(#[$doc])* pub $field: u64,)*
        }

        impl Counters {
            pub(crate) fn read(&self) -> Counts {
                Counts { $($field: self.$field.get(),)* }
            }
        }
    };
}

counters! {
    /// Streams on which the controller said `Welcome`.
    sessions,
    /// Streams lost, and attempts to open one that failed.
    session_failures,
    /// `Renew` messages sent.
    renewals,
    /// Group entries in them.
    asks,
    /// Grants applied.
    grants,
    /// Grants that came after a newer request, and lengthened the lease.
    late_grants,
    /// Requests that the controller, being behind, came to too late and did not consider.
    shed,
    /// Grants that came too late for anything or were answered twice.
    stale_grants,
    /// Messages of an older leadership epoch, ignored.
    old_epochs,
    /// Entries refused because a field was out of range, or the client had not asked.
    malformed,
    /// Requests that were not answered in time.
    timeouts,
    /// Pushed orders to lower a rate.
    lowers,
    /// Events of the watch stream applied.
    watch_events,
    /// Cost tables and bindings that could not be used.
    watch_refused,
    /// Journal writes that failed; what they would have kept is lost if the process dies.
    journal_failures,
    /// Reports that the controller could not count; they are kept and sent again when they have changed.
    reports_refused,
    /// Operations admitted without waiting.
    admitted,
    /// Operations admitted, at once or after waiting, by the group to which theirs demotes.
    demoted,
    /// Operations that had to wait.
    queued,
    /// Operations refused, at once or after waiting.
    refused,
    /// Acquisitions given up by their caller.
    abandoned,
}

/// A count.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_many(&self, count: u64) {
        if count > 0 {
            self.0.fetch_add(count, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
