//! etcd, a cluster of it: with its own defaults, but for where members listen and keep their files.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use super::{
    Certificates, LOOK, LOOKS, ServerError, Site, as_nobody, free_port, installed, io_error, output,
};

/// Time for an answer of a member's own pages.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// A running cluster. Members are counted from 0.
#[derive(Debug)]
pub struct Etcd {
    members: Vec<Member>,
    cluster: String,
    settings: Vec<String>,
    /// Certificate and key, where clients come by TLS.
    identity: Option<(PathBuf, PathBuf)>,
}

/// One of its processes. The port of its site is that of clients.
#[derive(Debug)]
struct Member {
    site: Site,
    peers: u16,
    /// Its own pages, which are plain and open whatever clients have to show.
    pages: u16,
    is_paused: bool,
}

impl Etcd {
    /// Starts so many members with these settings, such as `["--quota-backend-bytes", "16777216"]`.
    ///
    /// # Errors
    /// It is not installed, or does not come up.
    pub fn start(members: usize, settings: &[&str]) -> Result<Self, ServerError> {
        Self::with(members, settings, None)
    }

    /// The same with TLS towards clients, by certificates that stay until its end.
    ///
    /// # Errors
    /// It is not installed, or does not come up.
    pub fn secure(
        members: usize,
        settings: &[&str],
        certificates: &Certificates,
    ) -> Result<Self, ServerError> {
        Self::with(members, settings, Some((certificates.certificate(), certificates.key())))
    }

    fn with(
        members: usize,
        settings: &[&str],
        identity: Option<(PathBuf, PathBuf)>,
    ) -> Result<Self, ServerError> {
        installed(Command::new("etcd").arg("--version"), "etcd", "etcd-server")?;
        let member = |_| {
            let (site, peers, pages) = (Site::new("tidegate-etcd")?, free_port()?, free_port()?);
            Ok(Member { site, peers, pages, is_paused: false })
        };
        let members: Vec<Member> = (0..members).map(member).collect::<Result<_, ServerError>>()?;
        let peers = members.iter().enumerate();
        let peers: Vec<String> =
            peers.map(|(i, member)| format!("m{i}=http://127.0.0.1:{}", member.peers)).collect();
        let settings = settings.iter().map(ToString::to_string).collect();
        let mut etcd = Self { members, cluster: peers.join(","), settings, identity };
        for index in 0..etcd.members.len() {
            etcd.run(index)?;
        }
        etcd.wait()?;
        Ok(etcd)
    }

    /// Starts a member again, on the files and ports that it had. It may have no leader yet: see [`Self::wait`].
    ///
    /// # Errors
    /// There is no such member, or it does not come up.
    pub fn run(&mut self, index: usize) -> Result<(), ServerError> {
        let clients = self.endpoint(index);
        let member = self.member(index)?;
        let (peers, pages) = (member.peers, member.pages);
        let mut server = Command::new("etcd");
        server.arg("--name").arg(format!("m{index}")).arg("--data-dir").arg(member.site.data().join("etcd"));
        let peers = format!("http://127.0.0.1:{peers}");
        for (name, value) in [
            ("--listen-client-urls", &*clients),
            ("--advertise-client-urls", &*clients),
            ("--listen-peer-urls", &*peers),
            ("--initial-advertise-peer-urls", &*peers),
            ("--listen-metrics-urls", &*format!("http://127.0.0.1:{pages}")),
            ("--initial-cluster", &*self.cluster),
            // Members of another cluster, on a port that this one had, are not let in.
            ("--initial-cluster-token", &*self.token()),
            ("--log-level", "error"),
        ] {
            server.args([name, value]);
        }
        if let Some((certificate, key)) = &self.identity {
            server.arg("--cert-file").arg(certificate).arg("--key-file").arg(key);
        }
        server.args(&self.settings);
        let member = self.member_mut(index)?;
        member.is_paused = false;
        member.site.run(&mut server, |_| Ok(get(pages, "/metrics").is_ok()))
    }

    fn token(&self) -> String {
        format!("{}-{}", std::process::id(), self.cluster)
    }

