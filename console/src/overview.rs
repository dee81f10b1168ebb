//! The first page: who uses what now, who waits and why, and what is wrong.

use maud::{Markup, html};
use tidegate_core::units::Rate;
use tidegate_proto::v1;

use crate::chart::{COLOURS, Chart, HIDE, Series};
use crate::frame::{self, Place, warnings};
use crate::link::Link;
use crate::present::{GroupNow, Present};
use crate::quantity::{grouped, micro, rate, short, span};
use crate::samples::Seconds;
use crate::statements;
use crate::viewer::Viewer;
use crate::why::Why;

/// Throttled groups that are listed; the page of groups has the others.
const MOST_THROTTLED: usize = 20;
/// The sum of the groups that have no colour of their own.
const OTHERS: &str = "all others";

/// Nodes at a glance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCount {
    /// With an open stream.
    pub connected: usize,
    /// Heard of, and without one.
    pub silent: usize,
}

/// What the overview shows.
#[derive(Clone, Debug)]
pub struct Overview<'o> {
    /// The controller; `None` for a viewer who may not see it.
    pub status: Option<&'o v1::StatusReply>,
    /// See `status`.
    pub nodes: NodeCount,
    /// All groups that are seen.
    pub present: &'o Present,
    /// The last seconds.
    pub seconds: &'o Seconds,
    /// The statements that cost most.
    pub dearest: &'o [v1::StatementRow],
    /// Names that the chart leaves out.
    pub hidden: &'o [String],
}

impl Overview<'_> {
    /// The address of this view.
    pub fn link(&self) -> Link {
        Place::Overview.link().with(HIDE, self.hidden.join(","))
    }

    /// The page.
    pub fn page(&self, viewer: &Viewer) -> Markup {
        let content = frame::live(&self.link(), &self.live(viewer));
        frame::page("Overview", Some(Place::Overview), Some(viewer), &content)
    }

    /// The part that follows the present.
    pub fn live(&self, viewer: &Viewer) -> Markup {
        html! {
            @if let Some(status) = self.status { (warnings(&status.warnings)) }
            (self.figures())
            (frame::partial(self.present))
            section aria-labelledby="use" {
                h2 #use { "RU/s by group, last five minutes" }
                @if self.present.is_empty() { (first_steps(viewer)) } @else { (self.chart()) }
            }
            (self.throttled())
            @if !self.dearest.is_empty() {
                section aria-labelledby="dearest" {
                    h2 #dearest { "Dearest statements" }
                    (statements::short_table(self.dearest))
                }
            }
        }
    }

    fn figures(&self) -> Markup {
        let used = self.seconds.all().last().map_or(Rate::ZERO, |sample| sample.total);
        let waiting: u64 = self.present.all().map(|group| group.waiting).fold(0, u64::saturating_add);
        let throttled = self.present.all().filter(|group| group.is_throttled()).count();
        html! {
            dl.figures {
                div { dt { "Used now" } dd { (short(used.0.into())) " RU/s" } }
                @if let Some(status) = self.status {
                    div { dt { "Capacity" } dd { (rate(&status.capacity)) } }
                    div { dt { "Nodes" } dd { (self.nodes.connected)
                        @if self.nodes.silent > 0 { " " small { "and " (self.nodes.silent) " silent" } } } }
                    @if status.recovery_us > 0 {
                        div.bad { dt { "Recovers for" } dd { (span(status.recovery_us)) } }
                    }
                }
                div { dt { "Groups" } dd { (grouped(self.present.len() as u128)) } }
                div.warn[throttled > 0] { dt { "Throttled" } dd { (throttled) } }
                div.warn[waiting > 0] { dt { "Operations waiting" } dd { (grouped(waiting.into())) } }
            }
        }
    }

    fn chart(&self) -> Markup {
        let named = self.seconds.by_use().iter().take(COLOURS - 1);
        let mut series: Vec<Series> = named
            .map(|name| Series { name: name.to_string(), values: self.seconds.of_group(name) })
            .collect();
        let rest = self.seconds.all().iter().enumerate().map(|(at, sample)| {
            let named = series.iter().filter_map(|series| series.values.get(at));
            named.fold(sample.total.0, |rest, value| rest.saturating_sub(*value))
        });
        let rest: Vec<i64> = rest.collect();
        if rest.iter().any(|value| *value > 0) {
            series.push(Series { name: OTHERS.to_owned(), values: rest });
        }
        let capacity = self.status.and_then(|status| micro(&status.capacity));
        let chart = Chart {
            title: "RU/s by group over the last five minutes",
            times: self.seconds.times(),
            of: "Group",
            series,
            limit: capacity.and_then(|micro| i64::try_from(micro).ok()).map(|micro| (micro, "capacity")),
            hidden: self.hidden,
            link: self.link(),
        };
        chart.markup()
    }

    fn throttled(&self) -> Markup {
        let recovers = self.status.is_some_and(|status| status.recovery_us > 0);
        let mut waits: Vec<&GroupNow> = self.present.all().filter(|group| group.is_throttled()).collect();
        waits
            .sort_by(|one, other| other.waiting.cmp(&one.waiting).then_with(|| one.name().cmp(other.name())));
        html! {
            section aria-labelledby="throttled" {
                h2 #throttled { "Who waits, and why" }
                @if waits.is_empty() {
                    p.empty { "No operation waits." }
                } @else {
                    div.scrolls tabindex="0" role="group" aria-labelledby="throttled" { table {
                        thead { tr { th scope="col" { "Group" } th scope="col" { "Why" } th.number scope="col" { "Waiting" }
                            th.number scope="col" { "Backlog" } th.number scope="col" { "Uses" } th.number scope="col" { "Limit" } } }
                        tbody { @for group in waits.iter().take(MOST_THROTTLED) { tr {
                            th scope="row" { a href=(Link::group(group.name())) id={ "waits-" (group.name()) } { (group.name()) } }
                            td { @if let Some(why) = Why::of(self.present, group, recovers) { (why) } }
                            td.number { (grouped(group.waiting.into())) }
                            td.number { (short(group.backlog.0.into())) " RU" }
                            td.number { (short(group.used.0.into())) " RU/s" }
                            td.number { @match group.limit() { Some(limit) => { (short(limit.0.into())) " RU/s" } None => "none" } }
                        } } }
                    } }
                    @if waits.len() > MOST_THROTTLED {
                        p { a href=(Place::Groups.link().with("sort", "waiting")) { "and " (waits.len() - MOST_THROTTLED) " more" } }
                    }
                }
            }
        }
    }
}

