//! The store: there, whole, its owner's alone, and room on its disk.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access, statvfs};
use tidegate_controller::check::check;
use tidegate_controller::store::StoreError;

use super::Finding;

const AREA: &str = "store";
/// Free bytes below which the next commits fail.
const FULL: u64 = 4 * 1_024 * 1_024;
/// Free bytes below which a week of history may not fit: half of what the largest of stores grows by in one.
const LOW: u64 = 256 * 1_024 * 1_024;

/// What is known about the store.
#[derive(Clone, Debug)]
pub(crate) struct StoreFacts {
    pub(crate) path: PathBuf,
    /// The user of this process.
    pub(crate) user: u32,
    pub(crate) file: FileFacts,
    /// The directory can be written to; `None` where there is none.
    pub(crate) folder_writable: Option<bool>,
    /// Free bytes on the disk; `None` where they are unknown.
    pub(crate) free: Option<u64>,
    pub(crate) check: CheckFacts,
}

/// What is known about the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileFacts {
    Missing,
    /// The file is something else, or cannot be read.
    Strange(String),
    File {
        mode: u32,
        owner: u32,
        readable: bool,
        writable: bool,
    },
}

/// What a check of every page and row found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CheckFacts {
    NotMade,
    /// Another process has it open: a controller or a check.
    InUse,
    Whole,
    Damaged(Vec<String>),
    Refused(String),
}

/// Looks at a store. Reads all of it, unless a process has it open.
pub(crate) fn gather(path: &Path) -> StoreFacts {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or_else(|| Path::new("."));
    let allowed = |path: &Path, access_to| access(path, access_to).is_ok();
    let file = match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => FileFacts::Missing,
        Err(error) => FileFacts::Strange(error.to_string()),
        Ok(found) if !found.is_file() => FileFacts::Strange("it is not a file".to_owned()),
        Ok(found) => FileFacts::File {
            mode: found.mode() & 0o777,
            owner: found.uid(),
            readable: allowed(path, Access::READ_OK),
            writable: allowed(path, Access::WRITE_OK),
        },
    };
    let readable = matches!(file, FileFacts::File { readable: true, .. });
    StoreFacts {
        path: path.to_owned(),
        user: rustix::process::geteuid().as_raw(),
        file,
        folder_writable: folder.is_dir().then(|| allowed(folder, Access::WRITE_OK)),
        free: statvfs(folder).ok().map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize)),
        check: if readable { checked(path) } else { CheckFacts::NotMade },
    }
}

fn checked(path: &Path) -> CheckFacts {
    match check(path) {
        Ok(checked) if checked.is_whole() => CheckFacts::Whole,
        Ok(checked) => {
            let damage = checked.damage.iter().take(3);
            CheckFacts::Damaged(damage.map(|damage| format!("{} {}", damage.place, damage.reason)).collect())
        }
        Err(StoreError::Locked { .. }) => CheckFacts::InUse,
        Err(error) => CheckFacts::Refused(error.to_string()),
    }
}

pub(crate) fn judge(facts: &StoreFacts) -> Vec<Finding> {
    let path = facts.path.display();
    let mut findings = Vec::new();
    match &facts.file {
        FileFacts::Missing => findings.push(match facts.folder_writable {
            Some(true) => Finding::ok(AREA, format!("{path} is not there; the first start makes it")),
            Some(false) => Finding::failed(
                AREA,
                format!("{path} is not there, and this user may not make it"),
                format!("give the directory to user {}, or name another with --data", facts.user),
            ),
            None => Finding::warning(
                AREA,
                format!("{path} is not there, and neither is its directory"),
                "start the controller with --data, which makes it, or make it by hand",
            ),
        }),
        FileFacts::Strange(reason) => findings.push(Finding::failed(
            AREA,
            format!("{path}: {reason}"),
            "name another place with --data, or look at the rights of the directories above it",
        )),
        FileFacts::File { mode, owner, readable, writable } => {
            findings.push(if *readable && *writable && facts.folder_writable == Some(true) {
                Finding::ok(AREA, format!("{path} can be read and written"))
            } else {
                let what = match (readable, writable) {
                    (false, _) => "cannot be read",
                    (_, false) => "cannot be written",
                    _ => "is in a directory that cannot be written",
                };
                let remedy = format!("run as user {owner}, which owns it, or give it to user {}", facts.user);
                Finding::failed(AREA, format!("{path} {what} by user {}", facts.user), remedy)
            });
            if mode & 0o077 != 0 {
                findings.push(Finding::warning(
                    AREA,
                    format!("{path} has mode {mode:04o}: the key that signs leases is in it, and others can read it"),
                    format!("chmod 600 {path}"),
                ));
            }
        }
    }
    findings.extend(judge_disk(facts.free));
    findings.extend(judge_check(&facts.check, facts));
    findings
}

