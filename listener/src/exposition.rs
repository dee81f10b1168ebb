//! The metrics page in the format of the scraper: OpenMetrics 1.0 if it asks for that, Prometheus' text format 0.0.4
//! otherwise.
//!
//! Both consist of lines. They differ in the names above a counter's samples, which lack `_total` in OpenMetrics, in
//! units and exemplars, which the older format does not have, and in the mark at the end. *Source:* the two formats' specifications.

use std::collections::BTreeSet;

use axum::http::{HeaderMap, header};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Where the exemplar of a sample begins: the one label of ours. In a label's value its quote would be escaped.
const EXEMPLAR: &str = " # {trace_id=\"";
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The content type and the page for a scraper that sent these headers.
pub fn shaped(headers: &HeaderMap, page: String) -> (&'static str, String) {
    let mut accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    if accepted.any(|value| value.contains("application/openmetrics-text")) {
        (OPEN_METRICS, page)
    } else {
        (TEXT, classic(&page))
    }
}

/// Converts OpenMetrics to the older format.
fn classic(page: &str) -> String {
    let counters: BTreeSet<&str> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let mut text = String::with_capacity(page.len());
    for line in page.lines() {
        let described = ["# HELP ", "# TYPE "].iter().find_map(|mark| Some((mark, line.strip_prefix(mark)?)));
        match described.and_then(|(mark, rest)| Some((mark, rest.split_once(' ')?))) {
            Some((mark, (name, rest))) => {
                let total = if counters.contains(name) { "_total" } else { "" };
                text.extend([mark, name, total, " ", rest, "\n"]);
            }
            None if line == "# EOF" || line.starts_with("# UNIT ") => {}
            None => text.extend([line.split_once(EXEMPLAR).map_or(line, |(sample, _)| sample), "\n"]),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_of_the_older_format_is_described_under_the_name_of_its_samples() {
        let page = "# HELP a Renewals.\n# TYPE a counter\na_total 5\n# HELP b_seconds Time.\n# TYPE b_seconds histogram\n\
            # UNIT b_seconds seconds\nb_seconds_sum 1.0\n\
            b_seconds_bucket{le=\"1.0\",of=\" # {trace_id=\\\"\"} 1 # {trace_id=\"ab\"} 0.5\n# EOF\n";
        let text = "# HELP a_total Renewals.\n# TYPE a_total counter\na_total 5\n# HELP b_seconds Time.\n\
            # TYPE b_seconds histogram\nb_seconds_sum 1.0\nb_seconds_bucket{le=\"1.0\",of=\" # {trace_id=\\\"\"} 1\n";
        let asked = |accept: &'static str| {
            let headers = HeaderMap::from_iter([(header::ACCEPT, accept.parse().unwrap())]);
            shaped(&headers, page.to_owned())
        };
        assert_eq!(shaped(&HeaderMap::new(), page.to_owned()), (TEXT, text.to_owned()));
        assert_eq!(asked("text/plain;version=0.0.4"), (TEXT, text.to_owned()));
        assert_eq!(
            asked("application/openmetrics-text;version=1.0.0,*/*;q=0.1"),
            (OPEN_METRICS, page.to_owned())
        );
    }
}
