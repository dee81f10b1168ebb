//! A page that follows the present, by its address.

use std::collections::BTreeMap;

use tidegate_console::Markup;
use tidegate_console::chart::HIDE;
use tidegate_console::group::{Group, RANGE};
use tidegate_console::groups::{Groups, Sort};
use tidegate_console::history::{Bucket, Range};
use tidegate_console::link::ROOT;
use tidegate_console::nodes::Nodes;
use tidegate_console::overview::{NodeCount, Overview};
use tidegate_console::quantity::utc;
use tidegate_console::{csv, history};

use super::gather::burst_left;
use super::visitor::Visitor;
use super::{Web, typed};
use crate::error::AdminError;
use crate::message;

/// Names that a chart leaves out, at most: as many as it has colours, twice over.
const MOST_HIDDEN: usize = 16;
/// Characters of a filter: those of the longest name.
const LONGEST_FILTER: usize = 64;

/// What of a view is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The whole page.
    Page,
    /// What follows the present.
    Live,
    /// Its table as CSV.
    Csv,
}

/// What there is of a view.
#[derive(Debug)]
pub(super) enum Shown {
    /// A page, or its live part.
    Markup(Markup),
    /// A table, under a name for its file.
    Csv(&'static str, String),
}

/// A view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// The overview, without these groups in its chart.
    Overview { hidden: Vec<String> },
    /// The list of groups.
    Groups { filter: String, sort: String, skip: usize },
    /// A group.
    Group { name: String, range: Range, hidden: Vec<String> },
    /// Nodes and leases.
    Nodes { filter: String },
}

impl View {
    /// The view at an address; `None` where there is none.
    pub(super) fn parse(path: &str, query: &str) -> Option<Self> {
        let rest = path.strip_prefix(ROOT)?;
        let parts: Vec<String> = rest.split('/').skip(1).map(decoded).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let query: BTreeMap<String, String> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let of = |key: &str| query.get(key).map_or("", String::as_str);
        let filter = of("q").trim().chars().take(LONGEST_FILTER).collect();
        let hidden = || left_out(of(HIDE));
        match parts.as_slice() {
            [] if rest.is_empty() => Some(Self::Overview { hidden: hidden() }),
            ["groups"] => Some(Self::Groups {
                filter,
                sort: of("sort").to_owned(),
                skip: of("skip").parse().unwrap_or(0),
            }),
            ["groups", name] => {
                let range = Range::parse(of(RANGE));
                Some(Self::Group { name: (*name).to_ascii_lowercase(), range, hidden: hidden() })
            }
            ["nodes"] => Some(Self::Nodes { filter }),
            _ => None,
        }
    }

    /// The route whose row in the matrix says who may see it.
    pub(super) fn route(&self) -> &'static str {
        match self {
            Self::Overview { .. } => "/console",
            Self::Groups { .. } => "/console/groups",
            Self::Group { .. } => "/console/groups/{name}",
            Self::Nodes { .. } => "/console/nodes",
        }
    }

    /// Reads what it shows, and makes the part that is asked for. Waits for the disk.
    pub(super) fn show(&self, web: &Web, visitor: &Visitor, part: Part) -> Result<Shown, AdminError> {
        match self {
            Self::Overview { hidden } => overview(web, visitor, hidden, part),
            Self::Groups { filter, sort, skip } => groups(web, visitor, (filter, sort, *skip), part),
            Self::Group { name, range, hidden } => group(web, visitor, (name, *range, hidden), part),
            Self::Nodes { filter } => nodes(web, visitor, filter, part),
        }
    }
}

/// The names that a chart leaves out.
pub(super) fn left_out(names: &str) -> Vec<String> {
    names.split(',').filter(|name| !name.is_empty()).take(MOST_HIDDEN).map(str::to_owned).collect()
}

/// A part of a path as it was before it was written into it.
fn decoded(part: &str) -> String {
    form_urlencoded::parse(part.as_bytes()).next().map(|(key, _)| key.into_owned()).unwrap_or_default()
}

