//! File descriptors of this process: a session takes two for its connections and two for the server's counters.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors of one session.
const PER_SESSION: usize = 4;
/// Those that are open besides.
const BESIDES: usize = 64;

/// Raises the number of descriptors that this process may open to what the system allows it, and returns that.
pub fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let now = if setrlimit(Resource::Nofile, raised).is_ok() { limit.maximum } else { limit.current };
    now.unwrap_or(u64::MAX)
}

/// Warns when so many sessions need more descriptors than this process may open.
pub(crate) fn warn_if_few(sessions: usize) {
    let needed = sessions.saturating_mul(PER_SESSION).saturating_add(BESIDES);
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if u64::try_from(needed).is_ok_and(|needed| allowed < needed) {
        tracing::warn!(
            "{sessions} sessions need {needed} file descriptors and {allowed} are allowed; raise the limit (ulimit -n, \
             LimitNOFILE), or lower max_sessions"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_to_what_the_system_allows_and_no_further() {
        let before = getrlimit(Resource::Nofile);
        // As low as tests beside this one do not notice.
        let lower = Rlimit { current: before.maximum.map(|most| most - 1), ..before };
        setrlimit(Resource::Nofile, lower).unwrap();
        let now = raise_descriptor_limit();
        assert_eq!(Some(now), before.maximum.or(Some(u64::MAX)));
        assert_eq!(getrlimit(Resource::Nofile), Rlimit { current: before.maximum, maximum: before.maximum });
    }
}
