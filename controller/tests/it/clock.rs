//! The controller's clock beside the one that timers keep, which time servers slew.

use std::time::Duration;

use tidegate_controller::clock::Clock;
use tidegate_core::units::Span;

#[cfg(target_os = "linux")]
#[tokio::test(start_paused = true)]
async fn a_slew_of_the_clock_that_timers_keep_earns_nobody_anything() {
    let clock = Clock::start();
    // Tests move that clock at will, as chrony does by a twelfth.
    tokio::time::advance(Duration::from_secs(1_000)).await;
    assert!(clock.uptime() < Span::secs(500), "{} passed at once", clock.uptime());
    let soon = clock.instant(clock.now().after(Span::secs(7)));
    let wait = soon.saturating_duration_since(tokio::time::Instant::now());
    assert!(wait <= Duration::from_secs(7), "timers still wait for as long as is left: {wait:?}");
}
