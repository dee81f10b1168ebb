//! Logins as no driver sends them: byte by byte, and with a statement right behind them.

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::stage::Stage;
use crate::scene::{packet, read_packet};

/// Protocol 4.1, transactions, an authentication plugin and its name.
const CAPABILITIES: u32 = 0x8_a200;

fn login(user: &str) -> Vec<u8> {
    let mut login = CAPABILITIES.to_le_bytes().to_vec();
    login.extend(0x100_0000_u32.to_le_bytes());
    login.push(45);
    login.extend([0; 23]);
    login.extend(user.as_bytes());
    login.extend(b"\0\0mysql_native_password\0");
    packet(1, &login)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_is_taken_in_pieces_and_a_statement_behind_it_has_its_turn() {
    let stage = Stage::new().await;
    stage.server.root("create user bare").unwrap();
    // From here on there is a lease.
    drop(stage.ann().await);
    let sent = [login("bare"), packet(0, b"\x03select 41 + 1")].concat();
    for port in [stage.server.port(), stage.port()] {
        for pieces in [sent.len(), 1] {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            stream.set_nodelay(true).unwrap();
            read_packet(&mut stream).await;
            for piece in sent.chunks(pieces) {
                stream.write_all(piece).await.unwrap();
            }
            let mut answers = Vec::new();
            for _ in 0..5 {
                answers.push(read_packet(&mut stream).await);
            }
            assert_eq!(answers[0][0], 0, "port {port}: let in");
            assert_eq!((&answers[1][..], &answers[4][..]), (&[1][..], &b"\x0242"[..]), "port {port}");
        }
    }
}
