//! What statements cost, by template and group; and the lists of watches and runaways.

use maud::{Markup, html};
use tidegate_proto::v1;

use crate::frame::{self, Place, form_key};
use crate::link::Link;
use crate::paging;
use crate::quantity::{grouped, moment, short, span};
use crate::viewer::Viewer;
use crate::{csv, statement};

/// Orders of the list, by the word of the API and as a column's name.
pub const ORDERS: [(&str, &str); 9] = [
    ("ru", "RU"),
    ("average_ru", "Mean RU"),
    ("max_ru", "Most RU"),
    ("calls", "Calls"),
    ("rows", "Rows"),
    ("elapsed", "Time"),
    ("waited", "Waited"),
    ("errors", "Errors"),
    ("throttled", "Refused"),
];
/// Times up to the present, by the word of the API and for people.
pub const RANGES: [(&str, &str); 4] = [("", "All"), ("5m", "5 min"), ("1h", "1 h"), ("24h", "24 h")];
/// The parameter of the time.
pub const LAST: &str = "last";
/// Characters of a template in a list; its own page has all of it.
const MOST_TEXT: usize = 160;

/// RU of a row, in all and on average, in micro-RU.
pub(crate) fn cost(row: &v1::StatementRow) -> (i128, i128) {
    let parts = [row.cpu_micro_ru, row.read_micro_ru, row.write_micro_ru, row.network_micro_ru];
    let total: i128 = parts.into_iter().map(i128::from).sum();
    (total, total / i128::from(row.calls.max(1)))
}

/// What the page of statements shows.
#[derive(Clone, Debug)]
pub struct Statements<'s> {
    /// Rows, in the order of `order`.
    pub rows: &'s [v1::StatementRow],
    /// All that there are.
    pub total: usize,
    /// Rows that were shown on the pages before.
    pub skip: usize,
    /// Counting since, in Unix milliseconds.
    pub since_unix_ms: u64,
    /// Only of this group; empty for all.
    pub group: &'s str,
    /// Only with this in the template.
    pub filter: &'s str,
    /// One of [`ORDERS`].
    pub order: &'s str,
    /// One of [`RANGES`].
    pub last: &'s str,
    /// Watches, for those who may see them.
    pub watches: &'s [v1::Watch],
    /// See `watches`.
    pub runaways: &'s [v1::Runaway],
}

