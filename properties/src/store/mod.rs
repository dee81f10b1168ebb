//! The store: whatever its rows or the bytes of its file are, it is a store that works or a clear error.
//!
//! The first byte of an input chooses. Rows: any keys and values among those of a store that was used; nothing may
//! panic. Damage: the file of such a store, changed, cut or extended; what redb panics with on what it did not foresee
//! must not leave the store.

mod damage;
mod panics;
mod rows;
mod used;
mod work;

use super::input::Input;

/// Runs one input.
pub(super) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    if input.flag() { damage::run(&mut input) } else { rows::run(&mut input) }
}
