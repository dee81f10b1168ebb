//! One statement: all of its text, what it costs and by what, how it was judged, and the way to watch it.

use maud::{Markup, html};
use tidegate_proto::v1;

use crate::chart::Chart;
use crate::frame::{self, Place, form_key};
use crate::history::{self, Bucket};
use crate::link::Link;
use crate::quantity::{grouped, moment, short, span};
use crate::statements::{LAST, cost, ranges, runaways};
use crate::viewer::Viewer;

/// Where it is.
pub fn link(group: &str, fingerprint: &str) -> Link {
    Link::to(&["statements", group, fingerprint])
}

/// What the page of a statement shows.
#[derive(Clone, Debug)]
pub struct Statement<'s> {
    /// The row of the statistics, with the sums of `last`.
    pub row: &'s v1::StatementRow,
    /// One of [`crate::statements::RANGES`].
    pub last: &'s str,
    /// What it cost in the last hour by minutes, or with `24h` in the last day by hours.
    pub history: &'s [Bucket],
    /// Now, in Unix seconds.
    pub unix_s: u64,
    /// Causes that its chart leaves out.
    pub hidden: &'s [String],
    /// Its watches.
    pub watches: &'s [v1::Watch],
    /// Its convictions.
    pub runaways: &'s [v1::Runaway],
}

