//! The driver: one task per client that looks at each group when its time has come.

use std::sync::Arc;

use super::Agenda;
use crate::clock::Clock;

/// Runs until the client ends.
pub(crate) async fn run(clock: Clock, agenda: Arc<Agenda>) {
    loop {
        for cell in agenda.take_scheduled(clock.now()) {
            cell.if_awake(|state, _| state.looked());
        }
        match agenda.schedule.next() {
            Some(at) => {
                tokio::select! {
                    () = clock.sleep_until(at) => {}
                    () = agenda.schedule.sooner() => {}
                }
            }
            None => agenda.schedule.sooner().await,
        }
    }
}
