//! The quota of a group: an amount for each window of a calendar, and when the windows begin, or for each interval of a
//! length, where the window rolls.
//!
//! Pure: the moment is an argument, and the database of zones is compiled in. Days and months begin once, at the first
//! moment at which the clock of the zone has come to them; one that the zone skipped has no window. Minutes and hours
//! begin whenever that clock strikes one, or is put forward past it: an hour that comes twice is two windows.

use std::fmt;
use std::sync::LazyLock;

use jiff::Timestamp;
use jiff::civil::{Date, Time};
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use tidegate_core::quota::Unit;
use tidegate_core::units::Ru;

use crate::quantity::{QuantityError, amount_text, cut, parse_amount};

/// The zones of the compiled database: the same on every machine.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// Zones without a place: in their names the sign is the opposite of what people write, so they are never a hint.
const PLACELESS: &str = "Etc/";

/// Most requests of a quota: as many as RU.
const MOST_REQUESTS: i64 = Ru::MAX.0 / Unit::REQUEST.0;

/// An amount for each window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// What may be used in a window, in its unit.
    pub amount: Ru,
    /// What it counts.
    pub unit: Unit,
    /// The length of the windows.
    pub per: Period,
    /// The window rolls: what was used leaves it when it is as old as the window is long.
    pub rolls: bool,
    /// The zone whose calendar has the windows; UTC where they roll.
    pub zone: Zone,
}

/// The length of the windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// A minute of the clock.
    Minute,
    /// An hour of the clock.
    Hour,
    /// A day of the calendar.
    Day,
    /// A month of the calendar.
    Month,
}

/// A zone of the IANA database.
#[derive(Clone, Debug)]
pub struct Zone(TimeZone);

/// Why a text is not a quota.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    /// The text has another form.
    #[error(
        "{text:?} is no quota such as \"1000000 per day\", \"5000 per hour Europe/Berlin\", \"10000 requests per day\" or \
         \"5000 per rolling hour\"; \"none\" takes it away"
    )]
    Malformed {
        /// The text, cut to a readable length.
        text: String,
    },
    /// The amount is none, or out of range.
    #[error(transparent)]
    Amount(#[from] QuantityError),
    /// Nothing could ever run.
    #[error("0 RU is out of range: 0.000001 RU or more; \"none\" takes the quota away")]
    Zero,
    /// The same of requests.
    #[error("0 requests are out of range: 1 to {MOST_REQUESTS}; \"none\" takes the quota away")]
    NoRequests,
    /// Nobody can begin a part of a request, or so many.
    #[error("{text:?} is no number of requests: write a whole number from 1 to {MOST_REQUESTS}")]
    Requests {
        /// The text.
        text: String,
    },
    /// There are no such windows.
    #[error("{text:?} is none of \"minute\", \"hour\", \"day\", \"month\"")]
    Period {
        /// The text.
        text: String,
    },
    /// A window that rolls is in no calendar.
    #[error("a rolling {per} has no zone, so {zone:?} cannot stand behind it; leave it out", per = per.as_str())]
    RollingZone {
        /// The length of the window.
        per: Period,
        /// What stands behind it.
        zone: String,
    },
    /// There is no such zone.
    #[error("{text:?} is no known zone: write an IANA name such as {hint}, or none for UTC")]
    Zone {
        /// The text.
        text: String,
        /// A zone that exists: one whose last part is the text, if there is one.
        hint: String,
    },
}

impl Quota {
    /// Reads `AMOUNT per PERIOD`, with a zone behind it unless that is UTC, or `AMOUNT per rolling PERIOD`. The amount is
    /// RU, or a number of `requests`.
    pub fn parse(text: &str) -> Result<Self, QuotaError> {
        let malformed = || QuotaError::Malformed { text: cut(text) };
        let words: Vec<&str> = text.split_whitespace().collect();
        let mut sides = words.splitn(2, |word| word.eq_ignore_ascii_case("per"));
        let (Some(amount), Some(window)) = (sides.next(), sides.next()) else { return Err(malformed()) };
        let (rolls, window) = match window {
            [first, rest @ ..] if first.eq_ignore_ascii_case(ROLLING) => (true, rest),
            fixed => (false, fixed),
        };
        let (per, zone) = match window {
            [per] => (Period::parse(per)?, Zone::utc()),
            [per, zone] if rolls => {
                return Err(QuotaError::RollingZone { per: Period::parse(per)?, zone: cut(zone) });
            }
            [per, zone] => (Period::parse(per)?, Zone::parse(zone)?),
            _ => return Err(malformed()),
        };
        let (unit, amount) = counted(amount)?;
        Ok(Self { amount, unit, per, rolls, zone })
    }

