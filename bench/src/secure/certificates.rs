//! Certificates of a controller and of a node, in a folder that goes with them.

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tidegate_tls::{
    Authority, ClientFiles, Clients, Dial, Issued, Name, Purpose, Request, ServerFiles, write,
};
use tonic::transport::{Channel, Endpoint};

use super::WITHIN;
use crate::error::{BenchError, failed};
use crate::stream::node::Nodes;

/// The node's name, below which all streams have a client id.
const NODE: &str = "bench";

/// The folder.
pub(crate) struct Certificates {
    folder: TempDir,
}

impl Certificates {
    pub(crate) fn create() -> Result<Self, BenchError> {
        let folder = tempfile::tempdir().map_err(failed("make a directory"))?;
        let made = Self { folder };
        made.put("ca", &Authority::create(None, 9).map_err(failed("make an authority"))?)?;
        made.issue("controller", true, "controller")?;
        made.issue(NODE, false, "node")?;
        Ok(made)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn put(&self, name: &str, made: &Issued) -> Result<(), BenchError> {
        let put = |suffix: &str, text: &str, is_key| {
            write(&self.path(&format!("{name}{suffix}")), text, is_key, false)
        };
        put("-key.pem", &made.key, true).map_err(failed("write a key"))?;
        put(".pem", &made.certificate, false).map_err(failed("write a certificate"))
    }

    fn issue(&self, name: &str, server: bool, role: &str) -> Result<(), BenchError> {
        let authority = Authority::read(&self.path("ca.pem"), &self.path("ca-key.pem"));
        let request = Request {
            subject: name.to_owned(),
            names: vec![
                Name::Dns("localhost".to_owned()),
                Name::Uri(format!("spiffe://tidegate/{role}/{name}")),
            ],
            purpose: Purpose { server, client: !server },
            days: 9,
        };
        let made = authority.map_err(failed("read an authority"))?.issue(&request);
        self.put(name, &made.map_err(failed("issue a certificate"))?)
    }

    /// Files of the controller, which demands certificates.
    pub(crate) fn server(&self) -> ServerFiles {
        server(self.folder())
    }

    /// Files of the node.
    pub(crate) fn client(&self) -> ClientFiles {
        let own = (self.path(&format!("{NODE}.pem")), self.path(&format!("{NODE}-key.pem")));
        ClientFiles { authorities: Some(self.path("ca.pem")), identity: Some(own) }
    }

    /// Streams to the controller on this port.
    pub(crate) async fn connect(
        &self,
        port: u16,
        streams: usize,
        groups: usize,
    ) -> Result<Nodes, BenchError> {
        Nodes::connect_by(async || self.channel(port).await, &format!("{NODE}."), streams, groups).await
    }

    async fn channel(&self, port: u16) -> Result<Channel, BenchError> {
        let endpoint = Endpoint::from_shared(format!("https://localhost:{port}"));
        let endpoint = endpoint.map_err(failed("name a server"))?;
        endpoint
            .connect_with_connector(Dial::new(self.client(), WITHIN))
            .await
            .map_err(|error| BenchError::Wrong(tidegate_tls::root_cause(&error)))
    }
}

/// Files of the controller in this folder.
pub(crate) fn server(folder: &Path) -> ServerFiles {
    ServerFiles {
        certificate: folder.join("controller.pem"),
        key: folder.join("controller-key.pem"),
        clients: Clients::Required(folder.join("ca.pem")),
        revoked: None,
    }
}
