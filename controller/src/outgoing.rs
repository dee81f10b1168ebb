//! One request of the controller to a server of others: over HTTP/1.1, by a connection of its own, under TLS where the
//! address says so, without following redirects. The caller bounds the time, and reads of the answer what it wants.

use std::future::poll_fn;
use std::time::Duration;

use axum::body::Bytes;
use http::request::Builder;
use http::{Response, Uri, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use tidegate_tls::{ClientFiles, Dial, root_cause};
use tokio::task::JoinSet;
use tower::Service as _;

/// An answer, and its connection, which ends with it.
pub(crate) struct Answer {
    pub(crate) response: Response<Incoming>,
    pub(crate) connection: JoinSet<()>,
}

/// Sends a request to an address. `table` is where its settings are, for what errors advise; connecting may take
/// `within`.
///
/// # Errors
/// Why there is no answer. No more of the address is in it than its host.
pub(crate) async fn send(
    uri: &Uri,
    files: ClientFiles,
    (table, within): (&str, Duration),
    request: Builder,
    body: Bytes,
) -> Result<Answer, String> {
    let mut dial = Dial::new(files, within).speaking_http1();
    let ready = poll_fn(|context| dial.poll_ready(context)).await;
    ready.map_err(|error| error.to_string())?;
    let stream = dial.call(uri.clone()).await.map_err(|error| {
        // The flag is the commands'; what the controller asks has a setting.
        root_cause(&error).replace("(--ca)", &format!("(ca in [[{table}]])"))
    })?;
    let said = |error: hyper::Error| root_cause(&error);
    let (mut sender, speaking) = http1::handshake(stream).await.map_err(said)?;
    let mut connection = JoinSet::new();
    // What goes wrong is said by the request.
    connection.spawn(async { drop(speaking.await) });
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let host = uri.authority().map(ToString::to_string).unwrap_or_default();
    let request = request
        .uri(path)
        .header(header::HOST, host)
        .header(header::USER_AGENT, concat!("tidegate/", env!("CARGO_PKG_VERSION")))
        .body(Full::new(body))
        .map_err(|error| error.to_string())?;
    let response = sender.send_request(request).await.map_err(said)?;
    Ok(Answer { response, connection })
}

/// Whether an address is on this machine.
pub(crate) fn is_here(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost"
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}
