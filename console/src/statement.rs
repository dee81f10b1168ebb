//! One statement: all of its text, what it costs and by what, how it was judged, and the way to watch it.

use maud::{Markup, html};
use tidegate_proto::v1;

use crate::frame::{self, Place, form_key};
use crate::link::Link;
use crate::quantity::{grouped, moment, short, span};
use crate::statements::{cost, runaways};
use crate::viewer::Viewer;

/// Where it is.
pub fn link(group: &str, fingerprint: &str) -> Link {
    Link::to(&["statements", group, fingerprint])
}

/// What the page of a statement shows.
#[derive(Clone, Debug)]
pub struct Statement<'s> {
    /// The row of the statistics.
    pub row: &'s v1::StatementRow,
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
            (self.figures())
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
            p.hint { "First " (moment(row.first_unix_ms)) ", last " (moment(row.last_unix_ms)) "." }
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

    #[test]
    fn all_of_the_text_and_each_part_of_the_cost_is_there() {
        let long = "select ".repeat(900);
        let row = row(&long);
        let page =
            Statement { row: &row, watches: &[], runaways: &[] }.page(&viewer(true, true)).into_string();
        assert!(page.contains(&long) && page.contains("75 %") && page.contains("25 %"), "{page}");
        assert!(page.contains("/console/watches") && page.contains("key-of-the-form"));
        let page =
            Statement { row: &row, watches: &[], runaways: &[] }.page(&viewer(false, true)).into_string();
        assert!(!page.contains("/console/watches"), "a viewer changes nothing");
    }
}
