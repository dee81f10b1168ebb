//! Databases that die, clients that vanish, bytes that make no sense.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use tidegate_gateway::MetricsPage;
use tokio_postgres::NoTls;

use super::stage::{Stage, login, state, try_login, value};
use crate::common::eventually;

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_killed_ends_its_sessions_and_serves_again() {
    let mut stage = Stage::new().await;
    let ann = stage.ann().await;
    let running = tokio::spawn(async move { ann.simple_query("select pg_sleep(60)").await.is_err() });
    tokio::time::sleep(Duration::from_millis(300)).await;
    tokio::task::block_in_place(|| stage.postgres.kill());
    assert!(running.await.unwrap(), "the statement fails with the database");
    assert_eq!(state(try_login(stage.port(), "shop", ("ann", "ann")).await.map(|_| ())), "08006");
    tokio::task::block_in_place(|| stage.postgres.run().unwrap());
    let ann = stage.ann().await;
    assert_eq!(value(&ann, "select 1").await, "1");
    assert!(stage.gateway.shutdown().await.is_empty(), "all that was charged is known to the controller");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_vanishes_leaves_no_statement_behind_where_that_is_wanted() {
    let stage = Stage::with(|config| config.kill_abandoned = true).await;
    let root = stage.direct().await;
    let mut psql = stage.postgres.program("psql");
    psql.args(["-X", "-h", "127.0.0.1", "-p", &stage.port().to_string(), "-U", "ann", "shop"]);
    psql.args(["-c", "select count(*) from generate_series(1, 10000000000)"]).env("PGPASSWORD", "ann");
    let mut client = psql.spawn().unwrap();
    let active = "select count(*) from pg_stat_activity where usename = 'ann'";
    eventually("it runs", async || value(&root, active).await == "1").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    client.kill().unwrap();
    client.wait().unwrap();
    eventually("it is gone", async || value(&root, active).await == "0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_is_cut_off_and_nobody_else_notices() {
    let stage = Stage::with(|config| config.login_timeout = Duration::from_secs(2)).await;
    let ann = stage.ann().await;
    let startup = b"\0\0\0\x1e\0\x03\0\0user\0ann\0database\0s\0\0";
    let inputs: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0\0\0\x08",
        &[0xff; 64],
        &[0, 0, 0, 9, 4, 210, 22, 46, 1],
        b"\0\0\0\x08\x04\xd2\x16\x2fgarbage that is no TLS",
        startup,
    ];
    for input in inputs {
        let mut stream = TcpStream::connect(("127.0.0.1", stage.port())).await.unwrap();
        stream.write_all(input).await.unwrap();
        let mut answer = Vec::new();
        // Closed by the gateway, at once or when the login takes too long.
        let ended = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut answer)).await;
        assert!(ended.is_ok(), "{input:?}");
    }
    assert_eq!(value(&ann, "select 1").await, "1");
}

