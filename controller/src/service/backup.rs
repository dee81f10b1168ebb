//! A copy of the store while it is in use: all rows as of one moment, in parts.

use std::ops::ControlFlow;

use crate::definitions::audit::{Actor, Change};
use crate::definitions::change::{Edit, Plan};
use crate::error::AdminError;
use crate::service::Service;
use crate::store::records::META_COMMIT;
use crate::store::{Row, Table};

/// Bytes of keys and values after which a part is full: with the longest row it stays far below the limit of a message.
/// Half of it would double the messages for nothing.
const PART_BYTES: usize = 256 * 1_024;

impl Service {
    /// Passes all rows, as of one moment, to `part` until that breaks off; returns their number. They include what was
    /// counted by then, if the disk takes it. Blocks as long as `part` takes, without blocking others.
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
        // A full disk is a reason to make a copy elsewhere, not a reason against it.
        if let Err(error) = noted.and_then(|()| Ok(self.upkeep().flush()?)) {
            let actor = actor.as_str();
            tracing::warn!(actor, %error, "a backup is made that the audit log or the newest consumption is not in");
        }
        let (mut rows, mut bytes, mut total) = (Vec::new(), 0, 0_u64);
        let copied = self.store.copy(&mut |table, key, value| {
            if table == Table::Meta && key == META_COMMIT {
                // Belongs to this file only.
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
            // A `part` that breaks off here knows it.
            let _ = part(rows);
        }
        Ok(total)
    }
}