fn first_steps(viewer: &Viewer) -> Markup {
    html! {
        p.empty { "There is no group that you see." }
        @if viewer.may_change {
            p { "Make the first one " a href=(Link::to(&["groups", "new"])) { "here" } ", or by "
                code { "tidegate group create shop --rate 500" } "." }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::frame::tests::viewer;
    use crate::present::tests::group;
    use crate::samples::{Recent, Sample};

    /// Two seconds in which these groups used so much, in RU/s.
    fn seconds(used: &[(&str, i64)]) -> Seconds {
        let mut recent = Recent::default();
        for unix_ms in [1_000, 2_000] {
            let used = used.iter().map(|(name, rate)| (Arc::from(*name), Rate::whole(*rate))).collect();
            recent.push(Sample::of(unix_ms, used));
        }
        recent.seconds()
    }

    fn page(status: Option<&v1::StatusReply>, present: &Present, seconds: &Seconds) -> String {
        let nodes = NodeCount { connected: 3, silent: 1 };
        let overview = Overview { status, nodes, present, seconds, dearest: &[], hidden: &[] };
        overview.page(&viewer(true, status.is_some())).into_string()
    }

    #[test]
    fn groups_without_a_colour_of_their_own_are_one_sum() {
        let names: Vec<String> = (0..COLOURS + 2).map(|at| format!("g{at}")).collect();
        let used: Vec<(&str, i64)> = names.iter().map(String::as_str).zip(1..).collect();
        let present = Present::of(1, used.iter().map(|(name, rate)| group(name, "", 0, *rate)));
        let text = page(None, &present, &seconds(&used));
        assert_eq!(text.matches("<polygon").count(), COLOURS);
        assert!(text.contains("all others 6"), "the three smallest: {text}");
    }

    #[test]
    fn figures_that_are_missing_are_said_to_be_though_nobody_waits() {
        for is_partial in [false, true] {
            let mut present = Present::of(1, [group("a", "", 10, 1)]);
            present.is_partial = is_partial;
            let text = page(None, &present, &seconds(&[]));
            assert!(text.contains("No operation waits."), "{text}");
            assert_eq!(text.contains("More groups are in use than one answer holds"), is_partial, "{text}");
        }
    }

    #[test]
    fn who_waits_is_listed_with_the_reason_and_others_are_not() {
        let waits = GroupNow { waiting: 7, leases: 1, ..group("busy", "", 10, 10) };
        let present = Present::of(1, [waits, group("calm", "", 10, 1)]);
        let status = v1::StatusReply { capacity: "500".to_owned(), ..v1::StatusReply::default() };
        let text = page(Some(&status), &present, &seconds(&[("busy", 10)]));
        assert!(text.contains("it uses its own rate") && text.contains("waits-busy"), "{text}");
        assert!(!text.contains("waits-calm") && text.contains("class=\"limit\""), "{text}");
    }

    #[test]
    fn those_who_wait_most_come_first_and_a_recovery_is_told() {
        let waits = |name, waiting| GroupNow { waiting, leases: 1, ..group(name, "", 10, 10) };
        let present = Present::of(1, [waits("a", 2), waits("c", 7), waits("b", 7)]);
        let status = v1::StatusReply { recovery_us: 4_000_000, ..v1::StatusReply::default() };
        let text = page(Some(&status), &present, &Seconds::default());
        let at = |name: &str| text.find(&format!("waits-{name}")).unwrap();
        assert!(at("b") < at("c") && at("c") < at("a"), "{text}");
        assert!(text.contains("Recovers for") && text.contains("4.0 s"), "{text}");
        assert_eq!(text.matches("the controller recovers from an unclean stop").count(), 3, "{text}");
        assert!(text.contains("<dt>Operations waiting</dt><dd>16</dd>"), "{text}");
    }

    #[test]
    fn of_many_who_wait_those_are_listed_who_wait_most_whatever_their_names() {
        for (more, said) in [(0, None), (1, Some("and 1 more")), (5, Some("and 5 more"))] {
            let count = MOST_THROTTLED + more;
            let waits =
                |at: usize| GroupNow { waiting: 1 + at as u64, ..group(&format!("g{at:02}"), "", 10, 10) };
            let text = page(None, &Present::of(1, (0..count).map(waits)), &Seconds::default());
            let listed: Vec<&str> =
                text.split("id=\"waits-").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
            let most: Vec<String> = (more..count).rev().map(|at| format!("g{at:02}")).collect();
            assert_eq!(listed, most);
            assert_eq!(text.contains("groups?sort=waiting"), said.is_some(), "{text}");
            assert!(said.is_none_or(|said| text.contains(said)), "{text}");
            assert!(text.contains(&format!("<dt>Throttled</dt><dd>{count}</dd>")), "{text}");
        }
    }

    #[test]
    fn figures_and_rows_say_what_is_and_are_marked_where_somebody_waits() {
        let backlog = tidegate_core::units::Ru::whole(31);
        let waits = GroupNow { waiting: 1_032, backlog, leases: 1, ..group("a", "", 40, 2) };
        let owes = GroupNow { backlog, ..group("c", "", 0, 1) };
        let present = Present::of(1, [waits, group("b", "a", 0, 4), owes]);
        let status = v1::StatusReply {
            capacity: "500".to_owned(),
            warnings: vec!["<w>".to_owned()],
            ..v1::StatusReply::default()
        };
        let mut recent = Recent::default();
        for (unix_ms, rate) in [(1_000, 70), (2_000, 7)] {
            recent.push(Sample::of(unix_ms, vec![(Arc::from("a"), Rate::whole(rate))]));
        }
        let text = page(Some(&status), &present, &recent.seconds());
        for part in [
            "<div><dt>Used now</dt><dd>7 RU/s</dd>",
            "<div><dt>Capacity</dt><dd>500 RU/s</dd>",
            "<div><dt>Nodes</dt><dd>3 <small>and 1 silent</small></dd>",
            "<div><dt>Groups</dt><dd>3</dd>",
            "<div class=\"warn\"><dt>Throttled</dt><dd>2</dd>",
            "<div class=\"warn\"><dt>Operations waiting</dt><dd>1,032</dd>",
            "<li>&lt;w&gt;</li>",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("Recovers for"), "{text}");
        let numbers = |of: [&str; 4]| of.map(|cell| format!("<td class=\"number\">{cell}</td>")).concat();
        let a = ["1,032", "31 RU", "6 RU/s", "40 RU/s"];
        assert!(
            text.contains(&format!("<td>the next renewal brings more</td>{}</tr>", numbers(a))),
            "{text}"
        );
        let c = ["0", "31 RU", "1 RU/s", "none"];
        assert!(text.contains(&format!("<td>no node has a lease</td>{}</tr>", numbers(c))), "{text}");
        let calm = page(Some(&status), &Present::of(1, [group("a", "", 40, 2)]), &recent.seconds());
        assert!(!calm.contains("class=\"warn\""), "{calm}");
    }

    #[test]
    fn a_first_group_is_shown_how_to_make_by_those_who_may() {
        let text = page(Some(&v1::StatusReply::default()), &Present::of(1, []), &Seconds::default());
        assert!(text.contains("<code>tidegate group create shop --rate 500</code>"), "{text}");
        assert!(text.contains("href=\"/console/groups/new\""), "{text}");
    }

    #[test]
    fn a_viewer_without_the_whole_sees_neither_nodes_nor_capacity() {
        let text = page(None, &Present::of(1, [group("a", "", 1, 1)]), &Seconds::default());
        assert!(!text.contains("Capacity") && !text.contains("Nodes"), "{text}");
    }
}
