//! Takes what groups use into the last seconds, once a second, whether somebody looks or not: people open the console
//! after something happened.

use std::sync::Arc;

use tidegate_console::samples::Sample;

use super::Web;

/// Takes one second.
pub(crate) fn sample(web: &Web) {
    let rates = web.service.accounts().rates();
    let used = rates.into_iter().map(|(name, rate)| (Arc::from(name.as_str()), rate)).collect();
    web.recent().push(Sample::of(web.service.clock().unix_ms(), used));
}
