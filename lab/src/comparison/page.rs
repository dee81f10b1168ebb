//! The page: blocks between markers are made, the text around them is written by hand.

/// Where the block of a name begins and ends.
fn markers(name: &str) -> (String, String) {
    (format!("<!-- {name}: made by `compare` -->"), format!("<!-- {name}: end -->"))
}

/// Puts a block between its markers.
///
/// # Errors
/// A marker is not there, or they are in the wrong order.
pub fn replace(page: &str, name: &str, block: &str) -> Result<String, String> {
    let (begin, end) = markers(name);
    let missing = |marker: &str| format!("the page has no line `{marker}`");
    let (before, rest) = page.split_once(&begin).ok_or_else(|| missing(&begin))?;
    let (_, after) = rest.split_once(&end).ok_or_else(|| missing(&end))?;
    Ok(format!("{before}{begin}\n\n{}\n\n{end}{after}", block.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_block_is_replaced() {
        let page = "a\n<!-- x: made by `compare` -->\nold\n<!-- x: end -->\nb\n";
        let new = replace(page, "x", "new\n").unwrap();
        assert_eq!(new, "a\n<!-- x: made by `compare` -->\n\nnew\n\n<!-- x: end -->\nb\n");
        assert_eq!(replace(&new, "x", "new").unwrap(), new, "a second time changes nothing");
        assert!(replace(page, "y", "new").is_err());
    }
}
