//! Bad weather on the links of the nodes, one fault of a kind at a time on each.

use std::time::Duration;

use super::fault::Fault;
use crate::process::proxy::{Proxy, Weather};
use tidegate_sim::random::Random;

/// How long a link is late or slow, in milliseconds.
const SPELL_MS: (u64, u64) = (300, 3_000);
/// How long a link is cut, in milliseconds: up to three leases.
const CUT_MS: (u64, u64) = (50, 2_400);
/// How late a link is, in milliseconds.
const DELAY_MS: (u64, u64) = (2, 400);
/// How slow a link is, in bytes per second; a renewal has a few hundred.
const SPEED: (u64, u64) = (1_000, 20_000);

/// Whether either way of a link is cut.
pub fn is_cut(link: &Proxy) -> bool {
    let weather = link.weather();
    weather.up.cut || weather.down.cut
}

/// Puts a fault on a link. Returns how long it is to last in milliseconds: zero when it is over at once, `None` when
/// the link has one of the kind already.
pub fn begin(link: &Proxy, fault: Fault, random: &mut Random) -> Option<u64> {
    let now = link.weather();
    match fault {
        Fault::Delay if now.up.delay.is_zero() => {
            let delay = Duration::from_millis(random.between(DELAY_MS.0, DELAY_MS.1));
            link.set(|weather| (weather.up.delay, weather.down.delay) = (delay, delay));
            Some(random.between(SPELL_MS.0, SPELL_MS.1))
        }
        Fault::Throttle if now.up.bytes_per_s.is_none() => {
            let speed = u32::try_from(random.between(SPEED.0, SPEED.1)).ok();
            link.set(|weather| (weather.up.bytes_per_s, weather.down.bytes_per_s) = (speed, speed));
            Some(random.between(SPELL_MS.0, SPELL_MS.1))
        }
        Fault::CutUp | Fault::CutDown | Fault::CutBoth if !is_cut(link) => {
            link.set(|weather| {
                weather.up.cut = fault != Fault::CutDown;
                weather.down.cut = fault != Fault::CutUp;
            });
            Some(random.between(CUT_MS.0, CUT_MS.1))
        }
        Fault::HalfClose => {
            let up = random.one_in(2);
            link.set(|weather| {
                let way = if up { &mut weather.up } else { &mut weather.down };
                way.closed += 1;
            });
            Some(0)
        }
        Fault::Drop => {
            link.drop_all();
            Some(0)
        }
        _ => None,
    }
}

/// Ends a fault. Bytes that a cut held back are delivered, or lost with their connection.
pub fn end(link: &Proxy, fault: Fault, random: &mut Random) {
    match fault {
        Fault::Delay => {
            link.set(|weather| (weather.up.delay, weather.down.delay) = (Duration::ZERO, Duration::ZERO));
        }
        Fault::Throttle => {
            link.set(|weather| (weather.up.bytes_per_s, weather.down.bytes_per_s) = (None, None))
        }
        Fault::CutUp | Fault::CutDown | Fault::CutBoth => {
            let lost = random.one_in(2);
            link.set(|weather| {
                weather.dropped += u64::from(lost);
                (weather.up.cut, weather.down.cut) = (false, false);
            });
        }
        _ => {}
    }
}

/// Fair weather.
pub fn clear(link: &Proxy) {
    link.set(|weather| {
        let Weather { up, down, dropped } = *weather;
        *weather = Weather { dropped, ..Weather::default() };
        // Counts never go back.
        (weather.up.closed, weather.down.closed) = (up.closed, down.closed);
    });
}
