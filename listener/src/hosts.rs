//! Host names that a REST listener on the local machine answers to.
//!
//! A page in a browser can let its own name resolve to 127.0.0.1 and then send requests, writes included, to any
//! listener there (DNS rebinding). Such a request names the page's host. So a listener on a loopback address serves
//! requests that name loopback, or a configured name, such as that of a proxy in front of it. A listener that other
//! machines can reach accepts any name, since it cannot know its names there.

use std::net::{IpAddr, SocketAddr};

use axum::http::uri::Authority;

/// Characters of a refused name in an error, so that it never repeats a whole head.
const LONGEST_SHOWN: usize = 80;

/// Accepted host names.
#[derive(Clone, Debug)]
pub enum Hosts {
    /// Any name.
    Any,
    /// The names of loopback, and those that the configuration adds.
    Own {
        /// The names.
        configured: Vec<String>,
        /// The setting that holds them; `None` where there is no such setting.
        setting: Option<&'static str>,
    },
}

impl Hosts {
    /// The accepted names of a listener at this address, with those that this setting adds.
    pub fn of(address: SocketAddr, configured: &[String], setting: Option<&'static str>) -> Self {
        if address.ip().to_canonical().is_loopback() {
            Self::Own { configured: configured.to_vec(), setting }
        } else {
            Self::Any
        }
    }

    /// Why the listener does not accept a request to `authority`; `None` if it does.
    pub(super) fn refusal(&self, authority: Option<&str>) -> Option<String> {
        let Self::Own { configured, setting } = self else { return None };
        if is_one_of(authority, configured) {
            return None;
        }
        let named: String = authority.unwrap_or("no host").chars().take(LONGEST_SHOWN).collect();
        let remedy = match setting {
            Some(setting) => format!("ask for localhost, or add the name to {setting} if a proxy asks by it"),
            None => "ask for localhost, as a proxy in front of it has to".to_owned(),
        };
        Some(format!("{named} is not a name of this listener, which is for its own machine; {remedy}"))
    }
}

/// Whether `authority` names loopback, or is configured.
fn is_one_of(authority: Option<&str>, names: &[String]) -> bool {
    let Some(authority) = authority.and_then(|text| text.parse::<Authority>().ok()) else { return false };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let host = host.strip_suffix('.').unwrap_or(host);
    match host.parse::<IpAddr>() {
        Ok(address) if address.to_canonical().is_loopback() => true,
        _ => {
            host.eq_ignore_ascii_case("localhost") || names.iter().any(|name| name.eq_ignore_ascii_case(host))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_loopback_and_configured_ones_are_served_there() {
        let address = "127.0.0.1:7421".parse().unwrap();
        let configured = ["rates.example", "10.0.0.5"].map(str::to_owned);
        let hosts = Hosts::of(address, &configured, Some("http_hosts"));
        let own = [
            "127.0.0.1",
            "127.0.0.1:7421",
            "127.3.2.1:1",
            "localhost",
            "LocalHost:7421",
            "localhost.",
            "[::1]:7421",
            "rates.example",
            "Rates.Example:443",
            "rates.example.",
            "10.0.0.5",
            "10.0.0.5:7421",
            "[::ffff:127.0.0.1]:7421",
        ];
        for name in own {
            assert_eq!(hosts.refusal(Some(name)), None);
        }
        let foreign = [
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "rates.example.evil",
            "www.rates.example",
            "10.0.0.50",
            "[::ffff:10.0.0.1]",
            "localhost..",
            "10.0.0.1:7421",
            "0.0.0.0",
            "",
            "x y",
            "[::1",
            "2130706433",
        ];
        for name in foreign {
            assert!(hosts.refusal(Some(name)).is_some(), "{name}");
        }
        for here in ["[::1]:7421", "[::ffff:127.0.0.1]:7421", "127.9.9.9:1"] {
            let here = Hosts::of(here.parse().unwrap(), &[], None);
            assert!(here.refusal(Some("evil.example")).is_some() && here.refusal(Some("[::1]")).is_none());
        }
        assert!(hosts.refusal(None).unwrap().starts_with("no host is not a name of this listener"));
        assert!(hosts.refusal(Some("evil.example")).unwrap().contains("add the name to http_hosts"));
        let fixed = Hosts::of(address, &[], None).refusal(Some(&"e".repeat(999))).unwrap();
        assert!(fixed.len() < 200 && !fixed.contains("add the name"), "{fixed}");
        for remote in ["10.0.0.1:7421", "0.0.0.0:7421", "[::]:7421"] {
            let remote = Hosts::of(remote.parse().unwrap(), &configured, Some("http_hosts"));
            assert_eq!((remote.refusal(Some("evil.example")), remote.refusal(None)), (None, None));
        }
    }
}
