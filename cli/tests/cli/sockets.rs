//! What a controller holds for foreign peers: raw HTTP/2 that does not read, or reads all at once, and more connections
//! than there are file descriptors.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use tidegate_controller::bindings::Principal;
use tidegate_controller::store::records::{StoredBinding, put_json};
use tidegate_controller::store::{RedbStore, Store as _, Table};

use crate::support::{Controller, eventually};

/// A frame's head: its length, its kind, its flags, its stream.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Bytes that may be under way to a client: a megabyte of each stream and of all.
const WINDOW: u32 = 1 << 20;

/// The begin of a connection.
fn preface() -> Vec<u8> {
    let settings = [&[0, 4][..], &WINDOW.to_be_bytes()].concat();
    let more = (WINDOW - 65_535).to_be_bytes();
    [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(4, 0, 0, &settings), &frame(8, 0, 0, &more)].concat()
}

/// A call with an empty message, by a header block without Huffman codes or tables.
fn call(stream: u32, path: &str, more: bool) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let block = [
        &[0x83, 0x86, 0x04][..],
        &text(path),
        &[0x01],
        &text("localhost"),
        &[0x0f, 0x10],
        &text("application/grpc"),
        &[0x00],
        &text("te"),
        &text("trailers"),
    ];
    let head = frame(1, 4, stream, &block.concat());
    [head, frame(0, u8::from(!more), stream, &[0; 5])].concat()
}

/// A bound tenant's name; all are equally long.
fn tenant(number: usize) -> String {
    format!("a-tenant-with-a-name-of-the-usual-length-{number:06}")
}

/// A controller with so many bindings.
fn crowded(count: usize) -> Controller {
    let mut controller = Controller::start();
    controller.ok(&["group", "create", "crowd", "--rate", "5"]);
    controller.kill();
    let row = |number: usize| {
        let principal = Principal::Tenant(tenant(number));
        let key = principal.key();
        put_json(Table::Bindings, key, &StoredBinding { principal, group: "crowd".into() }).unwrap()
    };
    let store = RedbStore::open(&controller.data().join("tidegate.redb")).unwrap();
    store.commit(&(0..count).map(row).collect::<Vec<_>>()).unwrap();
    drop(store);
    controller.again();
    controller
}

fn address(controller: &Controller) -> &str {
    controller.endpoint.strip_prefix("http://").unwrap()
}

fn rest_address(controller: &Controller) -> &str {
    controller.rest.strip_prefix("http://").unwrap()
}

/// Kilobytes: the most that it ever had in memory.
fn most_kb(controller: &Controller) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", controller.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

/// A value of the metrics page.
fn metric(controller: &Controller, name: &str) -> u64 {
    let mut stream = TcpStream::connect(rest_address(controller)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map_or(0, |value| value.trim().parse().unwrap())
}

/// Opens streams without reading them; returns the controller's size in kilobytes once it grows no more.
fn unread(controller: &Controller, path: &str, connections: usize, streams: u32) -> u64 {
    let mut held = Vec::new();
    for _ in 0..connections {
        let mut connection = TcpStream::connect(address(controller)).unwrap();
        connection.write_all(&preface()).unwrap();
        for number in 0..streams {
            connection.write_all(&call(2 * number + 1, path, false)).unwrap();
        }
        held.push(connection);
    }
    let (mut most, mut same) = (0, 0);
    while same < 50 {
        metric(controller, "tidegate_watchers");
        let now = most_kb(controller);
        same = if now == most { same + 1 } else { 0 };
        most = now;
    }
    drop(held);
    most
}

#[test]
fn a_thousand_streams_that_are_not_read_take_little_memory() {
    let controller = crowded(20_000);
    let before = most_kb(&controller);
    let most = unread(&controller, "/tidegate.v1.Grants/Watch", 50, 20);
    assert!(most <= 150_000, "{before} kB before and {most} kB with 1,000 streams that are not read");
    let most = unread(&controller, "/tidegate.v1.Statements/Rules", 50, 20);
    assert!(most <= 150_000, "{before} kB before and {most} kB with 1,000 more");
    println!("{before} kB before, {most} kB with 1,000 streams that are not read");
}

/// Too little memory for all of them: a controller that holds what it is sent would be aborted.
#[test]
fn three_hundred_large_bodies_that_are_held_take_no_more_than_their_budget() {
    const LENGTH: usize = 3_900_000;
    let controller = Controller::limited("ulimit -v 1000000");
    let before = most_kb(&controller);
    let rest = rest_address(&controller);
    let head = format!(
        "POST /v1/groups HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {LENGTH}\r\n\r\n"
    );
    let part = vec![b' '; LENGTH - 1];
    let mut held = Vec::new();
    for _ in 0..300 {
        let mut stream = TcpStream::connect(rest).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        // One that is refused is not read on.
        if stream.write_all(&part).is_ok() {
            held.push(stream);
        }
    }
    // 64 MiB have room for 16 of them.
    let refused = || metric(&controller, "tidegate_turned_away_total{surface=\"rest\",reason=\"bodies\"}");
    eventually("all that do not fit are refused", || refused() >= 300 - 17);
    let most = most_kb(&controller);
    println!("{before} kB before, {most} kB with 300 bodies");
    // The budget; and of each, 64 KiB that are outside of it, 32 KiB that are read ahead, as much that was read and is not
    // gathered yet, and what a connection takes.
    let bound = before + (64 << 10) + 300 * (64 + 32 + 32 + 39);
    assert!(most <= bound, "{before} kB before and {most} kB with 300 bodies; {bound} are stated");
    controller.ok(&["group", "create", "after", "--rate", "5"]);
}

/// Each byte that a controller reads alone comes in a buffer of 8 KiB: a body must not hold the buffers.
#[test]
fn bodies_that_come_byte_by_byte_take_little_memory() {
    let controller = Controller::start();
    let before = most_kb(&controller);
    let rest = rest_address(&controller);
    let head = "POST /v1/groups HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9999\r\n\r\n";
    let mut held: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(rest).unwrap()).collect();
    for stream in &mut held {
        stream.set_nodelay(true).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
    }
    // In turns, so that what is sent on one connection is read before its next byte.
    for _ in 0..1_000 {
        for stream in &mut held {
            stream.write_all(b" ").unwrap();
        }
    }
    metric(&controller, "tidegate_watchers");
    let most = most_kb(&controller);
    println!("{before} kB before, {most} kB with 100 bodies of 1,000 bytes");
    assert!(most <= before + 20_000, "{before} kB before and {most} kB with 100 bodies of 1,000 bytes");
}

