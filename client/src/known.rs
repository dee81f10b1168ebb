//! The last known definitions: what groups may admit without a controller, kept on disk for a process that starts while
//! none is there.
//!
//! A file beside the journal, `<dir>/<identity>.definitions`: a line each for the groups whose definition has a
//! fallback, in text, with a checksum, replaced as a whole when something changed. It holds the fallback that each node
//! of a group has, which the promise counts by node however often its process starts. It does not keep a part of a
//! `fallback_total`: that belongs to the process that received it, and the controller gives it to others when the
//! process is gone.
//!
//! A faulty file is logged, and nothing of it is used.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use tidegate_core::exchange::Grant;
use tidegate_core::group::Fallback;
use tidegate_core::units::{Rate, Span, Time};

use crate::checksum::checksum;
use crate::names::{GroupName, Identity};
use crate::sync::{Mutex, MutexGuard};

/// Groups that are kept, 0.9 MiB; of more a node has one in use after the other, and the first ones are as good as any.
const MAX_KEPT: usize = 10_000;
/// No file of ours is longer: name, word and number of each group in less than 128 bytes.
const MAX_BYTES: u64 = 128 * (MAX_KEPT as u64 + 2);
/// The file is written at most once in this time: definitions change seldom, but a node may come to use many groups, one
/// by one.
const EVERY: Span = Span::secs(1);
/// Begins every file; the format's number and the node's identity follow.
const MAGIC: &str = "tidegate-definitions";
const FORMAT: &str = "1";

/// What is known, and where it is kept.
#[derive(Debug)]
pub(crate) struct Known {
    path: PathBuf,
    identity: Identity,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    fallbacks: BTreeMap<GroupName, Fallback>,
    /// Whether the definitions differ from the file.
    changed: bool,
    written: Option<Time>,
    /// The last attempt to write failed, and that was said.
    failed: bool,
}

impl Known {
    /// The definitions that an earlier process of this node left in `dir`.
    pub(crate) fn open(dir: &Path, identity: &Identity) -> Self {
        let path = dir.join(format!("{identity}.definitions"));
        let fallbacks = match read(&path, identity) {
            Ok(fallbacks) => fallbacks,
            Err(reason) => {
                tracing::warn!(
                    file = %path.display(), %reason,
                    "the last known definitions are not used; until a controller answers, groups admit by \
                     fallback_until_connected only; the file is replaced then"
                );
                BTreeMap::new()
            }
        };
        let state = State { fallbacks, ..State::default() };
        Self { path, identity: identity.clone(), state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fallback of the group, as the last controller sent it.
    pub(crate) fn of(&self, group: &GroupName) -> Option<Fallback> {
        self.lock().fallbacks.get(group).copied()
    }

    /// Whether any group may.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().fallbacks.is_empty()
    }

    /// Takes in what a controller said of a group.
    pub(crate) fn hear(&self, group: &GroupName, grant: &Grant) {
        let fallback = match grant {
            Grant::Leased(terms) => terms.fallback,
            Grant::Unlimited { fallback, .. } | Grant::Recovering { fallback: Some(fallback), .. } => {
                *fallback
            }
            Grant::Recovering { fallback: None, .. } => return,
            Grant::UnknownGroup => Fallback::Stop,
        };
        let mut state = self.lock();
        let before = state.fallbacks.get(group).copied();
        match fallback {
            Fallback::Stop | Fallback::Part(..) => {
                state.changed |= before.is_some();
                state.fallbacks.remove(group);
            }
            _ if before == Some(fallback) => {}
            _ if before.is_none() && state.fallbacks.len() >= MAX_KEPT => {}
            Fallback::Rate(_) | Fallback::Unlimited => {
                state.fallbacks.insert(group.clone(), fallback);
                state.changed = true;
            }
        }
    }

    /// Writes what has changed, if it is time or the node ends.
    pub(crate) fn save(&self, now: Time, ends: bool) {
        let mut state = self.lock();
        let early = state.written.is_some_and(|written| now.since(written) < EVERY);
        if !state.changed || early && !ends {
            return;
        }
        state.written = Some(now);
        match write(&self.path, &text(&self.identity, &state.fallbacks)) {
            Ok(()) => (state.changed, state.failed) = (false, false),
            Err(error) => {
                if !std::mem::replace(&mut state.failed, true) {
                    tracing::error!(
                        file = %self.path.display(), %error,
                        "the last known definitions are not kept; check permissions and free space of the journal's \
                         directory"
                    );
                }
            }
        }
    }
}

fn text(identity: &Identity, fallbacks: &BTreeMap<GroupName, Fallback>) -> String {
    let mut text = format!("{MAGIC} {FORMAT} {identity}\n");
    for (group, fallback) in fallbacks {
        // Writing to a string does not fail.
        let _ = match fallback {
            Fallback::Rate(rate) => writeln!(text, "{group} rate {}", rate.0),
            Fallback::Unlimited => writeln!(text, "{group} unlimited"),
            Fallback::Stop | Fallback::Part(..) => Ok(()),
        };
    }
    let _ = writeln!(text, "sum {:016x}", checksum(text.as_bytes()));
    text
}

/// Puts a file in the place of the one that is there, as a whole. A power failure may leave the old one or a damaged one.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let fresh = path.with_extension("definitions.new");
    // A file that an earlier attempt left may have other permissions.
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
    file.write_all(text.as_bytes())?;
    fs::rename(&fresh, path)
}