impl Statements<'_> {
    /// The address of this view.
    pub fn link(&self) -> Link {
        let order = if self.order == "ru" { "" } else { self.order };
        let link = Place::Statements.link().with("group", self.group).with("q", self.filter);
        paging::from(link.with("sort", order).with(LAST, self.last), self.skip)
    }

    /// The page.
    pub fn page(&self, viewer: &Viewer) -> Markup {
        let content = html! {
            form.filters method="get" {
                label { "Group " input name="group" value=(self.group) size="16"; }
                label { "Template has " input type="search" name="q" value=(self.filter) size="24"; }
                input type="hidden" name="sort" value=(self.order);
                input type="hidden" name=(LAST) value=(self.last);
                button type="submit" { "Show" }
                a href=(self.link().with("as", "csv")) { "CSV" }
            }
            (ranges(&paging::from(self.link(), 0), self.last))
            @if self.total == 0 { (self.empty()) } @else {
                (self.table())
                @let said = html! { "; counted over all gateways since " (moment(self.since_unix_ms)) };
                (paging::pages(&self.link(), self.skip, self.total, &said))
            }
            @if viewer.may_see_all { (self.convictions(viewer)) }
        };
        frame::page("Statements", Some(Place::Statements), Some(viewer), &content)
    }

    fn empty(&self) -> Markup {
        html! {
            p.empty {
                @if !self.last.is_empty() { "No statement that fits was reported in this time." }
                @else if self.group.is_empty() && self.filter.is_empty() {
                    "No gateway has reported a statement. " code { "tidegate gateway --upstream postgres://HOST" }
                    " puts one in front of a database."
                } @else { "No statement fits." }
            }
        }
    }

    fn table(&self) -> Markup {
        html! {
            div.scrolls tabindex="0" role="group" aria-label="Statements" { table {
                thead { tr {
                    th scope="col" { "Template" } th scope="col" { "Group" }
                    @for (order, name) in ORDERS {
                        @let is_sorted = order == self.order;
                        th.number scope="col" aria-sort=[is_sorted.then_some("descending")] {
                            a href=(paging::from(self.link(), 0).with("sort", order)) id={ "sort-" (order) } { (name) }
                        }
                    }
                } }
                tbody { @for row in self.rows { (line(row)) } }
            } }
        }
    }

    fn convictions(&self, viewer: &Viewer) -> Markup {
        html! {
            section aria-labelledby="watches" {
                h2 #watches { "Watch list" }
                @if self.watches.is_empty() { p.empty { "No statement is watched." } } @else {
                    div.scrolls tabindex="0" role="group" aria-labelledby="watches" { table {
                        thead { tr { th scope="col" { "Statement" } th scope="col" { "Group" } th scope="col" { "Match" } th scope="col" { "Action" }
                            th scope="col" { "Until" } th scope="col" { "By" } @if viewer.may_change { th scope="col" { "Change" } } } }
                        tbody { @for watch in self.watches { tr {
                            td.text { bdi { (cut(&watch.text)) } } td { (watch.group) } td { (watch.r#match) } td { (action(&watch.action)) }
                            td { @if watch.end_unix_ms == 0 { "for ever" } @else { (moment(watch.end_unix_ms)) } } td { (watch.source) }
                            @if viewer.may_change { td { form method="post" action=(Link::to(&["unwatch"])) {
                                (form_key(viewer)) input type="hidden" name="id" value=(watch.id);
                                button type="submit" { "Remove" } } } }
                        } } }
                    } }
                }
            }
            section aria-labelledby="runaways" {
                h2 #runaways { "Runaways" }
                @if self.runaways.is_empty() { p.empty { "No statement broke a rule." } } @else { (runaways(self.runaways)) }
            }
        }
    }
}

fn action(word: &str) -> &str {
    if word.is_empty() { "that of the group's limit" } else { word }
}

/// Records of runaways.
pub(crate) fn runaways(records: &[v1::Runaway]) -> Markup {
    html! {
        div.scrolls tabindex="0" role="group" aria-label="Runaways" { table {
            thead { tr { th scope="col" { "Last" } th scope="col" { "Statement" } th scope="col" { "Group" } th scope="col" { "Rule" }
                th scope="col" { "Action" } th scope="col" { "User" } th.number scope="col" { "Times" } } }
            tbody { @for record in records { @if let Some(of) = &record.conviction { tr {
                td { (moment(record.last_unix_ms)) } td.text { bdi { (cut(&of.template)) } } td { (of.group) }
                td { @if of.rule.is_empty() { "watch list" } @else { (of.rule) } } td { (action(&of.action)) }
                td { bdi { (of.user) } @if !of.tenant.is_empty() { " of " bdi { (of.tenant) } } } td.number { (record.repeats) }
            } } } }
        } }
    }
}

/// The way to the same page of another time.
pub(crate) fn ranges(link: &Link, last: &str) -> Markup {
    html! {
        nav.ranges aria-label="Time that is counted" {
            @for (word, text) in RANGES {
                a href=(link.clone().with(LAST, word)) aria-current=[(word == last).then_some("true")] { (text) }
            }
        }
    }
}

/// A row of the list.
fn line(row: &v1::StatementRow) -> Markup {
    let (total, mean) = cost(row);
    html! {
        tr {
            th.text scope="row" { a href=(statement::link(&row.group, &row.fingerprint)) { bdi { (cut(&row.template)) } } }
            td { a href=(Link::group(&row.group)) { (row.group) } }
            td.number { (short(total)) } td.number { (short(mean)) } td.number { (short(row.max_micro_ru.into())) }
            td.number { (grouped(row.calls.into())) } td.number { (grouped(row.rows.into())) }
            td.number { (span(row.elapsed_us)) } td.number { (span(row.waited_us)) }
            td.number { (row.errors) } td.number { (row.throttled) }
        }
    }
}

/// The dearest statements, without all their columns.
pub(crate) fn short_table(rows: &[v1::StatementRow]) -> Markup {
    html! {
        div.scrolls tabindex="0" role="group" aria-label="Dearest statements" { table {
            thead { tr { th scope="col" { "Template" } th scope="col" { "Group" } th.number scope="col" { "RU" } th.number scope="col" { "Mean RU" }
                th.number scope="col" { "Calls" } } }
            tbody { @for row in rows { @let (total, mean) = cost(row); tr {
                th.text scope="row" { a href=(statement::link(&row.group, &row.fingerprint)) { bdi { (cut(&row.template)) } } }
                td { a href=(Link::group(&row.group)) { (row.group) } } td.number { (short(total)) } td.number { (short(mean)) }
                td.number { (grouped(row.calls.into())) }
            } } }
        } }
    }
}

/// A template for a list: on one line, its end left out.
pub(crate) fn cut(template: &str) -> String {
    let line = template.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MOST_TEXT) {
        Some((at, _)) => format!("{}…", line.get(..at).unwrap_or_default()),
        None => line,
    }
}

