//! Statements that are no SQL, no UTF-8, or longer than what is looked at: governed and counted like any other.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::common::eventually;
use crate::scene::{Scene, message, packet, read_packet};

/// Longer than what is looked at of a text.
const LONG: usize = 100_000;

/// Sends a statement as it is, and reads to the end of its answer: whether it is an error.
async fn fails(scene: &Scene, stream: &mut TcpStream, sql: &[u8]) -> bool {
    match scene {
        Scene::Postgres(_) => {
            stream.write_all(&message(b'Q', &[sql, b"\0"].concat())).await.unwrap();
            let mut said = Vec::new();
            while !said.ends_with(b"Z\0\0\0\x05I") {
                assert!(stream.read_buf(&mut said).await.unwrap() > 0);
            }
            said[0] == b'E'
        }
        Scene::MySql(_) => {
            stream.write_all(&packet(0, &[b"\x03", sql].concat())).await.unwrap();
            let first = read_packet(stream).await;
            if first[0] == 255 {
                return true;
            }
            // Columns, their end, rows, their end.
            for _ in 0..2 {
                while read_packet(stream).await.first() != Some(&254) {}
            }
            false
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_parse_is_admitted_charged_and_counted_without_its_literals() {
    for scene in Scene::both(|_| {}).await {
        let name = scene.name();
        scene.open_to_raw().await;
        let mut raw = scene.raw().await;
        let long = [b"select length('canary", &[b'x'; LONG][..], b"')"].concat();
        let broken = b"select length('canary\xff\xfe')";
        // MariaDB takes bytes that are no UTF-8 for a literal's.
        let cases = [
            (&b"selec 1, 'canary'"[..], true),
            (b"select 'canary", true),
            (b"\xff\xfe canary 'canary'", true),
            (b"select ) 'canary' (", true),
            (&broken[..], scene.pick(true, false)),
            (&long[..], false),
        ];
        for (sql, expected) in &cases {
            let failed = fails(&scene, &mut raw, sql).await;
            assert_eq!(failed, *expected, "{name}: {}", String::from_utf8_lossy(&sql[..sql.len().min(40)]));
        }
        // All are run as they are and counted; what is no SQL is of unknown kind.
        let number = |text: Option<String>| text.and_then(|text| text.parse::<u32>().ok()).unwrap_or(0);
        eventually("they are counted", async || {
            let unknown = "select sum(calls) from tidegate.statements where kind = 'unknown' and ru > 0";
            let failed = "select sum(errors) from tidegate.statements where resource_group = 'default'";
            number(scene.admin(unknown).await) >= 4 && number(scene.admin(failed).await) >= 4
        })
        .await;
        let told = "select count(*) from tidegate.statements where template like '%canary''%' \
                    or template like '%canaryx%' or template like '%''canary%'";
        assert_eq!(number(scene.admin(told).await), 0, "{name}: a literal is told");
    }
}
