//! nginx, as a rate limiter: requests meet `limit_req`, and its logs say what it decided about each, and when by its own
//! clock.

use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::Command;

use super::{ServerError, Site, installed, io_error};

/// A running server.
#[derive(Debug)]
pub struct Nginx {
    site: Site,
}

impl Nginx {
    /// Starts one with these lines of its `http` and of its `server` block. It is one process, and connections stay open
    /// for all requests of a test.
    ///
    /// # Errors
    /// It is not installed, or does not come up.
    pub fn start(http: &str, server: &str) -> Result<Self, ServerError> {
        installed(Command::new("nginx").arg("-v"), "nginx", "nginx")?;
        let mut site = Site::new("tidegate-nginx")?;
        let (data, tmp) = (site.data(), site.tmp());
        let (data, tmp) = (data.display(), tmp.display());
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|of| format!(" {of}_temp_path {tmp}/{of};\n"))
            .collect();
        let settings = format!(
            "daemon off;\nmaster_process off;\npid {data}/pid;\nerror_log {data}/debug.log debug_http debug_event;\n\
             events {{ worker_connections 512; }}\nhttp {{\n{temporary} \
             log_format decisions '$request_uri $limit_req_status $status $msec';\n \
             access_log {data}/access.log decisions;\n keepalive_requests 1000000;\n{http}\n \
             server {{ listen 127.0.0.1:{};\n{server}\n }}\n}}\n",
            site.port
        );
        let file = site.folder.path().join("nginx.conf");
        std::fs::write(&file, settings).map_err(io_error("write a file"))?;
        let mut nginx = Command::new("nginx");
        nginx.arg("-c").arg(&file).arg("-e").arg(site.data().join("early.log"));
        site.run(&mut nginx, |site| Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, site.port)).is_ok()))?;
        Ok(Self { site })
    }

    /// Where clients connect.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.site.port
    }

    /// A line for each request that was answered: its address, `$limit_req_status`, `$status`, `$msec`.
    #[must_use]
    pub fn access_log(&self) -> PathBuf {
        self.site.data().join("access.log")
    }

    /// What it says of its events and of each request, with a number for each connection. Timers are logged with the
    /// moment at which they run out, by the clock of its decisions.
    #[must_use]
    pub fn debug_log(&self) -> PathBuf {
        self.site.data().join("debug.log")
    }
}
