//! Whether the controller answers, over gRPC and REST.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use tidegate_proto::v1;

use super::Finding;
use crate::args::Global;

const AREA: &str = "controller";
/// Longest wait for an answer over REST.
const WITHIN: Duration = Duration::from_secs(3);
/// Bytes of an answer that are read.
const MAX_ANSWER: u64 = 64 * 1_024;

/// The status of an answer and what was said, or why there was none.
type Told = Result<(u16, String), String>;

/// What is known about the controller.
#[derive(Clone, Debug)]
pub(crate) struct ReachFacts {
    pub(crate) endpoint: String,
    /// Neither flag nor variable says where the controller is.
    pub(crate) is_default: bool,
    pub(crate) grpc: Result<v1::StatusReply, String>,
    /// Where REST is, and the status of `/readyz` with what was said; `None` for one on another machine.
    pub(crate) rest: Option<(SocketAddr, Told)>,
}

/// Asks the controller how it is.
pub(crate) async fn gather(global: &Global, is_default: bool, http: SocketAddr) -> ReachFacts {
    let endpoint = &global.endpoint;
    let grpc = async {
        let admin = global.admin().await?;
        let status = admin.calls().status(v1::StatusRequest {}).await.map_err(admin.failed())?;
        Ok::<_, crate::error::CliError>(status.into_inner())
    };
    let grpc = grpc.await.map_err(|error| error.to_string());
    let local = ["127.0.0.1", "localhost", "[::1]"].iter().any(|host| endpoint.contains(host));
    // REST under TLS is not asked: gRPC beside it shows whether the certificates fit.
    let rest = if local && !endpoint.starts_with("https://") {
        let address = reachable(http);
        let asked = tokio::task::spawn_blocking(move || ready(address)).await;
        let told = asked.map_err(|error| error.to_string());
        Some((address, told.and_then(|told| told.map_err(|error| error.to_string()))))
    } else {
        None
    };
    ReachFacts { endpoint: endpoint.to_owned(), is_default, grpc, rest }
}

/// Where an address that listens everywhere is reached.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
    };
    SocketAddr::new(ip, address.port())
}

fn ready(address: SocketAddr) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&address, WITHIN)?;
    stream.set_read_timeout(Some(WITHIN))?;
    stream.set_write_timeout(Some(WITHIN))?;
    write!(stream, "GET /readyz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| io::Error::other("what answers there does not speak HTTP"))?;
    let said = answer.split_once("\r\n\r\n").map(|(_, body)| body.trim().to_owned());
    Ok((status, said.unwrap_or_default()))
}

pub(crate) fn judge(facts: &ReachFacts) -> Vec<Finding> {
    let endpoint = &facts.endpoint;
    let start = "start one with `tidegate controller`, or name it with --endpoint";
    let mut findings = match &facts.grpc {
        Ok(status) => judge_status(endpoint, status),
        Err(_) if facts.is_default => {
            vec![Finding::warning(AREA, format!("none answers at {endpoint}, where it is by default"), start)]
        }
        Err(error) => {
            let remedy = "check the address, the firewall between, and whether it runs there";
            vec![Finding::failed(AREA, error.clone(), remedy)]
        }
    };
    // Where no controller is, REST is not to be expected.
    if let (Some((address, told)), true) = (&facts.rest, facts.grpc.is_ok()) {
        findings.push(match told {
            Ok((200, _)) => Finding::ok(AREA, format!("ready, says REST at http://{address}/readyz")),
            Ok((status, said)) => Finding::failed(
                AREA,
                format!("not ready, says REST at http://{address}/readyz: {status} {said}"),
                "look at the log of the controller and at its disk",
            ),
            Err(error) => Finding::warning(
                AREA,
                format!("REST does not answer at http://{address}: {error}"),
                "name its address with --http, as the controller was given it",
            ),
        });
    }
    findings
}

fn judge_status(endpoint: &str, status: &v1::StatusReply) -> Vec<Finding> {
    let own = env!("CARGO_PKG_VERSION");
    let mut findings = vec![if status.version == own {
        Finding::ok(AREA, format!("{endpoint} answers, version {own}, epoch {}", status.epoch))
    } else {
        Finding::warning(
            AREA,
            format!("{endpoint} has version {}, this command {own}", status.version),
            "use the command of the controller's version",
        )
    }];
    if status.recovery_us > 0 {
        findings.push(Finding::warning(
            AREA,
            format!("recovering from an unclean stop for {} s more", status.recovery_us.div_ceil(1_000_000)),
            "wait; nodes use their fallback meanwhile",
        ));
    }
    let warn = |warning: &String| Finding::warning(AREA, warning.clone(), "`tidegate status` shows more");
    findings.extend(status.warnings.iter().map(warn));
    findings
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    fn facts() -> ReachFacts {
        let status =
            v1::StatusReply { version: env!("CARGO_PKG_VERSION").into(), ..v1::StatusReply::default() };
        ReachFacts {
            endpoint: "http://127.0.0.1:7420".into(),
            is_default: true,
            grpc: Ok(status),
            rest: Some(("127.0.0.1:7421".parse().unwrap(), Ok((200, String::new())))),
        }
    }

    fn verdicts(facts: &ReachFacts) -> Vec<Verdict> {
        judge(facts).iter().map(|finding| finding.verdict).collect()
    }

    #[test]
    fn a_controller_is_judged_by_what_it_says() {
        assert_eq!(verdicts(&facts()), [Verdict::Ok, Verdict::Ok]);
        let away = ReachFacts { grpc: Err("refused".into()), ..facts() };
        assert_eq!(verdicts(&away), [Verdict::Warning]);
        assert_eq!(verdicts(&ReachFacts { is_default: false, ..away }), [Verdict::Failed]);
        let mut old = facts();
        if let Ok(status) = &mut old.grpc {
            status.version = "0.0.1".into();
            status.recovery_us = 1;
            status.warnings = vec!["commits failed".into()];
        }
        assert_eq!(verdicts(&old), [Verdict::Warning, Verdict::Warning, Verdict::Warning, Verdict::Ok]);
        let address = "127.0.0.1:1".parse().unwrap();
        let silent = ReachFacts { rest: Some((address, Ok((503, "why".into())))), ..facts() };
        assert_eq!(verdicts(&silent), [Verdict::Ok, Verdict::Failed]);
        let closed = ReachFacts { rest: Some((address, Err("refused".into()))), ..facts() };
        assert_eq!(verdicts(&closed), [Verdict::Ok, Verdict::Warning]);
        assert_eq!(verdicts(&ReachFacts { rest: None, ..facts() }), [Verdict::Ok]);
    }

    #[test]
    fn what_listens_everywhere_is_reached_here() {
        assert_eq!(reachable("0.0.0.0:5".parse().unwrap()).to_string(), "127.0.0.1:5");
        assert_eq!(reachable("[::]:5".parse().unwrap()).to_string(), "[::1]:5");
        assert_eq!(reachable("10.0.0.1:5".parse().unwrap()).to_string(), "10.0.0.1:5");
    }
}
