//! The length of answers, and the group that they are about.

use crate::error::{AdminError, InField};
use crate::limits::MAX_ROWS;
use crate::name::GroupName;

/// The rows of a page: 0 is the default, and more than `most` is refused.
pub(crate) fn page_limit(limit: u32, default: u32, most: u32) -> Result<usize, AdminError> {
    if limit > most {
        return Err(AdminError::invalid(
            "limit",
            format!("{limit} is out of range: 1 to {most}, or 0 for {default}"),
        ));
    }
    let limit = if limit == 0 { default } else { limit };
    usize::try_from(limit).map_err(|error| AdminError::invalid("limit", error))
}

/// Cuts an answer to its limit; returns whether rows were cut off.
pub(crate) fn cut_rows<T>(rows: &mut Vec<T>) -> bool {
    let truncated = rows.len() > MAX_ROWS;
    rows.truncate(MAX_ROWS);
    truncated
}

/// The group asked for; `None` is all.
pub(crate) fn one_group(group: &str) -> Result<Option<GroupName>, AdminError> {
    (!group.is_empty()).then(|| GroupName::parse(group).in_field("group")).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_cut_beyond_its_last_row_and_not_at_it() {
        for (rows, is_cut) in [(MAX_ROWS - 1, false), (MAX_ROWS, false), (MAX_ROWS + 1, true)] {
            let mut all = vec![(); rows];
            assert_eq!((cut_rows(&mut all), all.len()), (is_cut, rows.min(MAX_ROWS)), "{rows}");
        }
    }
}