/// The rows as CSV, with all columns.
pub fn csv(rows: &[v1::StatementRow]) -> String {
    let names = [
        "group",
        "fingerprint",
        "kind",
        "template",
        "calls",
        "micro_ru",
        "cpu_micro_ru",
        "read_micro_ru",
        "write_micro_ru",
        "network_micro_ru",
        "max_micro_ru",
        "rows",
        "elapsed_us",
        "waited_us",
        "errors",
        "throttled",
        "estimated",
    ];
    let cells = rows.iter().map(|row| {
        vec![
            row.group.clone(),
            row.fingerprint.clone(),
            row.kind.clone(),
            row.template.clone(),
            row.calls.to_string(),
            cost(row).0.to_string(),
            row.cpu_micro_ru.to_string(),
            row.read_micro_ru.to_string(),
            row.write_micro_ru.to_string(),
            row.network_micro_ru.to_string(),
            row.max_micro_ru.to_string(),
            row.rows.to_string(),
            row.elapsed_us.to_string(),
            row.waited_us.to_string(),
            row.errors.to_string(),
            row.throttled.to_string(),
            row.estimated.to_string(),
        ]
    });
    csv::text(&names, cells)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::frame::tests::viewer;

    pub(crate) fn row(template: &str) -> v1::StatementRow {
        v1::StatementRow {
            group: "shop".to_owned(),
            fingerprint: "00000000000000ff".to_owned(),
            kind: "select".to_owned(),
            template: template.to_owned(),
            calls: 4,
            cpu_micro_ru: 6_000_000,
            read_micro_ru: 2_000_000,
            ..v1::StatementRow::default()
        }
    }

    /// The list without a row, from its beginning.
    const NONE: Statements<'static> = Statements {
        rows: &[],
        total: 0,
        skip: 0,
        since_unix_ms: 0,
        group: "",
        filter: "",
        order: "ru",
        last: "",
        watches: &[],
        runaways: &[],
    };

    fn page(may_see_all: bool) -> String {
        page_from(0, 1, may_see_all)
    }

    fn page_from(skip: usize, total: usize, may_see_all: bool) -> String {
        let watch =
            v1::Watch { id: 7, group: "shop".to_owned(), text: "watched".to_owned(), ..v1::Watch::default() };
        let rows = [row("select '<script>alert(1)</script>'\u{202e} from t")];
        let statements = Statements { rows: &rows, total, skip, last: "1h", watches: &[watch], ..NONE };
        statements.page(&viewer(may_see_all, may_see_all)).into_string()
    }

    #[test]
    fn a_statement_is_shown_as_text_with_what_it_costs() {
        let text = page(true);
        assert!(text.contains("&lt;script&gt;alert(1)") && !text.contains("<script>alert"), "{text}");
        assert!(text.contains("<bdi>select"), "text of another direction stays in its place");
        assert!(text.contains("<td class=\"number\">8</td><td class=\"number\">2</td>"), "{text}");
        assert!(text.contains("/console/statements/shop/00000000000000ff"), "{text}");
        assert!(
            text.contains("<a href=\"/console/statements?last=1h\" aria-current=\"true\">1 h</a>")
                && text.contains("<a href=\"/console/statements\">All</a>")
                && text.contains("/console/statements?last=1h&amp;as=csv"),
            "{text}"
        );
    }

    #[test]
    fn a_long_list_comes_in_pages_and_another_order_begins_at_the_first() {
        let text = page_from(100, 10_000, true);
        assert!(text.contains("101 to 200 of 10,000"), "{text}");
        assert!(text.contains("id=\"before\" href=\"/console/statements?last=1h\""), "{text}");
        assert!(text.contains("id=\"after\" href=\"/console/statements?last=1h&amp;skip=200\""), "{text}");
        assert!(
            text.contains("<a href=\"/console/statements\">All</a>"),
            "another time begins there, too: {text}"
        );
        assert!(text.contains("<a href=\"/console/statements?last=1h&amp;sort=calls\""), "{text}");
    }

    /// An address that was kept while the list was longer leads back to the rows that are there.
    #[test]
    fn beyond_the_last_row_is_a_page_without_rows_and_not_an_empty_list() {
        let of = |total, group, filter, last| {
            let list = Statements { total, skip: 100, group, filter, last, ..NONE };
            list.page(&viewer(true, true)).into_string()
        };
        let text = of(50, "", "", "");
        assert!(!text.contains("No gateway has reported") && text.contains("of 50"), "{text}");
        assert!(text.contains("id=\"before\" href=\"/console/statements\""), "{text}");
        for (group, filter, last, said) in [
            ("", "", "", "No gateway has reported a statement."),
            ("shop", "", "", "No statement fits."),
            ("", "x", "", "No statement fits."),
            ("", "", "1h", "No statement that fits was reported in this time."),
        ] {
            let text = of(0, group, filter, last);
            assert!(text.contains(said) && !text.contains("id=\"before\""), "{said}: {text}");
        }
    }

    /// A row of which each figure is another one.
    pub(crate) fn figured() -> v1::StatementRow {
        v1::StatementRow {
            read_micro_ru: 8_000_000,
            write_micro_ru: 10_000_000,
            network_micro_ru: 16_000_000,
            max_micro_ru: 31_000_000,
            rows: 1_032,
            elapsed_us: 132_000,
            waited_us: 136_000,
            errors: 35,
            throttled: 36,
            estimated: 37,
            first_unix_ms: 951_782_400_000,
            last_unix_ms: 951_868_800_000,
            ..row("select ?, '='")
        }
    }

    #[test]
    fn a_row_has_the_same_figures_on_the_page_and_in_the_file() {
        let row = figured();
        let text = line(&row).into_string();
        let cells = ["40", "10", "31", "4", "1,032", "132 ms", "136 ms", "35", "36"];
        let cells = cells.map(|cell| format!("<td class=\"number\">{cell}</td>")).concat();
        assert!(
            text.contains(&format!("<td><a href=\"/console/groups/shop\">shop</a></td>{cells}</tr>")),
            "{text}"
        );
        let text = short_table(std::slice::from_ref(&row)).into_string();
        let cells = ["40", "10", "4"].map(|cell| format!("<td class=\"number\">{cell}</td>")).concat();
        assert!(
            text.contains(&format!("<td><a href=\"/console/groups/shop\">shop</a></td>{cells}</tr>")),
            "{text}"
        );
        let names = "group,fingerprint,kind,template,calls,micro_ru,cpu_micro_ru,read_micro_ru,write_micro_ru,\
                     network_micro_ru,max_micro_ru,rows,elapsed_us,waited_us,errors,throttled,estimated";
        let cells = "shop,00000000000000ff,select,\"select ?, '='\",4,40000000,6000000,8000000,10000000,\
                     16000000,31000000,1032,132000,136000,35,36,37";
        assert_eq!(csv(&[row]), format!("{names}\r\n{cells}\r\n"));
        // What was never admitted has cost nothing, and has no mean.
        assert_eq!(cost(&v1::StatementRow { calls: 0, throttled: 1, ..v1::StatementRow::default() }), (0, 0));
    }

    #[test]
    fn a_watch_is_listed_with_what_it_does_and_until_when() {
        let of = |watch: v1::Watch, may_change| {
            let list = Statements { watches: &[watch], ..NONE };
            list.page(&viewer(may_change, true)).into_string()
        };
        let watch = v1::Watch {
            id: 7,
            group: "shop".to_owned(),
            r#match: "exact".to_owned(),
            text: "<t>".to_owned(),
            action: "kill".to_owned(),
            source: "by-hand".to_owned(),
            end_unix_ms: 951_782_400_000,
            ..v1::Watch::default()
        };
        let text = of(watch.clone(), true);
        let row = "<bdi>&lt;t&gt;</bdi></td><td>shop</td><td>exact</td><td>kill</td><td><time \
                   datetime=\"2000-02-29T00:00:00Z\">2000-02-29 00:00:00 UTC</time></td><td>by-hand</td>";
        assert!(text.contains(row) && text.contains("name=\"id\" value=\"7\""), "{text}");
        let text = of(v1::Watch { action: String::new(), end_unix_ms: 0, ..watch }, false);
        assert!(text.contains("<td>that of the group's limit</td><td>for ever</td>"), "{text}");
        assert!(text.contains("<bdi>&lt;t&gt;") && !text.contains("/console/unwatch"), "{text}");
    }

    #[test]
    fn watches_are_for_those_who_see_all() {
        assert!(page(true).contains("watched") && page(true).contains("/console/unwatch"));
        assert!(!page(false).contains("watched") && !page(false).contains("/console/unwatch"));
    }

    #[test]
    fn a_runaway_is_shown_with_its_rule_and_who_ran_it() {
        let conviction = v1::ConvictRequest {
            group: "shop".to_owned(),
            template: "select '<b>'".to_owned(),
            rule: "RU = 5".to_owned(),
            action: "kill".to_owned(),
            user: "ann".to_owned(),
            tenant: "acme".to_owned(),
            ..v1::ConvictRequest::default()
        };
        let record = |conviction| v1::Runaway {
            conviction: Some(conviction),
            last_unix_ms: 951_827_696_000,
            repeats: 7,
            ..v1::Runaway::default()
        };
        let listed = v1::ConvictRequest { rule: String::new(), tenant: String::new(), ..conviction.clone() };
        let text = runaways(&[record(conviction), v1::Runaway::default()]).into_string();
        assert_eq!(text.matches("<tr>").count(), 2, "one without a verdict is none: {text}");
        for part in ["2000-02-29", "&lt;b&gt;", "<td>RU = 5</td>", "<td>kill</td>"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.contains("<bdi>ann</bdi> of <bdi>acme</bdi></td><td class=\"number\">7</td>"), "{text}");
        let text = runaways(&[record(listed)]).into_string();
        assert!(text.contains("<td>watch list</td>") && text.contains("<bdi>ann</bdi></td>"), "{text}");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let cut = cut(&"é \n ".repeat(300));
        assert_eq!((cut.chars().count(), cut.ends_with('…')), (MOST_TEXT + 1, true));
    }
}
