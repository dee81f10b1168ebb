//! A stream of all rows of the store.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;

use tidegate_core::units::Span;
use tidegate_proto::v1;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, Sender};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::grants::Answers;
use super::{Stopping, admin_status};
use crate::clock::duration;
use crate::definitions::audit::Actor;
use crate::limits::DRAIN_WITHIN;
use crate::service::Service;
use crate::store::Row;

/// Parts that wait for the transport, a quarter of a megabyte each. One backup runs at a time.
const QUEUE: usize = 2;
/// Longest wait for a caller that does not read. Until its end a backup keeps the pages of its moment in the file; with
/// half of it a disk that syncs slowly would lose its backup.
const READ_WITHIN: Span = Span::secs(60);

/// Refuses callers on other machines: the rows contain the key that signs leases and standings.
pub(super) fn check_peer(peer: Option<SocketAddr>) -> Result<(), Status> {
    if peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback()) {
        return Ok(());
    }
    let from = peer.map_or_else(|| "an unknown address".to_owned(), |peer| peer.ip().to_string());
    Err(Status::permission_denied(format!(
        "a backup holds the key that signs leases, and {from} is not the controller's machine; run `tidegate store \
         backup` there, against its loopback address"
    )))
}

/// The stream of parts, the last of which is marked.
pub(super) fn stream(stopping: Stopping, service: Arc<Service>, actor: Actor) -> Answers<v1::BackupPart> {
    let (answers, stream) = mpsc::channel(QUEUE);
    let here = Handle::current();
    tokio::task::spawn_blocking(move || serve(&here, stopping, service, &actor, &answers));
    Box::pin(ReceiverStream::new(stream))
}

/// Runs a stream to its end. It releases the service before `stopping`, for which the shutdown waits.
fn serve(
    here: &Handle,
    mut stopping: Stopping,
    service: Arc<Service>,
    actor: &Actor,
    answers: &Sender<Result<v1::BackupPart, Status>>,
) {
    let (mut broken, mut over) = (false, None);
    let mut send = |part: Result<v1::BackupPart, Status>| {
        let sent = here.block_on(async {
            tokio::select! {
                ended = stopping.requested() => {
                    over = ended;
                    false
                }
                sent = timeout(duration(READ_WITHIN), answers.send(part)) => matches!(sent, Ok(Ok(()))),
            }
        });
        broken |= !sent;
        if sent { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let done = service.backup(actor, |rows| {
        let rows = rows.into_iter().map(row).collect();
        send(Ok(v1::BackupPart { rows, ..v1::BackupPart::default() }))
    });
    let end = done.map(|rows_in_all| v1::BackupPart { rows: Vec::new(), last: true, rows_in_all });
    drop(service);
    // A backup that was broken off has no last part, and says why if that is not the end of the controller.
    let (end, within) = match (broken, over) {
        (false, _) => (end.map_err(admin_status), READ_WITHIN),
        (true, Some(status)) => (Err(status), DRAIN_WITHIN),
        (true, None) => return,
    };
    let _ = here.block_on(timeout(duration(within), answers.send(end)));
}

fn row((table, key, value): Row) -> v1::StoreRow {
    v1::StoreRow { table: table.name().to_owned(), key, value }
}

#[cfg(test)]
mod tests {
    use tidegate_proto::v1::admin_server::Admin as _;
    use tokio::sync::watch as flag;
    use tonic::Request;
    use tonic::transport::server::TcpConnectInfo;

    use super::super::admin::AdminAdapter;
    use super::*;
    use crate::clock::Clock;
    use crate::identity::{Identity, Kind, Role};
    use crate::service::ServiceConfig;
    use crate::store::RedbStore;

    #[test]
    fn only_the_controllers_own_machine_gets_the_key() {
        for own in ["127.0.0.1:9", "127.4.5.6:9", "[::1]:9", "[::ffff:127.0.0.1]:9"] {
            assert!(check_peer(own.parse().ok()).is_ok(), "{own}");
        }
        for other in ["10.0.0.1:9", "[::ffff:10.0.0.1]:9", "[2001:db8::1]:9", "nowhere"] {
            let refused = check_peer(other.parse().ok()).unwrap_err();
            assert_eq!(refused.code(), tonic::Code::PermissionDenied, "{other}");
        }
    }

    /// The key lets its owner speak for the controller, which no role does.
    #[tokio::test]
    async fn a_caller_on_another_machine_gets_no_backup_in_any_role() {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(RedbStore::open(&folder.path().join("store")).unwrap());
        let service = Arc::new(Service::load(store, ServiceConfig::default(), Clock::start()).unwrap());
        let stopping = Stopping::new(flag::channel(false).1);
        let adapter = AdminAdapter { service, stopping };
        let admin = Identity {
            kind: Kind::Certificate,
            name: "ann".to_owned(),
            role: Role::Admin,
            scope: None,
            tenant: None,
        };
        for (peer, is_given) in [("127.0.0.1:9", true), ("10.0.0.1:9", false)] {
            for identity in [None, Some(Arc::new(admin.clone()))] {
                let mut request = Request::new(v1::BackupRequest {});
                let remote_addr = peer.parse().ok();
                request.extensions_mut().insert(TcpConnectInfo { local_addr: None, remote_addr });
                identity.map(|identity| request.extensions_mut().insert(identity));
                let answer = adapter.backup(request).await;
                assert_eq!(answer.is_ok(), is_given, "{peer}");
            }
        }
    }
}
