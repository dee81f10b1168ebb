//! The list of groups, as a tree or sorted by a column.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use maud::{Markup, html};
use tidegate_core::units::{Rate, Ru};

use crate::csv;
use crate::form::Form;
use crate::frame::{self, Place};
use crate::link::Link;
use crate::paging::{self, PAGE};
use crate::present::{GroupNow, Present};
use crate::quantity::{grouped, short, span};
use crate::viewer::Viewer;
use crate::why::Why;

/// Nodes that are named in a row.
const NAMED: usize = 2;

/// What nodes hold of a group, and what is left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Tokens that no node holds; `None` where nobody asks for any.
    pub burst_left: Option<Ru>,
    /// Nodes with leases, each with its rate, the largest first; none where they are too many to be named.
    pub rates: Vec<(String, Rate)>,
}

/// Tokens that no node holds.
pub(crate) fn burst_left(left: Option<Ru>) -> String {
    left.map_or_else(|| "–".to_owned(), |left| short(left.0.max(0).into()))
}

/// A column by which the list is sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// As a tree.
    #[default]
    Tree,
    /// RU/s used, with all below.
    Used,
    /// RU/s asked for.
    Demand,
    /// RU/s allowed.
    Limit,
    /// RU waited for.
    Backlog,
    /// Operations waiting.
    Waiting,
    /// How long they waited.
    Wait,
    /// Operations refused.
    Refused,
    /// RU since it was created.
    Total,
}

impl Sort {
    const ALL: [(Self, &'static str, &'static str); 9] = [
        (Self::Tree, "", "Group"),
        (Self::Limit, "limit", "Limit"),
        (Self::Used, "used", "Uses"),
        (Self::Demand, "demand", "Demand"),
        (Self::Backlog, "backlog", "Backlog"),
        (Self::Waiting, "waiting", "Waiting"),
        (Self::Wait, "wait", "p99 wait"),
        (Self::Refused, "refused", "Refused"),
        (Self::Total, "total", "Total"),
    ];

    /// The order of this word; the tree for any other.
    pub fn parse(word: &str) -> Self {
        Self::ALL.into_iter().find(|(_, of, _)| *of == word).map(|(sort, ..)| sort).unwrap_or_default()
    }

    fn word(self) -> &'static str {
        Self::ALL.into_iter().find(|(sort, ..)| *sort == self).map_or("", |(_, word, _)| word)
    }

    fn key(self, group: &GroupNow) -> u128 {
        let rate = |rate: i64| u128::try_from(rate).unwrap_or(0);
        match self {
            Self::Tree => 0,
            Self::Used => rate(group.used.0),
            Self::Demand => rate(group.demand.0),
            Self::Limit => group.limit().map_or(u128::MAX, |limit| rate(limit.0)),
            Self::Backlog => rate(group.backlog.0),
            Self::Waiting => group.waiting.into(),
            Self::Wait => group.p99_wait_us().unwrap_or_default().into(),
            Self::Refused => group.throttled,
            Self::Total => group.total.micro_ru,
        }
    }
}

/// What the list shows.
#[derive(Clone, Debug)]
pub struct Groups<'g> {
    present: &'g Present,
    filter: &'g str,
    sort: Sort,
    skip: usize,
    is_recovering: bool,
    /// All of them in order, each with its depth in the tree.
    rows: Vec<(usize, &'g GroupNow)>,
    /// What nodes hold of the groups that are shown.
    pub held: BTreeMap<String, Held>,
}

