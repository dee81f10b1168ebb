//! The PROXY protocol, versions 1 and 2: a load balancer in front of the gateway sends the address of the client whose
//! connection it passes on.
//!
//! In: the first bytes of a connection from a listed address, and no byte beyond the header. Out: the address of the
//! client, for logs alone. Only listed addresses may send a header, as any peer could claim any address.
//!
//! *Source*: HAProxy's "The PROXY protocol, versions 1 & 2".

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// How a header of version 2 begins.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Longest header of version 1, its end included.
const LINE: usize = 107;
/// Longest rest of a header of version 2: addresses, and what some balancers add about certificates. Its length field
/// allows 64 KiB, which no balancer sends.
const REST: usize = 4_096;

/// Addresses that may send a header: single ones, and networks such as `10.0.0.0/8`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(Vec<(IpAddr, u32)>);

/// Something that is no address or network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// It is no address or network.
    #[error("{text:?} is no address or network; write 10.1.2.3, 10.0.0.0/8 or fd00::/8")]
    Text {
        /// What was given.
        text: String,
    },
    /// There are too many networks.
    #[error("{count} networks are too many: at most {max}", max = Networks::MAX)]
    TooMany {
        /// How many there are.
        count: usize,
    },
}

impl Networks {
    /// Most entries, which are searched for every connection.
    pub const MAX: usize = 100;

    /// Reads addresses and networks.
    pub fn parse<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<Self, NetworkError> {
        let list: Vec<_> = entries.into_iter().map(network).collect::<Result<_, _>>()?;
        if list.len() > Self::MAX { Err(NetworkError::TooMany { count: list.len() }) } else { Ok(Self(list)) }
    }

    /// Whether this address is in one of them.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|(network, bits)| match (network, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                (u32::from(*network) ^ u32::from(address)).leading_zeros() >= *bits
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                (u128::from(*network) ^ u128::from(address)).leading_zeros() >= *bits
            }
            _ => false,
        })
    }
}

fn network(text: &str) -> Result<(IpAddr, u32), NetworkError> {
    let wrong = || NetworkError::Text { text: text.to_owned() };
    let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let address = IpAddr::from_str(address).map_err(|_| wrong())?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Ok(most), u32::from_str).ok().filter(|bits| *bits <= most).ok_or_else(wrong)?;
    // Peers with an address of IPv4 are known by that, also where a listener of IPv6 sees them as `::ffff:10.0.0.1`.
    let canonical = address.to_canonical();
    let spare = if canonical.is_ipv4() { most - 32 } else { 0 };
    Ok((canonical, bits.checked_sub(spare).ok_or_else(wrong)?))
}

