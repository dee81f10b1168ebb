//! A rule against runaway statements as it is written after `--query-limit`: the limits of SQL's `QUERY_LIMIT`, or
//! `none`.

use std::str::FromStr;

use tidegate_proto::v1;
use tidegate_sql::{SqlError, parse_query_limit};

/// The value of the option.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct QueryLimitText(pub(crate) Option<v1::QueryLimit>);

impl FromStr for QueryLimitText {
    type Err = SqlError;

    fn from_str(text: &str) -> Result<Self, SqlError> {
        if text.trim().eq_ignore_ascii_case("none") {
            return Ok(Self(None));
        }
        parse_query_limit(text).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_written_as_in_sql_and_none_removes_one() {
        let QueryLimitText(Some(limit)) = "RU=0.5, ACTION=KILL".parse().unwrap() else { panic!() };
        assert_eq!((limit.ru.as_str(), limit.action.as_str()), ("0.5", "kill"));
        assert_eq!("None".parse(), Ok(QueryLimitText(None)));
        let error = "RU=1 RU=2".parse::<QueryLimitText>().unwrap_err().to_string();
        assert!(error.contains("RU"), "{error}");
    }
}
