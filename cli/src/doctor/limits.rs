//! What the system lets a process have.

use rustix::process::{Resource, getrlimit};

use super::Finding;

const AREA: &str = "limits";
/// Open files below which a controller or gateway is short of them with some hundred peers.
const FILES: u64 = 4_096;
/// Connections that may wait to be accepted; below, a burst is lost.
const BACKLOG: u64 = 1_024;

/// What is known about limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitFacts {
    /// Open files of this process, now and at most; `None` is no limit.
    pub(crate) files: (Option<u64>, Option<u64>),
    /// `net.core.somaxconn`; `None` where the kernel does not say.
    pub(crate) backlog: Option<u64>,
}

pub(crate) fn gather() -> LimitFacts {
    let files = getrlimit(Resource::Nofile);
    let backlog = std::fs::read_to_string("/proc/sys/net/core/somaxconn").ok();
    LimitFacts {
        files: (files.current, files.maximum),
        backlog: backlog.and_then(|text| text.trim().parse().ok()),
    }
}

pub(crate) fn judge(facts: &LimitFacts) -> Vec<Finding> {
    let mut findings = vec![match facts.files {
        (Some(now), most) if now < FILES => {
            let within = most.is_none_or(|most| most >= FILES);
            let remedy = if within {
                "ulimit -n 65536 before the start, or LimitNOFILE=65536 in the unit"
            } else {
                "LimitNOFILE=65536 in the unit, or nofile in /etc/security/limits.conf: the hard limit is as low"
            };
            let found = format!("{now} open files: each node, connection and stream takes one or two");
            Finding::warning(AREA, found, remedy)
        }
        (Some(now), _) => Finding::ok(AREA, format!("{now} open files")),
        (None, _) => Finding::ok(AREA, "open files without a limit"),
    }];
    findings.extend(facts.backlog.map(|backlog| {
        if backlog < BACKLOG {
            Finding::warning(
                AREA,
                format!("{backlog} connections may wait to be accepted: a burst of more is lost"),
                "sysctl -w net.core.somaxconn=4096",
            )
        } else {
            Finding::ok(AREA, format!("{backlog} connections may wait to be accepted"))
        }
    }));
    findings
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn low_limits_are_named() {
        let verdicts = |files, backlog| -> Vec<Verdict> {
            judge(&LimitFacts { files, backlog }).iter().map(|finding| finding.verdict).collect()
        };
        assert_eq!(verdicts((Some(65_536), None), Some(4_096)), [Verdict::Ok, Verdict::Ok]);
        assert_eq!(verdicts((Some(1_024), Some(1_024)), Some(128)), [Verdict::Warning, Verdict::Warning]);
        assert_eq!(verdicts((None, None), None), [Verdict::Ok]);
        let hard = judge(&LimitFacts { files: (Some(10), Some(10)), backlog: None });
        assert!(hard[0].remedy.contains("hard limit"));
    }
}
