//! The driver: one task per client that looks at each group when its time has come.

use std::sync::Arc;

use crate::shared::Shared;

/// Runs until the client ends.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        for cell in shared.schedule.take_due(shared.clock.now()) {
            cell.look();
        }
        match shared.schedule.next() {
            Some(at) => {
                tokio::select! {
                    () = shared.clock.sleep_until(at) => {}
                    () = shared.schedule.sooner() => {}
                }
            }
            None => shared.schedule.sooner().await,
        }
    }
}
