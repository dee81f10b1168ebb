//! A damaged file: the header and the rows of a used store flipped and overwritten, the file cut off or extended.
//!
//! The pages between header and rows are left alone: what stands in them leads redb 4.4 to memory that is not there and
//! to panics while it panics, which end the process wherever they are caught.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use tidegate_controller::store::{RedbStore, Store};

use super::{panics, used, work};
use crate::input::Input;

/// Places changed at most.
const MOST_PLACES: usize = 32;
/// Bytes of redb's header: layout and two slots for commits.
const HEADER: usize = 320;
/// Shorter values are found in the file where they are not.
const TELLING: usize = 8;
/// Longest error, without the path.
const LONGEST_ERROR: usize = 2_000;

pub(super) fn run(input: &mut Input<'_>) {
    let mut bytes = used::file().to_vec();
    let rows = row_bytes();
    for _ in 0..MOST_PLACES {
        if input.is_empty() {
            break;
        }
        change(&mut bytes, rows, input);
    }
    let folder = tempfile::tempdir_in(scratch()).expect("a scratch folder");
    let path = folder.path().join("store");
    fs::write(&path, &bytes).expect("a file");
    panics::behind_the_store(|| match RedbStore::open(&path) {
        Err(error) => {
            let message = error.to_string();
            assert!(message.len() <= LONGEST_ERROR && message.contains("store"), "{message}");
        }
        Ok(store) => use_it(Arc::new(store)),
    });
}

/// Loads the store if it can be loaded, and works with it.
fn use_it(store: Arc<dyn Store>) {
    if let Ok(service) = used::load(store) {
        for step in work::DAY {
            step(&service);
        }
    }
}

/// Changes one place.
fn change(bytes: &mut Vec<u8>, rows: &[usize], input: &mut Input<'_>) {
    let at = match input.below(3) {
        0 => (usize::from(input.byte()) << 1 | input.below(2)) % HEADER,
        _ => {
            let place = usize::from(input.byte()) << 8 | usize::from(input.byte());
            rows.get(place % rows.len().max(1)).copied().unwrap_or_default()
        }
    };
    match input.below(8) {
        0..=3 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << input.below(8);
            }
        }
        4 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = input.byte();
            }
        }
        5 if at < HEADER => {
            let number = input.hostile().to_le_bytes();
            let width = 1 << input.below(4);
            for (byte, new) in bytes.iter_mut().take(HEADER).skip(at).zip(number.iter().take(width)) {
                *byte = *new;
            }
        }
        6 => bytes.truncate(usize::try_from(input.number()).unwrap_or_default() % (bytes.len() + 1)),
        7 => {
            let more = input.number() % (1 << 20);
            bytes.resize(bytes.len() + usize::try_from(more).unwrap_or_default(), input.byte());
        }
        _ => {}
    }
}

/// Where in the file the keys and values of rows are, byte by byte.
fn row_bytes() -> &'static [usize] {
    static PLACES: OnceLock<Vec<usize>> = OnceLock::new();
    PLACES.get_or_init(|| {
        let (file, rows) = (used::file(), used::file_rows());
        let texts = rows.iter().flat_map(|((_, key), value)| [key, value]);
        let mut places: Vec<usize> = texts
            .filter(|text| text.len() >= TELLING)
            .filter_map(|text| {
                Some((file.windows(text.len()).position(|window| window == text)?, text.len()))
            })
            .flat_map(|(at, length)| at..at + length)
            .collect();
        places.sort_unstable();
        places.dedup();
        places
    })
}

/// Memory, where there is such a place: a disk would wait for every sync.
fn scratch() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
}
