//! nginx's own `limit_req` beside the paced policy: the same instants, request by request. The decisions and the clock
//! are nginx's, read from its logs; connections go on as soon as they are answered, and what nginx delays paces them.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::thread;

use tidegate_core::policy::paced::{Delay, Grain, Paced, PacedSettings};
use tidegate_core::policy::{Limiter, Verdict};
use tidegate_core::units::{Rate, Ru, Time};
use tidegate_test_servers::Nginx;

/// A location with a zone of its own.
struct Zone {
    name: &'static str,
    /// As nginx reads it, and as it counts: thousandths of a request per second.
    rate: (&'static str, i64),
    /// Requests.
    burst: i64,
    delay: Delay,
    /// How often of 16 times a request goes here.
    weight: u64,
}

const ZONES: [Zone; 5] = [
    Zone { name: "nodelay", rate: ("1500r/s", 1_500_000), burst: 20, delay: Delay::None, weight: 8 },
    // 16.666 a second, which nginx cuts to thousandths, and by which milliseconds drain no whole number of them.
    Zone { name: "uneven", rate: ("1000r/m", 16_666), burst: 5, delay: Delay::None, weight: 2 },
    Zone { name: "strict", rate: ("900r/s", 900_000), burst: 0, delay: Delay::None, weight: 1 },
    Zone { name: "delay", rate: ("2000r/s", 2_000_000), burst: 12, delay: Delay::All, weight: 3 },
    Zone {
        name: "partly",
        rate: ("777r/s", 777_000),
        burst: 9,
        delay: Delay::Beyond(Ru::whole(3)),
        weight: 2,
    },
];

const CONNECTIONS: u64 = 32;
/// Of each connection. Refusals are answered at once, so that there are many.
const REQUESTS: u64 = 1_000;

/// What nginx decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decided {
    Passed,
    /// By so many milliseconds.
    Delayed(u64),
    Rejected,
}

/// A request in the order of decisions.
#[derive(Debug)]
struct Request {
    address: String,
    /// Milliseconds by nginx's clock.
    at: u64,
    decided: Decided,
}

impl Zone {
    fn http(&self) -> String {
        format!(" limit_req_zone $server_port zone={0}:64k rate={1};\n", self.name, self.rate.0)
    }

    fn location(&self) -> String {
        let delay = match self.delay {
            Delay::All => String::new(),
            Delay::Beyond(part) => format!(" delay={}", part.number()),
            Delay::None => " nodelay".to_owned(),
        };
        let Self { name, burst, .. } = self;
        // A burst of 0 is nginx's default, and no number it reads.
        let burst = if *burst > 0 { format!(" burst={burst}") } else { String::new() };
        format!("  location /{name} {{ limit_req zone={name}{burst}{delay}; empty_gif; }}\n")
    }

    fn policy(&self, grain: Grain) -> Limiter<Paced> {
        let settings = PacedSettings {
            rate: Rate(self.rate.1 * 1_000),
            burst: Ru::whole(self.burst),
            delay: self.delay,
            grain,
        };
        Limiter::new(Paced::new(settings).unwrap())
    }
}

/// One connection's requests: any zone, each when the one before is answered.
fn requests(port: u16, connection: u64) {
    let mut stream = BufReader::new(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap());
    let mut random = connection.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for number in 0..REQUESTS {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let mut left = random % 16;
        let zone = ZONES.iter().find(|zone| {
            let is_it = left < zone.weight;
            left = left.saturating_sub(zone.weight);
            is_it
        });
        let name = zone.unwrap().name;
        let line = format!("GET /{name}?{connection}.{number} HTTP/1.1\r\nHost: a\r\n\r\n");
        stream.get_mut().write_all(line.as_bytes()).unwrap();
        skip_answer(&mut stream);
    }
}

