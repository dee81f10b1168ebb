//! The first packets of a connection, before the protocol has kinds of messages: requests for encryption, requests to
//! cancel a statement, and the startup packet with the login.

use std::io;
use std::task::Poll;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadBuf};

use super::cancel;
use super::frame::{c_string, looked_up};
use super::key::Key;
use crate::stream::Stream;
use crate::tls::{self, ALPN, Acceptor};

/// Longest first packet that PostgreSQL takes: so many bytes behind the length.
const MAX_PACKET: usize = 10_000 + 4;
/// Protocol 3, any minor version.
const MAJOR: u32 = 3;
const SSL: u32 = 80_877_103;
const GSS: u32 = 80_877_104;
/// First byte of a connection that is under TLS from its beginning.
const TLS_HANDSHAKE: u8 = 22;

/// How a connection begins.
#[derive(Debug)]
pub(super) enum Opening {
    /// A login.
    Login(Startup),
    /// Somebody wants the statement of this server process cancelled.
    Cancel(Key),
    /// The client is not let in, and gets the reason.
    Refused(Refused),
    /// The client went away.
    Gone,
}

/// Why a first packet is refused, as PostgreSQL reports it: with an error that ends the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) sqlstate: &'static str,
    pub(super) message: String,
    /// The client speaks a protocol before 3, whose errors are a text.
    pub(super) old: bool,
}

/// A startup packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Startup {
    /// As it came, to be sent on.
    pub(super) packet: Vec<u8>,
    pub(super) user: String,
    /// The user's name by default.
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
    Refused(Refused),
}

/// Reads the first packets; `secure` puts the connection under TLS, if there is a certificate.
pub(super) async fn open(stream: Stream, secure: Option<&Acceptor>) -> io::Result<(Stream, Opening)> {
    let mut stream = direct(stream, secure).await?;
    // Each is asked for once, and under TLS there is nothing to ask for.
    let (mut ssl, mut gss) = (stream.is_secure(), stream.is_secure());
    loop {
        let Some(bytes) = packet(&mut stream).await? else {
            return Ok((stream, Opening::Gone));
        };
        match read(&bytes)? {
            Packet::Startup(startup) => return Ok((stream, Opening::Login(startup))),
            Packet::Cancel(key) => return Ok((stream, Opening::Cancel(key))),
            Packet::Refused(refused) => return Ok((stream, Opening::Refused(refused))),
            Packet::Ssl if ssl => return Ok((stream, Opening::Refused(unsupported(SSL)))),
            Packet::Gss if gss => return Ok((stream, Opening::Refused(unsupported(GSS)))),
            // An attacker in between may have put it there, to be taken for data under TLS.
            request @ (Packet::Ssl | Packet::Gss) if has_more(&mut stream).await => {
                if secure.is_none() || request == Packet::Gss {
                    stream.send(b"N").await?;
                }
                return Ok((stream, Opening::Refused(ahead())));
            }
            Packet::Ssl => {
                ssl = true;
                stream = match (stream, secure) {
                    (Stream::Tcp(mut tcp), Some(acceptor)) => {
                        gss = true;
                        tcp.write_all(b"S").await?;
                        Stream::TlsFromClient(Box::new(tls::accept(acceptor, tcp).await?))
                    }
                    (mut other, _) => {
                        other.send(b"N").await?;
                        other
                    }
                }
            }
            Packet::Gss => {
                gss = true;
                stream.send(b"N").await?;
            }
        }
    }
}

/// Whether the client has said more without waiting for the answer.
async fn has_more(stream: &mut Stream) -> bool {
    let Stream::Tcp(tcp) = stream else { return false };
    let mut byte = [0];
    let mut byte = ReadBuf::new(&mut byte);
    let seen = std::future::poll_fn(|cx| Poll::Ready(tcp.poll_peek(cx, &mut byte))).await;
    matches!(seen, Poll::Ready(Ok(count)) if count > 0)
}

