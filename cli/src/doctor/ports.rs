//! The ports that a controller listens at: free, or taken, and by whom.

use std::fs;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};

use super::Finding;

const AREA: &str = "ports";
/// Processes that are looked at for the holder of a port.
const MAX_PROCESSES: usize = 100_000;
/// The state of a socket that listens, as `/proc/net/tcp` writes it.
const LISTENS: &str = "0A";

/// What is known about a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortFacts {
    /// The setting.
    pub(crate) setting: &'static str,
    pub(crate) address: SocketAddr,
    pub(crate) state: PortState,
}

/// Whether one could listen there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PortState {
    Free,
    /// A process listens there; its number and name, if they can be seen.
    Taken(Option<(u32, String)>),
    /// Listening there needs more rights.
    Denied,
    Impossible(String),
}

/// Tries to listen, and gives the port back.
pub(crate) fn gather(setting: &'static str, address: SocketAddr) -> PortFacts {
    let state = match TcpListener::bind(address) {
        Ok(_) => PortState::Free,
        Err(error) => match error.kind() {
            ErrorKind::AddrInUse => PortState::Taken(holder(address.port())),
            ErrorKind::PermissionDenied => PortState::Denied,
            _ => PortState::Impossible(error.to_string()),
        },
    };
    PortFacts { setting, address, state }
}

/// The process that listens at a port.
fn holder(port: u16) -> Option<(u32, String)> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
    let sockets: Vec<String> = tables.iter().flatten().flat_map(|table| listeners(table, port)).collect();
    for entry in fs::read_dir("/proc").ok()?.flatten().take(MAX_PROCESSES) {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let open = fs::read_dir(entry.path().join("fd")).into_iter().flatten().flatten();
        let holds = open.filter_map(|file| fs::read_link(file.path()).ok()).any(|target| {
            target.to_str().is_some_and(|target| sockets.iter().any(|socket| socket == target))
        });
        if holds {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            return Some((pid, name.trim().to_owned()));
        }
    }
    None
}

/// The sockets of a table of the kernel that listen at a port, as links of open files name them.
fn listeners(table: &str, port: u16) -> Vec<String> {
    let socket = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let at = fields.next()?.rsplit_once(':')?.1;
        let state = fields.nth(1)?;
        let inode = fields.nth(5)?;
        let listens = state == LISTENS && u16::from_str_radix(at, 16).ok() == Some(port);
        listens.then(|| format!("socket:[{inode}]"))
    };
    table.lines().filter_map(socket).collect()
}

pub(crate) fn judge(facts: &PortFacts) -> Finding {
    let PortFacts { setting, address, state } = facts;
    let other = "choose another with --listen and --http, or in the settings";
    match state {
        PortState::Free => Finding::ok(AREA, format!("{setting} {address} is free")),
        PortState::Taken(Some((pid, name))) if name == "tidegate" => {
            Finding::ok(AREA, format!("{setting} {address} is tidegate's, process {pid}: it runs"))
        }
        PortState::Taken(Some((pid, name))) => Finding::failed(
            AREA,
            format!("{setting} {address} is taken by {name}, process {pid}"),
            format!("stop that one, or {other}"),
        ),
        PortState::Taken(None) => Finding::warning(
            AREA,
            format!("{setting} {address} is taken by a process that this user cannot see"),
            format!("run doctor as root to see which; if it is no controller, {other}"),
        ),
        PortState::Denied => Finding::failed(
            AREA,
            format!("{setting} {address}: this user may not listen there"),
            format!("ports below 1024 need CAP_NET_BIND_SERVICE; {other}"),
        ),
        PortState::Impossible(reason) => {
            Finding::failed(AREA, format!("{setting} {address}: {reason}"), other.to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn a_port_is_judged_by_who_has_it() {
        let verdict = |state| {
            judge(&PortFacts { setting: "grpc_listen", address: "127.0.0.1:9".parse().unwrap(), state })
                .verdict
        };
        assert_eq!(verdict(PortState::Free), Verdict::Ok);
        assert_eq!(verdict(PortState::Taken(Some((7, "tidegate".into())))), Verdict::Ok);
        assert_eq!(verdict(PortState::Taken(Some((7, "nginx".into())))), Verdict::Failed);
        assert_eq!(verdict(PortState::Taken(None)), Verdict::Warning);
        assert_eq!(verdict(PortState::Denied), Verdict::Failed);
        assert_eq!(verdict(PortState::Impossible("x".into())), Verdict::Failed);
    }

    #[test]
    fn the_holder_of_a_port_is_found() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
                     0: 0100007F:1CFC 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1\n   \
                     1: 0100007F:1CFC 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 4712 1\n";
        assert_eq!(listeners(table, 0x1CFC), ["socket:[4711]"]);
        assert!(listeners(table, 80).is_empty());
        for of in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(of).unwrap();
            let address = listener.local_addr().unwrap();
            let PortState::Taken(Some((pid, _))) = gather("http_listen", address).state else {
                panic!("{of}")
            };
            assert_eq!(pid, std::process::id());
        }
    }
}
