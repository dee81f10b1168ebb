//! Redis, as the store of a limiter: with its own defaults, but for where it listens and keeps its files.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;
use std::time::Duration;

use super::{ServerError, Site, installed};

/// A running server.
#[derive(Debug)]
pub struct Redis {
    site: Site,
    settings: Vec<String>,
}

impl Redis {
    /// Starts one with these settings beside its defaults, such as `["--appendonly", "yes"]`.
    ///
    /// # Errors
    /// It is not installed, or does not come up.
    pub fn start(settings: &[&str]) -> Result<Self, ServerError> {
        installed(Command::new("redis-server").arg("--version"), "redis-server", "redis-server")?;
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        let mut server = Self { site: Site::new("tidegate-redis")?, settings };
        server.run()?;
        Ok(server)
    }

    /// Kills it at once, as `kill -9` does.
    pub fn kill(&mut self) {
        self.site.kill();
    }

    /// Starts it again, on the files and the port that it had.
    ///
    /// # Errors
    /// It does not come up.
    pub fn restart(&mut self) -> Result<(), ServerError> {
        self.kill();
        self.run()
    }

    /// Where clients connect.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.site.port
    }

    fn run(&mut self) -> Result<(), ServerError> {
        let mut redis = Command::new("redis-server");
        redis.args(["--bind", "127.0.0.1", "--port", &self.site.port.to_string(), "--dir"]);
        redis.arg(self.site.data()).args(&self.settings);
        self.site.run(&mut redis, |site| Ok(answers(site.port).unwrap_or(false)))
    }
}

/// Whether it serves: it takes connections while it still loads what it kept, and refuses every command until then.
fn answers(port: u16) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(b"PING\r\n")?;
    let mut answer = [0; 7];
    stream.read_exact(&mut answer)?;
    Ok(&answer == b"+PONG\r\n")
}
