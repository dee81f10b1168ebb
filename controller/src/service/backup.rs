//! A copy of the store while it is in use: all rows as they are at one moment, in parts.

use std::ops::ControlFlow;

use crate::definitions::audit::{Actor, Change};
use crate::definitions::change::{Edit, Plan};
use crate::error::AdminError;
use crate::service::Service;
use crate::store::records::META_COMMIT;
use crate::store::{Row, Table};

/// Bytes of keys and values after which a part is full: with the longest row far below what a message may be. Half of it
/// would be twice the messages for nothing.
const PART_BYTES: usize = 256 * 1_024;

impl Service {
    /// Hands over all rows, as they are at one moment, until `part` breaks off; how many there were. What is counted by
    /// then is among them, if the disk takes it. Blocks for as long as `part` takes, and nobody else meanwhile.
    ///
    /// # Errors
    /// Another backup is under way, or the store cannot be read.
    pub fn backup(
        &self,
        actor: &Actor,
        mut part: impl FnMut(Vec<Row>) -> ControlFlow<()>,
    ) -> Result<u64, AdminError> {
        let Ok(_alone) = self.backing_up.try_lock() else {
            let message = "another backup is under way; wait until it is done".to_owned();
            return Err(AdminError::Refused { message });
        };
        let noted = self.definitions().change(actor, |_| {
            let change = Change { action: "backup store", subject: "store".to_owned(), ..Change::default() };
            Ok(Plan { edits: vec![Edit::Note], changes: vec![change], reply: () })
        });
        // A full disk is a reason to make a copy elsewhere, and not one against it.
        if let Err(error) = noted.and_then(|()| Ok(self.accounts().flush()?)) {
            let actor = actor.as_str();
            tracing::warn!(actor, %error, "a backup is made that the audit log or the newest consumption is not in");
        }
        let (mut rows, mut bytes, mut total) = (Vec::new(), 0, 0_u64);
        let copied = self.store.copy(&mut |table, key, value| {
            if table == Table::Meta && key == META_COMMIT {
                // Of this file alone.
                return Ok(ControlFlow::Continue(()));
            }
            bytes += key.len() + value.len();
            total = total.saturating_add(1);
            rows.push((table, key.to_vec(), value.to_vec()));
            if bytes < PART_BYTES {
                return Ok(ControlFlow::Continue(()));
            }
            bytes = 0;
            Ok(part(std::mem::take(&mut rows)))
        });
        copied.map_err(|error| AdminError::Refused { message: format!("no backup: {error}") })?;
        if !rows.is_empty() {
            // Whoever breaks off here knows it.
            let _ = part(rows);
        }
        Ok(total)
    }
}
