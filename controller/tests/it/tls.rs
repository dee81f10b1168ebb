//! TLS of a whole controller: renewal under open streams, certificates of clients, files that break.

use std::fs;
use std::time::Duration;

use tidegate_controller::{Controller, Running, StartError};
use tidegate_proto::v1;
use tidegate_proto::v1::admin_client::AdminClient;
use tidegate_proto::v1::grants_client::GrantsClient;
use tidegate_tls::{ClientFiles, Clients, ServerFiles, root_cause, write};
use tokio::time::{interval, timeout};

use super::certificates::{Site, channel};
use super::support::{PATIENCE, config};

/// A renewed file has to be in force after so long.
const IN_FORCE_WITHIN: Duration = Duration::from_secs(10);
/// Between two looks at it.
const AGAIN: Duration = Duration::from_millis(100);

async fn status(running: &Running, files: ClientFiles) -> Result<v1::StatusReply, String> {
    let mut admin = AdminClient::new(channel(running, files).await?);
    let reply = admin.status(v1::StatusRequest {}).await;
    reply.map(tonic::Response::into_inner).map_err(|status| root_cause(&status))
}

fn metric(running: &Running, line: &str) -> bool {
    running.service().metrics_page().unwrap().contains(line)
}

#[tokio::test]
async fn renewed_files_are_in_force_for_new_connections_and_open_streams_go_on() {
    let site = Site::new();
    let running = site.start(Clients::Anonymous).await;
    let open = channel(&running, site.trust("ca", false)).await.unwrap();
    let request = v1::WatchRequest { have_revision: 0, have_instance: 0 };
    let mut events = GrantsClient::new(open.clone()).watch(request).await.unwrap().into_inner();
    assert!(events.message().await.unwrap().is_some());

    site.authority("next");
    site.issue("next", "server", 9);
    let renewed = async {
        let mut again = interval(AGAIN);
        while status(&running, site.trust("next", false)).await.is_err() {
            again.tick().await;
        }
    };
    timeout(IN_FORCE_WITHIN, renewed).await.unwrap();
    let old = status(&running, site.trust("ca", false)).await.unwrap_err();
    assert!(old.contains("no authority that this side trusts"), "{old}");
    assert!(metric(&running, "tidegate_tls_reloads_total{outcome=\"renewed\"} 1"));

    // On the connection from before, a change and its event.
    let binding = v1::Binding { user: "u".to_owned(), group: "default".to_owned(), ..v1::Binding::default() };
    let bind = v1::BindRequest { binding: Some(binding) };
    AdminClient::new(open).bind(bind).await.unwrap();
    assert!(timeout(PATIENCE, events.message()).await.unwrap().unwrap().is_some());

    // A broken file leaves the last good one in force.
    fs::write(site.path("server.pem"), "-----BEGIN CERTIFICATE-----\nAAAA\n").unwrap();
    let broken = async {
        let mut again = interval(AGAIN);
        while !metric(&running, "tidegate_tls_reloads_total{outcome=\"broken\"} 1") {
            again.tick().await;
        }
    };
    timeout(IN_FORCE_WITHIN, broken).await.unwrap();
    let reply = status(&running, site.trust("next", false)).await.unwrap();
    let warned = |warning: &String| warning.contains("CN=server") && warning.contains("expires in 8 days");
    assert!(reply.warnings.iter().any(warned), "{:?}", reply.warnings);
    assert!(metric(&running, "tidegate_tls_certificate_expiry_timestamp_seconds{certificate=\"server\"} 1"));
    drop(events);
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_certificate_of_clients_is_required_or_optional_and_of_the_right_authority() {
    let site = Site::new();
    site.authority("other");
    let running = site.start(Clients::Required(site.path("ca.pem"))).await;
    assert!(status(&running, site.trust("ca", true)).await.is_ok());
    assert!(status(&running, site.trust("ca", false)).await.is_err());
    site.issue("other", "client", 9);
    assert!(status(&running, site.trust("ca", true)).await.is_err());
    assert!(metric(&running, "tidegate_turned_away_total{surface=\"grpc\",reason=\"handshake\"} 2"));
    // The authority of clients is renewed as the rest is.
    let both = fs::read_to_string(site.path("ca.pem")).unwrap()
        + &fs::read_to_string(site.path("other.pem")).unwrap();
    let server_trust = site.path("ca.pem");
    fs::copy(&server_trust, site.path("own.pem")).unwrap();
    write(&server_trust, &both, false, true).unwrap();
    let taken = async {
        let mut again = interval(AGAIN);
        while status(&running, site.trust("own", true)).await.is_err() {
            again.tick().await;
        }
    };
    timeout(IN_FORCE_WITHIN, taken).await.unwrap();
    running.shutdown().await.unwrap();

    let site = Site::new();
    let running = site.start(Clients::Optional(site.path("ca.pem"))).await;
    assert!(status(&running, site.trust("ca", true)).await.is_ok());
    let refused = status(&running, site.trust("ca", false)).await.unwrap_err();
    assert!(refused.contains("the caller showed no certificate"), "{refused}");
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_revoked_certificate_opens_nothing_and_its_streams_end_while_others_go_on() {
    let site = Site::new();
    site.issue("ca", "thief", 9);
    site.revoke("ca", &[]);
    let mut config = config(&site.folder);
    let clients = Clients::Required(site.path("ca.pem"));
    config.tls = Some(ServerFiles { revoked: Some(site.path("crl.pem")), ..site.files(clients) });
    let running = Controller::start(config).await.unwrap();
    let watch = async |name| {
        let channel = channel(&running, site.shown(Some(name))).await.unwrap();
        let request = v1::WatchRequest { have_revision: 0, have_instance: 0 };
        let mut events = GrantsClient::new(channel.clone()).watch(request).await.unwrap().into_inner();
        assert!(events.message().await.unwrap().is_some());
        (channel, events)
    };
    let (honest, mut heard) = watch("client").await;
    let (_, mut stolen) = watch("thief").await;
    site.revoke("ca", &["thief"]);
    let end = timeout(IN_FORCE_WITHIN, async { while let Ok(Some(_)) = stolen.message().await {} });
    end.await.expect("the stream of the revoked one ends");
    assert!(metric(&running, "tidegate_turned_away_total{surface=\"grpc\",reason=\"revoked\"} 1"));
    let said = status(&running, site.shown(Some("thief"))).await.unwrap_err();
    assert!(said.contains("revoked; issue another"), "{said}");
    // Others notice nothing, and a new certificate of the same name is as good as any.
    let binding = v1::Binding { user: "u".to_owned(), group: "default".to_owned(), ..v1::Binding::default() };
    AdminClient::new(honest).bind(v1::BindRequest { binding: Some(binding) }).await.unwrap();
    assert!(timeout(PATIENCE, heard.message()).await.unwrap().unwrap().is_some());
    site.issue("ca", "thief", 9);
    assert!(status(&running, site.shown(Some("thief"))).await.is_ok());
    // A list that is cut off leaves the last good one in force.
    fs::write(site.path("crl.pem"), "-----BEGIN X509 CRL-----\nAAAA\n").unwrap();
    let broken = async {
        let mut again = interval(AGAIN);
        while !metric(&running, "tidegate_tls_reloads_total{outcome=\"broken\"} 1") {
            again.tick().await;
        }
    };
    timeout(IN_FORCE_WITHIN, broken).await.unwrap();
    assert!(status(&running, site.shown(Some("client"))).await.is_ok());
    drop(heard);
    running.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_controller_does_not_start_with_files_that_cannot_be_used() {
    let site = Site::new();
    fs::remove_file(site.path("server-key.pem")).unwrap();
    let mut config = config(&site.folder);
    config.tls = Some(site.files(Clients::Anonymous));
    let error = Controller::start(config).await.err().unwrap();
    assert!(matches!(error, StartError::Tls(_)) && error.to_string().contains("server-key.pem"), "{error}");
}