/// Reads the header. `None` when it names no client, as for a balancer's own questions whether the gateway is there.
pub(crate) async fn client(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<SocketAddr>> {
    let mut start = [0; SIGNATURE.len()];
    stream.read_exact(&mut start).await?;
    if start != SIGNATURE {
        return line(stream, &start).await;
    }
    let mut fixed = [0; 4];
    stream.read_exact(&mut fixed).await?;
    let [command, family, high, low] = fixed;
    let length = usize::from(u16::from_be_bytes([high, low]));
    if command >> 4 != 2 || length > REST {
        return Err(invalid("its header is of no version that is known, or too long"));
    }
    let mut rest = vec![0; length];
    stream.read_exact(&mut rest).await?;
    match (command & 0xf, family) {
        (0, _) => Ok(None),
        (1, 0x11) => addresses::<4>(&rest).map(|(ip, port)| Some((Ipv4Addr::from(ip), port).into())),
        (1, 0x21) => addresses::<16>(&rest).map(|(ip, port)| Some((Ipv6Addr::from(ip), port).into())),
        (1, _) => Ok(None),
        _ => Err(invalid("its header has an unknown command")),
    }
}

/// The source of version 2: addresses of both ends, then their ports.
fn addresses<const N: usize>(rest: &[u8]) -> io::Result<([u8; N], u16)> {
    let ip = rest.first_chunk::<N>();
    let port = rest.get(2 * N..).and_then(|ports| ports.first_chunk::<2>());
    match (ip, port) {
        (Some(ip), Some(port)) if rest.len() >= 2 * N + 4 => Ok((*ip, u16::from_be_bytes(*port))),
        _ => Err(invalid("its header is too short for its addresses")),
    }
}

/// The rest of a header of version 1, which is a line.
async fn line(stream: &mut (impl AsyncRead + Unpin), start: &[u8]) -> io::Result<Option<SocketAddr>> {
    let mut line = start.to_vec();
    while !line.ends_with(b"\r\n") {
        if line.len() == LINE || !line.starts_with(b"PROXY ") {
            return Err(invalid("it does not begin with a PROXY header, and this address must send one"));
        }
        line.push(stream.read_u8().await?);
    }
    let malformed = || invalid("its PROXY line is malformed");
    let line = std::str::from_utf8(&line).ok().and_then(|line| line.strip_prefix("PROXY "));
    let line = line.and_then(|line| line.strip_suffix("\r\n")).ok_or_else(malformed)?;
    match line.split(' ').collect::<Vec<_>>().as_slice() {
        ["UNKNOWN", ..] => Ok(None),
        [family @ ("TCP4" | "TCP6"), source, _, port, _] => {
            let ip = IpAddr::from_str(source).ok().filter(|ip| ip.is_ipv4() == (*family == "TCP4"));
            let port = u16::from_str(port).ok();
            ip.zip(port).map(|client| Some(client.into())).ok_or_else(malformed)
        }
        _ => Err(malformed()),
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(bytes: &[u8]) -> (Option<Option<String>>, usize) {
        let mut rest = bytes;
        let client = client(&mut rest).await.ok();
        (client.map(|client| client.map(|client| client.to_string())), rest.len())
    }

    fn second(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[command, family], &length, rest].concat()
    }

    #[tokio::test]
    async fn both_versions_tell_the_client_and_take_no_byte_behind() {
        let four = [&[10, 1, 2, 3, 127, 0, 0, 1][..], &[0x12, 0x34, 0, 80]].concat();
        let six = [&[0xfd; 16][..], &[0; 16], &[0, 7, 0, 80], b"\x04\0\x01x"].concat();
        for (header, client) in [
            (b"PROXY TCP4 10.1.2.3 127.0.0.1 4660 80\r\n".to_vec(), Some("10.1.2.3:4660")),
            (b"PROXY TCP6 fd00::1 ::1 7 80\r\n".to_vec(), Some("[fd00::1]:7")),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
            (b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n".to_vec(), None),
            (second(0x21, 0x11, &four), Some("10.1.2.3:4660")),
            (second(0x21, 0x21, &six), Some("[fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd]:7")),
            (second(0x20, 0x11, &four), None),
            (second(0x20, 0, &[]), None),
            (second(0x21, 0x31, &[0; 216]), None),
            (second(0x20, 0, &[0; REST]), None),
        ] {
            let bytes = [&header[..], b"rest"].concat();
            assert_eq!(read(&bytes).await, (Some(client.map(str::to_owned)), 4), "{header:?}");
            for end in 0..header.len() {
                assert_eq!(read(&header[..end]).await.0, None, "{:?}", &header[..end]);
            }
        }
    }

    /// A peer that speaks another protocol may wait for an answer, and one may send a line without an end.
    #[tokio::test]
    async fn what_is_no_header_is_refused_before_more_of_it_comes() {
        for (bytes, taken) in
            [(&b"\0\0\0\x08\x04\xd2\x16\x2f and more"[..], SIGNATURE.len()), (&[b'P'; 300], SIGNATURE.len())]
        {
            assert_eq!(read(bytes).await, (None, bytes.len() - taken));
        }
        let line = [&b"PROXY "[..], &[b'1'; 300]].concat();
        assert_eq!(read(&line).await, (None, line.len() - LINE));
        let longest = format!("PROXY UNKNOWN {}\r\n", "f".repeat(LINE - "PROXY UNKNOWN \r\n".len()));
        assert_eq!(read(longest.as_bytes()).await, (Some(None), 0));
    }

    #[tokio::test]
    async fn what_is_no_header_is_refused() {
        for bytes in [
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            b"PROXY TCP4 fd00::1 ::1 7 80\r\n".to_vec(),
            b"PROXY TCP4 10.1.2.3 127.0.0.1 70000 80\r\n".to_vec(),
            b"PROXY TCP4 10.1.2.3\r\n   ".to_vec(),
            b"PROXY \xff\xff\xff\xff\xff\xff\r\n".to_vec(),
            [&b"PROXY TCP4 "[..], &[b'1'; 200]].concat(),
            second(0x11, 0x11, &[0; 12]),
            second(0x22, 0x11, &[0; 12]),
            second(0x21, 0x11, &[0; 11]),
            second(0x21, 0x21, &[0; 12]),
            second(0x21, 0x11, &[0; REST + 1]),
        ] {
            assert_eq!(read(&bytes).await.0, None, "{bytes:?}");
        }
    }

    #[test]
    fn networks_hold_what_begins_like_them() {
        let networks = Networks::parse(["10.0.0.0/8", "192.168.1.7", "fd00::/8", "::1"]).unwrap();
        for (address, inside) in [
            ("10.255.1.1", true),
            ("::ffff:10.1.1.1", true),
            ("11.0.0.0", false),
            ("192.168.1.7", true),
            ("192.168.1.6", false),
            ("fdff::1", true),
            ("fe00::1", false),
            ("::1", true),
            ("::2", false),
        ] {
            assert_eq!(networks.contains(address.parse().unwrap()), inside, "{address}");
        }
        // An address of IPv4 counts as such, however it is written.
        for (mapped, plain) in [
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:10.1.2.3", "10.1.2.3"),
            ("::ffff:0:0/96", "0.0.0.0/0"),
        ] {
            assert_eq!(Networks::parse([mapped]), Networks::parse([plain]), "{mapped}");
        }
        assert!(Networks::parse(["0.0.0.0/0"]).unwrap().contains("8.8.8.8".parse().unwrap()));
        assert!(!Networks::default().contains("127.0.0.1".parse().unwrap()));
        for text in [
            "",
            "10.0.0.0/33",
            "10.0.0.0/128",
            "fd00::/129",
            "10.0.0",
            "10.0.0.0/",
            "lb.example",
            "10.0.0.0/-1",
        ] {
            assert_eq!(Networks::parse([text]), Err(NetworkError::Text { text: text.to_owned() }));
        }
        assert!(Networks::parse(vec!["::1"; Networks::MAX]).is_ok());
        let many = vec!["::1"; Networks::MAX + 1];
        assert_eq!(Networks::parse(many), Err(NetworkError::TooMany { count: Networks::MAX + 1 }));
    }
}
