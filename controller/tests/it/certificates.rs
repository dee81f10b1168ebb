//! Certificates of one authority after another, and channels that show them.

use std::path::PathBuf;

use tempfile::TempDir;
use tidegate_controller::{Controller, Running};
use tidegate_tls::{
    Authority, Certificate, ClientFiles, Clients, Dial, Issued, Material, Name, Purpose, Request,
    ServerFiles, root_cause, write,
};
use tonic::transport::{Channel, Endpoint};

use super::support::{PATIENCE, config};

/// A folder of certificates, of one authority after another.
pub(crate) struct Site {
    pub(crate) folder: TempDir,
}

impl Site {
    pub(crate) fn new() -> Self {
        let site = Self { folder: tempfile::tempdir().unwrap() };
        site.authority("ca");
        site.issue("ca", "server", 9);
        site.issue("ca", "client", 9);
        site
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn put(&self, name: &str, made: &Issued) {
        write(&self.path(&format!("{name}-key.pem")), &made.key, true, true).unwrap();
        write(&self.path(&format!("{name}.pem")), &made.certificate, false, true).unwrap();
    }

    pub(crate) fn authority(&self, name: &str) {
        self.put(name, &Authority::create(None, 50).unwrap());
    }

    /// Adds certificates to the list of this authority.
    pub(crate) fn revoke(&self, authority: &str, names: &[&str]) {
        let key = self.path(&format!("{authority}-key.pem"));
        let authority = Authority::read(&self.path(&format!("{authority}.pem")), &key).unwrap();
        let read =
            |name: &&str| Material::read(&self.path(&format!("{name}.pem"))).unwrap().valid_now().unwrap();
        let revoked: Vec<Certificate> = names.iter().map(read).collect();
        let list = self.path("crl.pem");
        let (text, _) = authority.revoke(&list, &revoked).unwrap();
        write(&list, &text, false, true).unwrap();
    }

    /// A certificate of a server, or of an admin.
    pub(crate) fn issue(&self, authority: &str, name: &str, days: u32) {
        let role = if name == "server" { "controller" } else { "admin" };
        self.issue_for(authority, name, &[Name::Uri(format!("spiffe://tidegate/{role}/{name}"))], days);
    }

    /// A certificate of the authority `ca` with these names.
    pub(crate) fn certify(&self, name: &str, names: &[Name]) {
        self.issue_for("ca", name, names, 9);
    }

    fn issue_for(&self, authority: &str, name: &str, names: &[Name], days: u32) {
        let key = self.path(&format!("{authority}-key.pem"));
        let authority = Authority::read(&self.path(&format!("{authority}.pem")), &key).unwrap();
        let names = [&[Name::Dns("localhost".to_owned())], names].concat();
        let purpose = Purpose { server: name == "server", client: name != "server" };
        let request = Request { subject: name.to_owned(), names, purpose, days };
        self.put(name, &authority.issue(&request).unwrap());
    }

    pub(crate) fn files(&self, clients: Clients) -> ServerFiles {
        let (certificate, key) = (self.path("server.pem"), self.path("server-key.pem"));
        ServerFiles { certificate, key, clients, revoked: None }
    }

    pub(crate) fn trust(&self, authority: &str, shows: bool) -> ClientFiles {
        ClientFiles {
            authorities: Some(self.path(&format!("{authority}.pem"))),
            ..self.shown(if shows { Some("client") } else { None })
        }
    }

    /// What a client with the certificate of this name trusts and shows.
    pub(crate) fn shown(&self, name: Option<&str>) -> ClientFiles {
        let identity =
            name.map(|name| (self.path(&format!("{name}.pem")), self.path(&format!("{name}-key.pem"))));
        ClientFiles { authorities: Some(self.path("ca.pem")), identity }
    }

    pub(crate) async fn start(&self, clients: Clients) -> Running {
        let mut config = config(&self.folder);
        config.tls = Some(self.files(clients));
        Controller::start(config).await.unwrap()
    }
}

/// A channel to the gRPC listener.
pub(crate) async fn channel(running: &Running, files: ClientFiles) -> Result<Channel, String> {
    channel_to(running.grpc_addr.port(), files).await
}

/// A channel to a listener on this port.
pub(crate) async fn channel_to(port: u16, files: ClientFiles) -> Result<Channel, String> {
    let endpoint = Endpoint::from_shared(format!("https://localhost:{port}")).unwrap();
    let connected = endpoint.connect_with_connector(Dial::new(files, PATIENCE)).await;
    connected.map_err(|error| root_cause(&error))
}
