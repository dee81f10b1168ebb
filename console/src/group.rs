//! One group: what it does now and did before, who is bound to it, what its statements cost, and its definition.

use std::sync::Arc;

use maud::{Markup, html};
use tidegate_core::units::Ru;
use tidegate_proto::v1;

use crate::audit::Entry;
use crate::chart::{COLOURS, Chart, HIDE, Series};
use crate::form::Form;
use crate::frame::{self, Place, form_key, warnings};
use crate::groups::burst_left;
use crate::history::{self, Bucket, Range};
use crate::link::Link;
use crate::present::{GroupNow, Present};
use crate::quantity::{amount, grouped, moment, number, rate, short, span};
use crate::samples::Seconds;
use crate::viewer::Viewer;
use crate::why::Why;
use crate::{audit, proposal, removal, statement, statements};

/// The parameter of the range.
pub const RANGE: &str = "range";

/// What the page of a group shows.
#[derive(Clone, Debug)]
pub struct Group<'g> {
    /// The group.
    pub now: &'g GroupNow,
    /// All groups that are seen.
    pub present: &'g Present,
    /// Tokens that no node holds; `None` where nobody asks for any.
    pub burst_left: Option<Ru>,
    /// The controller recovers.
    pub is_recovering: bool,
    /// What the chart shows.
    pub range: Range,
    /// See `range`: the last seconds.
    pub seconds: &'g Seconds,
    /// See `range`: what is stored.
    pub buckets: &'g [Bucket],
    /// Names that the chart leaves out.
    pub hidden: &'g [String],
    /// Its leases, by node.
    pub leases: &'g [v1::LeaseInfo],
    /// Warnings about its definition.
    pub warnings: &'g [String],
    /// A change of it that is proposed.
    pub proposal: Option<&'g v1::Proposal>,
    /// Its bindings.
    pub bindings: &'g [v1::Binding],
    /// Its dearest statements.
    pub dearest: &'g [v1::StatementRow],
    /// The newest changes of its definition, and whether there are older ones.
    pub changes: (&'g [Entry], bool),
    /// Its fields and their values.
    pub fields: &'g [(&'static str, String)],
}