    /// The first second after `unix_s` at which a window begins. Beyond the year 9999, where the calendar ends, windows
    /// are of equal length. A window that rolls does not end.
    pub fn window_end(&self, unix_s: u64) -> u64 {
        if self.rolls {
            return u64::MAX;
        }
        let end = i64::try_from(unix_s).ok().and_then(|from| match self.per {
            Period::Minute | Period::Hour => self.zone.strike(from, self.per.secs()),
            Period::Day => self.zone.opening(from, |date| date.tomorrow().ok()),
            Period::Month => self.zone.opening(from, |date| date.last_of_month().tomorrow().ok()),
        });
        let later = end.and_then(|end| u64::try_from(end).ok()).filter(|end| *end > unix_s);
        later.unwrap_or_else(|| {
            let length = self.per.secs().unsigned_abs();
            (unix_s - unix_s % length).saturating_add(length)
        })
    }

    /// What stands behind "per", without a zone.
    pub(crate) fn window_text(&self) -> String {
        let per = self.per.as_str();
        if self.rolls { format!("{ROLLING} {per}") } else { per.to_owned() }
    }

    /// The length in seconds of the window that `unix_s` is in. A month that rolls has 30 days.
    pub fn window_length(&self, unix_s: u64) -> u64 {
        if self.rolls {
            return self.per.secs().unsigned_abs();
        }
        // No window is longer than twice the usual length, so that one begins between this and `unix_s`.
        let before = unix_s.saturating_sub(2 * self.per.secs().unsigned_abs());
        let begins = |begin: &u64| Some(self.window_end(*begin)).filter(|next| *next <= unix_s);
        let begin = std::iter::successors(Some(before), begins).last().unwrap_or(before);
        self.window_end(begin).saturating_sub(begin)
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.unit {
            Unit::Ru => "",
            Unit::Requests if self.amount == Unit::REQUEST => " request",
            Unit::Requests => " requests",
        };
        write!(f, "{}{unit} per {}", amount_text(self.amount), self.window_text())?;
        if self.zone == Zone::utc() { Ok(()) } else { write!(f, " {}", self.zone.name()) }
    }
}

/// Before the length of a window that rolls.
const ROLLING: &str = "rolling";

/// Reads an amount, with its unit unless that is RU.
fn counted(words: &[&str]) -> Result<(Unit, Ru), QuotaError> {
    let text = words.join(" ");
    // The unit may stand at the number, as that of RU may.
    let letters = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic()).len();
    let (number, unit) = text.split_at_checked(letters).unwrap_or((&text, ""));
    if !["request", "requests"].into_iter().any(|word| unit.eq_ignore_ascii_case(word)) {
        let amount = parse_amount(&text)?;
        return if amount.is_positive() { Ok((Unit::Ru, amount)) } else { Err(QuotaError::Zero) };
    }
    let digits = number.trim_end();
    let whole = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten();
    match whole {
        Some(0) => Err(QuotaError::NoRequests),
        Some(number @ 1..=MOST_REQUESTS) => Ok((Unit::Requests, Ru::whole(number))),
        _ => Err(QuotaError::Requests { text: cut(&text) }),
    }
}

impl Period {
    const ALL: [Self; 4] = [Self::Minute, Self::Hour, Self::Day, Self::Month];

    fn parse(text: &str) -> Result<Self, QuotaError> {
        let period = Self::ALL.into_iter().find(|period| period.as_str().eq_ignore_ascii_case(text));
        period.ok_or_else(|| QuotaError::Period { text: cut(text) })
    }

    /// The spelling of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Month => "month",
        }
    }

    /// The usual length in seconds.
    fn secs(self) -> i64 {
        match self {
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => 86_400,
            Self::Month => 30 * 86_400,
        }
    }
}

impl Zone {
    /// Coordinated universal time.
    pub fn utc() -> Self {
        Self(TimeZone::UTC)
    }