fn skip_answer(stream: &mut BufReader<TcpStream>) {
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        if let Some(value) = line.strip_prefix("Content-Length: ") {
            length = value.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
}

/// Reads the decisions from the debug log. A connection says in turn which request it reads, what `limit_req` decided,
/// and which timer it sets: of the delay, or of the next request's keepalive. Both are set in the same turn of nginx's
/// events as the decision, by the same reading of the clock.
fn decisions(log: &[u8]) -> Vec<Request> {
    // By connection: the request it reads, and where its decision stands in the order, until its timer is known.
    let mut reads: BTreeMap<&str, String> = BTreeMap::new();
    let mut open: BTreeMap<&str, usize> = BTreeMap::new();
    let mut decided: Vec<Request> = Vec::new();
    for line in log.split(|byte| *byte == b'\n').filter_map(|line| str::from_utf8(line).ok()) {
        let Some((_, rest)) = line.split_once(": *") else { continue };
        let Some((connection, said)) = rest.split_once(' ') else { continue };
        if let Some(line) = said.strip_prefix("http request line: \"GET ") {
            reads.insert(connection, line.split(' ').next().unwrap().to_owned());
        } else if let Some(said) = said.strip_prefix("limit_req[0]: ") {
            let (code, _) = said.split_once(' ').unwrap();
            assert!(["0", "-3"].contains(&code), "{line}");
            let outcome = if code == "0" { Decided::Passed } else { Decided::Rejected };
            assert_eq!(open.insert(connection, decided.len()), None, "{line}");
            let address = reads.remove(connection).unwrap();
            decided.push(Request { address, at: 0, decided: outcome });
        } else if let Some(said) = said.strip_prefix("delaying request, ") {
            let request = &mut decided[*open.get(connection).unwrap()];
            assert_eq!(request.decided, Decided::Passed, "{said}");
            request.decided = Decided::Delayed(0);
        } else if let Some(said) = said.strip_prefix("event timer add: ") {
            let Some(request) = open.remove(connection) else { continue };
            let request = &mut decided[request];
            let (_, said) = said.split_once(": ").unwrap();
            let (length, end) = said.split_once(':').unwrap();
            let (length, end): (u64, u64) = (length.parse().unwrap(), end.parse().unwrap());
            request.at = end - length;
            if let Decided::Delayed(delay) = &mut request.decided {
                *delay = length;
            }
        }
    }
    assert!(open.is_empty(), "requests without a moment: {open:?}");
    decided
}

/// What the policy decides, in nginx's words.
fn decide(paced: &mut Limiter<Paced>, at: u64) -> Decided {
    let now = Time(at * 1_000);
    match paced.try_acquire(now, Ru::whole(1)) {
        Verdict::Admit => Decided::Passed,
        Verdict::AdmitAt(start) => Decided::Delayed(start.since(now).0 / 1_000),
        _ => Decided::Rejected,
    }
}

#[test]
fn the_paced_policy_decides_as_nginx_does_about_every_request() {
    let http: String = ZONES.iter().map(Zone::http).collect();
    let locations: String = ZONES.iter().map(Zone::location).collect();
    let nginx = Nginx::start(&http, &locations).unwrap();
    let port = nginx.port();
    let clients: Vec<_> = (1..=CONNECTIONS).map(|of| thread::spawn(move || requests(port, of))).collect();
    clients.into_iter().for_each(|client| client.join().unwrap());

    let decided = decisions(&fs::read(nginx.debug_log()).unwrap());
    assert_eq!(decided.len() as u64, CONNECTIONS * REQUESTS);
    // Its access log says the same of each.
    let access = fs::read_to_string(nginx.access_log()).unwrap();
    let said: BTreeMap<&str, &str> = access
        .lines()
        .map(|line| (line.split(' ').next().unwrap(), line.split(' ').nth(1).unwrap()))
        .collect();
    for request in &decided {
        let word = match request.decided {
            Decided::Passed => "PASSED",
            Decided::Delayed(_) => "DELAYED",
            Decided::Rejected => "REJECTED",
        };
        assert_eq!(said.get(request.address.as_str()), Some(&word), "{request:?}");
    }

    let mut nodelay = 0;
    for zone in &ZONES {
        let begin = format!("/{}?", zone.name);
        let of_zone: Vec<&Request> =
            decided.iter().filter(|request| request.address.starts_with(&begin)).collect();
        let (mut paced, mut exact) = (zone.policy(Grain::Milli), zone.policy(Grain::Exact));
        let mut apart = 0;
        for (number, request) in of_zone.iter().enumerate() {
            let ours = decide(&mut paced, request.at);
            assert_eq!(ours, request.decided, "{}: request {number} of {}", zone.name, of_zone.len());
            apart += usize::from(decide(&mut exact, request.at) != request.decided);
        }
        let count = |wanted: fn(&Decided) -> bool| of_zone.iter().filter(|one| wanted(&one.decided)).count();
        let delayed = count(|one| matches!(one, Decided::Delayed(_)));
        println!(
            "{}: {} requests, {} passed, {delayed} delayed, {} rejected: 0 differ; {apart} without nginx's rounding",
            zone.name,
            of_zone.len(),
            count(|one| *one == Decided::Passed),
            count(|one| *one == Decided::Rejected),
        );
        assert!(count(|one| *one != Decided::Rejected) >= 20 && of_zone.len() >= 1_000, "{}", zone.name);
        assert_eq!(delayed > 0, zone.delay != Delay::None, "{}", zone.name);
        nodelay += if zone.delay == Delay::None { of_zone.len() } else { 0 };
    }
    assert!(nodelay >= 10_000 && decided.len() - nodelay >= 10_000, "{nodelay} of {}", decided.len());
}
