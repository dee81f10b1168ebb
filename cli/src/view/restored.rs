//! A cluster that goes on after a restore of etcd, and what that cost.

use serde::Serialize;
use tidegate_controller::{Lost, Restored};

use super::AuditView;
use crate::follow::Shown as _;
use crate::page::Page;
use crate::table::{Column, Table};

/// What was done, and what is lost.
#[derive(Debug, Serialize)]
pub(crate) struct RestoredView {
    /// The new word of the log.
    cluster: String,
    epoch: u64,
    /// The last segment of the log as it was restored, and of the file.
    segment: u64,
    segment_of_file: u64,
    /// Where the file is now.
    file: String,
    lost: LostView,
}

#[derive(Debug, Serialize)]
struct LostView {
    ru: String,
    /// Those that lost most.
    groups: Vec<GroupLost>,
    changes: u64,
    /// The newest, newest first.
    newest_changes: Vec<AuditView>,
}

#[derive(Debug, Serialize)]
struct GroupLost {
    group: String,
    ru: String,
}

impl RestoredView {
    pub(crate) fn of(restored: Restored) -> Self {
        let Restored { cluster, epoch, kept, had, lost, aside } = restored;
        let Lost { ru, groups, changes, newest } = lost;
        let group = |(group, ru): (String, tidegate_core::units::RuTotal)| GroupLost {
            group,
            ru: ru.number().to_string(),
        };
        Self {
            cluster,
            epoch,
            segment: kept,
            segment_of_file: had,
            file: aside.display().to_string(),
            lost: LostView {
                ru: ru.number().to_string(),
                groups: groups.into_iter().map(group).collect(),
                changes,
                newest_changes: newest.into_iter().map(AuditView::from).collect(),
            },
        }
    }

    pub(crate) fn page(&self) -> Page {
        let LostView { ru, groups, changes, newest_changes } = &self.lost;
        let mut page = Page::from(format!(
            "the cluster goes on as {}, from segment {} of {}; the file is now {}; start the controllers\n\
             lost: {changes} changes of definitions, and {ru} RU that were counted, less what living nodes report again",
            self.cluster, self.segment, self.segment_of_file, self.file
        ));
        if !newest_changes.is_empty() {
            page = page.then(newest_changes.page());
        }
        if !groups.is_empty() {
            let mut table = Table::new([Column::name("GROUP"), Column::number("RU LOST")]);
            groups.iter().for_each(|of| table.row([of.group.clone(), of.ru.clone()]));
            page = page.then(table);
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::units::RuTotal;
    use tidegate_proto::v1;

    use super::*;
    use crate::screen::Screen;

    #[test]
    fn what_a_restore_lost_is_told_by_group_and_change() {
        let entry = v1::AuditEntry {
            id: 9,
            action: "revoke token".into(),
            subject: "token 3 of ann".into(),
            ..v1::AuditEntry::default()
        };
        let lost = |groups, changes, newest| Lost { ru: RuTotal(7_500_000), groups, changes, newest };
        let restored = |lost| Restored {
            cluster: "c0ffee".into(),
            epoch: 5,
            kept: 12,
            had: 34,
            lost,
            aside: "/data/tidegate.redb.ahead".into(),
        };
        let groups = vec![("shop".to_owned(), RuTotal(7_000_000)), ("batch".to_owned(), RuTotal(500_000))];
        let view = RestoredView::of(restored(lost(groups, 2, vec![entry])));
        let text = |view: &RestoredView| view.page().lines(&Screen::default(), true).join("\n");
        let shown = text(&view);
        for part in [
            "goes on as c0ffee, from segment 12 of 34; the file is now /data/tidegate.redb.ahead;",
            "lost: 2 changes of definitions, and 7.5 RU",
            "revoke token",
            "token 3 of ann",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        for row in [["shop", "7"], ["batch", "0.5"]] {
            assert!(lines.iter().any(|line| *line == row), "{row:?}: {shown}");
        }
        let json = serde_json::to_value(&view).unwrap();
        let (epoch, segment, of) = (&json["epoch"], &json["segment"], &json["segment_of_file"]);
        assert_eq!((epoch, segment, of), (&5.into(), &12.into(), &34.into()));
        let nothing = text(&RestoredView::of(restored(lost(Vec::new(), 0, Vec::new()))));
        assert!(!nothing.contains("GROUP") && !nothing.contains("ACTOR"), "no empty tables: {nothing}");
    }
}