/// Severity and SQLSTATE of the error that ends a connection which begins like this; what stands before it.
async fn end_of(port: u16, first: &[u8]) -> (String, Option<(String, String)>) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream.write_all(first).await.unwrap();
    drop(stream.shutdown().await);
    let mut said = Vec::new();
    // Bytes that were not read reset a connection that is closed.
    drop(stream.read_to_end(&mut said).await);
    let Some(at) = said.iter().position(|byte| *byte == b'E') else {
        return (String::from_utf8_lossy(&said).into_owned(), None);
    };
    if said[at + 1..].starts_with(b"FATAL:  ") {
        // As it was before protocol 3.
        return (String::new(), Some(("FATAL".to_owned(), "old".to_owned())));
    }
    let fields: Vec<String> =
        said[at + 5..].split(|byte| *byte == 0).map(|field| String::from_utf8_lossy(field).into()).collect();
    let field = |kind: char| fields.iter().find_map(|field| field.strip_prefix(kind)).unwrap().to_owned();
    (String::from_utf8_lossy(&said[..at]).into_owned(), Some((field('V'), field('C'))))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_beginning_is_refused_as_the_server_does() {
    let stage = Stage::new().await;
    let framed = |code: u32, body: &[u8]| {
        [&u32::try_from(body.len() + 8).unwrap().to_be_bytes()[..], &code.to_be_bytes(), body].concat()
    };
    let (ssl, gss) = (framed(80_877_103, b""), framed(80_877_104, b""));
    let login = framed(3 << 16, b"user\0ann\0database\0shop\0\0");
    for (first, refused) in [
        (framed(2 << 16, b"user\0ann\0\0"), true),
        (framed(4 << 16, b"user\0ann\0\0"), true),
        (framed(0xffff_ffff, b""), true),
        (framed(3 << 16, b"user\0"), true),
        (framed(3 << 16, b"user\0ann\0"), true),
        (framed(3 << 16, b"user\0ann\0\0rest"), true),
        (framed(3 << 16, b"database\0shop\0\0"), true),
        (framed(3 << 16, b"\0"), true),
        // At once, so that the second is there before the first is answered.
        ([&ssl[..], &ssl].concat(), true),
        ([&ssl[..], &login].concat(), true),
        (vec![0, 0, 0, 7, 0, 3, 0], false),
        (vec![0, 0, 0x30, 0, 0, 3, 0, 0], false),
        (vec![0, 0], false),
        (framed(80_877_102, &[1]), false),
    ] {
        let direct = end_of(stage.postgres.port(), &first).await;
        let through = end_of(stage.port(), &first).await;
        assert_eq!(direct.1.is_some(), refused, "{first:?}: {direct:?}");
        assert_eq!(direct, through, "{first:?}");
    }
    // The server would go on to GSSAPI, which the gateway declines.
    let (before, told) = end_of(stage.port(), &[&gss[..], &login].concat()).await;
    assert_eq!((before.as_str(), told.unwrap().1.as_str()), ("N", "08P01"));
    // One after the other.
    for (request, ports) in [(&ssl, &[stage.postgres.port(), stage.port()][..]), (&gss, &[stage.port()])] {
        for port in ports.iter().copied() {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            stream.write_all(request).await.unwrap();
            assert_eq!(stream.read_u8().await.unwrap(), b'N');
            stream.write_all(request).await.unwrap();
            let mut said = Vec::new();
            stream.read_to_end(&mut said).await.unwrap();
            assert!(said.windows(7).any(|part| part == b"C0A000\0"), "{port}: {said:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_bounded_and_the_next_is_told() {
    let stage = Stage::with(|config| config.max_sessions = 2).await;
    let _first = stage.ann().await;
    let second = stage.ann().await;
    assert_eq!(state(try_login(stage.port(), "shop", ("ann", "ann")).await.map(|_| ())), "53300");
    drop(second);
    eventually("there is a place again", async || {
        try_login(stage.port(), "shop", ("ann", "ann")).await.is_ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_controller_statements_fail_clearly_or_run_as_told() {
    let mut stage = Stage::with(|config| config.endpoints = vec!["http://127.0.0.1:9".to_owned()]).await;
    let ann = login(stage.port(), "shop", ("ann", "ann")).await;
    let error = ann.simple_query("select 1").await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.code().code(), "57P03");
    // A client that has waited for so long in vain is not asked to retry at once.
    let hint = error.hint().unwrap();
    let after: f64 = hint.rsplit_once("after ").unwrap().1.trim_end_matches(" s.").parse().unwrap();
    assert!((4.5..=10.0).contains(&after), "{hint}");
    drop(ann);
    tokio::task::block_in_place(|| stage.postgres.kill());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_cancel_requests_hits_nobody_s_session_but_its_own() {
    let stage = Stage::new().await;
    let mut victims = Vec::new();
    for _ in 0..4 {
        victims.push(stage.ann().await);
    }
    let tokens: Vec<_> = victims.iter().map(tokio_postgres::Client::cancel_token).collect();
    let storm = tokio::spawn(async move {
        for round in 0..50_u32 {
            let all = tokens.iter().map(|token| token.cancel_query(NoTls));
            futures_util::future::join_all(all).await;
            // Keys of no session.
            let mut stream = TcpStream::connect(("127.0.0.1", stage.port())).await.unwrap();
            let packet = [16, 80_877_102, round, round].map(u32::to_be_bytes).concat();
            stream.write_all(&packet).await.unwrap();
            stream.read_to_end(&mut Vec::new()).await.unwrap();
        }
        stage
    });
    let victims = victims.into_iter().enumerate().map(|(own, ann)| {
        tokio::spawn(async move {
            let mut cancelled = 0;
            for n in 0..100 {
                let answer = ann.simple_query(&format!("select {own} * 1000 + {n}, pg_sleep(0.02)")).await;
                match answer {
                    Ok(rows) => {
                        let row = rows.iter().find_map(|message| match message {
                            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                            _ => None,
                        });
                        assert_eq!(row, Some((own * 1_000 + n).to_string()), "another session's answer");
                    }
                    Err(_) if ann.is_closed() => panic!("session {own} was ended"),
                    error => {
                        assert_eq!(state(error), "57014");
                        cancelled += 1;
                    }
                }
            }
            (ann, cancelled)
        })
    });
    let victims: Vec<_> = victims.collect();
    let stage = storm.await.unwrap();
    let bystander = stage.ann().await;
    for victim in victims {
        let (ann, cancelled) = victim.await.unwrap();
        assert!(cancelled > 0, "no request to cancel arrived");
        // One that came late may still be on its way to an idle session, which it does not hurt.
        eventually("the session is usable", async || ann.simple_query("select 1").await.is_ok()).await;
    }
    assert_eq!(value(&bystander, "select 1").await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_metrics_shows_what_happened() {
    let mut stage = Stage::with(|config| {
        config.max_sessions = 2;
        config.metrics = Some(MetricsPage::at("127.0.0.1:0".parse().unwrap()));
    })
    .await;
    let page = stage.gateway.metrics_address.unwrap();
    let (ann, other) = (stage.ann().await, stage.ann().await);
    ann.batch_execute("select 1").await.unwrap();
    assert!(ann.batch_execute("select 1 / 0").await.is_err());
    assert!(try_login(stage.port(), "shop", ("ann", "ann")).await.is_err());
    let told = http_get(page, "/metrics").await;
    assert!(told.starts_with("HTTP/1.1 200") && told.contains("version=0.0.4"), "{told}");
    for line in [
        "tidegate_gateway_statements_total{outcome=\"ok\"} 1\n",
        "tidegate_gateway_statements_total{outcome=\"failed\"} 1\n",
        "tidegate_gateway_wait_seconds_count 2\n",
        "tidegate_gateway_sessions 2\n",
        "tidegate_gateway_sessions_max 2\n",
        "tidegate_gateway_turned_away_total 1\n",
        "tidegate_gateway_controller_connected 1\n",
    ] {
        // A statement is counted when its client has the answer.
        eventually(line, async || http_get(page, "/metrics").await.contains(line)).await;
    }
    assert!(http_get(page, "/").await.starts_with("HTTP/1.1 404"));
    drop((ann, other));
    tokio::task::block_in_place(|| stage.postgres.kill());
    eventually("the lost database is counted", async || {
        let _ = try_login(stage.port(), "shop", ("ann", "ann")).await;
        !http_get(page, "/metrics").await.contains("tidegate_gateway_upstream_failures_total 0\n")
    })
    .await;
}

async fn http_get(address: std::net::SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}
