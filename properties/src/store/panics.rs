//! Distinguishes panics of redb, which the store turns into errors, from all others.

use std::cell::Cell;
use std::panic::{set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static EXPECTED: Cell<bool> = const { Cell::new(false) };
    static FOREIGN: Cell<bool> = const { Cell::new(false) };
}

/// Runs what may make redb panic, behind the store that catches it.
///
/// # Panics
/// When a panic leaves the store, or anything else than redb panicked, even where it is caught.
pub(super) fn behind_the_store(call: impl FnOnce()) {
    quiet();
    EXPECTED.set(true);
    call();
    EXPECTED.set(false);
    assert!(!FOREIGN.take(), "a panic of the controller's own, told above");
}

/// The hook of a fuzz engine ends the process at once; it shall not for redb.
fn quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |info| {
            let of_redb = info.location().is_some_and(|place| place.file().contains("/redb-"));
            if EXPECTED.get() && of_redb {
                return;
            }
            FOREIGN.set(EXPECTED.get());
            before(info);
        }));
    });
}
