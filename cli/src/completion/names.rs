//! Names that a controller knows, asked for within a moment.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_proto::v1;
use tidegate_tls::ClientFiles;

use crate::admin::Admin;

/// Longest wait for the controller, all in all. With twice of it a shell feels stuck; half of it is too short for a
/// controller across a country.
const WITHIN: Duration = Duration::from_millis(250);
/// Names that are offered. More are of no use in a shell.
const MAX_NAMES: usize = 1_000;

/// What is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    Groups,
    Tenants,
    Users,
    Clients,
}

/// The files of TLS that the environment names; a shell that completes knows no others.
fn tls() -> ClientFiles {
    let file = |name| std::env::var_os(name).map(PathBuf::from);
    ClientFiles {
        authorities: file("TIDEGATE_CA"),
        identity: file("TIDEGATE_CERT").zip(file("TIDEGATE_KEY")),
    }
}

impl Names {
    /// Those that the controller knows; none if it does not say so in time.
    pub(super) fn find(self, endpoint: &str) -> BTreeSet<String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let Ok(runtime) = runtime else { return BTreeSet::new() };
        let found = runtime.block_on(async { tokio::time::timeout(WITHIN, self.ask(endpoint)).await });
        // A look-up of a host may still go on.
        runtime.shutdown_background();
        found.ok().flatten().unwrap_or_default()
    }

    async fn ask(self, endpoint: &str) -> Option<BTreeSet<String>> {
        let file = std::env::var_os("TIDEGATE_TOKEN_FILE").map(PathBuf::from);
        let token = crate::token::bearer(file.as_deref()).ok()?;
        let admin = Admin::connect(endpoint, "completion", &tls(), token).await.ok()?;
        let mut calls = admin.calls();
        let names: BTreeSet<String> = match self {
            Self::Groups => {
                let request = v1::ListGroupsRequest { after: String::new(), limit: 0 };
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
            Self::Clients => {
                let reply = calls.list_clients(v1::ListClientsRequest {}).await.ok()?.into_inner();
                reply.clients.into_iter().map(|client| client.client).collect()
            }
        };
        Some(names.into_iter().filter(|name| !name.is_empty()).take(MAX_NAMES).collect())
    }
}

/// The controller of a command line that is being written.
pub(super) fn endpoint(words: &[OsString]) -> String {
    let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    let after = words.windows(2).filter_map(|pair| match pair {
        ["--endpoint", url] => Some(*url),
        _ => None,
    });
    let joined = words.iter().filter_map(|word| word.strip_prefix("--endpoint="));
    let said = after.chain(joined).find(|url| !url.is_empty()).map(str::to_owned);
    let set = || std::env::var("TIDEGATE_ENDPOINT").ok().filter(|url| !url.is_empty());
    said.or_else(set).unwrap_or_else(|| "http://127.0.0.1:7420".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_controller_is_the_one_of_the_line() {
        let of = |words: &[&str]| endpoint(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(of(&["tidegate", "--endpoint", "http://a:1", "group"]), "http://a:1");
        assert_eq!(of(&["tidegate", "group", "--endpoint=http://b:2"]), "http://b:2");
    }
}