    /// Saves a backup, by way of the first member, and returns its file, which is there until the end. Without TLS only.
    ///
    /// # Errors
    /// `etcdctl` is not installed, or the member does not answer.
    pub fn back_up(&self) -> Result<PathBuf, ServerError> {
        let file = self.member(0)?.site.data().join("backup.db");
        let mut save = Command::new("etcdctl");
        save.env("ETCDCTL_API", "3").args(["--endpoints", &*self.endpoint(0), "snapshot", "save"]).arg(&file);
        installed(as_nobody(&mut save)?, "etcdctl", "etcd-client")?;
        Ok(file)
    }

    /// Kills all members, gives each what is in a backup in place of its files, and starts them again.
    ///
    /// # Errors
    /// The backup is none, or they do not come up.
    pub fn restore(&mut self, backup: &Path) -> Result<(), ServerError> {
        for index in 0..self.members.len() {
            self.kill(index)?;
            let member = self.member(index)?;
            let data = member.site.data().join("etcd");
            std::fs::remove_dir_all(&data).map_err(io_error("remove the files of a member"))?;
            let mut restore = Command::new("etcdctl");
            restore.env("ETCDCTL_API", "3").args(["snapshot", "restore"]).arg(backup);
            restore.arg("--data-dir").arg(&data).arg("--name").arg(format!("m{index}"));
            restore.args(["--initial-cluster", &*self.cluster, "--initial-cluster-token", &*self.token()]);
            let peers = format!("http://127.0.0.1:{}", member.peers);
            restore.args(["--initial-advertise-peer-urls", &*peers]);
            output(as_nobody(&mut restore)?)?;
        }
        (0..self.members.len()).try_for_each(|index| self.run(index))?;
        self.wait()
    }

    /// Waits until every member that runs takes writes.
    ///
    /// # Errors
    /// They do not.
    pub fn wait(&self) -> Result<(), ServerError> {
        for _ in 0..LOOKS {
            let mut running = self.members.iter().filter(|member| member.runs());
            if running.all(|member| get(member.pages, "/health").is_ok_and(|said| said.contains("\"true\"")))
            {
                return Ok(());
            }
            thread::park_timeout(LOOK);
        }
        Err(ServerError::Failed { what: "etcd".to_owned(), said: "its members have no leader".to_owned() })
    }

    /// Kills a member at once, as `kill -9` does.
    ///
    /// # Errors
    /// There is no such member.
    pub fn kill(&mut self, index: usize) -> Result<(), ServerError> {
        let member = self.member_mut(index)?;
        member.site.kill();
        member.is_paused = false;
        Ok(())
    }

    /// Stops a member, which neither answers nor closes its connections.
    ///
    /// # Errors
    /// There is no such member, or it does not run.
    pub fn pause(&mut self, index: usize) -> Result<(), ServerError> {
        self.signal(index, "-STOP")?;
        self.member_mut(index)?.is_paused = true;
        Ok(())
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// There is no such member, or it does not run.
    pub fn resume(&mut self, index: usize) -> Result<(), ServerError> {
        self.signal(index, "-CONT")?;
        self.member_mut(index)?.is_paused = false;
        Ok(())
    }

    fn signal(&self, index: usize, signal: &str) -> Result<(), ServerError> {
        let pid = self.member(index)?.site.pid();
        if pid == 0 {
            let said = format!("member {index} does not run");
            return Err(ServerError::Failed { what: format!("kill {signal}"), said });
        }
        output(Command::new("kill").args([signal, &pid.to_string()]).stdin(Stdio::null())).map(drop)
    }

    /// Which member leads, if one that runs says so of itself.
    #[must_use]
    pub fn leader(&self) -> Option<usize> {
        self.members.iter().position(|member| {
            let leads = |said: String| said.lines().any(|line| line == "etcd_server_is_leader 1");
            member.runs() && get(member.pages, "/metrics").is_ok_and(leads)
        })
    }

    /// How many calls of a name, such as `Authenticate`, a member has answered without an error.
    ///
    /// # Errors
    /// It does not answer, or knows no such call.
    pub fn answered(&self, index: usize, call: &str) -> Result<u64, ServerError> {
        let pages = get(self.member(index)?.pages, "/metrics").map_err(io_error("read etcd's metrics"))?;
        let begin = format!("grpc_server_handled_total{{grpc_code=\"OK\",grpc_method=\"{call}\"");
        let line = pages.lines().find(|line| line.starts_with(&begin));
        let count = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
        count.ok_or_else(|| ServerError::Failed {
            what: "etcd".to_owned(),
            said: format!("no count of {call}"),
        })
    }

    /// The process of each member; 0 where none runs.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        self.members.iter().map(|member| member.site.pid()).collect()
    }

