//! The first packets of a connection, before the protocol has kinds of messages: requests for encryption, requests to
//! cancel a statement, and the startup packet with the login.

use std::io;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsAcceptor;

use super::cancel;
use super::frame::c_string;
use super::key::Key;
use crate::stream::Stream;
use crate::tls::ALPN;

/// Longest first packet that PostgreSQL takes.
const MAX_PACKET: usize = 10_000;
/// Protocol 3, any minor version.
const MAJOR: u32 = 3;
const SSL: u32 = 80_877_103;
const GSS: u32 = 80_877_104;
/// Requests for encryption in a row; two are usual.
const MAX_REQUESTS: usize = 4;
/// First byte of a connection that is under TLS from its beginning.
const TLS_HANDSHAKE: u8 = 22;

/// How a connection begins.
#[derive(Debug)]
pub(super) enum Opening {
    /// A login.
    Login(Startup),
    /// Somebody wants the statement of this server process cancelled.
    Cancel(Key),
    /// The client went away.
    Gone,
}

/// A startup packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Startup {
    /// As it came, to be sent on.
    pub(super) packet: Vec<u8>,
    pub(super) user: String,
    /// The user's name unless told.
    pub(super) database: String,
    /// What the client calls itself.
    pub(super) application: String,
}

/// What was asked for instead of a login.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Packet {
    Ssl,
    Gss,
    Cancel(Key),
    Startup(Startup),
}

/// Reads the first packets; `secure` puts the connection under TLS, if there is a certificate.
pub(super) async fn open(stream: Stream, secure: Option<&TlsAcceptor>) -> io::Result<(Stream, Opening)> {
    let mut stream = direct(stream, secure).await?;
    for _ in 0..MAX_REQUESTS {
        let Some(bytes) = packet(&mut stream).await? else {
            return Ok((stream, Opening::Gone));
        };
        match read(&bytes)? {
            Packet::Startup(startup) => return Ok((stream, Opening::Login(startup))),
            Packet::Cancel(key) => return Ok((stream, Opening::Cancel(key))),
            Packet::Ssl => {
                stream = match (stream, secure) {
                    (Stream::Tcp(mut tcp), Some(acceptor)) => {
                        tcp.write_all(b"S").await?;
                        Stream::TlsFromClient(Box::new(acceptor.accept(tcp).await?))
                    }
                    (mut other, _) => {
                        other.send(b"N").await?;
                        other
                    }
                }
            }
            Packet::Gss => stream.send(b"N").await?,
        }
    }
    Err(invalid("more requests for encryption than make sense"))
}

/// Puts the connection under TLS that begins with it, without a request. As at the server, such a client has to name
/// the protocol it means (ALPN), so that no other's client is led here.
async fn direct(stream: Stream, secure: Option<&TlsAcceptor>) -> io::Result<Stream> {
    let Stream::Tcp(tcp) = stream else { return Ok(stream) };
    let mut first = [0];
    if tcp.peek(&mut first).await? == 0 || first != [TLS_HANDSHAKE] {
        return Ok(Stream::Tcp(tcp));
    }
    let acceptor = secure.ok_or_else(|| invalid("it begins with TLS, and the gateway has no certificate"))?;
    let tls = acceptor.accept(tcp).await?;
    if tls.get_ref().1.alpn_protocol() != Some(ALPN) {
        return Err(invalid("it begins with TLS and does not name the protocol"));
    }
    Ok(Stream::TlsFromClient(Box::new(tls)))
}

/// One packet, its length included; `None` at the end of the stream.
async fn packet(stream: &mut Stream) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match stream.read_exact(&mut length).await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    };
    let total = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if !(8..=MAX_PACKET).contains(&total) {
        return Err(invalid("the first packet has a length that no PostgreSQL client sends"));
    }
    let mut bytes = length.to_vec();
    bytes.resize(total, 0);
    stream.read_exact(bytes.get_mut(4..).unwrap_or_default()).await?;
    Ok(Some(bytes))
}

/// Understands a packet, its length included.
pub(super) fn read(bytes: &[u8]) -> io::Result<Packet> {
    let code = bytes.get(4..).and_then(|rest| rest.first_chunk::<4>());
    match u32::from_be_bytes(*code.ok_or_else(|| invalid("the first packet is cut off"))?) {
        SSL => Ok(Packet::Ssl),
        GSS => Ok(Packet::Gss),
        cancel::CODE => {
            let key = bytes.get(8..).and_then(Key::read);
            key.map(Packet::Cancel)
                .ok_or_else(|| invalid("the key in the request to cancel is shorter or longer than any"))
        }
        version if version >> 16 == MAJOR => login(bytes).map(Packet::Startup),
        _ => Err(invalid("the protocol version is not 3")),
    }
}

fn login(packet: &[u8]) -> io::Result<Startup> {
    let mut rest = packet.get(8..).unwrap_or_default();
    let (mut user, mut database, mut application) = (None, None, String::new());
    while let Some((name, after)) = c_string(rest)
        && !name.is_empty()
    {
        let (value, after) = c_string(after).ok_or_else(|| invalid("a startup parameter has no value"))?;
        match name {
            b"user" => user = Some(String::from_utf8_lossy(value).into_owned()),
            b"database" => database = Some(String::from_utf8_lossy(value).into_owned()),
            b"application_name" => application = String::from_utf8_lossy(value).into_owned(),
            _ => {}
        }
        rest = after;
    }
    let user =
        user.filter(|user| !user.is_empty()).ok_or_else(|| invalid("the startup packet names no user"))?;
    let database = database.filter(|database| !database.is_empty()).unwrap_or_else(|| user.clone());
    Ok(Startup { packet: packet.to_vec(), user, database, application })
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(code: u32, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 8).unwrap();
        [&length.to_be_bytes()[..], &code.to_be_bytes(), body].concat()
    }

    #[test]
    fn a_login_names_user_and_database() {
        let bytes = framed(3 << 16, b"user\0ann\0database\0shop\0application_name\0x\0\0");
        let Packet::Startup(startup) = read(&bytes).unwrap() else { panic!() };
        assert_eq!(
            (startup.user.as_str(), startup.database.as_str(), startup.packet),
            ("ann", "shop", bytes)
        );
        assert_eq!(startup.application, "x");
        let Packet::Startup(startup) = read(&framed(3 << 16, b"user\0ann\0\0")).unwrap() else { panic!() };
        assert_eq!((startup.database.as_str(), startup.application.as_str()), ("ann", ""));
    }

    #[test]
    fn what_is_no_login_is_told_apart() {
        assert_eq!(read(&framed(SSL, b"")).unwrap(), Packet::Ssl);
        assert_eq!(read(&framed(GSS, b"")).unwrap(), Packet::Gss);
        for secret in [&[9; 4][..], &[9; 32], &[9; 256]] {
            let body = [&[0, 0, 0, 7], secret].concat();
            let request = framed(cancel::CODE, &body);
            let Packet::Cancel(key) = read(&request).unwrap() else { panic!() };
            assert_eq!((key.pid(), key.bytes(), cancel::packet(&key)), (7, &body[..], request));
            assert_eq!(format!("{key:?}"), "Key of process 7");
        }
        for bad in [
            framed(cancel::CODE, &[1]),
            framed(cancel::CODE, &[1; 7]),
            framed(cancel::CODE, &[1; 261]),
            framed(2 << 16, b""),
            framed(3 << 16, b"user\0"),
            framed(3 << 16, b"\0"),
        ] {
            assert!(read(&bad).is_err(), "{bad:?}");
        }
    }
}
