//! Statement texts in long lists: cut so that the whole list fits an answer.

use crate::limits::MAX_LIST_TEXT;

/// The start of a statement's text in a list of `rows`; all of it if the list is short.
pub(crate) fn excerpt(text: &str, rows: usize) -> &str {
    let most = MAX_LIST_TEXT.checked_div(rows).unwrap_or(MAX_LIST_TEXT);
    text.split_at_checked(text.floor_char_boundary(most)).map_or(text, |(start, _)| start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{MAX_TEMPLATE, MAX_WATCHES};

    #[test]
    fn texts_are_cut_only_in_long_lists() {
        let text = "ä".repeat(MAX_TEMPLATE / 2);
        assert_eq!(excerpt(&text, 0).len(), MAX_TEMPLATE);
        assert_eq!(excerpt(&text, 100).len(), MAX_TEMPLATE);
        assert!((100..200).contains(&excerpt(&text, MAX_WATCHES).len()));
        assert_eq!(excerpt("short", MAX_WATCHES), "short");
    }
}