impl Group<'_> {
    /// The address of this view.
    pub fn link(&self) -> Link {
        Link::group(self.now.name()).with(RANGE, self.range.word()).with(HIDE, self.hidden.join(","))
    }

    /// The page.
    pub fn page(&self, viewer: &Viewer) -> Markup {
        let name = self.now.name();
        let content = html! {
            (self.place())
            (warnings(self.warnings))
            @if let Some(proposed) = self.proposal {
                p.notice { "A change of " (proposed.fields.join(", ")) " is proposed, since " (moment(proposed.proposed_unix_s.saturating_mul(1_000))) ": "
                    a href=(proposal::link(name)) { "see it beside what is in force" } "." }
            }
            @if viewer.may_change {
                div.buttons { a.button href=(Form::link(Some(name))) { "Change" } a.button href=(removal::link(name)) { "Delete" }
                    a.button href=(Form::link(None).with("parent", name)) { "New group below" } }
            }
            nav.ranges aria-label="Range of the chart" {
                @for (range, word, text) in Range::ALL {
                    a href=(self.link().with(RANGE, word)) aria-current=[(range == self.range).then_some("true")] { (text) }
                }
                a href=(self.link().with("as", "csv")) { "CSV" }
            }
            (frame::live(&self.link(), &self.live()))
            (self.below())
            (self.bound(viewer))
            @if !self.dearest.is_empty() {
                section aria-labelledby="dearest" { h2 #dearest { "Dearest statements" } (statements::short_table(self.dearest))
                    p { a href=(Place::Statements.link().with("group", name)) { "All of its statements" } } }
            }
            (self.definition())
            @if viewer.may_see_all {
                section aria-labelledby="changes" { h2 #changes { "History of the definition" }
                    (audit::history(name, self.changes.0, self.changes.1)) }
            }
        };
        frame::page(name, Some(Place::Groups), Some(viewer), &content)
    }

    /// The way to it from the top.
    fn place(&self) -> Markup {
        let mut up: Vec<&str> = self.present.way_up(self.now.name()).skip(1).map(GroupNow::name).collect();
        up.reverse();
        html! {
            nav.way aria-label="Groups above" { a href=(Place::Groups.link()) { "All groups" }
                @for name in up { " / " a href=(Link::group(name)) { (name) } } }
            (self.demotions())
            @if !self.now.group.comment.is_empty() || !self.now.group.owner.is_empty() {
                p { bdi { (self.now.group.comment) } @if !self.now.group.owner.is_empty() { " Owner: " bdi { (self.now.group.owner) } "." } }
            }
        }
    }

    /// The group to which it demotes, and those that demote to it.
    fn demotions(&self) -> Markup {
        let target = &self.now.group.demote_to;
        let sources = self.present.all().filter(|group| group.group.demote_to == self.now.name());
        let sources: Vec<&str> = sources.map(GroupNow::name).collect();
        html! {
            @if !target.is_empty() {
                p { "What is over its rate or its quota goes on in " a href=(Link::group(target)) { (target) } "." }
            }
            @if !sources.is_empty() {
                p { "What is over the rate or the quota goes on here of"
                    @for name in sources { " " a href=(Link::group(name)) { (name) } } "." }
            }
        }
    }

    /// The part that follows the present.
    pub fn live(&self) -> Markup {
        html! {
            @if let Some(why) = Why::of(self.present, self.now, self.is_recovering) {
                p.notice.warn { b { "Throttled: " } (why) "." }
            }
            (self.figures())
            @match self.range { Range::Live => (self.live_chart()), _ => (self.past()) }
            (self.leases())
        }
    }

    fn figures(&self) -> Markup {
        let now = self.now;
        html! {
            dl.figures {
                div { dt { "Uses, with groups below" } dd { (short(now.used.0.into())) " RU/s" } }
                div { dt { "Limit" } dd { @match now.limit() { Some(limit) => { (short(limit.0.into())) " RU/s" } None => "none" } } }
                @if let Some(warmth) = &now.warmth {
                    div { dt { "Warms up, now at" } dd { (rate(&warmth.rate)) small { ", " (warmth.warm_ppm / 10_000) " % warm" } } }
                }
                div { dt { "Demand" } dd { (short(now.demand.0.into())) " RU/s" } }
                div { dt { "Leased" } dd { (short(now.leased.0.into())) " RU/s" } }
                div { dt { "Burst left" } dd { (burst_left(self.burst_left)) @if self.burst_left.is_some() { " RU" } } }
                div.warn[now.waiting > 0] { dt { "Waiting" } dd { (grouped(now.waiting.into())) } }
                @if let Some(waits) = &now.waits {
                    div { dt { "Waits, last minute" } dd { (grouped(waits.ended.into())) small { ", " (grouped(waits.in_vain.into())) " in vain" } } }
                    div { dt { "p50, p99 and longest wait" } dd { (span(waits.p50_us)) ", " (span(waits.p99_us)) small { ", " (span(waits.max_us)) } } }
                }
                div.warn[now.backlog.0 > 0] { dt { "Backlog" } dd { (short(now.backlog.0.into())) " RU" } }
                div.warn[now.debt.0 > 0] { dt { "Debt" } dd { (short(now.debt.0.into())) " RU" } }
                div { dt { "Operations" } dd { (grouped(now.total.operations)) } }
                div { dt { "Refused" } dd { (grouped(now.throttled)) } }
                div { dt { "RU since it was made" } dd { (short(i128::try_from(now.total.micro_ru).unwrap_or(i128::MAX))) } }
                @if let Some(quota) = &now.quota {
                    div.bad[now.has_spent_its_quota()] { dt { "Quota left" } dd { (number(&quota.left)) small { " of " (number(&quota.amount)) " " (quota.counts()) @if quota.rolls { ", some returns in " } @else { ", for " } (span(quota.resets_in_us)) } } }
                }
            }
        }
    }

    /// The group and those below it, second by second.
    fn live_chart(&self) -> Markup {
        let is_below =
            |name: &&Arc<str>| self.present.way_up(name).any(|group| group.name() == self.now.name());
        let names = self.seconds.by_use().iter().filter(is_below).take(COLOURS);
        let series = names.map(|name| Series { name: name.to_string(), values: self.seconds.of_group(name) });
        let series = series.collect();
        let title = "RU/s of it and the groups below, last five minutes";
        self.chart((title, "Group"), self.seconds.times(), series)
    }

    /// What it used before, by cause.
    fn past(&self) -> Markup {
        let Some(range) = self.range.seconds() else { return html! {} };
        let (times, series) = history::columns(self.buckets, range, self.present.unix_ms / 1_000);
        html! {
            (self.chart(("RU/s of it by cause, without the groups below", "Cause"), times, series))
            (self.parts())
        }
    }

    fn parts(&self) -> Markup {
        let sum = |part: usize| self.buckets.iter().filter_map(|bucket| bucket.parts.get(part)).sum::<i128>();
        let parts: Vec<(&str, i128)> =
            history::PARTS.iter().enumerate().map(|(at, name)| (*name, sum(at))).collect();
        statement::parts_table(&parts)
    }

    fn chart(&self, (title, of): (&str, &str), times: Vec<u64>, series: Vec<Series>) -> Markup {
        let limit = self.now.limit().map(|limit| (limit.0, "limit"));
        Chart { title, times, of, series, limit, hidden: self.hidden, link: self.link() }.markup()
    }

    fn leases(&self) -> Markup {
        html! {
            section aria-labelledby="leases" {
                h2 #leases { "Leases by node" }
                @if self.leases.is_empty() { p.empty { "No node holds one." } } @else {
                    div.scrolls tabindex="0" role="group" aria-labelledby="leases" { (lease_table(self.leases)) }
                }
            }
        }
    }

    fn below(&self) -> Markup {
        let below: Vec<_> = self.present.children(self.now.name()).collect();
        html! {
            @if !below.is_empty() {
                section aria-labelledby="below" { h2 #below { "Groups below" }
                    div.scrolls tabindex="0" role="group" aria-labelledby="below" { table { thead { tr { th scope="col" { "Group" } th.number scope="col" { "Limit" } th.number scope="col" { "Uses" } th.number scope="col" { "Waiting" } } }
                    tbody { @for group in below { tr {
                        th scope="row" { a href=(Link::group(group.name())) { (group.name()) } }
                        td.number { @match group.limit() { Some(limit) => { (short(limit.0.into())) " RU/s" } None => "none" } }
                        td.number { (short(group.used.0.into())) " RU/s" } td.number { (grouped(group.waiting.into())) }
                    } } } } }
                }
            }
        }
    }

    fn bound(&self, viewer: &Viewer) -> Markup {
        let name = self.now.name();
        html! {
            section aria-labelledby="bound" {
                h2 #bound { "Bindings" }
                @if self.bindings.is_empty() { p.empty { "Nobody is bound to it." } } @else {
                    div.scrolls tabindex="0" role="group" aria-labelledby="bound" { table { thead { tr { th scope="col" { "Tenant" } th scope="col" { "User" } @if viewer.may_change { th scope="col" { "Change" } } } }
                        tbody { @for binding in self.bindings { tr {
                            td { @if binding.tenant.is_empty() { "any" } @else { bdi { (binding.tenant) } } }
                            td { @if binding.user.is_empty() { "any" } @else { bdi { (binding.user) } } }
                            @if viewer.may_change { td { form method="post" action=(Link::to(&["unbind"])) {
                                (form_key(viewer)) input type="hidden" name="tenant" value=(binding.tenant);
                                input type="hidden" name="user" value=(binding.user); input type="hidden" name="group" value=(name);
                                button type="submit" { "Unbind" } } } }
                        } } } } }
                }
                @if viewer.may_change {
                    form.inline method="post" action=(Link::to(&["bind"])) {
                        (form_key(viewer)) input type="hidden" name="group" value=(name);
                        label { "Tenant " input name="tenant" maxlength="64" size="16" autocomplete="off"; }
                        label { "User " input name="user" maxlength="64" size="16" autocomplete="off"; }
                        button type="submit" { "Bind" }
                    }
                }
            }
        }
    }

    fn definition(&self) -> Markup {
        html! {
            section aria-labelledby="definition" { h2 #definition { "Definition" }
                table.definition { tbody { @for (field, value) in self.fields { tr {
                    th scope="row" { code { (field) } } td { bdi { @if value.is_empty() { "–" } @else { (value) } } }
                } } } }
                p.hint { "Revision " (self.now.group.revision) "." }
            }
        }
    }
}

