//! The numbers by which programs distinguish errors, for both protocols.
//!
//! MySQL clients see an error number and an SQLSTATE, PostgreSQL clients an SQLSTATE of their own list. Numbers from
//! 8248 are those TiDB gives to resource control, so that tools made for it understand a gateway.
//!
//! *Source*: TiDB's `errno` list, MySQL's server error reference, PostgreSQL's appendix of error codes.

/// What an error is, in both protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Code {
    /// MySQL's error number.
    pub mysql: u16,
    /// MySQL's SQLSTATE.
    pub mysql_state: &'static str,
    /// PostgreSQL's SQLSTATE.
    pub postgres_state: &'static str,
}

impl Code {
    /// Text that does not follow the grammar.
    pub const SYNTAX: Self = Self::new(1064, "42000", "42601");
    /// Something the grammar knows and tidegate does not do.
    pub const UNSUPPORTED: Self = Self::new(1235, "42000", "0A000");
    /// The user may not do this.
    pub const DENIED: Self = Self::new(1227, "42000", "42501");
    /// A column that no table has.
    pub const NO_COLUMN: Self = Self::new(1054, "42S22", "42703");
    /// A function that does not exist here.
    pub const NO_FUNCTION: Self = Self::new(1305, "42000", "42883");
    /// The group exists already.
    pub const EXISTS: Self = Self::new(8248, "HY000", "42710");
    /// The group does not exist.
    pub const UNKNOWN: Self = Self::new(8249, "HY000", "42704");
    /// No controller answers.
    pub const UNAVAILABLE: Self = Self::new(8251, "HY000", "57P03");
    /// The group has no tokens within the time an operation may wait.
    pub const QUOTA: Self = Self::new(8252, "HY000", "53400");
    /// Ended while it ran, as a runaway.
    pub const RUNAWAY: Self = Self::new(8253, "HY000", "57014");
    /// Refused before it ran, as a statement that is watched.
    pub const WATCHED: Self = Self::new(8254, "HY000", "57014");
    /// A value out of range or malformed.
    pub const INVALID: Self = Self::new(1105, "HY000", "22023");
    /// Not possible in the present state, such as dropping a group that is used.
    pub const REFUSED: Self = Self::new(1105, "HY000", "55000");
    /// A limit is reached.
    pub const FULL: Self = Self::new(1105, "HY000", "54000");
    /// Everything else.
    pub const INTERNAL: Self = Self::new(1105, "HY000", "XX000");

    const fn new(mysql: u16, mysql_state: &'static str, postgres_state: &'static str) -> Self {
        Self { mysql, mysql_state, postgres_state }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As docs/sql.md lists them.
    #[test]
    fn programs_read_these_numbers_in_either_protocol() {
        for (code, mysql, mysql_state, postgres_state) in [
            (Code::SYNTAX, 1064, "42000", "42601"),
            (Code::UNSUPPORTED, 1235, "42000", "0A000"),
            (Code::DENIED, 1227, "42000", "42501"),
            (Code::NO_COLUMN, 1054, "42S22", "42703"),
            (Code::NO_FUNCTION, 1305, "42000", "42883"),
            (Code::EXISTS, 8248, "HY000", "42710"),
            (Code::UNKNOWN, 8249, "HY000", "42704"),
            (Code::UNAVAILABLE, 8251, "HY000", "57P03"),
            (Code::QUOTA, 8252, "HY000", "53400"),
            (Code::RUNAWAY, 8253, "HY000", "57014"),
            (Code::WATCHED, 8254, "HY000", "57014"),
            (Code::INVALID, 1105, "HY000", "22023"),
            (Code::REFUSED, 1105, "HY000", "55000"),
            (Code::FULL, 1105, "HY000", "54000"),
            (Code::INTERNAL, 1105, "HY000", "XX000"),
        ] {
            assert_eq!(
                (code.mysql, code.mysql_state, code.postgres_state),
                (mysql, mysql_state, postgres_state)
            );
        }
    }
}
