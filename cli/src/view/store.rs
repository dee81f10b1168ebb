//! A store as a check of it found it.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use tidegate_controller::check::Checked;

/// What a store holds, and what is damaged.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct StoreView {
    pub(crate) file: String,
    pub(crate) epoch: u64,
    pub(crate) revision: u64,
    /// When the newest definition was changed; 0 for never.
    pub(crate) changed_unix_ms: u64,
    pub(crate) rows: BTreeMap<String, u64>,
    /// Rows of groups that were deleted as they were written; a start leaves them out.
    pub(crate) leftover_rows: u64,
    /// How many damages there are; the list may be shorter.
    pub(crate) damages: u64,
    pub(crate) damage: Vec<String>,
}

impl StoreView {
    pub(crate) fn of(file: &Path, checked: &Checked) -> Self {
        let damage: Vec<String> = checked
            .damage
            .iter()
            .map(|damage| match damage.place.as_str() {
                "" => damage.reason.clone(),
                place => format!("{place}: {}", damage.reason),
            })
            .collect();
        Self {
            file: file.display().to_string(),
            epoch: checked.epoch,
            revision: checked.revision,
            changed_unix_ms: checked.changed_unix_ms.unwrap_or_default(),
            rows: checked.rows.iter().map(|(table, rows)| (table.name().to_owned(), *rows)).collect(),
            leftover_rows: checked.leftover,
            damages: checked.more.saturating_add(u64::try_from(damage.len()).unwrap_or(u64::MAX)),
            damage,
        }
    }

    pub(crate) fn backed_up(&self) -> String {
        format!("{} is a whole copy: epoch {}, revision {}", self.file, self.epoch, self.revision)
    }

    pub(crate) fn restored(&self) -> String {
        format!(
            "{} is in place: epoch {}, revision {}; start the controller, which recovers first",
            self.file, self.epoch, self.revision
        )
    }

    pub(crate) fn found(&self) -> String {
        let state = if self.damages == 0 {
            "nothing is damaged".to_owned()
        } else {
            format!("{} damages", self.damages)
        };
        let leftover = match self.leftover_rows {
            0 => String::new(),
            rows => format!(", {rows} rows of deleted groups"),
        };
        format!("{}: epoch {}, revision {}, {state}{leftover}", self.file, self.epoch, self.revision)
    }
}
