//! Which statement a name stands for that SQL gave, as the server has it.
//!
//! Names follow the server's word: what a statement does with them is kept with the response that is awaited, and done
//! when that has ended well. A procedure may do anything with any name, also when it fails.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use tidegate_sql::Naming;

use super::prepared::PREPARED_LIMIT;

/// The names of a connection, with what the caller remembers of each; as many as of statements by number. The
/// statements of names beyond are unknown.
#[derive(Debug)]
pub(super) struct Named<T> {
    known: HashMap<String, T, RandomState>,
}

impl<T> Named<T> {
    pub(super) fn new() -> Self {
        Self { known: HashMap::default() }
    }

    /// The server has done this, or has failed to.
    pub(super) fn ended(&mut self, naming: Naming<T>, done: bool) {
        match naming {
            Naming::Prepare { name, statement: Some(known) } if done => {
                if self.known.len() < PREPARED_LIMIT || self.known.contains_key(&name) {
                    self.known.insert(name, known);
                }
            }
            Naming::Prepare { name, .. } | Naming::Forget { name } if done => drop(self.known.remove(&name)),
            Naming::ForgetAll => self.clear(),
            // It may have gone, but stands for nothing else.
            Naming::Prepare { .. } | Naming::Forget { .. } => {}
            Naming::Execute { .. } | Naming::Immediate { .. } => {}
        }
    }

    /// The session is reset.
    pub(super) fn clear(&mut self) {
        self.known.clear();
    }

    /// The statement behind `name`.
    pub(super) fn get(&self, name: &str) -> Option<&T> {
        self.known.get(name)
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepare(name: &str, statement: Option<u32>) -> Naming<u32> {
        Naming::Prepare { name: name.to_owned(), statement }
    }

    #[test]
    fn a_name_stands_for_what_the_server_took_under_it() {
        let mut named = Named::new();
        named.ended(prepare("s", Some(1)), true);
        named.ended(prepare("s", Some(2)), false);
        assert_eq!(named.known.get("s"), Some(&1));
        named.ended(prepare("s", Some(3)), true);
        named.ended(Naming::Forget { name: "s".into() }, false);
        assert_eq!(named.known.get("s"), Some(&3));
        named.ended(prepare("s", None), true);
        assert_eq!(named.known.get("s"), None, "of a variable");
        named.ended(prepare("s", Some(4)), true);
        named.ended(Naming::Forget { name: "s".into() }, true);
        assert!(named.known.is_empty());
        named.ended(prepare("s", Some(5)), true);
        named.ended(Naming::ForgetAll, false);
        assert!(named.known.is_empty(), "a procedure may fail when it has done it");
    }

    #[test]
    fn names_beyond_the_limit_are_not_known() {
        let mut named = Named::new();
        for number in 0..5_000 {
            named.ended(prepare(&number.to_string(), Some(number)), true);
        }
        assert_eq!((named.known.len(), named.known.get("4999")), (PREPARED_LIMIT, None));
        named.ended(prepare("7", Some(8)), true);
        assert_eq!(named.known.get("7"), Some(&8));
    }
}
