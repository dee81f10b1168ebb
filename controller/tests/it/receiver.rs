//! A receiver of webhooks that answers as a test says, and keeps what it was sent.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::support::PATIENCE;

/// How it answers.
#[derive(Clone, Debug)]
pub(crate) enum Manner {
    /// With this status and header lines.
    Status(u16, String),
    /// Not at all.
    Silent,
    /// It ends the connection.
    Gone,
    /// 200, and a body without an end.
    Endless,
}

/// What it was sent.
#[derive(Clone, Debug)]
pub(crate) struct Post {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    manner: Arc<Mutex<Manner>>,
    posts: mpsc::UnboundedReceiver<Post>,
    /// Events of deliveries that were taken and not asked for yet.
    events: Vec<Value>,
}

impl Manner {
    pub(crate) fn status(status: u16) -> Self {
        Self::Status(status, String::new())
    }
}

impl Post {
    pub(crate) fn header(&self, name: &str) -> &str {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).unwrap().1
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

impl Receiver {
    pub(crate) async fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (send, posts) = mpsc::unbounded_channel();
        let manner = Arc::new(Mutex::new(manner));
        let of = Arc::clone(&manner);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, Arc::clone(&of), send.clone()));
            }
        });
        Self { address, manner, posts, events: Vec::new() }
    }

    pub(crate) fn be(&self, manner: Manner) {
        *self.manner.lock().unwrap() = manner;
    }

    /// The next delivery, however it was answered.
    pub(crate) async fn post(&mut self) -> Post {
        timeout(PATIENCE, self.posts.recv()).await.expect("a delivery in time").unwrap()
    }

    /// Whether there was none since the last.
    pub(crate) fn heard_nothing(&mut self) -> bool {
        self.posts.try_recv().is_err()
    }

    /// The next event, of a receiver that takes each delivery.
    pub(crate) async fn event(&mut self) -> Value {
        while self.events.is_empty() {
            let post = self.post().await.json();
            self.events = post["events"].as_array().unwrap().clone();
        }
        self.events.remove(0)
    }

    /// The same, as what happened and to which alarm.
    pub(crate) async fn said(&mut self) -> String {
        let event = self.event().await;
        let word = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
        format!("{} {}", word("event"), word("id")).trim_end().to_owned()
    }
}

async fn read(stream: &mut TcpStream) -> Option<Post> {
    let (mut bytes, mut part) = (Vec::new(), [0; 4_096]);
    loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..at].to_vec()).unwrap();
            let mut post = Post { head, body: bytes[at + 4..].to_vec() };
            let length: usize = post.header("content-length").parse().unwrap();
            if post.body.len() >= length {
                post.body.truncate(length);
                return Some(post);
            }
        }
        match stream.read(&mut part).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&part[..count]),
        }
    }
}

async fn answer(mut stream: TcpStream, manner: Arc<Mutex<Manner>>, to: mpsc::UnboundedSender<Post>) {
    let Some(post) = read(&mut stream).await else { return };
    let manner = manner.lock().unwrap().clone();
    let _ = to.send(post);
    match manner {
        Manner::Status(status, lines) => {
            let head = format!("HTTP/1.1 {status} As said\r\n{lines}content-length: 0\r\n\r\n");
            let _ = stream.write_all(head.as_bytes()).await;
        }
        Manner::Gone => {}
        // Until the other side ends it.
        Manner::Silent => drop(stream.read(&mut [0]).await),
        Manner::Endless => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 999999999999\r\n\r\n").await;
            while stream.write_all(&[b'x'; 4_096]).await.is_ok() {}
        }
    }
}
