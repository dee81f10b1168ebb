//! As much of a browser as measuring takes: a page with what it names, and a live part that is read and thrown away.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::error::{BenchError, failed};

/// Time for an answer, and between two live parts: they come once a second.
const WITHIN: Duration = Duration::from_secs(20);

/// The answer to one request over a connection of its own, without its head.
pub(super) fn get(server: SocketAddr, path: &str) -> Result<Vec<u8>, BenchError> {
    let mut stream = ask(server, path)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).map_err(failed(format!("read {path}")))?;
    let head = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").map_or(answer.len(), |end| end + 4);
    Ok(answer.split_off(head))
}

/// Sends a request and reads as far as tells that it is served.
fn ask(server: SocketAddr, path: &str) -> Result<TcpStream, BenchError> {
    let doing = || failed(format!("ask for {path}"));
    let mut stream = TcpStream::connect(server).map_err(doing())?;
    stream.set_read_timeout(Some(WITHIN)).map_err(doing())?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {server}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(doing())?;
    let mut status = [0_u8; 12];
    stream.read_exact(&mut status).map_err(doing())?;
    if &status != b"HTTP/1.1 200" {
        let status = String::from_utf8_lossy(&status).into_owned();
        return Err(BenchError::Wrong(format!("{path} is answered with {status}")));
    }
    Ok(stream)
}

/// Addresses of styles, scripts and the icon that a page names.
pub(super) fn named(page: &[u8]) -> Vec<String> {
    let page = String::from_utf8_lossy(page);
    let rest = |part: &str| part.split('"').next().map(str::to_owned);
    page.split("=\"").filter(|part| part.starts_with("/console/assets/")).filter_map(rest).collect()
}

/// Viewers, each with a live page open until they go.
pub(super) struct Viewers(Vec<(TcpStream, JoinHandle<u64>)>);

impl Viewers {
    /// Opens that many live parts of a view.
    pub(super) fn come(server: SocketAddr, view: &str, count: usize) -> Result<Self, BenchError> {
        let mut viewers = Vec::new();
        for _ in 0..count {
            let mut stream = ask(server, &format!("/console/live?view={view}"))?;
            let shown = stream.try_clone().map_err(failed("open a live page"))?;
            let reads = thread::spawn(move || {
                let (mut part, mut bytes) = ([0; 65_536], 0);
                while let Ok(read @ 1..) = stream.read(&mut part) {
                    bytes += read as u64;
                }
                bytes
            });
            viewers.push((shown, reads));
        }
        Ok(Self(viewers))
    }

    /// Ends them all; an error when one was shown nothing.
    pub(super) fn go(self) -> Result<(), BenchError> {
        for (shown, reads) in self.0 {
            shown.shutdown(Shutdown::Both).map_err(failed("close a live page"))?;
            let bytes = reads.join().unwrap_or(0);
            if bytes == 0 {
                return Err(BenchError::Wrong("a live page showed nothing".to_owned()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_page_names_is_found() {
        let page = br#"<link href="/console/assets/a.css"><a href="/console/groups"><script src="/console/assets/b.js">"#;
        assert_eq!(named(page), ["/console/assets/a.css", "/console/assets/b.js"]);
    }
}
