//! How long answers get, and which group they are of.

use crate::error::{AdminError, InField};
use crate::limits::MAX_ROWS;
use crate::name::GroupName;

/// The rows of a page: 0 is the default, above the most is refused.
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

/// Bounds an answer; whether something was cut off.
pub(crate) fn cut_rows<T>(rows: &mut Vec<T>) -> bool {
    let truncated = rows.len() > MAX_ROWS;
    rows.truncate(MAX_ROWS);
    truncated
}

/// The group that is asked for; `None` is all.
pub(crate) fn one_group(group: &str) -> Result<Option<GroupName>, AdminError> {
    (!group.is_empty()).then(|| GroupName::parse(group).in_field("group")).transpose()
}
