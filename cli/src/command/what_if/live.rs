//! The history of a controller, in parts that fit an answer.

use tidegate_controller::limits::{HOURS_KEPT_S, MAX_HISTORY_POINTS, PAST_MINUTES_KEPT_S, SECONDS_KEPT_S};
use tidegate_core::replay::Counted;
use tidegate_core::units::{Span, Time};
use tidegate_core::usage::Total;
use tidegate_proto::v1;

use super::{Recorded, Resolution, Source, WhatIfArgs, time};
use crate::args::Global;
use crate::clock::unix_ms;
use crate::error::CliError;

impl Resolution {
    const fn seconds(self) -> u64 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
        }
    }

    /// How far back a controller knows.
    const fn kept(self) -> Span {
        Span::secs(match self {
            Self::Second => SECONDS_KEPT_S,
            Self::Minute => PAST_MINUTES_KEPT_S,
            Self::Hour => HOURS_KEPT_S,
        })
    }
}

/// Ranges that one answer each can hold, of so long until now; what is usual if nobody says how long.
fn ranges(last: Option<&str>, resolution: Resolution) -> Result<Vec<(u64, u64)>, CliError> {
    let Some(text) = last else { return Ok(vec![(0, 0)]) };
    let (asked, kept) = (Span(time("last", text)?), resolution.kept());
    if asked > kept {
        let minutes = kept.0 / 60_000_000;
        let most = if minutes % 60 == 0 { format!("{}h", minutes / 60) } else { format!("{minutes}m") };
        return Err(CliError::Usage(format!(
            "--last {text:?}: a controller keeps each {} for {most}; give at most that, or replay a file",
            resolution.word()
        )));
    }
    let end = unix_ms() / 1_000 + 1;
    let begin = end.saturating_sub(asked.0.div_ceil(1_000_000));
    let part = MAX_HISTORY_POINTS.saturating_sub(1) * resolution.seconds();
    let parts = (0..).map(|number| begin + number * part).take_while(|from| *from < end);
    Ok(parts.map(|from| (from, (from + part).min(end))).collect())
}

/// Reads a group and its history.
pub(super) async fn read(args: &WhatIfArgs, global: &Global) -> Result<Recorded, CliError> {
    let Some(group) = &args.group else {
        return Err(CliError::Usage(
            "--group is missing: whose history of the controller is replayed?".to_owned(),
        ));
    };
    args.check(Source::Controller)?;
    let resolution = args.resolution.unwrap_or_default();
    let ranges = ranges(args.last.as_deref(), resolution)?;
    let admin = global.admin().await?;
    let request = v1::GetGroupRequest { name: group.clone() };
    let definition = admin.calls().get_group(request).await.map_err(admin.failed())?.into_inner();
    let (mut counted, mut all, mut below) = (Vec::new(), Total::default(), 0);
    for (from_unix_s, to_unix_s) in ranges {
        let request = v1::UsageHistoryRequest {
            group: group.clone(),
            resolution: resolution.word().to_owned(),
            from_unix_s,
            to_unix_s,
            below: true,
        };
        let reply = admin.calls().usage_history(request).await.map_err(admin.failed())?.into_inner();
        below = reply.groups.saturating_sub(1).max(below);
        for point in reply.points {
            let words = point.amount.unwrap_or_default().to_words();
            let amount =
                Total::from_words(words.map_err(|reason| CliError::Usage(format!("the history: {reason}")))?);
            all.add(&amount);
            counted.push(Counted {
                start: Time(point.start_unix_s.saturating_mul(1_000_000)),
                // A controller of an earlier version does not say.
                length: Span::secs(if point.length_s == 0 { resolution.seconds() } else { point.length_s }),
                charged: amount.ru().0,
                operations: amount.operations,
                refused: amount.throttled,
            });
        }
    }
    let whose = match below {
        0 => group.clone(),
        1 => format!("{group} and the group below it"),
        some => format!("{group} and the {some} groups below it"),
    };
    Ok(Recorded {
        source: format!("History of {whose} at {}, by the {}", admin.endpoint(), resolution.word()),
        counted,
        waited_us: Some(all.waited_us),
        group: definition.group.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_follow_each_other_without_a_hole_and_each_fits_an_answer() {
        assert_eq!(ranges(None, Resolution::Minute).unwrap(), [(0, 0)]);
        let part_s = (MAX_HISTORY_POINTS - 1) * 60;
        for (asked_s, resolution, parts) in [
            (1, Resolution::Second, 1),
            (SECONDS_KEPT_S, Resolution::Second, 1),
            (part_s, Resolution::Minute, 1),
            (part_s + 1, Resolution::Minute, 2),
            (2 * part_s, Resolution::Minute, 2),
            (PAST_MINUTES_KEPT_S, Resolution::Minute, PAST_MINUTES_KEPT_S.div_ceil(part_s)),
            (HOURS_KEPT_S, Resolution::Hour, 1),
        ] {
            let ranges = ranges(Some(&format!("{asked_s}s")), resolution).unwrap();
            assert_eq!(ranges.len() as u64, parts, "{asked_s}");
            assert_eq!(ranges.last().unwrap().1 - ranges[0].0, asked_s);
            assert!(ranges.windows(2).all(|pair| pair[0].1 == pair[1].0), "{ranges:?}");
            let fits = |(from, to): &(u64, u64)| {
                from < to && (to - from) / resolution.seconds() < MAX_HISTORY_POINTS
            };
            assert!(ranges.iter().all(fits), "{ranges:?}");
        }
        let part = ranges(Some("1ms"), Resolution::Second).unwrap();
        assert_eq!(part[0].1 - part[0].0, 1, "a part of a second is one");
        for (resolution, kept_s) in [
            (Resolution::Second, SECONDS_KEPT_S),
            (Resolution::Minute, PAST_MINUTES_KEPT_S),
            (Resolution::Hour, HOURS_KEPT_S),
        ] {
            assert!(ranges(Some(&format!("{}s", kept_s + 1)), resolution).is_err(), "{resolution:?}");
        }
    }
}
