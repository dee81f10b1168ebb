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

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidegate_controller::check::Damage;
    use tidegate_controller::store::Table;

    use super::*;

    fn damage(place: &str) -> Damage {
        Damage { place: place.to_owned(), reason: "is cut off".to_owned() }
    }

    #[test]
    fn damages_that_are_not_listed_count_too() {
        let of = |fill: fn(&mut Checked)| {
            let mut checked = Checked::default();
            fill(&mut checked);
            StoreView::of(Path::new("/data/a.redb"), &checked)
        };
        let view = of(|checked| {
            (checked.epoch, checked.revision, checked.changed_unix_ms) = (3, 4, Some(5));
            checked.rows = [(Table::Groups, 6)].into();
            (checked.leftover, checked.more) = (7, 8);
            checked.damage = vec![damage("groups 1"), damage("")];
        });
        let expected = json!({
            "file": "/data/a.redb", "epoch": 3, "revision": 4, "changed_unix_ms": 5, "rows": {"groups": 6},
            "leftover_rows": 7, "damages": 10, "damage": ["groups 1: is cut off", "is cut off"],
        });
        assert_eq!(serde_json::to_value(&view).unwrap(), expected);
        assert_eq!(view.found(), "/data/a.redb: epoch 3, revision 4, 10 damages, 7 rows of deleted groups");
        let found = |fill| of(fill).found().replacen("/data/a.redb: epoch 0, revision 0, ", "", 1);
        assert_eq!(found(|checked| checked.more = 1), "1 damages");
        assert_eq!(found(|checked| checked.leftover = 1), "nothing is damaged, 1 rows of deleted groups");
    }
}