/// Leases as a table without the name of their group.
pub(crate) fn lease_table(leases: &[v1::LeaseInfo]) -> Markup {
    html! {
        table { thead { tr { th scope="col" { "Node" } th.number scope="col" { "Rate" } th.number scope="col" { "Demand" } th.number scope="col" { "Bucket" }
            th.number scope="col" { "Backlog" } th.number scope="col" { "Debt" } th.number scope="col" { "Waiting" } th.number scope="col" { "Ends in" } } }
        tbody { @for lease in leases { tr {
            th scope="row" { bdi { (lease.client) } } td.number { (rate(&lease.rate)) } td.number { (rate(&lease.demand)) } td.number { (amount(&lease.cap)) }
            td.number { (amount(&lease.backlog)) } td.number { (amount(&lease.debt)) } td.number { (grouped(lease.waiting.into())) }
            td.number { (span(lease.expires_in_us)) }
        } } } }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::units::Rate;

    use super::*;
    use crate::frame::tests::viewer;
    use crate::present::tests::group;
    use crate::samples::{Recent, Sample};

    fn page(range: Range, may_change: bool) -> String {
        page_of(group("a", "", 10, 1), range, may_change)
    }

    fn page_of(a: GroupNow, range: Range, may_change: bool) -> String {
        let mut z = group("z", "", 0, 9);
        Arc::make_mut(&mut z.group).demote_to = "a".to_owned();
        let present = Present::of(3_600_000, [a, group("b", "a", 0, 2), z]);
        let mut recent = Recent::default();
        for rate in [1, 2] {
            // More than there are colours, of which each uses more than what is below the group.
            let others = ('l'..='z').map(|name| (Arc::from(name.to_string()), Rate::whole(9)));
            let used = [(Arc::from("b"), Rate::whole(rate))].into_iter().chain(others).collect();
            recent.push(Sample::of(1_000, used));
        }
        let bindings = [v1::Binding { tenant: "acme".to_owned(), ..v1::Binding::default() }];
        let proposal = v1::Proposal { fields: vec!["burst".to_owned()], ..v1::Proposal::default() };
        let group = Group {
            now: present.get("a").unwrap(),
            present: &present,
            burst_left: None,
            is_recovering: false,
            range,
            seconds: &recent.seconds(),
            buckets: &[Bucket { start_s: 3_480, parts: [60_000_000, 0, 0, 0, 0] }],
            hidden: &[],
            leases: &[],
            warnings: &[],
            proposal: Some(&proposal),
            bindings: &bindings,
            dearest: &[],
            changes: (&[], false),
            fields: &[("quota", "none".to_owned())],
        };
        group.page(&viewer(may_change, false)).into_string()
    }

    #[test]
    fn the_chart_has_the_group_and_those_below_it_alone() {
        let text = page(Range::Live, true);
        assert_eq!(text.matches("<polygon").count(), 1, "{text}");
        assert!(text.contains("<bdi>b</bdi>") && !text.contains("<bdi>z</bdi>"), "{text}");
        assert!(text.contains("view=%2Fconsole%2Fgroups%2Fa"), "{text}");
        let past = page(Range::Hour, true);
        assert!(
            past.contains("<bdi>CPU</bdi>") && past.contains("100 %") && past.contains("range=1h"),
            "{past}"
        );
    }

    #[test]
    fn a_quota_and_a_warm_up_are_shown_with_their_units_once() {
        let of = |left: &str, unit: &str, rolls| {
            let quota = v1::QuotaState {
                amount: "2000".to_owned(),
                left: left.to_owned(),
                unit: unit.to_owned(),
                resets_in_us: 90_000_000,
                rolls,
                ..v1::QuotaState::default()
            };
            let warmth = v1::Warmth { rate: "33.5".to_owned(), warm_ppm: 250_000 };
            let a = GroupNow {
                quota: Some(Box::new(quota)),
                warmth: Some(Box::new(warmth)),
                ..group("a", "", 10, 1)
            };
            page_of(a, Range::Live, false)
        };
        let text = of("1200", "", false);
        let figure = "<dt>Quota left</dt><dd>1,200<small> of 2,000 RU, for ";
        assert!(text.contains(figure), "{text}");
        assert!(text.contains("<dd>33.5 RU/s<small>, 25 % warm</small></dd>"), "{text}");
        assert!(text.contains("goes on here of <a href=\"/console/groups/z\">z</a>"), "{text}");
        let spent = of("0", "requests", true);
        let figure = "<div class=\"bad\"><dt>Quota left</dt><dd>0<small> of 2,000 requests, some returns in ";
        assert!(spent.contains(figure), "{spent}");
    }

    #[test]
    fn each_figure_is_in_its_place_and_marked_where_something_waits() {
        use tidegate_core::waited::Summary;
        let calm = page_of(group("a", "", 40, 1), Range::Live, false);
        for part in [
            "<dt>Burst left</dt><dd>–</dd>",
            "<div class=\"\"><dt>Waiting</dt>",
            "<div class=\"\"><dt>Debt</dt>",
        ] {
            assert!(calm.contains(part), "{part}: {calm}");
        }
        assert!(!calm.contains("Waits, last minute") && !calm.contains("Throttled: "), "{calm}");
        let waits = Summary { ended: 11, in_vain: 12, p50_us: 13, p99_us: 14, max_us: 15 };
        let a = GroupNow {
            leased: Rate::whole(30),
            demand: Rate::whole(31),
            backlog: Ru::whole(32),
            debt: Ru::whole(33),
            waiting: 34,
            waits: Some(waits),
            leases: 35,
            total: crate::present::Charged { operations: 36, micro_ru: 37_000_000 },
            throttled: 38,
            ..group("a", "", 40, 1)
        };
        let text = page_of(a, Range::Live, false);
        for part in [
            "<div><dt>Uses, with groups below</dt><dd>3 RU/s</dd>",
            "<div><dt>Limit</dt><dd>40 RU/s</dd>",
            "<div><dt>Demand</dt><dd>31 RU/s</dd>",
            "<div><dt>Leased</dt><dd>30 RU/s</dd>",
            "<div class=\"warn\"><dt>Waiting</dt><dd>34</dd>",
            "<div><dt>Waits, last minute</dt><dd>11<small>, 12 in vain</small></dd>",
            "<dd>13 µs, 14 µs<small>, 15 µs</small></dd>",
            "<div class=\"warn\"><dt>Backlog</dt><dd>32 RU</dd>",
            "<div class=\"warn\"><dt>Debt</dt><dd>33 RU</dd>",
            "<div><dt>Operations</dt><dd>36</dd>",
            "<div><dt>Refused</dt><dd>38</dd>",
            "<div><dt>RU since it was made</dt><dd>37</dd>",
            "<b>Throttled: </b>the next renewal brings more.",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let below = ["none", "2 RU/s", "0"].map(|cell| format!("<td class=\"number\">{cell}</td>")).concat();
        assert!(text.contains(&format!("href=\"/console/groups/b\">b</a></th>{below}</tr>")), "{text}");
        // Of what was there before, all of the time counts.
        let past = page_of(group("a", "", 40, 1), Range::Hour, false);
        assert!(past.contains("<th scope=\"row\">CPU</th><td class=\"number\">60 RU</td>"), "{past}");
    }

    #[test]
    fn a_lease_has_its_figures_in_their_places() {
        let [rate, demand, cap, backlog, debt] = ["11", "12", "13", "14", "15"].map(str::to_owned);
        let (client, committed, lump) = ("<n>".to_owned(), "91".to_owned(), "92".to_owned());
        let lease = v1::LeaseInfo {
            client,
            rate,
            committed,
            cap,
            lump,
            demand,
            backlog,
            debt,
            waiting: 1_016,
            expires_in_us: 17_000_000,
            ..v1::LeaseInfo::default()
        };
        let text = lease_table(&[lease]).into_string();
        let cells = ["11 RU/s", "12 RU/s", "13 RU", "14 RU", "15 RU", "1,016", "17 s"];
        let cells = cells.map(|cell| format!("<td class=\"number\">{cell}</td>")).concat();
        assert!(text.contains(&format!("<bdi>&lt;n&gt;</bdi></th>{cells}</tr>")), "{text}");
    }

    #[test]
    fn a_group_says_where_its_work_goes_on() {
        let mut a = group("a", "", 10, 1);
        Arc::make_mut(&mut a.group).demote_to = "z".to_owned();
        let text = page_of(a, Range::Live, false);
        assert!(text.contains("its quota goes on in <a href=\"/console/groups/z\">z</a>"), "{text}");
    }

    #[test]
    fn bindings_change_by_those_who_may() {
        assert!(page(Range::Live, true).contains("/console/unbind"));
        assert!(page(Range::Live, false).contains("href=\"/console/groups/a/proposal\""));
        let seen = page(Range::Live, false);
        assert!(
            seen.contains("acme") && !seen.contains("<form method=\"post\" action=\"/console/unbind"),
            "{seen}"
        );
    }
}
