//! Who pays for statements that are sent before the server has answered what changes that.

use mysql_async::prelude::Queryable as _;
use tidegate_gateway::Principals;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::stage::{Stage, is_in, login};
use crate::scene::{packet, read_packet};

/// Protocol 4.1, transactions, several statements and results, an authentication plugin and its name.
const CAPABILITIES: u32 = 0xb_a200;
/// The server reports changes of the session.
const SESSION_TRACK: u32 = 1 << 23;

/// A session of a user without a password and a database.
struct Bare(TcpStream);

impl Bare {
    async fn new(stage: &Stage, capabilities: u32) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", stage.port())).await.unwrap();
        read_packet(&mut stream).await;
        let mut login = (CAPABILITIES | capabilities).to_le_bytes().to_vec();
        login.extend(0x100_0000_u32.to_le_bytes());
        login.push(45);
        login.extend([0; 23]);
        login.extend(b"bare\0\0mysql_native_password\0");
        stream.write_all(&packet(1, &login)).await.unwrap();
        assert_eq!(read_packet(&mut stream).await[0], 0, "let in");
        Self(stream)
    }

    /// Sends these commands at once.
    async fn send(&mut self, commands: &[&[u8]]) {
        let commands: Vec<u8> = commands.iter().flat_map(|command| packet(0, command)).collect();
        self.0.write_all(&commands).await.unwrap();
    }

    async fn done(&mut self) {
        let answer = read_packet(&mut self.0).await;
        assert_eq!(answer[0], 0, "{}", String::from_utf8_lossy(&answer));
    }

    /// The number of an error.
    async fn refused(&mut self) -> u16 {
        let answer = read_packet(&mut self.0).await;
        assert_eq!(answer[0], 0xff, "{}", String::from_utf8_lossy(&answer));
        u16::from_le_bytes([answer[1], answer[2]])
    }

    /// The rows of a result, as they are on the wire.
    async fn rows(&mut self) -> Vec<Vec<u8>> {
        let columns = read_packet(&mut self.0).await;
        assert!(columns[0] < 0xfb, "{}", String::from_utf8_lossy(&columns));
        for _ in 0..=columns[0] {
            read_packet(&mut self.0).await;
        }
        let mut rows = Vec::new();
        loop {
            let row = read_packet(&mut self.0).await;
            if row[0] == 0xfe {
                return rows;
            }
            rows.push(row);
        }
    }

    /// The group that pays for an explained statement.
    async fn payer(&mut self) -> String {
        let rows = self.rows().await;
        let total = String::from_utf8_lossy(rows.last().unwrap()).into_owned();
        let group = total.split("in group ").nth(1).unwrap();
        group.split(',').next().unwrap().to_owned()
    }
}

const EXPLAIN: &[u8] = b"\x03explain ru select 1";

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_behind_a_change_of_who_pays_is_the_new_one_s() {
    let stage = Stage::with(|config| {
        config.policy.switchers = Principals::parse(["bare", "root", "gate"]).unwrap();
    })
    .await;
    stage.server.root("create user bare; grant all on other.* to bare; grant all on shop.* to bare").unwrap();
    let mut admin = stage.admin().await;
    admin.query_drop("create resource group others ru_per_sec = 100000").await.unwrap();
    admin.query_drop("create resource group batch ru_per_sec = 100000").await.unwrap();
    admin.query_drop("alter database other resource group others").await.unwrap();
    is_in(&mut login(stage.port(), "other", ("ann", "ann")).await, "others").await;
    let mut bare = Bare::new(&stage, 0).await;
    for (change, group) in
        [(&b"\x02other"[..], "others"), (b"\x02shop", "default"), (b"\x03use other", "others")]
    {
        bare.send(&[change, EXPLAIN]).await;
        bare.done().await;
        assert_eq!(bare.payer().await, group, "{}", String::from_utf8_lossy(change));
    }
    // The choice of a group holds also where the database changes just before it, and ends with the session.
    bare.send(&[b"\x02shop", b"\x03set resource group batch", EXPLAIN]).await;
    bare.done().await;
    bare.done().await;
    assert_eq!(bare.payer().await, "batch");
    bare.send(&[b"\x1f", EXPLAIN]).await;
    bare.done().await;
    assert_eq!(bare.payer().await, "default");
    // So do the diagnostics of what the gateway has answered.
    bare.send(&[b"\x03set resource group nowhere"]).await;
    assert_eq!(read_packet(&mut bare.0).await[0], 0xff);
    bare.send(&[b"\x03show warnings", b"\x1f", b"\x03show warnings"]).await;
    assert_eq!(bare.rows().await.len(), 1);
    bare.done().await;
    assert_eq!(bare.rows().await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_one_of_several_statements_changes_is_the_tenant() {
    let stage = Stage::new().await;
    stage.server.root("create user bare; grant all on other.* to bare").unwrap();
    let mut admin = stage.admin().await;
    admin.query_drop("create resource group others ru_per_sec = 100000").await.unwrap();
    admin.query_drop("alter database other resource group others").await.unwrap();
    is_in(&mut login(stage.port(), "other", ("ann", "ann")).await, "others").await;
    let mut bare = Bare::new(&stage, SESSION_TRACK).await;
    bare.send(&[b"\x03use other; select 1"]).await;
    bare.done().await;
    assert_eq!(bare.rows().await, [b"\x011"]);
    bare.send(&[EXPLAIN]).await;
    assert_eq!(bare.payer().await, "others");
}

/// MariaDB gives up the session before it looks who asks, and goes on with the user and the database before.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_whose_change_of_user_is_refused_has_chosen_no_group_and_left_nothing() {
    let stage = Stage::with(|config| {
        config.policy.switchers = Principals::parse(["bare", "root", "gate"]).unwrap();
    })
    .await;
    stage.server.root("create user bare; grant all on other.* to bare").unwrap();
    let mut admin = stage.admin().await;
    for group in ["others", "batch"] {
        admin.query_drop(format!("create resource group {group} ru_per_sec = 100000")).await.unwrap();
    }
    admin.query_drop("alter database other resource group others").await.unwrap();
    is_in(&mut login(stage.port(), "other", ("ann", "ann")).await, "others").await;
    let mut bare = Bare::new(&stage, 0).await;
    bare.send(&[b"\x02other", b"\x03set resource group batch", b"\x03set @left = 1", EXPLAIN]).await;
    for _ in 0..3 {
        bare.done().await;
    }
    assert_eq!(bare.payer().await, "batch");
    bare.send(&[b"\x03set resource group nowhere"]).await;
    assert_eq!(bare.refused().await, 8249);
    bare.send(&[&[b"\x11ann\0\x14", &[7; 20][..], b"shop\0\x2d\0mysql_native_password\0"].concat()]).await;
    // The server asks for the password under another number.
    assert_eq!(read_packet(&mut bare.0).await[0], 0xfe);
    bare.0.write_all(&packet(2, &[7; 20])).await.unwrap();
    assert_eq!(bare.refused().await, 1045);
    bare.send(&[b"\x03show warnings"]).await;
    for row in bare.rows().await {
        assert!(!row.windows(7).any(|word| word == b"nowhere"), "{}", String::from_utf8_lossy(&row));
    }
    bare.send(&[EXPLAIN, b"\x03select @left, database(), current_user()"]).await;
    assert_eq!(bare.payer().await, "others");
    assert_eq!(bare.rows().await, [b"\xfb\x05other\x06bare@%".to_vec()]);
}
