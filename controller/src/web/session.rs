//! Sessions of the console's login: a secret in a cookie, of which only a hash is kept, as of tokens.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha2::{Digest as _, Sha256};
use tidegate_core::units::{Span, Time};

use crate::identity::tokens::Shown;

/// Time without a page after which a session ends. Half of it logs people out over lunch; with twice of it, a screen
/// that somebody has left is open for longer.
const IDLE: Span = Span::secs(3_600);
/// Time after which a session ends in any case: a working day. With half of it people log in twice a day; with twice
/// of it, yesterday's browser is still logged in.
const LONGEST: Span = Span::secs(12 * 3_600);
/// Sessions at once. Each takes some hundred bytes; beyond, the one that was used least lately ends. Half of it is more
/// than the operators of any installation; with twice of it nothing is gained.
const MOST: usize = 1_000;
/// Bytes of a secret: 256 bits, as those of tokens.
const SECRET: usize = 32;

type Hash = [u8; 32];

/// A session that is open.
#[derive(Clone, Debug)]
pub(super) struct Session {
    /// Who it is, and when that is over.
    pub(super) shown: Arc<Shown>,
    /// The hash of its secret.
    of: Hash,
    begun: Time,
    used: Time,
}

impl Session {
    fn is_over(&self, now: Time) -> bool {
        now.since(self.used) >= IDLE || now.since(self.begun) >= LONGEST || *self.shown.over.borrow()
    }
}

/// All sessions, by the hash of their secrets.
#[derive(Default)]
pub(super) struct Sessions(Mutex<BTreeMap<Hash, Session>>);

impl Sessions {
    fn open(&self) -> MutexGuard<'_, BTreeMap<Hash, Session>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a session; returns its secret.
    pub(super) fn begin(&self, now: Time, shown: Shown) -> String {
        let secret = hex(&rand::random::<[u8; SECRET]>());
        let mut open = self.open();
        open.retain(|_, session| !session.is_over(now));
        while open.len() >= MOST {
            let least = open.iter().min_by_key(|(_, session)| session.used).map(|(hash, _)| *hash);
            least.map(|hash| open.remove(&hash));
        }
        let of = hash(secret.as_bytes());
        open.insert(of, Session { shown: Arc::new(shown), of, begun: now, used: now });
        secret
    }

    /// The session of a secret. `uses` is false for what a page does by itself, which keeps no session open.
    pub(super) fn find(&self, now: Time, secret: &str, uses: bool) -> Option<Session> {
        let hash = hash(secret.as_bytes());
        let mut open = self.open();
        let session = open.get_mut(&hash)?;
        if session.is_over(now) {
            open.remove(&hash);
            return None;
        }
        if uses {
            session.used = now;
        }
        Some(session.clone())
    }

    /// Whether a session that was found goes on.
    pub(super) fn goes_on(&self, now: Time, session: &Session) -> bool {
        self.open().get(&session.of).is_some_and(|session| !session.is_over(now))
    }

    /// Ends a session.
    pub(super) fn end(&self, secret: &str) {
        self.open().remove(&hash(secret.as_bytes()));
    }
}

/// Secrets have 256 random bits, so that their hash needs neither salt nor time.
fn hash(secret: &[u8]) -> Hash {
    Sha256::digest(secret).into()
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch as flag;

    use super::*;
    use crate::identity::{Identity, Role};

    fn shown() -> (Shown, flag::Sender<bool>) {
        let (over, seen) = flag::channel(false);
        (Shown { identity: Identity::anonymous(Role::Viewer), over: seen }, over)
    }

    fn at(seconds: u64) -> Time {
        Time(seconds * 1_000_000)
    }

    #[test]
    fn a_session_ends_when_idle_when_old_and_with_what_opened_it() {
        let sessions = Sessions::default();
        let (shown, over) = shown();
        let secret = sessions.begin(at(0), shown.clone());
        assert_eq!(secret.len(), 2 * SECRET);
        assert!(sessions.find(at(3_599), &secret, true).is_some());
        assert!(sessions.find(at(7_000), &secret, false).is_some());
        assert!(sessions.find(at(7_199), &secret, true).is_none(), "what a page does by itself is no use");
        let secret = sessions.begin(at(0), shown.clone());
        assert!((1..24).all(|half| sessions.find(at(half * 1_800), &secret, true).is_some()));
        assert!(sessions.find(at(12 * 3_600), &secret, true).is_none());
        let secret = sessions.begin(at(0), shown);
        over.send_replace(true);
        assert!(sessions.find(at(1), &secret, true).is_none());
    }

    #[test]
    fn secrets_are_found_whole_and_once_ended_no_more() {
        let sessions = Sessions::default();
        let (shown, _over) = shown();
        let secret = sessions.begin(at(0), shown.clone());
        for wrong in ["", "x", &secret[1..], &secret.to_uppercase()] {
            assert!(sessions.find(at(1), wrong, true).is_none(), "{wrong}");
        }
        let other = sessions.begin(at(1), shown);
        let session = sessions.find(at(1), &secret, true).unwrap();
        sessions.end(&secret);
        assert!(sessions.find(at(1), &secret, true).is_none() && !sessions.goes_on(at(1), &session));
        assert!(sessions.find(at(1), &other, true).is_some(), "that of another browser goes on");
    }

    /// An open stream asks for nothing but this.
    #[test]
    fn a_session_that_was_found_goes_on_until_it_is_idle_or_old_or_what_opened_it_is_over() {
        let sessions = Sessions::default();
        let (shown, over) = shown();
        let secret = sessions.begin(at(0), shown.clone());
        let session = sessions.find(at(0), &secret, false).unwrap();
        assert!(sessions.goes_on(at(3_599), &session) && !sessions.goes_on(at(3_600), &session));
        // What is used later goes on for those who found it before, too.
        for half in 1..24 {
            assert!(sessions.find(at(half * 1_800), &secret, true).is_some());
        }
        assert!(
            sessions.goes_on(at(12 * 3_600 - 1), &session) && !sessions.goes_on(at(12 * 3_600), &session)
        );
        let secret = sessions.begin(at(0), shown);
        let session = sessions.find(at(0), &secret, true).unwrap();
        assert!(sessions.goes_on(at(1), &session));
        over.send_replace(true);
        assert!(!sessions.goes_on(at(1), &session));
    }

    #[test]
    fn the_least_used_session_makes_room() {
        let sessions = Sessions::default();
        let (shown, _over) = shown();
        let secrets: Vec<String> =
            (0..MOST as u64).map(|at_s| sessions.begin(at(at_s), shown.clone())).collect();
        assert!(sessions.find(at(MOST as u64), &secrets[0], true).is_some());
        sessions.begin(at(MOST as u64), shown);
        assert!(sessions.find(at(1_001), &secrets[0], true).is_some());
        assert!(sessions.find(at(1_001), &secrets[1], true).is_none());
    }
}
