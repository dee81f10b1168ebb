//! Host names that a REST listener on the local machine answers to.
//!
//! A page in a browser can let its own name resolve to 127.0.0.1 and then send requests, writes included, to any
//! listener there (DNS rebinding). Such a request names the page's host. So a listener on a loopback address serves
//! requests that name loopback, or a configured name, such as that of a proxy in front of it. A listener that other
//! machines can reach accepts any name, since it cannot know its names there.

use std::net::{IpAddr, SocketAddr};

use axum::http::uri::Authority;

/// Accepted host names.
#[derive(Clone, Debug)]
pub(crate) enum Hosts {
    /// Any name.
    Any,
    /// The names of loopback, and these.
    Own(Vec<String>),
}

impl Hosts {
    /// The accepted names of a listener at this address.
    pub(crate) fn of(address: SocketAddr, configured: &[String]) -> Self {
        if address.ip().to_canonical().is_loopback() { Self::Own(configured.to_vec()) } else { Self::Any }
    }

    /// Whether the listener accepts a request to `authority`.
    pub(crate) fn take(&self, authority: Option<&str>) -> bool {
        let Self::Own(names) = self else { return true };
        let Some(authority) = authority.and_then(|text| text.parse::<Authority>().ok()) else { return false };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let host = host.strip_suffix('.').unwrap_or(host);
        match host.parse::<IpAddr>() {
            Ok(address) if address.to_canonical().is_loopback() => true,
            _ => {
                host.eq_ignore_ascii_case("localhost")
                    || names.iter().any(|name| name.eq_ignore_ascii_case(host))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_loopback_and_configured_ones_are_served_there() {
        let hosts = Hosts::of("127.0.0.1:7421".parse().unwrap(), &["rates.example".to_owned()]);
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
        ];
        for name in own {
            assert!(hosts.take(Some(name)), "{name}");
        }
        let foreign = [
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "rates.example.evil",
            "10.0.0.1:7421",
            "0.0.0.0",
            "",
            "x y",
            "[::1",
            "2130706433",
        ];
        for name in foreign {
            assert!(!hosts.take(Some(name)), "{name}");
        }
        assert!(!hosts.take(None));
        assert!(Hosts::of("10.0.0.1:7421".parse().unwrap(), &[]).take(Some("evil.example")));
    }
}
