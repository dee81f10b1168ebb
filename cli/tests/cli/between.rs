//! What stands between a command and its controller, so that something happens between two calls of the command.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::thread;

/// What a connection of HTTP/2 begins with, before its first frame.
const PREFACE: usize = 24;
/// The head of a frame: length, kind, flags, stream.
const HEAD: usize = 9;
/// The kind of the frame that begins a call.
const HEADERS: u8 = 1;

/// An endpoint that hands one connection on to `endpoint`; `then` is called when the connection's call of that number has
/// come, counted from 1, and before it is handed on.
pub(crate) fn before_call(endpoint: &str, number: usize, then: impl FnOnce() + Send + 'static) -> String {
    let controller = endpoint.trim_start_matches("http://").to_owned();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let from = listener.accept().unwrap().0;
        let to = TcpStream::connect(controller).unwrap();
        let (answers, command) = (to.try_clone().unwrap(), from.try_clone().unwrap());
        thread::spawn(move || hand_on(answers, command));
        calls(from, to, number, then);
    });
    format!("http://{address}")
}

/// An endpoint that takes each connection and closes it once the command speaks, as what forwards to a controller does
/// that is gone.
pub(crate) fn that_breaks() -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            // A command that is gone says nothing.
            let _ = stream.unwrap().read_exact(&mut [0; PREFACE]);
        }
    });
    format!("http://{address}")
}

/// Hands on all that comes. Either end may be gone at any time.
fn hand_on(mut from: TcpStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

/// Hands on frame by frame up to the call, and then all that comes.
fn calls(mut from: TcpStream, mut to: TcpStream, number: usize, then: impl FnOnce()) {
    let mut some = vec![0; PREFACE];
    let mut seen = 0;
    while from.read_exact(&mut some).is_ok() {
        to.write_all(&some).unwrap();
        let mut head = [0; HEAD];
        if from.read_exact(&mut head).is_err() {
            break;
        }
        seen += usize::from(head[3] == HEADERS);
        if seen == number {
            then();
            to.write_all(&head).unwrap();
            break;
        }
        to.write_all(&head).unwrap();
        some.resize(usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]), 0);
    }
    hand_on(from, to);
}