/// Puts the connection under TLS that begins with it, without a request. As at the server, such a client has to name
/// the protocol it means (ALPN), so that no other's client is led here.
async fn direct(stream: Stream, secure: Option<&Acceptor>) -> io::Result<Stream> {
    let Stream::Tcp(tcp) = stream else { return Ok(stream) };
    let mut first = [0];
    if tcp.peek(&mut first).await? == 0 || first != [TLS_HANDSHAKE] {
        return Ok(Stream::Tcp(tcp));
    }
    let acceptor = secure.ok_or_else(|| invalid("it begins with TLS, and the gateway has no certificate"))?;
    let tls = tls::accept(acceptor, tcp).await?;
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
        version if version >> 16 == MAJOR => Ok(login(bytes).map_or_else(Packet::Refused, Packet::Startup)),
        version => Ok(Packet::Refused(unsupported(version))),
    }
}

fn login(packet: &[u8]) -> Result<Startup, Refused> {
    let refused = |sqlstate, what: &str| {
        let message = format!("the startup packet {what}");
        Refused { sqlstate, message, old: false }
    };
    let layout = |what: &str| refused("08P01", what);
    let mut rest = packet.get(8..).unwrap_or_default();
    let (mut user, mut database, mut application) = (None, None, String::new());
    while let Some((name, after)) = c_string(rest)
        && !name.is_empty()
    {
        let (value, after) = c_string(after).ok_or_else(|| layout("has a parameter without a value"))?;
        match name {
            b"user" => user = Some(name_of(value)),
            b"database" => database = Some(name_of(value)),
            b"application_name" => application = String::from_utf8_lossy(value).into_owned(),
            _ => {}
        }
        rest = after;
    }
    if rest != [0] {
        return Err(layout("does not end with a zero byte behind its last parameter"));
    }
    let user = user.filter(|user| !user.is_empty());
    let user = user.ok_or_else(|| refused("28000", "names no user; give one"))?;
    let database = database.filter(|database| !database.is_empty()).unwrap_or_else(|| user.clone());
    Ok(Startup { packet: packet.to_vec(), user, database, application })
}

/// A user or database, as the server looks it up.
fn name_of(value: &[u8]) -> String {
    String::from_utf8_lossy(looked_up(value)).into_owned()
}

fn unsupported(version: u32) -> Refused {
    let (major, minor) = (version >> 16, version & 0xffff);
    let message = format!("frontend protocol {major}.{minor} is not spoken here; use {MAJOR}.0");
    Refused { sqlstate: "0A000", message, old: major < MAJOR }
}