    /// The zone of an IANA name, in any case.
    pub fn parse(name: &str) -> Result<Self, QuotaError> {
        // The database also knows a zone that stands for an unknown one; it has no name.
        let known = ZONES.get(name).ok().filter(|zone| zone.iana_name().is_some());
        known.map(Self).ok_or_else(|| {
            let ends = |zone: &String| {
                let last = zone.rsplit('/').next().unwrap_or(zone);
                last.eq_ignore_ascii_case(name) && !zone.starts_with(PLACELESS)
            };
            let alike = ZONES.available().map(|zone| zone.to_string()).find(ends);
            QuotaError::Zone { text: cut(name), hint: alike.unwrap_or_else(|| "Europe/Berlin".to_owned()) }
        })
    }

    /// Its IANA name.
    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    /// The first second after `from` at which the clock strikes a multiple of `every` seconds, or is put forward past one.
    /// `None` where the calendar ends.
    fn strike(&self, from: i64, every: i64) -> Option<i64> {
        let mut from = from;
        loop {
            let moment = Timestamp::from_second(from).ok()?;
            let offset = i64::from(self.0.to_offset(moment).seconds());
            let strikes = from + every - (from + offset).rem_euclid(every);
            let change = self.0.following(moment).next();
            let change = change.map(|change| (change.timestamp().as_second(), change.offset().seconds()));
            let Some((at, after)) = change.filter(|(at, _)| *at <= strikes) else { return Some(strikes) };
            let (last, first) = (at - 1 + offset, at + i64::from(after));
            if first.rem_euclid(every) == 0 || first.div_euclid(every) > last.div_euclid(every) {
                return Some(at);
            }
            // Put back: the clock comes to the same multiple later.
            from = at;
        }
    }

    /// The first second after `from` at which the zone comes to a date that `next` returns for the one before. `None` where
    /// the calendar ends.
    fn opening(&self, from: i64, next: impl Fn(Date) -> Option<Date>) -> Option<i64> {
        let mut date = self.0.to_datetime(Timestamp::from_second(from).ok()?).date();
        loop {
            date = next(date)?;
            let opening = self.reaches(date)?;
            // It is past where clocks were put back over midnight: the date began before that.
            if opening > from {
                return Some(opening);
            }
        }
    }

    /// The first second at which the clock shows a date or a later one.
    fn reaches(&self, date: Date) -> Option<i64> {
        let midnight = self.0.to_ambiguous_timestamp(date.to_datetime(Time::midnight()));
        let skipped = matches!(midnight.offset(), AmbiguousOffset::Gap { .. });
        let reached = midnight.earlier().ok()?;
        if !skipped {
            return Some(reached.as_second());
        }
        // No clock showed this midnight: the date begins where clocks were put forward past it.
        Some(self.0.following(reached).next()?.timestamp().as_second())
    }
}