impl Statement<'_> {
    /// The page.
    pub fn page(&self, viewer: &Viewer) -> Markup {
        let row = self.row;
        let content = html! {
            p { "In the group " a href=(Link::group(&row.group)) { (row.group) } "; fingerprint " code { (row.fingerprint) } "." }
            pre.statement tabindex="0" { bdi { (row.template) } }
            (ranges(&link(&row.group, &row.fingerprint), self.last))
            (self.figures())
            (self.chart())
            (self.parts())
            @if viewer.may_see_all {
                section aria-labelledby="judged" {
                    h2 #judged { "Verdicts" }
                    @if self.runaways.is_empty() { p.empty { "It never broke a rule." } } @else { (runaways(self.runaways)) }
                    @for watch in self.watches { p { "On the watch list as " code { (watch.r#match) } " until "
                        @if watch.end_unix_ms == 0 { "it is removed" } @else { (moment(watch.end_unix_ms)) } "." } }
                }
            }
            @if viewer.may_change && self.watches.is_empty() { (self.watch(viewer)) }
        };
        frame::page("Statement", Some(Place::Statements), Some(viewer), &content)
    }

    fn figures(&self) -> Markup {
        let row = self.row;
        let (total, mean) = cost(row);
        let each = |sum: u64| span(sum / row.calls.max(1));
        html! {
            dl.figures {
                div { dt { "RU in all" } dd { (short(total)) } }
                div { dt { "RU a call" } dd { (short(mean)) small { " most " (short(row.max_micro_ru.into())) } } }
                div { dt { "Calls" } dd { (grouped(row.calls.into())) } }
                div { dt { "Rows" } dd { (grouped(row.rows.into())) } }
                div { dt { "Time a call" } dd { (each(row.elapsed_us)) } }
                div { dt { "Waited a call" } dd { (each(row.waited_us)) } }
                div.warn[row.errors > 0] { dt { "Errors" } dd { (grouped(row.errors.into())) } }
                div.warn[row.throttled > 0] { dt { "Refused" } dd { (grouped(row.throttled.into())) } }
                @if row.estimated > 0 { div { dt { "Estimated" } dd { (grouped(row.estimated.into())) small { " calls" } } } }
            }
            @if row.calls == 0 && row.throttled == 0 { p.hint { "It was not reported in this time." } } @else {
                p.hint { "First " (moment(row.first_unix_ms)) ", last " (moment(row.last_unix_ms)) "." }
            }
        }
    }

    fn chart(&self) -> Markup {
        let (title, range) = match self.last {
            "24h" => ("RU/s by cause, last 24 hours by hours", (24 * 3_600, 3_600)),
            _ => ("RU/s by cause, last hour by minutes", (3_600, 60)),
        };
        let (times, series) = history::columns(self.history, range, self.unix_s);
        let link = link(&self.row.group, &self.row.fingerprint).with(LAST, self.last);
        html! {
            h2 { (title) }
            (Chart { title, times, of: "Cause", series, limit: None, hidden: self.hidden, link }.markup())
        }
    }

    fn parts(&self) -> Markup {
        let row = self.row;
        let parts = [
            ("CPU", row.cpu_micro_ru),
            ("Read", row.read_micro_ru),
            ("Write", row.write_micro_ru),
            ("Network", row.network_micro_ru),
        ];
        parts_table(&parts.map(|(name, micro)| (name, i128::from(micro))))
    }

    fn watch(&self, viewer: &Viewer) -> Markup {
        html! {
            section aria-labelledby="watch" {
                h2 #watch { "Watch it" }
                form.card method="post" action=(Link::to(&["watches"])) {
                    (form_key(viewer))
                    input type="hidden" name="group" value=(self.row.group);
                    input type="hidden" name="digest" value=(self.row.fingerprint);
                    input type="hidden" name="text" value=(self.row.template);
                    label { "Before each call " select name="action" {
                        option value="dryrun" { "only record it" }
                        option value="cooldown" { "slow it down" }
                        option value="kill" { "refuse it" }
                    } }
                    label { "For " select name="hours" {
                        option value="1" { "an hour" } option value="24" { "a day" } option value="168" { "a week" } option value="0" { "ever" }
                    } }
                    button.main type="submit" { "Watch" }
                }
            }
        }
    }
}

/// RU by cause, as bars beside their numbers.
pub(crate) fn parts_table(parts: &[(&str, i128)]) -> Markup {
    let total: i128 = parts.iter().map(|(_, micro)| *micro).sum::<i128>().max(1);
    html! {
        table.parts {
            caption { "RU by cause" }
            tbody { @for (name, micro) in parts {
                @let percent = micro * 100 / total;
                tr { th scope="row" { (name) } td.number { (short(*micro)) " RU" } td.number { (percent) " %" }
                    td { svg.bar viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true" { rect width=(percent) height="8" {} } } }
            } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::tests::viewer;
    use crate::statements::tests::row;

    fn page(row: &v1::StatementRow, last: &str, may_change: bool) -> String {
        charted(row, (last, [60_000_000, 0, 0, 0, 0]), &[], may_change)
    }

    fn charted(
        row: &v1::StatementRow,
        (last, parts): (&str, [i128; 5]),
        hidden: &[String],
        may_change: bool,
    ) -> String {
        let (history, unix_s) = ([Bucket { start_s: 7_200, parts }], 9_000);
        let page = Statement { row, last, history: &history, unix_s, hidden, watches: &[], runaways: &[] };
        page.page(&viewer(may_change, true)).into_string()
    }

    #[test]
    fn its_legend_names_causes_and_leaves_them_out() {
        let (row, parts) = (row("select ?"), [60_000_000, 60_000_000, 0, 0, 0]);
        let of = |hidden: &[String]| charted(&row, ("", parts), hidden, true);
        let text = of(&[]);
        assert!(text.contains("<th scope=\"col\">Cause</th>") && text.contains("hide=CPU"), "{text}");
        assert!(text.contains("T02:00:00Z|2 RU/s") && !text.contains("aria-pressed=\"false\""), "{text}");
        let text = of(&["CPU".to_owned()]);
        assert!(text.contains("T02:00:00Z|1 RU/s") && text.contains("aria-pressed=\"false\""), "{text}");
    }

    #[test]
    fn all_of_the_text_and_each_part_of_the_cost_is_there() {
        let long = "select ".repeat(900);
        let row = row(&long);
        let text = page(&row, "", true);
        assert!(text.contains(&long) && text.contains("75 %") && text.contains("25 %"), "{text}");
        assert!(text.contains("/console/watches") && text.contains("key-of-the-form"));
        assert!(!page(&row, "", false).contains("/console/watches"), "a viewer changes nothing");
    }

    #[test]
    fn each_figure_is_in_its_place_and_marked_where_something_failed() {
        let row = crate::statements::tests::figured();
        let text = page(&row, "", true);
        for part in [
            "<div><dt>RU in all</dt><dd>40</dd>",
            "<div><dt>RU a call</dt><dd>10<small> most 31</small></dd>",
            "<div><dt>Calls</dt><dd>4</dd>",
            "<div><dt>Rows</dt><dd>1,032</dd>",
            "<div><dt>Time a call</dt><dd>33 ms</dd>",
            "<div><dt>Waited a call</dt><dd>34 ms</dd>",
            "<div class=\"warn\"><dt>Errors</dt><dd>35</dd>",
            "<div class=\"warn\"><dt>Refused</dt><dd>36</dd>",
            "<div><dt>Estimated</dt><dd>37<small> calls</small></dd>",
            "First <time datetime=\"2000-02-29T00:00:00Z\">",
            "last <time datetime=\"2000-03-01T00:00:00Z\">",
            "<th scope=\"row\">CPU</th><td class=\"number\">6 RU</td><td class=\"number\">15 %</td>",
            "<th scope=\"row\">Read</th><td class=\"number\">8 RU</td><td class=\"number\">20 %</td>",
            "<th scope=\"row\">Write</th><td class=\"number\">10 RU</td><td class=\"number\">25 %</td>",
            "<th scope=\"row\">Network</th><td class=\"number\">16 RU</td><td class=\"number\">40 %</td>",
            "name=\"group\" value=\"shop\"",
            "name=\"digest\" value=\"00000000000000ff\"",
            "name=\"text\" value=\"select ?, '='\"",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let calm = v1::StatementRow { errors: 0, throttled: 0, estimated: 0, ..row.clone() };
        let calm = page(&calm, "", true);
        assert!(!calm.contains("class=\"warn\"") && !calm.contains("Estimated"), "{calm}");
        // Refused it was, so that it was reported.
        let refused = v1::StatementRow { calls: 0, ..row };
        assert!(!page(&refused, "5m", true).contains("It was not reported in this time"));
    }

    #[test]
    fn who_may_see_all_sees_how_it_was_judged_and_until_when_it_is_watched() {
        let row = row("select ?");
        let of = |watches: &[v1::Watch], runaways: &[v1::Runaway], viewer: &Viewer| {
            let (last, hidden) = ("", &[][..]);
            let of = Statement { row: &row, last, history: &[], unix_s: 9_000, hidden, watches, runaways };
            of.page(viewer).into_string()
        };
        let watch =
            |end_unix_ms| v1::Watch { r#match: "similar".to_owned(), end_unix_ms, ..v1::Watch::default() };
        let conviction = v1::ConvictRequest { rule: "RU = 5".to_owned(), ..v1::ConvictRequest::default() };
        let runaway = v1::Runaway { conviction: Some(conviction), ..v1::Runaway::default() };
        let all = viewer(true, true);
        let text = of(&[], &[], &all);
        assert!(text.contains("It never broke a rule.") && text.contains("/console/watches"), "{text}");
        let text = of(&[watch(0)], std::slice::from_ref(&runaway), &all);
        assert!(
            text.contains("<code>similar</code> until it is removed.") && text.contains("RU = 5"),
            "{text}"
        );
        assert!(!text.contains("/console/watches"), "one that is watched is not watched twice: {text}");
        let text = of(&[watch(951_782_400_000)], &[], &all);
        assert!(text.contains("until <time datetime=\"2000-02-29T00:00:00Z\">"), "{text}");
        let text = of(&[watch(0)], &[runaway], &viewer(false, false));
        assert!(!text.contains("RU = 5") && !text.contains("watch list"), "{text}");
    }

    #[test]
    fn its_history_is_that_of_the_time_that_is_chosen() {
        let text = page(&row("select ?"), "", true);
        assert!(text.contains("last hour by minutes") && text.contains("last=24h"), "{text}");
        assert!(text.contains("T02:00:00Z|1 RU/s\""), "60 RU in a minute: {text}");
        let text = page(&row("select ?"), "24h", true);
        assert!(
            text.contains("last 24 hours by hours") && text.contains("aria-current=\"true\">24 h"),
            "{text}"
        );
        assert!(text.contains("T02:00:00Z|0.0"), "60 RU in an hour: {text}");
        let text = page(&v1::StatementRow { calls: 0, ..row("select ?") }, "5m", true);
        assert!(text.contains("It was not reported in this time"), "{text}");
    }
}
