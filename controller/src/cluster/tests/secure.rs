//! A controller that stands by has the certificate of one that leads, and takes up a renewed one.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate_consensus::model::Model;
use tidegate_core::units::Span;
use tidegate_proto::v1;
use tidegate_proto::v1::admin_client::AdminClient;
use tidegate_test_servers::Certificates;
use tidegate_tls::{ClientFiles, Clients, Dial, ServerFiles, root_cause};
use tonic::transport::Endpoint;

use super::drain::{LOOK, begun, config, leads};
use crate::Config;
use crate::cluster::Member;

/// Time for one connection. A busy machine is given another one.
const WITHIN: Duration = Duration::from_secs(10);

async fn member(model: &Arc<Model>, folder: &Path, name: &str, files: ServerFiles) -> Member {
    let config = Config { fence: Some(Span::secs(5)), tls: Some(files), ..config(folder, name) };
    begun(model, config, name, false).await
}

/// A new connection to a controller, by the authority of these certificates.
async fn dialled(
    member: &Member,
    trusted: &Certificates,
) -> Result<AdminClient<tonic::transport::Channel>, String> {
    let files = ClientFiles { authorities: Some(trusted.authority()), identity: None };
    let endpoint = Endpoint::from_shared(format!("https://{}", member.grpc_addr)).unwrap();
    let channel = endpoint.connect_with_connector(Dial::new(files, WITHIN)).await;
    channel.map(AdminClient::new).map_err(|error| root_cause(&error))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_has_a_certificate_and_takes_up_a_renewed_one() {
    let (model, folder) = (Arc::new(Model::new()), tempfile::tempdir().unwrap());
    let [first, renewed] = [(); 2].map(|()| Certificates::new("IP:127.0.0.1").unwrap());
    let [certificate, key] = ["server.pem", "server.key"].map(|name| folder.path().join(name));
    let issue = |of: &Certificates| {
        // One file after the other, as tools that renew certificates do.
        for (from, to) in [(of.key(), &key), (of.certificate(), &certificate)] {
            std::fs::copy(from, to).unwrap();
        }
    };
    issue(&first);
    let files = || {
        let (certificate, key) = (certificate.clone(), key.clone());
        ServerFiles { certificate, key, clients: Clients::Anonymous, revoked: None }
    };
    let a = member(&model, folder.path(), "a", files()).await;
    leads(&dialled(&a, &first).await.unwrap()).await;
    let b = member(&model, folder.path(), "b", files()).await;
    let said = dialled(&b, &first).await.unwrap().status(v1::StatusRequest {}).await.unwrap_err();
    assert!(said.message().contains("is a standby of a at https://"), "{said}");
    let plain = AdminClient::connect(format!("http://{}", b.grpc_addr)).await;
    let refused = match plain {
        Ok(mut plain) => plain.status(v1::StatusRequest {}).await.unwrap_err().to_string(),
        Err(error) => error.to_string(),
    };
    assert!(!refused.contains("standby"), "nothing is said without TLS: {refused}");
    issue(&renewed);
    while dialled(&b, &renewed).await.is_err() {
        tokio::time::sleep(LOOK).await;
    }
    assert!(dialled(&b, &first).await.is_err());
    b.shutdown().await.unwrap();
    a.shutdown().await.unwrap();
}
