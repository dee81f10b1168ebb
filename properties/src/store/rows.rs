//! Any rows: keys and values as someone or something may have written them into a sound file.

use std::sync::Arc;

use tidegate_controller::store::{Store, Table};

use super::{used, work};
use crate::input::Input;
use crate::memory::{MemoryStore, Rows};

/// Most rows that are changed.
const MOST_ROWS: usize = 64;
/// Longest error.
const LONGEST_ERROR: usize = 2_000;

pub(super) fn run(input: &mut Input<'_>) {
    let mut rows = used::rows().clone();
    for _ in 0..MOST_ROWS {
        if input.is_empty() {
            break;
        }
        change(&mut rows, input);
    }
    let store = Arc::new(MemoryStore::new(rows));
    let service = match used::load(Arc::clone(&store) as Arc<dyn Store>) {
        Ok(service) => service,
        Err(error) => {
            let message = error.to_string();
            assert!(message.len() <= LONGEST_ERROR && message.contains("backup"), "{message}");
            return;
        }
    };
    for step in work::DAY {
        step(&service);
        service.check().expect("I1 to I3");
    }
    let groups = service.definitions().groups("", 0).expect("a list");
    drop(service);
    let again = used::load(store).expect("what was loaded once and stored is loaded again");
    assert_eq!(again.definitions().groups("", 0).expect("a list"), groups);
}

/// Changes one row.
fn change(rows: &mut Rows, input: &mut Input<'_>) {
    let choice = input.below(8);
    if choice < 5 {
        let at = input.below(rows.len());
        let Some((place, mut value)) =
            rows.iter().nth(at).map(|(place, value)| (place.clone(), value.clone()))
        else {
            return;
        };
        match choice {
            0 => drop(rows.remove(&place)),
            1 => drop(rows.insert(place, input.piece().to_vec())),
            2 => {
                let length = input.below(value.len());
                value.truncate(length);
                rows.insert(place, value);
            }
            3 => {
                let (at, piece) = (input.below(value.len()), input.piece());
                let end = (at + input.below(8)).min(value.len());
                value.splice(at.min(end)..end, piece.iter().copied());
                rows.insert(place, value);
            }
            _ => {
                let at = input.below(value.len());
                if let Some(byte) = value.get_mut(at) {
                    *byte ^= 1 << input.below(8);
                }
                rows.insert(place, value);
            }
        }
    } else {
        let table = input.pick(&used::TABLES).unwrap_or(Table::Meta);
        let key = match input.below(3) {
            0 => input.piece().to_vec(),
            1 => input.number().to_be_bytes().to_vec(),
            _ => [&input.number().to_be_bytes()[..], &u32::from(input.byte()).to_be_bytes()].concat(),
        };
        let like = rows.iter().find(|((of, _), _)| *of == table).map(|(_, value)| value.clone());
        let value = if input.flag() { like.unwrap_or_default() } else { input.piece().to_vec() };
        rows.insert((table, key), value);
    }
}
