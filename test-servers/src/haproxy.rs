//! HAProxy, as a load balancer that sends the addresses of the clients whose connections it passes on.

use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;

use super::{ServerError, Site, installed, io_error};

/// A running balancer.
#[derive(Debug)]
pub struct HaProxy {
    site: Site,
}

impl HaProxy {
    /// Starts one in front of `port`, to which it speaks with this option of its own: `send-proxy`, `send-proxy-v2`.
    ///
    /// # Errors
    /// It is not installed, or does not come up.
    pub fn start(port: u16, option: &str) -> Result<Self, ServerError> {
        installed(Command::new("haproxy").arg("-v"), "haproxy", "haproxy")?;
        let mut site = Site::new("tidegate-haproxy")?;
        let file = site.folder.path().join("haproxy.cfg");
        let settings = format!(
            "global\n maxconn 100\ndefaults\n mode tcp\n timeout connect 10s\n timeout client 5m\n \
             timeout server 5m\nlisten tidegate\n bind 127.0.0.1:{}\n server gateway 127.0.0.1:{port} {option}\n",
            site.port
        );
        std::fs::write(&file, settings).map_err(io_error("write a file"))?;
        let mut balancer = Command::new("haproxy");
        balancer.arg("-db").arg("-f").arg(&file);
        site.run(&mut balancer, |site| Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, site.port)).is_ok()))?;
        Ok(Self { site })
    }

    /// Where clients connect.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.site.port
    }
}