fn judge_disk(free: Option<u64>) -> Option<Finding> {
    let free = free?;
    let found = format!("{} MiB are free on its disk", free / (1_024 * 1_024));
    Some(if free < FULL {
        Finding::failed(AREA, format!("{found}: commits fail or are about to"), "make room on it")
    } else if free < LOW {
        Finding::warning(AREA, found, "make room on it before it is full")
    } else {
        Finding::ok(AREA, found)
    })
}

fn judge_check(check: &CheckFacts, facts: &StoreFacts) -> Option<Finding> {
    let path = facts.path.display();
    Some(match check {
        CheckFacts::NotMade => return None,
        CheckFacts::Whole => Finding::ok(AREA, "nothing is damaged"),
        CheckFacts::InUse => Finding::ok(
            AREA,
            "in use by a controller, and not checked; `tidegate store backup` checks a copy",
        ),
        CheckFacts::Damaged(damage) => Finding::failed(
            AREA,
            format!("damaged: {}", damage.join("; ")),
            format!("tidegate store restore BACKUP --data {path} --replace"),
        ),
        CheckFacts::Refused(reason) => {
            Finding::failed(AREA, reason.clone(), format!("tidegate store check {path} shows more"))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    fn facts(file: FileFacts) -> StoreFacts {
        StoreFacts {
            path: "/d/s".into(),
            user: 5,
            file,
            folder_writable: Some(true),
            free: Some(LOW),
            check: CheckFacts::NotMade,
        }
    }

    fn verdicts(facts: &StoreFacts) -> Vec<Verdict> {
        judge(facts).iter().map(|finding| finding.verdict).collect()
    }

    const GOOD: FileFacts = FileFacts::File { mode: 0o600, owner: 5, readable: true, writable: true };

    #[test]
    fn the_file_is_judged_by_who_may_do_what() {
        assert_eq!(verdicts(&facts(FileFacts::Missing)), [Verdict::Ok, Verdict::Ok]);
        let closed = StoreFacts { folder_writable: Some(false), ..facts(FileFacts::Missing) };
        assert_eq!(verdicts(&closed), [Verdict::Failed, Verdict::Ok]);
        let nowhere = StoreFacts { folder_writable: None, free: None, ..facts(FileFacts::Missing) };
        assert_eq!(verdicts(&nowhere), [Verdict::Warning]);
        assert_eq!(verdicts(&facts(FileFacts::Strange("no".into()))), [Verdict::Failed, Verdict::Ok]);
        assert_eq!(verdicts(&facts(GOOD)), [Verdict::Ok, Verdict::Ok]);
        let open = FileFacts::File { mode: 0o640, owner: 5, readable: true, writable: true };
        assert_eq!(verdicts(&facts(open)), [Verdict::Ok, Verdict::Warning, Verdict::Ok]);
        let others = FileFacts::File { mode: 0o600, owner: 7, readable: false, writable: false };
        let judged = judge(&facts(others));
        assert!(judged[0].found.contains("cannot be read by user 5") && judged[0].remedy.contains("user 7"));
    }

    #[test]
    fn the_disk_and_the_check_are_judged() {
        let disk = |free| verdicts(&StoreFacts { free: Some(free), ..facts(GOOD) })[1];
        assert_eq!([disk(0), disk(FULL), disk(LOW)], [Verdict::Failed, Verdict::Warning, Verdict::Ok]);
        let check = |check| verdicts(&StoreFacts { check, ..facts(GOOD) })[2];
        assert_eq!(check(CheckFacts::Whole), Verdict::Ok);
        assert_eq!(check(CheckFacts::InUse), Verdict::Ok);
        assert_eq!(check(CheckFacts::Damaged(vec!["x".into()])), Verdict::Failed);
        assert_eq!(check(CheckFacts::Refused("x".into())), Verdict::Failed);
    }
}