fn overview(web: &Web, visitor: &Visitor, hidden: &[String], part: Part) -> Result<Shown, AdminError> {
    let (present, seconds) = web.now(visitor)?;
    let status = web.status(visitor);
    let nodes = if status.is_some() { node_count(web) } else { NodeCount::default() };
    let dearest = web.dearest(visitor, "")?;
    let overview = Overview {
        status: status.as_ref(),
        nodes,
        present: &present,
        seconds: &seconds,
        dearest: &dearest,
        hidden,
    };
    Ok(match part {
        Part::Page => Shown::Markup(overview.page(&visitor.viewer)),
        Part::Live => Shown::Markup(overview.live(&visitor.viewer)),
        Part::Csv => {
            let rows = seconds.all().iter().flat_map(|sample| {
                sample.used.iter().map(|(name, rate)| {
                    vec![utc(sample.unix_ms), name.to_string(), rate.number().to_string()]
                })
            });
            Shown::Csv("use", csv::text(&["time", "group", "ru_per_sec"], rows))
        }
    })
}

fn node_count(web: &Web) -> NodeCount {
    let state = web.service.lock();
    let clients = state.leasing.clients();
    let connected = clients.connected();
    NodeCount { connected, silent: clients.iter().count().saturating_sub(connected) }
}

fn groups(
    web: &Web,
    visitor: &Visitor,
    (filter, sort, skip): (&str, &str, usize),
    part: Part,
) -> Result<Shown, AdminError> {
    let (present, _) = web.now(visitor)?;
    let is_recovering = web.is_recovering();
    let mut groups = Groups::of(&present, (filter, Sort::parse(sort), skip), is_recovering);
    if part != Part::Csv {
        groups.held = web.held(&groups.shown());
    }
    Ok(match part {
        Part::Page => Shown::Markup(groups.page(&visitor.viewer)),
        Part::Live => Shown::Markup(groups.live()),
        Part::Csv => Shown::Csv("groups", groups.csv()),
    })
}

fn group(
    web: &Web,
    visitor: &Visitor,
    (name, range, hidden): (&str, Range, &[String]),
    part: Part,
) -> Result<Shown, AdminError> {
    // It says of a name that is none, or of a group that is not there, what is wrong.
    let reply = web.service.definitions().seen_by(visitor.identity()).group(name)?;
    let (present, seconds) = web.now(visitor)?;
    // Made within this second, it is not among what was read before.
    let idle = tidegate_console::present::GroupNow::idle(std::sync::Arc::new(reply.group.clone()));
    let now = present.get(name).unwrap_or(&idle);
    let buckets = match range.seconds() {
        Some(seconds) => web.buckets(visitor, name, seconds)?,
        None => Vec::new(),
    };
    if part == Part::Csv {
        let buckets = if range == Range::Live { web.buckets(visitor, name, (86_400, 60))? } else { buckets };
        return Ok(Shown::Csv("group", history_csv(&buckets)));
    }
    let table = web.service.leasing().seen_by(visitor.identity()).leases(name)?;
    let burst_left = table.groups.first().and_then(|row| burst_left(&row.view));
    let leases = message::leases_reply(table).leases;
    let is_page = part == Part::Page;
    let (bindings, dearest, changes) = if is_page {
        (web.bindings(visitor, name)?, web.dearest(visitor, name)?, web.changes(visitor, name)?)
    } else {
        Default::default()
    };
    let proposal = if is_page { web.proposal(visitor, name)? } else { None };
    let fields = if is_page { typed::shown(&reply.group) } else { Vec::new() };
    let group = Group {
        now,
        present: &present,
        burst_left,
        is_recovering: web.is_recovering(),
        range,
        seconds: &seconds,
        buckets: &buckets,
        hidden,
        leases: &leases,
        warnings: &reply.warnings,
        proposal: proposal.as_ref(),
        bindings: &bindings,
        dearest: &dearest,
        changes: (&changes.0, changes.1),
        fields: &fields,
    };
    Ok(Shown::Markup(if is_page { group.page(&visitor.viewer) } else { group.live() }))
}