impl<'g> Groups<'g> {
    /// Those of all groups with this in the name, in this order, without so many that were shown on the pages before.
    pub fn of(
        present: &'g Present,
        (filter, sort, skip): (&'g str, Sort, usize),
        is_recovering: bool,
    ) -> Self {
        let rows = rows(present, filter, sort);
        Self { present, filter, sort, skip, is_recovering, rows, held: BTreeMap::new() }
    }

    /// The address of this view.
    pub fn link(&self) -> Link {
        paging::from(Place::Groups.link().with("q", self.filter).with("sort", self.sort.word()), self.skip)
    }

    /// The page.
    pub fn page(&self, viewer: &Viewer) -> Markup {
        let content = html! {
            form.filters method="get" role="search" {
                label { "Name has " input type="search" name="q" value=(self.filter) size="20"; }
                @if self.sort != Sort::Tree { input type="hidden" name="sort" value=(self.sort.word()); }
                button type="submit" { "Show" }
                a href=(self.link().with("as", "csv")) { "CSV" }
                @if viewer.may_change { a.button href=(Form::link(None)) { "New group" } }
            }
            (frame::live(&self.link(), &self.live()))
        };
        frame::page("Groups", Some(Place::Groups), Some(viewer), &content)
    }

    /// The part that follows the present.
    pub fn live(&self) -> Markup {
        html! {
            @if self.rows.is_empty() {
                p.empty { @if self.filter.is_empty() { "There is no group that you see." } @else { "No group has this in its name." } }
            } @else {
                div.scrolls tabindex="0" role="group" aria-label="Groups" { table {
                    thead { tr { @for (sort, word, name) in Sort::ALL { @let is_sorted = sort == self.sort;
                        th.number[sort != Sort::Tree] scope="col" aria-sort=[is_sorted.then_some(if sort == Sort::Tree { "ascending" } else { "descending" })] {
                            a href=(self.link().with("sort", word).with("skip", "")) id={ "sort-" (word) } { (name) }
                        } }
                        th.number scope="col" { "Burst left" } th scope="col" { "Share of limit" } th.number scope="col" { "Leases" } th scope="col" { "By node" } } }
                    tbody { @for (depth, group) in self.on_page() { (self.row(*depth, group)) } }
                } }
                (paging::pages(&self.link(), self.skip, self.rows.len(), &html! { "; RU/s, totals in RU" }))
                (frame::partial(self.present))
            }
        }
    }

    /// The names of the groups on this page.
    pub fn shown(&self) -> Vec<&str> {
        self.on_page().map(|(_, group)| group.name()).collect()
    }

    fn on_page(&self) -> impl Iterator<Item = &(usize, &'g GroupNow)> {
        self.rows.iter().skip(self.skip).take(PAGE)
    }

    fn row(&self, depth: usize, group: &GroupNow) -> Markup {
        let why = Why::of(self.present, group, self.is_recovering);
        let percent = group.limit().map(|limit| i128::from(group.used.0) * 100 / i128::from(limit.0.max(1)));
        html! {
            tr {
                th scope="row" { span class={ "deep d" (depth.min(9)) } { a href=(Link::group(group.name())) id={ "group-" (group.name()) } { (group.name()) } }
                    @if group.group.enforcement == "shadow" { " " span.badge { "shadow" } }
                    @if let Some(why) = why { " " span.badge.warn title=(why) { "throttled" } } }
                td.number { @match group.limit() { Some(limit) => (short(limit.0.into())), None => "none" } }
                td.number { (short(group.used.0.into())) }
                td.number { (short(group.demand.0.into())) }
                td.number { (short(group.backlog.0.into())) }
                td.number { (grouped(group.waiting.into())) }
                td.number { @match group.p99_wait_us() { Some(us) => (span(us)), None => "–" } }
                td.number { (grouped(group.throttled)) }
                td.number { (short(i128::try_from(group.total.micro_ru).unwrap_or(i128::MAX))) }
                td.number { (burst_left(self.held.get(group.name()).and_then(|held| held.burst_left))) }
                td { @if let Some(percent) = percent {
                    svg.bar viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label={ (percent) " percent of its limit" } {
                        rect.full[percent >= 95] width=(percent.clamp(0, 100)) height="8" {} } } }
                td.number { (group.leases) }
                td.whole { (self.shares(group.name())) }
            }
        }
    }

    /// Which nodes have which part of what is leased.
    fn shares(&self, group: &str) -> Markup {
        let rates = self.held.get(group).map_or(&[][..], |held| &held.rates);
        let all = rates.iter().map(|(_, rate)| i128::from(rate.0)).sum::<i128>().max(1);
        html! {
            @for (at, (node, rate)) in rates.iter().take(NAMED).enumerate() {
                @if at > 0 { ", " } bdi { (node) } " " (i128::from(rate.0) * 100 / all) " %"
            }
            @if let Some(others) = rates.len().checked_sub(NAMED + 1) { ", " (others + 1) " more" }
        }
    }

    /// All rows as CSV.
    pub fn csv(&self) -> String {
        let names = [
            "group",
            "parent",
            "limit_micro_ru_per_sec",
            "used_micro_ru_per_sec",
            "demand_micro_ru_per_sec",
            "backlog_micro_ru",
            "waiting",
            "p99_wait_us",
            "refused",
            "total_micro_ru",
            "leases",
            "why",
        ];
        let rows = self.rows.iter().map(|(_, group)| {
            let why = Why::of(self.present, group, self.is_recovering);
            vec![
                group.name().to_owned(),
                group.group.parent.clone(),
                group.limit().map(|limit| limit.0.to_string()).unwrap_or_default(),
                group.used.0.to_string(),
                group.demand.0.to_string(),
                group.backlog.0.to_string(),
                group.waiting.to_string(),
                group.p99_wait_us().map(|us| us.to_string()).unwrap_or_default(),
                group.throttled.to_string(),
                group.total.micro_ru.to_string(),
                group.leases.to_string(),
                why.map(|why| why.to_string()).unwrap_or_default(),
            ]
        });
        csv::text(&names, rows)
    }
}

fn rows<'g>(present: &'g Present, filter: &str, sort: Sort) -> Vec<(usize, &'g GroupNow)> {
    let mut rows = present.tree();
    let wanted = filter.to_lowercase();
    if !wanted.is_empty() {
        rows.retain(|(_, group)| group.name().contains(&wanted));
    }
    if sort != Sort::Tree {
        rows.sort_by(|(_, one), (_, other)| {
            let by = |group| Reverse(sort.key(group));
            by(*one).cmp(&by(*other)).then_with(|| one.name().cmp(other.name()))
        });
    }
    if sort != Sort::Tree || !wanted.is_empty() {
        rows.iter_mut().for_each(|(depth, _)| *depth = 0);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::tests::viewer;
    use crate::present::Charged;
    use crate::present::tests::group;
    use tidegate_core::waited::Summary;

    fn list<'p>(present: &'p Present, filter: &'p str, sort: &str, skip: usize) -> Groups<'p> {
        Groups::of(present, (filter, Sort::parse(sort), skip), false)
    }

    fn names<'g>(groups: &'g Groups<'_>) -> Vec<(usize, &'g str)> {
        groups.rows.iter().map(|(depth, group)| (*depth, group.name())).collect()
    }

    #[test]
    fn a_tree_keeps_its_shape_and_an_order_does_not() {
        let groups = [group("a", "", 10, 1), group("b", "a", 0, 5), group("c", "", 50, 3)];
        let present = Present::of(1, groups);
        assert_eq!(names(&list(&present, "", "", 0)), [(0, "a"), (1, "b"), (0, "c")]);
        assert_eq!(
            names(&list(&present, "", "used", 0)),
            [(0, "a"), (0, "b"), (0, "c")],
            "a has what b uses"
        );
        assert_eq!(
            names(&list(&present, "", "limit", 0)),
            [(0, "b"), (0, "c"), (0, "a")],
            "no limit is the most"
        );
        assert_eq!(names(&list(&present, "B", "", 0)), [(0, "b")]);
        assert_eq!(list(&present, "", "nonsense", 0).sort, Sort::Tree);
    }

    /// A parent of which each figure is another one, and a group below it that uses some.
    fn figured() -> Present {
        let waits = Summary { p50_us: 21, p99_us: 22, max_us: 23, ..Summary::default() };
        let a = GroupNow {
            own: Rate::whole(2),
            demand: Rate::whole(31),
            backlog: Ru::whole(32),
            debt: Ru::whole(33),
            waiting: 34,
            waits: Some(waits),
            leases: 35,
            total: Charged { operations: 36, micro_ru: 37_000_000 },
            throttled: 38,
            ..group("a", "", 40, 2)
        };
        Present::of(1, [a, group("b", "a", 0, 4)])
    }

    #[test]
    fn a_row_has_the_same_figures_on_the_page_and_in_the_file() {
        let present = figured();
        let mut list = list(&present, "", "", 0);
        let names = "group,parent,limit_micro_ru_per_sec,used_micro_ru_per_sec,demand_micro_ru_per_sec,\
                     backlog_micro_ru,waiting,p99_wait_us,refused,total_micro_ru,leases,why";
        let a = "a,,40000000,6000000,31000000,32000000,34,22,38,37000000,35,the next renewal brings more";
        let b = "b,a,,4000000,0,0,0,,0,0,0,";
        assert_eq!(list.csv(), format!("{names}\r\n{a}\r\n{b}\r\n"));
        let held = Held { burst_left: Some(Ru::whole(41)), rates: vec![("n".to_owned(), Rate::whole(1))] };
        list.held.insert("a".to_owned(), held);
        let text = list.live().into_string();
        let cells = |name: &str| -> Vec<String> {
            let (_, row) = text.split_once(&format!("id=\"group-{name}\"")).unwrap();
            let (row, _) = row.split_once("</tr>").unwrap();
            let cells = row.split("<td").skip(1).map(|cell| cell.split_once('>').unwrap().1);
            cells.map(|cell| cell.replace("</td>", "")).collect()
        };
        let a = cells("a");
        assert_eq!(a[..9], ["40", "6", "31", "32", "34", "22 µs", "38", "37", "41"]);
        assert!(a[9].contains("15 percent of its limit") && a[9].contains(" width=\"15\""), "{a:?}");
        assert_eq!(a[10..], ["35", "<bdi>n</bdi> 100 %"]);
        assert_eq!(cells("b"), ["none", "4", "0", "0", "0", "–", "0", "0", "–", "", "0", ""]);
        let why = "title=\"the next renewal brings more\"";
        assert!(text.matches(why).count() == 1 && !text.contains("class=\"full\""), "{text}");
    }

    #[test]
    fn each_column_that_is_chosen_puts_its_largest_first_and_keeps_what_else_is_chosen() {
        let of = |name: &str, sort: Sort| {
            let mut group = group(name, "", if sort == Sort::Limit { 90 } else { 10 }, 0);
            match sort {
                Sort::Used => group.own = Rate::whole(9),
                Sort::Demand => group.demand = Rate::whole(9),
                Sort::Backlog => group.backlog = Ru::whole(9),
                Sort::Waiting => group.waiting = 9,
                Sort::Wait => group.waits = Some(Summary { p99_us: 9, ..Summary::default() }),
                Sort::Refused => group.throttled = 9,
                Sort::Total => group.total.micro_ru = 9,
                Sort::Tree | Sort::Limit => {}
            }
            group
        };
        let all = Sort::ALL.into_iter().map(|(sort, word, _)| of(&format!("g-{word}"), sort));
        let present = Present::of(1, all.chain([group("g", "", 10, 0)]));
        for (_, word, name) in Sort::ALL.into_iter().skip(1) {
            let list = list(&present, "g", word, 100);
            assert_eq!(list.rows[0].1.name(), format!("g-{word}"), "{word}");
            let link = list.link().to_string();
            assert_eq!(link, format!("/console/groups?q=g&sort={word}&skip=100"));
            let text = list.page(&viewer(false, true)).into_string();
            // Another order begins at its first page.
            let head = format!(
                "aria-sort=\"descending\"><a href=\"/console/groups?q=g&amp;sort={word}\" id=\"sort-{word}\">{name}<"
            );
            assert!(text.matches("aria-sort").count() == 1 && text.contains(&head), "{text}");
            let hidden = format!("<input type=\"hidden\" name=\"sort\" value=\"{word}\">");
            assert!(text.contains(&hidden), "who types a name keeps the order: {text}");
        }
    }

    #[test]
    fn a_group_that_holds_no_one_up_is_full_from_95_percent_on() {
        for (uses, is_full) in [(94, false), (95, true), (300, true)] {
            let present = Present::of(1, [group("a", "", 100, uses)]);
            let text = list(&present, "", "", 0).live().into_string();
            assert!(text.contains(&format!("{uses} percent of its limit")), "{text}");
            assert!(text.contains(&format!(" width=\"{}\"", uses.min(100))), "{text}");
            assert_eq!(text.contains("class=\"full\""), is_full, "{uses}: {text}");
        }
        let mut a = group("a", "", 100, 1);
        std::sync::Arc::make_mut(&mut a.group).enforcement = "shadow".to_owned();
        let present = Present::of(1, [a, group("b", "", 100, 1)]);
        let text = list(&present, "", "", 0).live().into_string();
        assert_eq!(text.matches(">shadow<").count(), 1, "{text}");
    }

    #[test]
    fn figures_that_are_missing_are_said_to_be() {
        for is_partial in [false, true] {
            let mut present = Present::of(1, [group("a", "", 10, 1)]);
            present.is_partial = is_partial;
            let text = list(&present, "", "used", 0).page(&viewer(true, true)).into_string();
            assert_eq!(text.contains("More groups are in use than one answer holds"), is_partial, "{text}");
        }
    }

    #[test]
    fn waits_are_sorted_from_the_longest_and_nobody_who_did_not_wait_has_one() {
        let waits = |name, p99_us| GroupNow {
            waits: Some(Summary { p99_us, ..Summary::default() }),
            ..group(name, "", 10, 1)
        };
        let present = Present::of(1, [group("a", "", 10, 1), waits("b", 80), waits("c", 327_680)]);
        let list = list(&present, "", "wait", 0);
        assert_eq!(names(&list), [(0, "c"), (0, "b"), (0, "a")]);
        let text = list.live().into_string();
        assert!(text.contains(">327 ms<") && text.contains(">80 µs<") && text.contains(">–<"), "{text}");
        let csv = list.csv();
        assert!(csv.contains(",p99_wait_us,") && csv.contains(",327680,") && csv.contains(",,"), "{csv}");
    }

    #[test]
    fn what_is_left_and_waited_for_is_shown_and_who_holds_the_leases() {
        let a = GroupNow { backlog: Ru::whole(8), ..group("a", "", 10, 1) };
        let present = Present::of(1, [a, group("b", "", 10, 1)]);
        let mut list = list(&present, "", "backlog", 0);
        assert_eq!((names(&list), list.shown()), (vec![(0, "a"), (0, "b")], vec!["a", "b"]));
        let node = |name: &str, rate| (name.to_owned(), Rate::whole(rate));
        let rates = vec![node("<n>", 6), node("o", 3), node("p", 1), node("q", 0)];
        list.held.insert("a".to_owned(), Held { burst_left: Some(Ru::whole(7)), rates });
        let text = list.live().into_string();
        assert!(text.contains(">7<") && text.contains(">8<") && text.contains(">–</td><td><svg"), "{text}");
        assert!(text.contains("<bdi>&lt;n&gt;</bdi> 60 %, <bdi>o</bdi> 30 %, 2 more"), "{text}");
        assert!(list.csv().contains(",8000000,"), "{}", list.csv());
    }

    #[test]
    fn ten_thousand_groups_come_in_pages() {
        let all = (0..10_000).map(|at| group(&format!("g{at:05}"), "", 10, 1));
        let present = Present::of(1, all);
        let text = list(&present, "", "", 9_950).live().into_string();
        assert_eq!(text.matches("id=\"group-").count(), 50);
        assert!(text.contains("9,951 to 10,000 of 10,000") && text.contains("skip=9850"), "{text}");
        assert!(!text.contains("id=\"after\""));
        let text = list(&present, "", "", 99_999).live().into_string();
        assert_eq!(text.matches("id=\"group-").count(), 0, "beyond the end there is nothing, and no panic");
    }

    #[test]
    fn who_may_not_change_gets_no_way_to() {
        let present = Present::of(1, [group("a", "", 1, 1)]);
        let page = |may| list(&present, "", "", 0).page(&viewer(may, true)).into_string();
        assert!(page(true).contains("/console/groups/new") && !page(false).contains("/console/groups/new"));
        assert!(list(&present, "", "", 0).csv().starts_with("group,parent,"));
    }
}
