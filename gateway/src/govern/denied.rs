//! Why a statement did not run, or was ended, as the client of either protocol reads it.

use std::time::Duration;

use tidegate_client::{Group, GroupError, Rate, Refused};
use tidegate_sql::{Code, SqlError};

use super::own::EXPLAINED_ROWS;

/// An answer in place of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Denied {
    /// The numbers of both protocols.
    pub(crate) code: Code,
    pub(crate) message: String,
    /// What to do.
    pub(crate) hint: String,
}

/// When an absent controller is back is unknown. A client that has waited for one in vain is asked to wait as long
/// again, but no longer than this, in which most come back.
const LONGEST_RETRY: Duration = Duration::from_secs(10);

/// A statement that its user does not want any more.
const CANCELLED: Code = Code { mysql: 1317, mysql_state: "70100", postgres_state: "57014" };

impl From<SqlError> for Denied {
    fn from(error: SqlError) -> Self {
        Self { code: error.code(), message: error.to_string(), hint: String::new() }
    }
}

impl Denied {
    /// The group did not admit it.
    pub(crate) fn refused(refused: &Refused, group: &Group, time: Duration) -> Self {
        let name = refused.group();
        let waited = format!("{:.1} s", time.as_secs_f64());
        let mut retry = refused.retry_after();
        let (code, message) = match refused {
            Refused::Throttled { .. } => {
                let state = group.state();
                // Without a rate, as the controller gathers tokens for the group, the rate leased before says when.
                if state.rate == Rate::ZERO {
                    retry = retry.max(group.pays_within());
                }
                let balance = if state.debt.is_positive() {
                    format!("owes {}", state.debt)
                } else {
                    format!("has {} left", state.available)
                };
                let message =
                    format!("resource group {name} is out of request units: it {balance}, waited {waited}");
                (Code::QUOTA, message)
            }
            Refused::Unavailable { .. } => {
                retry = back_within(retry, time);
                let message =
                    format!("resource group {name} has no lease from the controller, waited {waited}");
                (Code::UNAVAILABLE, message)
            }
            Refused::TooManyWaiters { limit, .. } => {
                (Code::QUOTA, format!("resource group {name} has {limit} statements waiting already"))
            }
            Refused::UnknownGroup { .. } => (Code::UNKNOWN, format!("resource group {name} does not exist")),
            other => (Code::QUOTA, other.to_string()),
        };
        let hint = match (retry, refused) {
            (Some(after), _) => retry_after(after),
            (None, Refused::UnknownGroup { .. }) => {
                "Create it, or bind the user to another group.".to_owned()
            }
            (None, _) => String::new(),
        };
        Self { code, message, hint }
    }

    /// The same inside a transaction, which is still open; `end_waits` is whether its `COMMIT` may wait.
    pub(super) fn in_transaction(mut self, end_waits: bool) -> Self {
        if !self.hint.is_empty() {
            self.hint.push(' ');
        }
        self.hint.push_str("The transaction is still open and holds its locks");
        self.hint.push_str(if end_waits { "." } else { "; COMMIT and ROLLBACK do not wait." });
        self
    }

    /// No group could be found for the login, after so long.
    pub(crate) fn no_group(error: &GroupError, time: Duration) -> Self {
        let away = matches!(error, GroupError::NoBindings { .. } | GroupError::Unavailable { .. });
        let hint = match back_within(None, time).filter(|_| away) {
            Some(after) => format!("The statement did not run. {}", retry_after(after)),
            None => "The statement did not run.".to_owned(),
        };
        Self { code: Code::UNAVAILABLE, message: error.to_string(), hint }
    }

    /// Somebody cancelled it while it waited for admission.
    pub(crate) fn cancelled() -> Self {
        let message = "statement cancelled while it waited for request units".to_owned();
        Self { code: CANCELLED, message, hint: String::new() }
    }

    /// `EXPLAIN RU` of a statement that cannot be seen to its end.
    pub(crate) fn explained_text(most: usize) -> Self {
        Self::explained_too_long(format!(
            "EXPLAIN RU takes a statement of at most {most} bytes, and this one is longer"
        ))
    }

    /// Parameters for it that cannot be seen to their end.
    pub(crate) fn explained_parameters(bytes: usize, most: usize) -> Self {
        Self::explained_too_long(format!(
            "EXPLAIN RU takes at most {most} bytes of parameters, and was sent {bytes}"
        ))
    }