/// Reads a connection until the last of the bindings has come; how many bytes.
fn read_all(mut connection: TcpStream, bindings: usize) -> usize {
    let last = tenant(bindings - 1);
    // It may come in two frames, and is not looked for before the bytes of all names can be there.
    let (mut seen, least) = (Vec::<u8>::new(), bindings * last.len());
    let (mut bytes, mut head) = (0, [0; 9]);
    while !seen.windows(last.len()).any(|part| part == last.as_bytes()) {
        connection.read_exact(&mut head).unwrap();
        let [a, b, c, kind, flags, ..] = head;
        let mut payload = vec![0; usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c)];
        connection.read_exact(&mut payload).unwrap();
        match kind {
            0 if !payload.is_empty() => {
                bytes += payload.len();
                if bytes >= least {
                    seen.drain(..seen.len().saturating_sub(last.len()));
                    seen.extend(&payload);
                }
                let more = u32::try_from(payload.len()).unwrap().to_be_bytes();
                connection.write_all(&[frame(8, 0, 0, &more), frame(8, 0, 1, &more)].concat()).unwrap();
            }
            6 if flags & 1 == 0 => connection.write_all(&frame(6, 1, 0, &payload)).unwrap(),
            7 => panic!("sent away: {}", String::from_utf8_lossy(&payload)),
            _ => {}
        }
    }
    bytes
}

#[test]
#[ignore = "five gigabytes through loopback"]
fn a_thousand_nodes_that_take_a_hundred_thousand_bindings_at_once_take_little_memory() {
    let controller = crowded(100_000);
    let before = most_kb(&controller);
    let nodes: Vec<_> = (0..1_000)
        .map(|_| {
            let mut connection = TcpStream::connect(address(&controller)).unwrap();
            connection.write_all(&preface()).unwrap();
            connection.write_all(&call(1, "/tidegate.v1.Grants/Watch", false)).unwrap();
            let builder = thread::Builder::new().stack_size(128 << 10);
            builder.spawn(move || read_all(connection, 100_000)).unwrap()
        })
        .collect();
    let bytes: Vec<usize> = nodes.into_iter().map(|node| node.join().unwrap()).collect();
    assert!(bytes.iter().all(|each| *each >= 100_000 * tenant(0).len()), "{bytes:?}");
    let most = most_kb(&controller);
    println!("{before} kB before, {most} kB after");
    assert!(most <= 300_000, "{before} kB before and {most} kB after");
}

/// Clock ticks that it has run.
fn ticks(controller: &Controller) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", controller.id())).unwrap();
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    rest.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

#[test]
fn out_of_descriptors_it_waits_says_so_and_goes_on() {
    let controller = Controller::with_descriptors(64);
    for (at, surface) in [(controller.endpoint.clone(), "grpc"), (controller.rest.clone(), "rest")] {
        let at = at.strip_prefix("http://").unwrap();
        let held: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(at).unwrap()).collect();
        while !controller.log().contains(&format!("surface=\"{surface}\"")) {
            thread::yield_now();
        }
        let before = ticks(&controller);
        thread::park_timeout(Duration::from_secs(1));
        let spent = ticks(&controller) - before;
        assert!(spent < 50, "{spent} hundredths of a second of CPU in a second without descriptors");
        drop(held);
    }
    let said = controller.log().lines().filter(|line| line.contains("no connection can be accepted")).count();
    assert!((2..=8).contains(&said), "{said} lines: {}", controller.log());
    controller.ok(&["status"]);
}