    /// Where clients connect, member by member.
    #[must_use]
    pub fn endpoints(&self) -> Vec<String> {
        (0..self.members.len()).map(|index| self.endpoint(index)).collect()
    }

    fn endpoint(&self, index: usize) -> String {
        let scheme = if self.identity.is_some() { "https" } else { "http" };
        let port = self.members.get(index).map(|member| member.site.port).unwrap_or_default();
        format!("{scheme}://127.0.0.1:{port}")
    }

    /// Compacts the history up to now, by way of a member: what it holds stays.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    pub fn compact(&self, index: usize) -> Result<(), ServerError> {
        let said = self.call_to(index, "kv/range", r#"{"key":"AA=="}"#, None)?;
        let revision = said.split_once("\"revision\":\"").and_then(|(_, rest)| rest.split('"').next());
        let Some(revision) = revision else {
            return Err(ServerError::Failed { what: "etcd's kv/range".to_owned(), said });
        };
        self.call_to(index, "kv/compaction", &format!(r#"{{"revision":"{revision}"}}"#), None).map(drop)
    }

    /// Has a member write its file again without gaps, and waits for it: meanwhile it answers nobody.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    pub fn defragment(&self, index: usize) -> Result<(), ServerError> {
        self.call_to(index, "maintenance/defragment", "{}", None).map(drop)
    }

    /// Makes a call of the API in JSON to the first member, such as `auth/enable` with `{}`, showing this token; answers
    /// what it says. Without TLS only.
    ///
    /// # Errors
    /// It cannot be made, or is refused.
    pub fn call(&self, path: &str, body: &str, token: Option<&str>) -> Result<String, ServerError> {
        self.call_to(0, path, body, token)
    }

    fn call_to(
        &self,
        index: usize,
        path: &str,
        body: &str,
        token: Option<&str>,
    ) -> Result<String, ServerError> {
        let shown = token.map(|token| format!("Authorization: {token}\r\n")).unwrap_or_default();
        let length = body.len();
        let request = format!("POST /v3/{path} HTTP/1.0\r\nContent-Length: {length}\r\n{shown}\r\n{body}");
        let said =
            ask(self.member(index)?.site.port, &request).map_err(io_error(format!("call etcd's {path}")))?;
        if said.starts_with("HTTP/1.0 200") || said.starts_with("HTTP/1.1 200") {
            return Ok(said.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default());
        }
        Err(ServerError::Failed { what: format!("etcd's {path}"), said })
    }

    fn member(&self, index: usize) -> Result<&Member, ServerError> {
        self.members.get(index).ok_or_else(|| no_member(index))
    }

    fn member_mut(&mut self, index: usize) -> Result<&mut Member, ServerError> {
        self.members.get_mut(index).ok_or_else(|| no_member(index))
    }
}

impl Member {
    fn runs(&self) -> bool {
        self.site.pid() != 0 && !self.is_paused
    }
}

fn no_member(index: usize) -> ServerError {
    ServerError::Failed { what: "etcd".to_owned(), said: format!("there is no member {index}") }
}

fn get(port: u16, path: &str) -> io::Result<String> {
    ask(port, &format!("GET {path} HTTP/1.0\r\n\r\n"))
}

/// What is answered to a request, head and body.
fn ask(port: u16, request: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    stream.write_all(request.as_bytes())?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    Ok(said)
}