impl PartialEq for Zone {
    /// By name: what is written is what is shown, also where two names have the same rules.
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Zone {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn quota(text: &str) -> Quota {
        Quota::parse(text).unwrap()
    }

    #[test]
    fn one_text_is_read_and_printed() {
        for (text, printed) in [
            ("1000000 per day", "1000000 per day"),
            (" 0.50 RU  PER Minute ", "0.5 per minute"),
            ("7 per hour utc", "7 per hour"),
            ("7ru per month europe/BERLIN", "7 per month Europe/Berlin"),
            (
                "1000000000000 per month America/Port-au-Prince",
                "1000000000000 per month America/Port-au-Prince",
            ),
            // A second name of the same zone stays what was written.
            ("1 per day Asia/Calcutta", "1 per day Asia/Calcutta"),
            ("1 per day Etc/GMT+2", "1 per day Etc/GMT+2"),
            ("10000 requests per day europe/berlin", "10000 requests per day Europe/Berlin"),
            (" 007Requests  PER Minute", "7 requests per minute"),
            ("1 requests per month UTC", "1 request per month"),
            ("1000000000000 requests per hour", "1000000000000 requests per hour"),
            ("10000 RU per rolling hour", "10000 per rolling hour"),
            ("7 REQUESTS  PER Rolling MONTH", "7 requests per rolling month"),
        ] {
            let quota = Quota::parse(text).unwrap();
            assert_eq!(quota.to_string(), printed);
            assert_eq!(Quota::parse(printed), Ok(quota));
        }
        assert_ne!(quota("1 per day Asia/Calcutta"), quota("1 per day Asia/Kolkata"));
        assert_ne!(quota("5 per day"), quota("5 requests per day"));
        assert_ne!(quota("5 per day"), quota("5 per rolling day"));
    }

    #[test]
    fn what_is_no_quota_is_refused_with_the_remedy() {
        for (text, remedy) in [
            ("", "1000000 per day"),
            ("unlimited", "\"none\" takes it away"),
            ("5", "1000000 per day"),
            ("5 per", "1000000 per day"),
            ("5 a day", "1000000 per day"),
            ("5 per day in Berlin", "1000000 per day"),
            ("per day", "an amount such as"),
            ("0 per day", "\"none\" takes the quota away"),
            ("0.0000001 per day", "at most 6 digits"),
            ("-5 per day", "out of range"),
            ("5e6 per day", "an amount such as"),
            ("1000000000000.000001 per day", "out of range"),
            ("5 per day per day", "1000000 per day"),
            ("0 requests per day", "1 to 1000000000000; \"none\" takes the quota away"),
            ("0.5 requests per day", "a whole number from 1 to 1000000000000"),
            ("-5 requests per day", "a whole number from 1"),
            ("+5 requests per day", "a whole number from 1"),
            ("5e3 requests per day", "a whole number from 1"),
            ("requests per day", "a whole number from 1"),
            ("1000000000001 requests per day", "a whole number from 1"),
            ("99999999999999999999999 requests per day", "a whole number from 1"),
            ("5 RU requests per day", "a whole number from 1"),
            ("5 request RU per day", "an amount such as"),
            ("5 queries per day", "an amount such as"),
            ("5 per week", "\"month\""),
            ("5 per days", "\"day\""),
            ("5 per rolling", "per rolling hour"),
            ("5 per rolling week", "\"month\""),
            ("5 per rolling rolling day", "\"month\""),
            ("5 rolling per day", "an amount such as"),
            ("5 per day rolling", "an IANA name"),
            ("5 per rolling day Europe/Berlin", "a rolling day has no zone"),
            ("5 per rolling day UTC", "leave it out"),
            ("5 per day berlin", "such as Europe/Berlin"),
            ("5 per day tokyo", "such as Asia/Tokyo"),
            // Etc/GMT+2 is two hours behind.
            ("5 per day GMT+2", "such as Europe/Berlin"),
            ("5 per day Etc/Unknown", "an IANA name"),
            ("5 per day +02:00", "an IANA name"),
            ("5 per day ../../etc/passwd", "an IANA name"),
        ] {
            let error = Quota::parse(text).unwrap_err().to_string();
            assert!(error.contains(remedy), "{text:?}: {error}");
        }
        let long = format!("5 per day {}", "x".repeat(1 << 20));
        assert!(Quota::parse(&long).unwrap_err().to_string().len() < 300);
    }

    /// Found second by second from the definition at the head of this file, with Python's zoneinfo over the same database.
    #[test]
    fn windows_begin_where_python_finds_them() {
        for (window, from, end) in [
            ("day Europe/Berlin", 1774738800, 1774821600),
            ("day Europe/Berlin", 1792879200, 1792969200),
            ("hour Europe/Berlin", 1774744200, 1774746000),
            ("hour Europe/Berlin", 1792888200, 1792890000),
            ("hour Europe/Berlin", 1792890000, 1792893600),
            ("minute Europe/Berlin", 1792889999, 1792890000),
            ("month Europe/Berlin", 1773576000, 1774994400),
            ("month Europe/Berlin", 1835393400, 1835478000),
            ("month UTC", 1835395199, 1835481600),
            ("day UTC", 1835395199, 1835395200),
            ("month UTC", 4107542399, 4107542400),
            ("month UTC", 1798761599, 1798761600),
            ("day UTC", 259200, 345600),
            ("day America/Sao_Paulo", 1541246400, 1541300400),
            ("day America/Sao_Paulo", 1541300400, 1541383200),
            ("day America/Sao_Paulo", 1518868800, 1518922800),
            ("day America/Sao_Paulo", 1518921000, 1518922800),
            ("hour America/Sao_Paulo", 1518917400, 1518919200),
            ("hour Asia/Kathmandu", 1780272000, 1780272900),
            ("day Asia/Kathmandu", 1780272000, 1780337700),
            ("hour Australia/Lord_Howe", 1775313000, 1775316600),
            ("hour Australia/Lord_Howe", 1775315400, 1775316600),
            ("hour Australia/Lord_Howe", 1791039600, 1791041400),
            ("hour Australia/Lord_Howe", 1791041400, 1791043200),
            ("day Australia/Lord_Howe", 1775313000, 1775395800),
            ("day Africa/Casablanca", 1771111800, 1771200000),
            ("day Africa/Casablanca", 1774135800, 1774137600),
            ("day Pacific/Apia", 1325203200, 1325239200),
            ("day Pacific/Apia", 1325239200, 1325325600),
            ("month Pacific/Apia", 1323907200, 1325325600),
            ("day America/Havana", 1772884800, 1772946000),
            ("day America/Havana", 1793507400, 1793592000),
            ("day America/St_Johns", 1289096999, 1289097000),
            ("day America/St_Johns", 1289097090, 1289187000),
            ("hour America/St_Johns", 1289097030, 1289100600),
            ("minute Africa/Monrovia", 63593040, 63593070),
            ("day Africa/Monrovia", 63547200, 63593070),
            ("month Europe/Berlin", 64059120000, 64060585200),
        ] {
            assert_eq!(quota(&format!("1 per {window}")).window_end(from), end, "{window} after {from}");
        }
    }

    #[test]
    fn a_window_is_as_long_as_from_its_beginning_to_its_end() {
        for (window, at, length) in [
            ("minute UTC", 1774738800, 60),
            ("day Europe/Berlin", 1774738800, 82_800),
            ("day Europe/Berlin", 1792879200, 90_000),
            ("month UTC", 1835395199, 29 * 86_400),
            ("hour Australia/Lord_Howe", 1775313000, 5_400),
            ("hour Australia/Lord_Howe", 1791041400, 1_800),
            ("day Pacific/Apia", 1325203200, 86_400),
            ("day UTC", 0, 86_400),
            ("month UTC", u64::MAX / 2, 30 * 86_400),
        ] {
            assert_eq!(quota(&format!("1 per {window}")).window_length(at), length, "{window} at {at}");
        }
    }

    #[test]
    fn no_clock_is_too_far_off() {
        let last = 253_402_300_799;
        for zone in ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago", "Europe/Berlin"] {
            for per in Period::ALL {
                let quota = Quota {
                    amount: Ru(1),
                    unit: Unit::Ru,
                    per,
                    rolls: false,
                    zone: Zone::parse(zone).unwrap(),
                };
                assert!(quota.window_end(0) > 0);
                // Past the end of the calendar and up to it, in steps that miss no window.
                let mut before = 0;
                for step in 0..1_500 {
                    let from = last - 40 * 86_400 + step * 3_600;
                    let end = quota.window_end(from);
                    assert!(end > from && end >= before, "{quota}: {before}, {end} after {from}");
                    before = end;
                }
                for from in [u64::MAX / 2, i64::MAX.unsigned_abs(), u64::MAX - 60 * 86_400] {
                    assert!(quota.window_end(from) > from, "{quota} after {from}");
                }
                assert_eq!(quota.window_end(u64::MAX), u64::MAX);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn a_window_has_one_end_which_grows(
            zone in any::<prop::sample::Index>(),
            from in 0..16_725_225_600_u64,
            part in any::<prop::sample::Index>(),
            per in prop::sample::select(Period::ALL.to_vec()),
        ) {
            let names: Vec<_> = ZONES.available().map(|name| name.to_string()).collect();
            let name: &String = zone.get(&names);
            let quota = Quota { amount: Ru(1), unit: Unit::Ru, per, rolls: false, zone: Zone::parse(name).unwrap() };
            let end = quota.window_end(from);
            prop_assert!(end > from);
            let within = from + part.index(usize::try_from(end - from).unwrap()) as u64;
            prop_assert_eq!(quota.window_end(within), end, "{} at {}", quota, within);
            let begin = end.saturating_sub(quota.window_length(within));
            prop_assert!(begin <= within);
            // The first windows after 1970 began before it.
            if begin > 62 * 86_400 {
                prop_assert_eq!(quota.window_end(begin - 1), begin, "{} at {}", quota, within);
                prop_assert_eq!(quota.window_end(begin), end, "{} at {}", quota, within);
            }
            prop_assert!(quota.window_end(end) > end);
            // A month of 31 days, and a day that is not put back by more than a day.
            prop_assert!(end - from <= 32 * 86_400);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9. a-zA-Z/_+-]{0,40}|[0-9.]{1,14}( requests?)? per (rolling )?[a-z]{3,6} [A-Za-z/_]{0,20}") {
            if let Ok(quota) = Quota::parse(&text) {
                prop_assert_eq!(Quota::parse(&quota.to_string()), Ok(quota));
            }
        }
    }
}