    fn explained_too_long(message: String) -> Self {
        let hint = "Run the statement without EXPLAIN RU, and read its cost in tidegate.statements.";
        Self { code: Code::FULL, message, hint: hint.to_owned() }
    }

    /// Many rows of parameters for it at once.
    pub(crate) fn many_rows() -> Self {
        Self {
            code: Code::UNSUPPORTED,
            message: "what the gateway answers takes one row of parameters, and was sent many at once"
                .to_owned(),
            hint: "Execute it for each row.".to_owned(),
        }
    }

    /// A limit of rows that would cut the answer.
    pub(crate) fn explained_limit(rows: u32) -> Self {
        Self {
            code: Code::UNSUPPORTED,
            message: format!("EXPLAIN RU returns {EXPLAINED_ROWS} rows at once, and was executed for {rows}"),
            hint: format!("Execute it without a limit of rows, or with one above {EXPLAINED_ROWS}."),
        }
    }

    /// Ended because it broke a rule.
    pub(crate) fn runaway(group: &str, rule: &str) -> Self {
        Self {
            code: Code::RUNAWAY,
            message: format!("statement interrupted as a runaway of resource group {group}: {rule}"),
            hint: "Make it cheaper, or ask for a higher limit of the group.".to_owned(),
        }
    }

    /// The statement did not begin because it is watched.
    pub(crate) fn watched(group: &str, watch: u64) -> Self {
        Self {
            code: Code::WATCHED,
            message: format!("statement refused: watch {watch} of resource group {group} covers it"),
            hint: "It was a runaway before. QUERY WATCH REMOVE lifts the watch.".to_owned(),
        }
    }
}

/// In tenths of a second, rounded up, at least one: an earlier retry would be in vain.
fn retry_after(pause: Duration) -> String {
    const TENTH_NS: u128 = 100_000_000;
    let tenths = pause.as_nanos().div_ceil(TENTH_NS).max(1);
    format!("Retry after {}.{} s.", tenths / 10, tenths % 10)
}

/// When to retry without a controller, of what the client library says and after such a wait.
fn back_within(told: Option<Duration>, waited: Duration) -> Option<Duration> {
    told.max(Some(waited.min(LONGEST_RETRY)))
}

#[cfg(test)]
mod tests {
    use tidegate_client::{GroupName, QuotaUnit, Ru, RuParts};

    use super::*;
    use crate::govern::tests::{Stage, eventually};

    #[test]
    fn who_waited_in_vain_for_a_controller_is_not_sent_back_at_once() {
        let s = Duration::from_secs;
        assert_eq!(back_within(Some(Duration::from_millis(100)), s(10)), Some(s(10)));
        assert_eq!(back_within(Some(s(20)), s(1)), Some(s(20)));
        assert_eq!(back_within(None, s(3_600)), Some(s(10)));
        let denied =
            Denied::no_group(&GroupError::NoBindings { waited: s(5), last_error: String::new() }, s(5));
        assert_eq!(denied.hint, "The statement did not run. Retry after 5.0 s.");
    }

    /// Programs know them by these numbers.
    #[test]
    fn each_reason_has_its_numbers_says_what_and_what_to_do() {
        let instead = "Run the statement without EXPLAIN RU, and read its cost in tidegate.statements.";
        for (denied, mysql, postgres, message, hint) in [
            (Denied::cancelled(), 1317, "57014", "statement cancelled while it waited for request units", ""),
            (
                Denied::runaway("g", "ROWS = 7 (5)"),
                8253,
                "57014",
                "statement interrupted as a runaway of resource group g: ROWS = 7 (5)",
                "Make it cheaper, or ask for a higher limit of the group.",
            ),
            (
                Denied::watched("g", 7),
                8254,
                "57014",
                "statement refused: watch 7 of resource group g covers it",
                "It was a runaway before. QUERY WATCH REMOVE lifts the watch.",
            ),
            (
                Denied::explained_text(9),
                1105,
                "54000",
                "EXPLAIN RU takes a statement of at most 9 bytes, and this one is longer",
                instead,
            ),
            (
                Denied::explained_parameters(9, 8),
                1105,
                "54000",
                "EXPLAIN RU takes at most 8 bytes of parameters, and was sent 9",
                instead,
            ),
            (
                Denied::many_rows(),
                1235,
                "0A000",
                "what the gateway answers takes one row of parameters, and was sent many at once",
                "Execute it for each row.",
            ),
            (
                Denied::explained_limit(2),
                1235,
                "0A000",
                "EXPLAIN RU returns 5 rows at once, and was executed for 2",
                "Execute it without a limit of rows, or with one above 5.",
            ),
        ] {
            assert_eq!((denied.code.mysql, denied.code.postgres_state), (mysql, postgres), "{message}");
            assert_eq!((&*denied.message, &*denied.hint), (message, hint));
        }
    }