fn history_csv(buckets: &[Bucket]) -> String {
    let names = [
        "start",
        "micro_ru",
        "cpu_micro_ru",
        "read_micro_ru",
        "write_micro_ru",
        "network_micro_ru",
        "flat_micro_ru",
    ];
    debug_assert_eq!(names.len(), history::PARTS.len() + 2);
    let rows = buckets.iter().map(|bucket| {
        let mut row = vec![utc(bucket.start_s.saturating_mul(1_000)), bucket.total().to_string()];
        row.extend(bucket.parts.iter().map(ToString::to_string));
        row
    });
    csv::text(&names, rows)
}

fn nodes(web: &Web, visitor: &Visitor, filter: &str, part: Part) -> Result<Shown, AdminError> {
    let nodes = message::clients_reply(web.service.leasing().clients());
    let leases = message::leases_reply(web.service.leasing().leases("")?);
    let nodes = Nodes {
        clients: &nodes.clients,
        leases: &leases.leases,
        are_cut: (nodes.truncated, leases.truncated),
        filter,
    };
    Ok(match part {
        Part::Page => Shown::Markup(nodes.page(&visitor.viewer)),
        Part::Live => Shown::Markup(nodes.live()),
        Part::Csv => Shown::Csv("nodes", nodes.csv()),
    })
}

#[cfg(test)]
mod tests {
    use tidegate_console::link::Link;

    use super::*;

    #[test]
    fn an_address_that_was_written_is_read_as_the_same_view() {
        let view = |link: Link| {
            let text = link.to_string();
            let (path, query) = text.split_once('?').unwrap_or((&text, ""));
            View::parse(path, query)
        };
        assert_eq!(view(Link::to(&[])), Some(View::Overview { hidden: Vec::new() }));
        let group = View::Group {
            name: "a.b_c-1".to_owned(),
            range: Range::Day,
            hidden: vec!["x".to_owned(), "y".to_owned()],
        };
        assert_eq!(view(Link::group("a.b_c-1").with(RANGE, "24h").with(HIDE, "x,y")), Some(group));
        // Names have no case.
        assert_eq!(View::parse("/console/groups/SHOP", "").unwrap(), view(Link::group("shop")).unwrap());
        let filter = "a b&c".to_owned();
        let groups = View::Groups { filter, sort: "used".to_owned(), skip: 100 };
        assert_eq!(
            view(Link::to(&["groups"]).with("q", "a b&c").with("sort", "used").with("skip", 100)),
            Some(groups)
        );
        assert_eq!(View::parse("/console/groups", "skip=-1&q=").unwrap().route(), "/console/groups");
        let filter = "N 1".to_owned();
        assert_eq!(View::parse("/console/nodes", "q=+N+1%09"), Some(View::Nodes { filter }));
        let groups = View::Groups { filter: "n".to_owned(), sort: String::new(), skip: 0 };
        assert_eq!(View::parse("/console/groups", "q=+n+"), Some(groups));
        for none in
            ["", "/", "/consol", "/console/", "/console/audit", "/console/groups/a/edit", "/consolegroups"]
        {
            assert_eq!(View::parse(none, ""), None, "{none}");
        }
    }

    #[test]
    fn what_an_address_holds_is_bounded() {
        let many = vec!["x"; 99].join(",");
        let Some(View::Overview { hidden }) = View::parse("/console", &format!("hide={many}")) else {
            panic!()
        };
        assert_eq!(hidden.len(), MOST_HIDDEN);
        let long = "y".repeat(9_999);
        let Some(View::Nodes { filter }) = View::parse("/console/nodes", &format!("q={long}")) else {
            panic!()
        };
        assert_eq!(filter.len(), LONGEST_FILTER);
    }
}
