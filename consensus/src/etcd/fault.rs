//! What a failed call means: whether it may have happened, and whether another member may know better.

use tonic::{Code, Status};

/// Why a call to a member failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It may have happened, or may yet happen. The next call goes to another member.
    Unknown(String),
    /// It was refused, and did nothing.
    Refused(String),
    /// There is no space for it.
    Full(String),
    /// Its revision is gone.
    Compacted,
}

impl Fault {
    /// What the status of a call means; `reason` is the best text that there is for it.
    ///
    /// etcd names few of its errors by codes of their own, so its texts decide where a code has several meanings. What is
    /// in doubt counts as unknown: that makes callers look again, and never believe what is not so.
    pub(super) fn of(status: &Status, reason: String) -> Self {
        let says = |text| status.message().contains(text);
        match status.code() {
            Code::ResourceExhausted if says("database space exceeded") => Self::Full(reason),
            // Proposals wait in line; a moment later it takes them.
            Code::ResourceExhausted if says("too many requests") => Self::Unknown(reason),
            // From 3.6 on: a member that has no vote yet, or that a cluster of its version is not there for. Others
            // answer.
            Code::FailedPrecondition if says("not supported for learner") || says("not capable") => {
                Self::Unknown(reason)
            }
            Code::OutOfRange if says("has been compacted") => Self::Compacted,
            Code::OutOfRange if says("is a future revision") => Self::Refused(reason),
            Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::ResourceExhausted
            | Code::FailedPrecondition
            | Code::Unimplemented
            | Code::DataLoss
            | Code::Unauthenticated => Self::Refused(reason),
            // Also an answer that this side does not read because it is too long: what was asked for was done.
            _ => Self::Unknown(reason),
        }
    }
}

/// Whether a call was refused because of a token that is too old, or unknown to this member.
pub(super) fn is_stale(status: &Status) -> bool {
    status.code() == Code::Unauthenticated || status.message().contains("revision of auth store is old")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_etcd_mean_what_its_members_do_with_a_call() {
        let unknown = [
            (Code::Unavailable, "etcdserver: leader changed"),
            (Code::Unavailable, "etcdserver: request timed out"),
            (Code::Unavailable, "etcdserver: no leader"),
            (Code::Unavailable, "transport error"),
            (Code::Unknown, "context deadline exceeded"),
            (Code::Cancelled, "operation was canceled"),
            (Code::DeadlineExceeded, "context deadline exceeded"),
            (Code::Internal, "h2 protocol error"),
            (Code::ResourceExhausted, "etcdserver: too many requests"),
            (Code::Unavailable, "etcdserver: rpc not supported for learner"),
            (Code::FailedPrecondition, "etcdserver: rpc not supported for learner"),
            (Code::FailedPrecondition, "etcdserver: not capable"),
            (
                Code::OutOfRange,
                "Error, decoded message length too large: found 9 bytes, the limit is: 8 bytes",
            ),
        ];
        for (code, text) in unknown {
            let fault = Fault::of(&Status::new(code, text), "r".to_owned());
            assert_eq!(fault, Fault::Unknown("r".to_owned()), "{text}");
        }
        let refused = [
            (Code::InvalidArgument, "etcdserver: request is too large"),
            (Code::InvalidArgument, "etcdserver: duplicate key given in txn request"),
            (Code::PermissionDenied, "etcdserver: permission denied"),
            (Code::Unauthenticated, "etcdserver: invalid auth token"),
            (Code::FailedPrecondition, "etcdserver: authentication is not enabled"),
            (Code::ResourceExhausted, "grpc: received message larger than max (3 vs. 2)"),
            (Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision"),
        ];
        for (code, text) in refused {
            let fault = Fault::of(&Status::new(code, text), "r".to_owned());
            assert_eq!(fault, Fault::Refused("r".to_owned()), "{text}");
        }
        let of = |code, text| Fault::of(&Status::new(code, text), "r".to_owned());
        let full = of(Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded");
        assert_eq!(full, Fault::Full("r".to_owned()));
        let gone = of(Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted");
        assert_eq!(gone, Fault::Compacted);
    }

    #[test]
    fn tokens_that_a_member_does_not_take_are_asked_for_again() {
        assert!(is_stale(&Status::unauthenticated("etcdserver: invalid auth token")));
        assert!(is_stale(&Status::invalid_argument("etcdserver: revision of auth store is old")));
        assert!(!is_stale(&Status::permission_denied("etcdserver: permission denied")));
    }
}