fn ahead() -> Refused {
    let message = "there is data behind the request for encryption, before its answer; wait for that";
    Refused { sqlstate: "08P01", message: message.to_owned(), old: false }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use tidegate_sql::POSTGRES_NAME_BYTES;
    use tokio::net::UnixStream;

    use super::*;
    use crate::session::tests::{narrow, soon};
    use crate::upstream::TlsMode;

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
        for own in [&b"user\0ann\0\0"[..], b"user\0ann\0database\0\0\0"] {
            let Packet::Startup(startup) = read(&framed(3 << 16, own)).unwrap() else { panic!() };
            assert_eq!((startup.database.as_str(), startup.application.as_str()), ("ann", ""));
        }
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
        for bad in [&[1][..], &[1; 7], &[1; 261]] {
            assert!(read(&framed(cancel::CODE, bad)).is_err(), "{bad:?}");
        }
        for (code, body, sqlstate) in [
            (2 << 16, &b""[..], "0A000"),
            (4 << 16, b"user\0ann\0\0", "0A000"),
            (3 << 16, b"user\0", "08P01"),
            (3 << 16, b"user\0ann\0", "08P01"),
            (3 << 16, b"user\0ann\0\0x", "08P01"),
            (3 << 16, b"\0", "28000"),
            (3 << 16, b"user\0\0\0", "28000"),
        ] {
            let Packet::Refused(refused) = read(&framed(code, body)).unwrap() else { panic!("{body:?}") };
            assert_eq!(refused.sqlstate, sqlstate, "{body:?}");
        }
    }

    /// Else a user with a name of that length could choose under which one its group is looked up.
    #[test]
    fn a_name_counts_as_far_as_the_server_looks_at_it() {
        let longest = "ä".repeat(31) + "x";
        assert_eq!(longest.len(), POSTGRES_NAME_BYTES);
        for (user, database) in [(&*longest, &*longest), (&format!("{longest}y"), &format!("{longest}z"))] {
            let bytes = framed(3 << 16, format!("user\0{user}\0database\0{database}\0\0").as_bytes());
            let Packet::Startup(startup) = read(&bytes).unwrap() else { panic!() };
            assert_eq!((&startup.user, &startup.database), (&longest, &longest));
            assert_eq!(startup.packet, bytes, "the server cuts it off itself");
        }
    }

    #[tokio::test]
    async fn a_first_packet_is_as_long_as_one_of_the_server_s_may_be() {
        for (length, taken) in [(7, false), (8, true), (10_004, true), (10_005, false)] {
            let (near, mut client) = UnixStream::pair().unwrap();
            let mut bytes = u32::try_from(length).unwrap().to_be_bytes().to_vec();
            bytes.resize(length, 0);
            client.write_all(&bytes).await.unwrap();
            let read = packet(&mut Stream::Unix(near)).await;
            assert_eq!(read.is_ok_and(|packet| packet == Some(bytes)), taken, "{length}");
        }
    }

    const LOGIN: &[u8] = b"user\0ann\0\0";

    /// The client asks for these in turn, is refused each, and logs in.
    async fn opened(asks: &[u32]) -> Opening {
        let (mut client, near) = narrow().await;
        let opening = tokio::spawn(async { open(Stream::Tcp(near), None).await.unwrap().1 });
        for code in asks {
            client.write_all(&framed(*code, b"")).await.unwrap();
            let mut answer = [0];
            if client.read_exact(&mut answer).await.is_err() {
                break;
            }
            assert_eq!(answer, *b"N");
        }
        // One that is not let in may be gone.
        drop(client.write_all(&framed(3 << 16, LOGIN)).await);
        opening.await.unwrap()
    }

    #[tokio::test]
    async fn encryption_of_each_kind_may_be_asked_for_once_in_either_order() {
        for asks in [&[][..], &[SSL], &[GSS], &[SSL, GSS], &[GSS, SSL]] {
            assert!(matches!(opened(asks).await, Opening::Login(_)), "{asks:?}");
        }
        for asks in [&[SSL, SSL][..], &[GSS, GSS], &[SSL, GSS, SSL], &[GSS, SSL, GSS]] {
            let Opening::Refused(refused) = opened(asks).await else { panic!("{asks:?}") };
            assert_eq!(refused.sqlstate, "0A000", "{asks:?}");
        }
    }

    /// Whether the gateway has a certificate or not.
    #[tokio::test]
    async fn what_stands_behind_a_request_for_encryption_is_not_taken_for_a_login() {
        let acceptor = Acceptor::Own(tls::self_signed().unwrap());
        for (code, secure, answer) in [
            (SSL, None, &b"N"[..]),
            (GSS, None, b"N"),
            (SSL, Some(&acceptor), b""),
            (GSS, Some(&acceptor), b"N"),
        ] {
            let (mut client, near) = narrow().await;
            client.write_all(&[framed(code, b""), framed(3 << 16, LOGIN)].concat()).await.unwrap();
            let (stream, opening) = open(Stream::Tcp(near), secure).await.unwrap();
            let Opening::Refused(refused) = opening else { panic!("{code}: {opening:?}") };
            assert_eq!(refused.sqlstate, "08P01");
            drop(stream);
            let mut heard = Vec::new();
            drop(client.read_to_end(&mut heard).await);
            assert_eq!(heard, answer, "{code}");
        }
    }

    #[tokio::test]
    async fn under_tls_no_other_encryption_is_to_be_had() {
        let acceptor = Acceptor::Own(tls::self_signed().unwrap());
        let connector = tls::connector(TlsMode::Require, None).unwrap().unwrap();
        for code in [SSL, GSS] {
            let (mut client, near) = narrow().await;
            let asks = async {
                client.write_all(&framed(SSL, b"")).await.unwrap();
                assert_eq!(client.read_u8().await.unwrap(), b'S');
                let mut client = tls::connect(&connector, "localhost", client).await.unwrap();
                client.write_all(&framed(code, b"")).await.unwrap();
                client
            };
            let opens = soon("it is refused", open(Stream::Tcp(near), Some(&acceptor)));
            let (opened, _client) = tokio::join!(opens, asks);
            let (stream, opening) = opened.unwrap();
            assert!(stream.is_secure());
            let Opening::Refused(refused) = opening else { panic!("{code}: {opening:?}") };
            assert_eq!(refused.sqlstate, "0A000", "{code}");
        }
    }
}
