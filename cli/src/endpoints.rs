//! Several addresses in one text: the controllers of a cluster, of which one leads.

/// The addresses in a text that separates them by commas.
pub(crate) fn each(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim)
}

/// The same, for those who keep them.
pub(crate) fn all(text: &str) -> Vec<String> {
    each(text).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_separated_by_commas_and_an_empty_one_stays_to_be_refused() {
        let all = |text| each(text).collect::<Vec<_>>();
        assert_eq!(all("http://a:1"), ["http://a:1"]);
        assert_eq!(all("http://a:1, http://b:2"), ["http://a:1", "http://b:2"]);
        assert_eq!(all("http://a:1,"), ["http://a:1", ""]);
    }
}