    #[test]
    fn a_pause_is_told_in_tenths_rounded_up() {
        for (ms, told) in [(0, "0.1"), (40, "0.1"), (100, "0.1"), (101, "0.2"), (12_340, "12.4")] {
            assert_eq!(retry_after(Duration::from_millis(ms)), format!("Retry after {told} s."));
        }
    }

    #[test]
    fn a_login_without_a_group_is_asked_to_retry_only_where_that_helps() {
        let s = Duration::from_secs;
        let unavailable = |waited| GroupError::Unavailable {
            group: GroupName::new("g").unwrap(),
            waited,
            last_error: String::new(),
        };
        assert_eq!(
            Denied::no_group(&unavailable(s(1)), s(1)).hint,
            "The statement did not run. Retry after 1.0 s."
        );
        let unknown = GroupError::UnknownGroup { group: GroupName::new("g").unwrap() };
        assert_eq!(Denied::no_group(&unknown, s(1)).hint, "The statement did not run.");
    }

    /// Each names the group, says what is the matter, and when to come back where that is known.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_client_reads_why_its_group_does_not_admit_it() {
        let stage = Stage::new().await;
        let handle = stage.group("own", "").await;
        let group = || handle.name().clone();
        let (s, ms) = (Duration::from_secs, Duration::from_millis);
        let quota = Refused::QuotaUsedUp { group: group(), unit: QuotaUnit::Requests, resets_in: s(90) };
        for (refused, code, message, hint) in [
            (
                Refused::TooManyWaiters { group: group(), limit: 7 },
                Code::QUOTA,
                "resource group own has 7 statements waiting already",
                "Retry after 1.0 s.",
            ),
            (
                quota,
                Code::QUOTA,
                "group own has used up its quota of requests; more of it begins in 90s",
                "Retry after 90.0 s.",
            ),
            (
                Refused::Unavailable { group: group(), retry_after: ms(100) },
                Code::UNAVAILABLE,
                "resource group own has no lease from the controller, waited 2.5 s",
                "Retry after 2.5 s.",
            ),
            (
                Refused::UnknownGroup { group: group() },
                Code::UNKNOWN,
                "resource group own does not exist",
                "Create it, or bind the user to another group.",
            ),
            (
                Refused::ShutDown { group: group() },
                Code::QUOTA,
                "the client is shutting down and admits nothing more in group own",
                "",
            ),
        ] {
            let denied = Denied::refused(&refused, &handle, ms(2_500));
            assert_eq!((denied.code, &*denied.message, &*denied.hint), (code, message, hint));
        }
        let throttled = Refused::Throttled { group: group(), retry_after: ms(40) };
        let denied = Denied::refused(&throttled, &handle, s(3));
        let begins = "resource group own is out of request units: it has ";
        assert!(denied.message.starts_with(begins), "{denied:?}");
        assert!(denied.message.ends_with(" left, waited 3.0 s"), "{denied:?}");
        handle.charge_ru(RuParts::flat(Ru::whole(1_000_000)));
        eventually("it owes", || handle.state().debt.is_positive()).await;
        let denied = Denied::refused(&throttled, &handle, s(3));
        assert!(denied.message.contains("request units: it owes 99"), "{denied:?}");
        assert_eq!((denied.code, denied.hint.as_str()), (Code::QUOTA, "Retry after 0.1 s."));
    }

    #[test]
    fn inside_a_transaction_a_client_reads_that_it_is_open_and_whether_its_end_waits() {
        let denied = |hint: &str| Denied { code: Code::QUOTA, message: String::new(), hint: hint.to_owned() };
        let open = "The transaction is still open and holds its locks";
        assert_eq!(denied("").in_transaction(true).hint, format!("{open}."));
        assert_eq!(
            denied("Retry after 0.1 s.").in_transaction(false).hint,
            format!("Retry after 0.1 s. {open}; COMMIT and ROLLBACK do not wait.")
        );
    }
}
