//! One request of a server to another: over HTTP/1.1, by a connection of its own, under TLS where the address says so,
//! without following redirects. The caller bounds the time, and reads of the answer what it wants.

use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use http::request::Builder;
use http::{Response, Uri, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use tokio::task::JoinSet;
use tower::Service as _;

use crate::client::ClientFiles;
use crate::dial::Dial;
use crate::explain::root_cause;

/// An answer, and its connection, which ends with it.
#[derive(Debug)]
pub struct Answer {
    /// The answer; its body is still to be read.
    pub response: Response<Incoming>,
    /// The task that speaks.
    pub connection: JoinSet<()>,
}

/// Sends a request to an address. `setting` names the authorities in what errors advise; connecting may take `within`.
///
/// # Errors
/// Why there is no answer. No more of the address is in it than its host.
pub async fn send(
    uri: &Uri,
    files: ClientFiles,
    (setting, within): (&str, Duration),
    request: Builder,
    body: Bytes,
) -> Result<Answer, String> {
    let mut dial = Dial::new(files, within).speaking_http1();
    let ready = poll_fn(|context| dial.poll_ready(context)).await;
    ready.map_err(|error| error.to_string())?;
    let stream = dial.call(uri.clone()).await.map_err(|error| {
        // The flag is the commands'; what a server asks has a setting.
        root_cause(&error).replace("(--ca)", &format!("({setting})"))
    })?;
    let said = |error: hyper::Error| root_cause(&error);
    let (mut sender, speaking) = http1::handshake(stream).await.map_err(said)?;
    let mut connection = JoinSet::new();
    // What goes wrong is said by the request.
    connection.spawn(async { drop(speaking.await) });
    // As text it begins with a slash, also where the address has a query alone.
    let path = uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string);
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
pub fn is_here(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost"
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}
