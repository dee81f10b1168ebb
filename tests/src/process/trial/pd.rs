//! Three servers of PD, of which one leads, and nodes with PD's own client.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_core::units::Ru;
use tidegate_test_servers::free_port;

use super::leaders::{THREE, Three};
use super::{GROUP, RATE};
use crate::process::child::Process;
use crate::process::error::{ClusterError, PATIENCE, refused};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);
/// How long a server may take to answer.
const ANSWER: Duration = Duration::from_secs(2);
/// A client of PD reports what it used every ten seconds, or later if little.
const REPORTED: Duration = Duration::from_secs(30);

pub(super) struct Pd {
    folder: PathBuf,
    server: PathBuf,
    node: PathBuf,
    /// For clients, and for each other.
    ports: Vec<(u16, u16)>,
    servers: Vec<Option<Process>>,
}

impl Pd {
    pub(super) fn start(folder: &Path, server: PathBuf, node: PathBuf) -> Result<Self, ClusterError> {
        for binary in [&server, &node] {
            if !binary.exists() {
                return Err(ClusterError::NoPd(binary.clone()));
            }
        }
        let port = || free_port().map_err(ClusterError::Port);
        let ports = (0..THREE).map(|_| Ok((port()?, port()?))).collect::<Result<_, ClusterError>>()?;
        let servers = (0..THREE).map(|_| None).collect();
        let mut pd = Self { folder: folder.to_owned(), server, node, ports, servers };
        (0..THREE).try_for_each(|index| Three::start(&mut pd, index))?;
        Ok(pd)
    }

    fn clients(&self) -> impl Iterator<Item = String> {
        self.ports.iter().map(|(port, _)| format!("127.0.0.1:{port}"))
    }

    /// The answer of a server that runs.
    async fn call(&self, method: &str, path: &str, body: &str) -> Result<Value, ClusterError> {
        let asked = async {
            loop {
                let running = self.ports.iter().zip(&self.servers).filter(|(_, server)| server.is_some());
                let answer = running.filter_map(|((port, _), _)| ask(*port, method, path, body)).next();
                match answer {
                    Some(answer) => return answer,
                    None => tokio::time::sleep(LOOK).await,
                }
            }
        };
        let logs = || self.servers.iter().flatten().map(Process::tail).collect::<Vec<_>>().join("\n");
        let late = |_| ClusterError::TooLate { what: format!("{method} {path} of PD"), log: logs() };
        tokio::time::timeout(PATIENCE, asked).await.map_err(late)
    }
}

/// The answer of one server, if it is a good one.
fn ask(port: u16, method: &str, path: &str, body: &str) -> Option<Value> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, ANSWER).ok()?;
    stream.set_read_timeout(Some(ANSWER)).ok()?;
    let length = body.len();
    write!(stream, "{method} {path} HTTP/1.0\r\nHost: {address}\r\nContent-Length: {length}\r\n\r\n{body}")
        .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    good(&answer)
}

/// What a good answer says: JSON, or words.
fn good(answer: &str) -> Option<Value> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let is_good = head.lines().next()?.contains(" 200 ");
    is_good.then(|| serde_json::from_str(body).unwrap_or_else(|_| Value::from(body)))
}

impl Three for Pd {
    async fn create(&mut self) -> Result<(), ClusterError> {
        let settings = json!({"fill_rate": RATE, "burst_limit": RATE});
        let group = json!({
            "name": GROUP, "mode": 1, "priority": 8, "r_u_settings": {"r_u": {"settings": settings}}
        });
        self.call("POST", "/resource-manager/api/v1/config/group", &group.to_string()).await.map(drop)
    }

    fn node(&self, index: usize, log: &Path) -> Command {
        let mut command = Command::new(&self.node);
        command.arg(self.clients().collect::<Vec<_>>().join(",")).arg((index + 1).to_string()).arg(GROUP);
        command.arg(log);
        command
    }

    async fn kill(&mut self) -> Result<usize, ClusterError> {
        let leader = self.call("GET", "/pd/api/v1/leader", "").await?;
        let name = leader.get("name").and_then(Value::as_str).unwrap_or_default();
        let index = name.strip_prefix("pd").and_then(|number| number.parse().ok());
        let index = index.ok_or_else(|| refused("say who leads", leader.to_string()))?;
        let server: &mut Option<Process> =
            self.servers.get_mut(index).ok_or_else(|| refused("say who leads", name.to_owned()))?;
        server.take().into_iter().for_each(Process::kill);
        Ok(index)
    }

    fn start(&mut self, index: usize) -> Result<(), ClusterError> {
        let peer = |index: usize, port: u16| format!("pd{index}=http://127.0.0.1:{port}");
        let all: Vec<String> = (0..).zip(&self.ports).map(|(index, (_, port))| peer(index, *port)).collect();
        let Some((client, other)) = self.ports.get(index) else { return Ok(()) };
        let name = format!("pd{index}");
        let mut command = Command::new(&self.server);
        command.args(["--name", &name, "--data-dir"]).arg(self.folder.join(&name));
        command.args(["--client-urls", &format!("http://127.0.0.1:{client}")]);
        command.args(["--peer-urls", &format!("http://127.0.0.1:{other}")]);
        command.args(["--initial-cluster", &all.join(","), "-L", "warn"]);
        let process = Process::start(command, &name, &self.folder)?;
        if let Some(place) = self.servers.get_mut(index) {
            *place = Some(process);
        }
        Ok(())
    }

    async fn end(&mut self, nodes: Vec<Process>) -> Result<(), ClusterError> {
        nodes.iter().for_each(Process::terminate);
        tokio::time::sleep(REPORTED).await;
        nodes.into_iter().for_each(Process::kill);
        Ok(())
    }

    async fn known(&mut self) -> Result<Ru, ClusterError> {
        let path = format!("/resource-manager/api/v1/config/group/{GROUP}?with_stats=true");
        let group = self.call("GET", &path, "").await?;
        let used = group.get("ru_consumption");
        let sum: f64 = ["r_r_u", "w_r_u"].iter().filter_map(|key| used?.get(key)?.as_f64()).sum();
        #[expect(clippy::cast_possible_truncation, reason = "the consumption of minutes")]
        Ok(Ru((sum * 1e6) as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_that_is_good_as_json_or_words() {
        let answer = |head: &str, body: &str| good(&format!("HTTP/1.0 {head}\r\nX-Y: z\r\n\r\n{body}"));
        assert_eq!(answer("200 OK", r#"{"name":"pd1"}"#), Some(json!({"name": "pd1"})));
        assert_eq!(answer("200 OK", "Success!"), Some(json!("Success!")));
        assert_eq!(answer("503 Service Unavailable", "no leader"), None);
        assert_eq!(good("HTTP/1.0 200 OK"), None);
    }
}
