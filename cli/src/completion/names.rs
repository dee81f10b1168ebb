//! Names that a controller knows, asked for within a moment.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_proto::v1;

use crate::args::Global;
use crate::contexts;
use crate::output::Output;
use crate::screen::Color;

/// Longest wait for the controller, all in all. With twice of it a shell feels stuck; half of it is too short for a
/// controller across a country.
const WITHIN: Duration = Duration::from_millis(250);
/// Names that are offered. More are of no use in a shell.
const MAX_NAMES: usize = 1_000;

/// What names of groups are made of, in their order.
const OF_A_NAME: &str = "-.0123456789_abcdefghijklmnopqrstuvwxyz";
/// The length of the longest.
const LONGEST_NAME: usize = 64;

/// What is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    Groups,
    Tenants,
    Users,
    Clients,
    Controllers,
    /// Those of the user's file.
    Contexts,
}

impl Names {
    /// Those that the controller knows and that begin so; none if it does not say so in time.
    pub(super) fn find(self, global: &Global, begin: &str) -> BTreeSet<String> {
        let names = self.all(global, begin).into_iter();
        names.filter(|name| !name.is_empty() && name.starts_with(begin)).take(MAX_NAMES).collect()
    }

    /// The same with others, of which a page of the controller's is enough.
    fn all(self, global: &Global, begin: &str) -> BTreeSet<String> {
        if self == Self::Contexts {
            let all = contexts::path().and_then(|path| contexts::Contexts::read(&path));
            return all.map(|all| all.contexts.into_keys().collect()).unwrap_or_default();
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let Ok(runtime) = runtime else { return BTreeSet::new() };
        let found = runtime.block_on(async { tokio::time::timeout(WITHIN, self.ask(global, begin)).await });
        // A look-up of a host may still go on.
        runtime.shutdown_background();
        found.ok().flatten().unwrap_or_default()
    }

    async fn ask(self, global: &Global, begin: &str) -> Option<BTreeSet<String>> {
        let admin = global.admin().await.ok()?;
        let mut calls = admin.calls();
        let names: BTreeSet<String> = match self {
            Self::Groups => {
                let request = v1::ListGroupsRequest { after: last_before(begin), limit: 0 };
                let reply = calls.list_groups(request).await.ok()?.into_inner();
                reply.groups.into_iter().map(|group| group.name).collect()
            }
            Self::Tenants | Self::Users => {
                let reply = calls.list_bindings(v1::ListBindingsRequest::default()).await.ok()?.into_inner();
                let name = |binding: v1::Binding| match self {
                    Self::Tenants => binding.tenant,
                    _ => binding.user,
                };
                reply.bindings.into_iter().map(name).collect()
            }
            Self::Contexts => return None,
            Self::Clients => {
                let reply = calls.list_clients(v1::ListClientsRequest {}).await.ok()?.into_inner();
                reply.clients.into_iter().map(|client| client.client).collect()
            }
            Self::Controllers => {
                let request = v1::ListControllersRequest {};
                let reply = calls.list_controllers(request).await.ok()?.into_inner();
                let others = reply.controllers.into_iter().filter(|controller| !controller.leads);
                others.map(|controller| controller.name).collect()
            }
        };
        Some(names)
    }
}

/// The last name that a group could have before all that begin so: the first page behind it has those. Empty before all
/// names.
fn last_before(begin: &str) -> String {
    let mut before = begin.to_owned();
    let Some(last) = before.pop() else { return before };
    // Of what begins with the first of all signs, only the part before that comes earlier.
    let lower = OF_A_NAME.find(last).and_then(|at| OF_A_NAME.get(..at)?.chars().next_back());
    if let Some(lower) = lower {
        before.push(lower);
        before.extend(
            OF_A_NAME.chars().next_back().into_iter().cycle().take(LONGEST_NAME.saturating_sub(begin.len())),
        );
    }
    before
}

/// The controller of a command line that is being written, and what to show it; `None` where that cannot be known. Of
/// options it needs those that say where the controller is; the rest is the environment's, or the context's.
pub(super) fn global(words: &[OsString]) -> Option<Global> {
    let file = |name| std::env::var_os(name).map(PathBuf::from);
    let endpoint = said(words, "--endpoint", "TIDEGATE_ENDPOINT");
    let global = Global {
        endpoint_given: endpoint.is_some(),
        takes_context: endpoint.is_none(),
        endpoint: endpoint.unwrap_or_else(|| "http://127.0.0.1:7420".to_owned()),
        context: said(words, "--context", "TIDEGATE_CONTEXT"),
        ca: file("TIDEGATE_CA"),
        cert: file("TIDEGATE_CERT"),
        key: file("TIDEGATE_KEY"),
        token_file: file("TIDEGATE_TOKEN_FILE"),
        output: Output::default(),
        color: Color::default(),
        actor: "completion".to_owned(),
    };
    contexts::applied(global).ok()
}

fn said(words: &[OsString], option: &str, variable: &str) -> Option<String> {
    let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    let after = words.windows(2).filter_map(|pair| match pair {
        [name, value] if *name == option => Some(*value),
        _ => None,
    });
    let joined = words.iter().filter_map(|word| word.strip_prefix(option)?.strip_prefix('='));
    let said = after.chain(joined).find(|value| !value.is_empty()).map(str::to_owned);
    said.or_else(|| std::env::var(variable).ok().filter(|value| !value.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_groups_begins_right_before_the_first_that_begin_so() {
        for (begin, before) in [("", ""), ("-", ""), ("a-", "a"), ("a!", "a")] {
            assert_eq!(last_before(begin), before, "{begin:?}");
        }
        assert_eq!(last_before("b0"), format!("b.{}", "z".repeat(62)));
        assert_eq!(last_before("a"), format!("_{}", "z".repeat(63)));
        let longest = "z".repeat(64);
        assert_eq!(last_before(&longest), format!("{}y", "z".repeat(63)));
        let signs: Vec<char> = OF_A_NAME.chars().collect();
        assert!(signs.is_sorted());
    }

    #[test]
    fn the_controller_is_the_one_of_the_line() {
        let of = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            global(&words).unwrap().endpoint
        };
        assert_eq!(of(&["tidegate", "--endpoint", "http://a:1", "group"]), "http://a:1");
        assert_eq!(of(&["tidegate", "group", "--endpoint=http://b:2"]), "http://b:2");
    }
}
