//! An address behind which another server can be, as behind a name or a port that is given again.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::io;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

/// Hands connections on.
pub(crate) struct Relay {
    port: u16,
    state: Arc<Mutex<State>>,
}

struct State {
    /// The endpoint behind it.
    to: String,
    /// What is handed on now: the server's side, and the thread that ends when the client has closed its own.
    open: Vec<(TcpStream, JoinHandle<()>)>,
}

impl Relay {
    /// To an endpoint without TLS.
    pub(crate) fn to(endpoint: &str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State { to: endpoint.to_owned(), open: Vec::new() }));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming() {
                let mut state = shared.lock().unwrap();
                let Ok(server) = TcpStream::connect(state.to.trim_start_matches("http://")) else { continue };
                let reading = hand_on(client.unwrap(), &server);
                state.open.push((server, reading));
            }
        });
        Self { port, state }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Has another endpoint behind it, ends what was handed on, and waits until its clients have noticed.
    pub(crate) fn turn_to(&self, endpoint: &str) {
        let mut state = self.state.lock().unwrap();
        endpoint.clone_into(&mut state.to);
        let open = std::mem::take(&mut state.open);
        drop(state);
        for (server, reading) in open {
            // It may have closed the connection itself.
            let _ = server.shutdown(Shutdown::Both);
            reading.join().unwrap();
        }
    }
}

/// Copies both ways. The thread ends when the client has closed its side.
fn hand_on(client: TcpStream, server: &TcpStream) -> JoinHandle<()> {
    let (mut to_client, mut from_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    thread::spawn(move || {
        let _ = io::copy(&mut from_server, &mut to_client);
        let _ = to_client.shutdown(Shutdown::Write);
    });
    let (mut from_client, mut to_server) = (client, server.try_clone().unwrap());
    thread::spawn(move || {
        let _ = io::copy(&mut from_client, &mut to_server);
        // What it says to a server that is gone.
        let _ = io::copy(&mut from_client, &mut io::sink());
    })
}