/// The definitions in a file; empty when there is no file. An error says why the file cannot be used.
fn read(path: &Path, identity: &Identity) -> Result<BTreeMap<GroupName, Fallback>, String> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(format!("it cannot be opened: {error}")),
    };
    let mut text = String::new();
    let length = file.take(MAX_BYTES + 1).read_to_string(&mut text);
    let length = length.map_err(|error| format!("it cannot be read: {error}"))?;
    if length as u64 > MAX_BYTES {
        return Err(format!("it is longer than {MAX_BYTES} bytes"));
    }
    parse(&text, identity)
}

fn parse(text: &str, identity: &Identity) -> Result<BTreeMap<GroupName, Fallback>, String> {
    let (first, _) = text.split_once('\n').ok_or("it is cut off")?;
    let mut words = first.split(' ');
    if words.next() != Some(MAGIC) {
        return Err("it is no file of definitions".to_owned());
    }
    match words.next() {
        Some(FORMAT) => {}
        Some(other) => {
            return Err(format!("it has format {other}, of another version; this one reads {FORMAT}"));
        }
        None => return Err("it is cut off".to_owned()),
    }
    match words.next() {
        Some(other) if other == &**identity => {}
        other => return Err(format!("it is of node {:?}, not of {identity}", other.unwrap_or_default())),
    }
    let body = text.rfind("sum ").ok_or("it is cut off")?;
    let (body, sum) = text.split_at_checked(body).ok_or("it is cut off")?;
    if sum != format!("sum {:016x}\n", checksum(body.as_bytes())) {
        return Err("it is damaged: its checksum is wrong".to_owned());
    }
    let lines = body.lines().skip(1).take(MAX_KEPT + 1).map(|line| {
        let (group, fallback) = line.split_once(' ')?;
        let fallback = match fallback.split_once(' ') {
            None if fallback == "unlimited" => Fallback::Unlimited,
            Some(("rate", rate)) => Fallback::Rate(Rate(rate.parse().ok()?)),
            _ => return None,
        };
        let sound = !matches!(fallback, Fallback::Rate(rate) if rate <= Rate::ZERO || rate > Rate::MAX);
        sound.then(|| Some((GroupName::new(group).ok()?, fallback)))?
    });
    let fallbacks: Option<BTreeMap<_, _>> = lines.collect();
    match fallbacks {
        Some(fallbacks) if fallbacks.len() <= MAX_KEPT => Ok(fallbacks),
        _ => Err("it has lines that no version of this format writes".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn identity() -> Identity {
        Identity::new("web-1").unwrap()
    }

    fn name(group: &str) -> GroupName {
        GroupName::new(group).unwrap()
    }

    fn unlimited(fallback: Fallback) -> Grant {
        Grant::Unlimited { ttl: Span::secs(5), renew_after: Span::secs(1), fallback }
    }

    /// A file with these lines.
    fn sealed(body: &str) -> String {
        format!("{body}sum {:016x}\n", checksum(body.as_bytes()))
    }

    #[test]
    fn what_was_heard_is_there_for_the_next_process_and_parts_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let known = Known::open(dir.path(), &identity());
        known.hear(&name("rate"), &unlimited(Fallback::Rate(Rate(1_500_000))));
        known.hear(&name("free"), &unlimited(Fallback::Unlimited));
        known.hear(&name("stop"), &unlimited(Fallback::Stop));
        known.hear(&name("part"), &unlimited(Fallback::Part(Rate(7), Span::secs(9))));
        known.save(Time(0), false);
        let mode = fs::metadata(dir.path().join("web-1.definitions")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);

        let again = Known::open(dir.path(), &identity());
        assert_eq!(again.of(&name("rate")), Some(Fallback::Rate(Rate(1_500_000))));
        assert_eq!(again.of(&name("free")), Some(Fallback::Unlimited));
        assert_eq!((again.of(&name("stop")), again.of(&name("part"))), (None, None));
        assert_eq!(Known::open(dir.path(), &Identity::new("web-2").unwrap()).of(&name("rate")), None);

        // A fallback that a definition no longer has is forgotten, and so is a group that is gone.
        again.hear(&name("rate"), &unlimited(Fallback::Part(Rate(7), Span::secs(9))));
        again.hear(&name("free"), &Grant::UnknownGroup);
        again.save(Time(1), false);
        assert!(Known::open(dir.path(), &identity()).is_empty());
    }

    #[test]
    fn it_is_written_once_a_second_and_at_the_end_and_only_when_something_changed() {
        let dir = tempfile::tempdir().unwrap();
        let (known, file) = (Known::open(dir.path(), &identity()), dir.path().join("web-1.definitions"));
        known.save(Time(0), true);
        assert!(!file.exists(), "there is nothing to keep");
        known.hear(&name("a"), &unlimited(Fallback::Unlimited));
        known.save(Time(1), false);
        let first = fs::read(&file).unwrap();
        known.hear(&name("b"), &unlimited(Fallback::Unlimited));
        known.save(Time(999_999), false);
        assert_eq!(fs::read(&file).unwrap(), first);
        known.save(Time(1_000_001), false);
        assert_ne!(fs::read(&file).unwrap(), first);
        known.hear(&name("c"), &unlimited(Fallback::Unlimited));
        known.save(Time(1_000_002), true);
        assert_eq!(Known::open(dir.path(), &identity()).of(&name("c")), Some(Fallback::Unlimited));
    }

    #[test]
    fn a_file_that_is_damaged_cut_off_foreign_or_newer_is_not_used() {
        let whole = text(&identity(), &BTreeMap::from([(name("g"), Fallback::Rate(Rate(5)))]));
        assert_eq!(parse(&whole, &identity()).unwrap().len(), 1);
        let as_the_last_line = ["checksum", "sum"].map(|group| (name(group), Fallback::Unlimited));
        assert_eq!(parse(&text(&identity(), &as_the_last_line.into()), &identity()).unwrap().len(), 2);
        for cut in 0..whole.len() {
            assert!(parse(&whole[..cut], &identity()).is_err(), "{cut} bytes of it");
        }
        for at in 0..whole.len() {
            let mut bytes = whole.clone().into_bytes();
            bytes[at] ^= 1;
            if let Ok(turned) = String::from_utf8(bytes) {
                assert!(parse(&turned, &identity()).is_err(), "byte {at} turned");
            }
        }
        for (body, why) in [
            ("tidegate-definitions 2 web-1\n", "format 2"),
            ("tidegate-definitions\n", "cut off"),
            ("tidegate-definitions 1\n", "of node \"\""),
            ("tidegate-definitions 1 web-2\n", "of node \"web-2\""),
            ("something-else 1 web-1\n", "no file of definitions"),
            ("tidegate-definitions 1 web-1\ng rate -5\n", "lines"),
            ("tidegate-definitions 1 web-1\ng rate 0\n", "lines"),
            ("tidegate-definitions 1 web-1\ng rate 99999999999999999999\n", "lines"),
            ("tidegate-definitions 1 web-1\ng part 5\n", "lines"),
            ("tidegate-definitions 1 web-1\ng unlimitef\n", "lines"),
            ("tidegate-definitions 1 web-1\nno/name unlimited\n", "lines"),
        ] {
            let refused = parse(&sealed(body), &identity()).unwrap_err();
            assert!(refused.contains(why), "{body}: {refused}");
        }
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("web-1.definitions"), vec![b'x'; 2 << 20]).unwrap();
        assert!(Known::open(dir.path(), &identity()).is_empty());
    }

    #[test]
    fn no_more_is_kept_than_fits() {
        let dir = tempfile::tempdir().unwrap();
        let known = Known::open(dir.path(), &identity());
        let long = "x".repeat(57);
        for group in 0..MAX_KEPT + 10 {
            known.hear(&name(&format!("{long}-{group}")), &unlimited(Fallback::Rate(Rate::MAX)));
        }
        known.save(Time(0), false);
        let length = fs::metadata(dir.path().join("web-1.definitions")).unwrap().len();
        assert!(length < MAX_BYTES, "{length}");
        assert_eq!(Known::open(dir.path(), &identity()).lock().fallbacks.len(), MAX_KEPT);
        // What is kept changes all the same.
        let first = name(&format!("{long}-0"));
        known.hear(&first, &unlimited(Fallback::Rate(Rate(5))));
        assert_eq!(known.of(&first), Some(Fallback::Rate(Rate(5))));
    }

    #[test]
    fn as_much_as_is_kept_is_read_and_one_line_or_byte_more_is_not() {
        let of = |groups: usize| {
            let lines = (0..groups).map(|group| format!("g{group} unlimited\n"));
            sealed(&format!("tidegate-definitions 1 web-1\n{}", lines.collect::<String>()))
        };
        assert_eq!(parse(&of(MAX_KEPT), &identity()).unwrap().len(), MAX_KEPT);
        assert!(parse(&of(MAX_KEPT + 1), &identity()).unwrap_err().contains("lines"));
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("web-1.definitions");
        for (length, why) in [(MAX_BYTES, "cut off"), (MAX_BYTES + 1, "longer than")] {
            fs::write(&file, vec![b'x'; usize::try_from(length).unwrap()]).unwrap();
            let refused = read(&file, &identity()).unwrap_err();
            assert!(refused.contains(why), "{length} bytes: {refused}");
        }
        // A folder of its name is there, and is no file.
        fs::remove_file(&file).unwrap();
        assert!(read(&file, &identity()).unwrap().is_empty());
        fs::create_dir(&file).unwrap();
        assert!(read(&file, &identity()).unwrap_err().contains("cannot be read"));
        let other = dir.path().join("other");
        fs::write(&other, "").unwrap();
        assert!(
            read(&other.join("web-1.definitions"), &identity()).unwrap_err().contains("cannot be opened")
        );
    }

    #[test]
    fn what_was_known_already_is_not_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let (known, file) = (Known::open(dir.path(), &identity()), dir.path().join("web-1.definitions"));
        known.hear(&name("a"), &unlimited(Fallback::Unlimited));
        known.save(Time(0), true);
        fs::remove_file(&file).unwrap();
        known.hear(&name("a"), &unlimited(Fallback::Unlimited));
        known.hear(&name("b"), &unlimited(Fallback::Stop));
        known.hear(&name("a"), &Grant::Recovering { ask_again: Span::secs(1), fallback: None });
        known.save(Time(1), true);
        assert!(!file.exists(), "nothing changed");
        let slower = Grant::Recovering { ask_again: Span::secs(1), fallback: Some(Fallback::Rate(Rate(5))) };
        known.hear(&name("a"), &slower);
        known.save(Time(2), true);
        assert_eq!(Known::open(dir.path(), &identity()).of(&name("a")), Some(Fallback::Rate(Rate(5))));
    }

    #[test]
    fn a_directory_that_cannot_be_written_to_stops_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let known = Known::open(&dir.path().join("gone"), &identity());
        known.hear(&name("g"), &unlimited(Fallback::Unlimited));
        known.save(Time(0), false);
        assert_eq!(known.of(&name("g")), Some(Fallback::Unlimited));
        // Once it can be, what could not be written is, though nothing has changed.
        fs::create_dir(dir.path().join("gone")).unwrap();
        known.save(Time(1_000_000), false);
        let next = Known::open(&dir.path().join("gone"), &identity());
        assert_eq!(next.of(&name("g")), Some(Fallback::Unlimited));
    }
}
