//! Sessions with a controller and no database: the tests say what a server would say.

mod left;

use std::future::poll_fn;
use std::net::Ipv4Addr;
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::super::captured::{GREETING, LOGIN};
use super::super::outstanding::PIPELINE_LIMIT;
use super::super::tests::link::{OK, packet};
use super::super::tests::payers::changed;
use super::*;
use crate::buffer::Outbox;
use crate::govern::tests::{PATIENCE, Stage, eventually};
use crate::seats::Seats;
use crate::session::tests::{LATER, listening, narrow, soon};
use crate::session::{Listening, Pending};
use crate::stream::Stream;

/// An execution of the statement that was prepared first.
const EXECUTE: &[u8] = &[0x17, 1, 0, 0, 0, 0, 1, 0, 0, 0];

/// Where no server is.
const UPSTREAM: &str = "mysql://127.0.0.1:1";

/// A session, and both of its ends.
struct Talk {
    client: TcpStream,
    server: TcpStream,
    session: JoinHandle<Option<End>>,
    _closing: watch::Sender<bool>,
}

fn command(code: u8, text: &str) -> Vec<u8> {
    packet(0, &[&[code], text.as_bytes()].concat())
}

/// Reads so many bytes.
async fn heard(stream: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut heard = vec![0; count];
    soon("it is heard", stream.read_exact(&mut heard)).await.unwrap();
    heard
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (near, far) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
    (near.unwrap(), far.unwrap().0)
}

/// A session of which nothing has been heard, over connections of a client's and a server's.
fn session(listening: Listening, (client, server): (TcpStream, TcpStream)) -> Session {
    let shared = Arc::new(Shared { listening, control: None, self_signed: false, local_infile: true });
    let protocol = MySql::new(Machine::new(shared.settings()), Ipv4Addr::LOCALHOST.into());
    let link = Link::new(Stream::Tcp(client), Stream::Tcp(server), false);
    let (seat, _) = Arc::new(Seats::new(1)).enter().unwrap();
    Session::new(protocol, shared, link, Login::default(), Arc::new(seat))
}

impl Talk {
    /// A session of root's that has logged in.
    async fn new(stage: &Stage) -> Self {
        Self::over(stage, pair().await).await
    }

    /// The same over this connection of the client's.
    async fn over(stage: &Stage, ends: (TcpStream, TcpStream)) -> Self {
        let mut talk = Self::begun(stage, ends, PATIENCE).await;
        talk.server.write_all(&packet(2, OK)).await.unwrap();
        assert_eq!(heard(&mut talk.client, packet(2, OK).len()).await, packet(2, OK));
        talk
    }

    /// One whose login the server has not answered, and may take so long.
    async fn begun(stage: &Stage, (client, near): (TcpStream, TcpStream), login_timeout: Duration) -> Self {
        let (to_server, server) = pair().await;
        let (closing, closed) = watch::channel(false);
        let mut session =
            session(Listening { login_timeout, ..listening(stage, UPSTREAM, closed) }, (near, to_server));
        let session = tokio::spawn(async move { session.run().await.ok() });
        let mut talk = Self { client, server, session, _closing: closing };
        talk.server.write_all(GREETING).await.unwrap();
        heard(&mut talk.client, GREETING.len()).await;
        let mut login = LOGIN.to_vec();
        let name = login.windows(5).position(|part| part == b"gate\0").unwrap();
        login[name..name + 4].copy_from_slice(b"root");
        talk.client.write_all(&login).await.unwrap();
        heard(&mut talk.server, login.len()).await;
        talk
    }

    /// The server hears this, and the client hears the answer.
    async fn passes(&mut self, sent: Vec<u8>, answer: &[u8]) {
        self.client.write_all(&sent).await.unwrap();
        assert_eq!(heard(&mut self.server, sent.len()).await, sent);
        let answer = packet(1, answer);
        self.server.write_all(&answer).await.unwrap();
        assert_eq!(heard(&mut self.client, answer.len()).await, answer);
    }

    /// The client hears what ends so.
    async fn hears_to(&mut self, end: &[u8]) {
        let mut said = Vec::new();
        while !said.ends_with(end) {
            let read = soon("it is heard", self.client.read_buf(&mut said)).await;
            assert_ne!(read.unwrap(), 0, "{}", String::from_utf8_lossy(&said));
        }
    }

    /// What the gateway itself answers to this query.
    async fn answers(&mut self, sql: &str, expected: &str) {
        self.client.write_all(&command(3, sql)).await.unwrap();
        let (mut said, expected) = (Vec::new(), expected.as_bytes());
        while !said.windows(expected.len()).any(|part| part == expected) {
            let read = soon("it is answered", self.client.read_buf(&mut said)).await;
            assert_ne!(read.unwrap(), 0, "{}", String::from_utf8_lossy(&said));
        }
        // The end of the rows.
        while !said.ends_with(&[0xfe, 0, 0, 2, 0]) {
            soon("it ends", self.client.read_buf(&mut said)).await.unwrap();
        }
    }
}

/// Those that wait in the gateway, since the server is so far behind, are not lost.
#[tokio::test(flavor = "multi_thread")]
async fn all_that_a_client_sent_reaches_the_server_though_it_says_no_more() {
    let stage = Stage::new().await;
    let Talk { mut client, mut server, session, _closing } = Talk::new(&stage).await;
    let (ping, ok, all) = (command(14, ""), packet(1, OK), 3 * PIPELINE_LIMIT);
    client.write_all(&ping.repeat(all)).await.unwrap();
    client.shutdown().await.unwrap();
    for _ in 0..3 {
        assert_eq!(heard(&mut server, PIPELINE_LIMIT * ping.len()).await, ping.repeat(PIPELINE_LIMIT));
        server.write_all(&ok.repeat(PIPELINE_LIMIT)).await.unwrap();
    }
    assert_eq!(soon("the server hears the end", server.read(&mut [0])).await.unwrap(), 0);
    drop(server);
    let mut said = Vec::new();
    soon("the client gets all of it", client.read_to_end(&mut said)).await.unwrap();
    assert_eq!(said, ok.repeat(all));
    assert!(matches!(soon("the session ends", session).await.unwrap(), Some(End::Server)));
}

/// Else what comes of the command before it undoes the choice, or the choice is lost with who pays.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_is_chosen_behind_a_reset_or_another_database_stays_chosen() {
    let stage = Stage::new().await;
    for name in ["one", "two"] {
        stage.group(name, "").await;
    }
    let mut talk = Talk::new(&stage).await;
    for (before, name) in [(command(31, ""), "one"), (command(2, "other"), "two")] {
        let set = command(3, &format!("set resource group {name}"));
        talk.client.write_all(&[&before[..], &set].concat()).await.unwrap();
        assert_eq!(heard(&mut talk.server, before.len()).await, before);
        // Time to choose too early.
        tokio::time::sleep(LATER).await;
        talk.server.write_all(&packet(1, OK)).await.unwrap();
        let both = packet(1, OK).repeat(2);
        assert_eq!(heard(&mut talk.client, both.len()).await, both);
        talk.answers("select current_resource_group()", name).await;
    }
}

/// What a procedure does to the database finds who pays once more, and with that a choice that was made meanwhile is lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_is_chosen_behind_a_statement_that_changes_the_database_stays_chosen() {
    let stage = Stage::new().await;
    for name in ["one", "two"] {
        stage.group(name, "").await;
    }
    let mut talk = Talk::new(&stage).await;
    let prepared = packet(1, &[0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    talk.client.write_all(&command(22, "set resource group one")).await.unwrap();
    // Another text stands for it at the server.
    let stands = command(22, "SET @tidegate = (SELECT 1 UNION ALL SELECT 2)");
    assert_eq!(heard(&mut talk.server, stands.len()).await, stands);
    talk.server.write_all(&prepared).await.unwrap();
    assert_eq!(heard(&mut talk.client, prepared.len()).await, prepared);
    let sets = [(EXECUTE.to_vec(), "one"), (b"\x03set resource group two".to_vec(), "two")];
    // The controller is asked for the group, and the server's answer comes meanwhile.
    for (set, name) in sets.iter().cycle().take(20) {
        let call = command(3, "call p()");
        talk.client.write_all(&[&call[..], &packet(0, set)].concat()).await.unwrap();
        assert_eq!(heard(&mut talk.server, call.len()).await, call);
        let done = packet(1, &changed(0, &[], "other"));
        talk.server.write_all(&done).await.unwrap();
        let both = [done, packet(1, OK)].concat();
        assert_eq!(heard(&mut talk.client, both.len()).await, both);
        talk.answers("select current_resource_group()", name).await;
    }
}

/// The gateway answers one execution at a time: of many it would answer the first.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_gateway_answers_is_refused_for_many_rows_of_parameters() {
    let stage = Stage::new().await;
    let mut talk = Talk::new(&stage).await;
    let prepared = packet(1, &[0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    // The latter is described by the columns of its cost.
    for (text, at_server, end) in [
        ("set resource group one", "SET @tidegate = (SELECT 1 UNION ALL SELECT 2)", &prepared[4..]),
        ("explain ru insert into t values (1)", "insert into t values (1)", &[0xfe, 0, 0, 2, 0]),
    ] {
        talk.client.write_all(&command(22, text)).await.unwrap();
        let stands = command(22, at_server);
        assert_eq!(heard(&mut talk.server, stands.len()).await, stands);
        talk.server.write_all(&prepared).await.unwrap();
        talk.hears_to(end).await;
        talk.client.write_all(&packet(0, &[&[0xfa], &EXECUTE[1..5], &[0, 0]].concat())).await.unwrap();
        talk.hears_to(b"Execute it for each row.").await;
        // The server has not heard of it, and the session goes on.
        talk.passes(command(14, ""), OK).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_s_own_statement_is_executed_for_many_rows_of_parameters() {
    let stage = Stage::new().await;
    let mut talk = Talk::new(&stage).await;
    let prepared: &[u8] = &[0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let many = packet(0, &[&[0xfa], &EXECUTE[1..5], &[0, 0]].concat());
    for (asks, answer) in [(command(22, "insert into t values (1)"), prepared), (many, OK)] {
        talk.passes(asks, answer).await;
    }
}

/// Else who a pool makes another user of the connection goes on in a group that the one before has chosen.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_was_chosen_is_given_up_with_the_session_and_not_with_the_database() {
    let stage = Stage::new().await;
    stage.group("one", "").await;
    let mut talk = Talk::new(&stage).await;
    let user = command(17, "root\0\0shop\0");
    for (next, left) in [(command(2, "other"), "one"), (user, "default"), (command(31, ""), "default")] {
        talk.client.write_all(&command(3, "set resource group one")).await.unwrap();
        assert_eq!(heard(&mut talk.client, packet(1, OK).len()).await, packet(1, OK));
        talk.passes(next, OK).await;
        talk.answers("select current_resource_group()", left).await;
    }
    // And what that one was allowed.
    let user = command(17, "ann\0\0shop\0");
    talk.passes(user, OK).await;
    talk.client.write_all(&command(3, "set resource group one")).await.unwrap();
    assert_eq!(heard(&mut talk.client, 5).await[4], 0xff, "it is refused");
}

/// What a client calls itself may name a group, with each login.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_of_the_login_that_succeeded_last() {
    let stage = Stage::new().await;
    let (_closing, closed) = watch::channel(false);
    let ((_client, near), (to_server, _server)) = (pair().await, pair().await);
    let mut session = session(listening(&stage, UPSTREAM, closed), (near, to_server));
    let login = |user: &str, database: Option<&str>, program: Option<&str>| step::Login {
        user: user.to_owned(),
        database: database.map(str::to_owned),
        program_name: program.map(str::to_owned),
        ..step::Login::default()
    };
    for (event, [tenant, user, application]) in [
        (Event::Login(login("ann", Some("shop"), Some("job"))), ["shop", "ann", "job"]),
        (Event::UserChanged(login("bob", None, None)), ["", "bob", ""]),
        (Event::UserChanged(login("ann", Some("other"), Some("page"))), ["other", "ann", "page"]),
    ] {
        MySql::happened(&mut session, event);
        let expected = [tenant, user, application];
        let Login { tenant, user, application } = &session.login;
        assert_eq!([tenant, user, application], expected);
        assert!(matches!(session.pending, Some(Pending::Subject(_, None))), "who pays is looked up");
    }
}

/// What is seen of it may say something else than all of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_is_not_seen_to_its_end_is_the_server_s_whatever_it_begins_with() {
    let stage = Stage::new().await;
    let mut talk = Talk::new(&stage).await;
    let long = format!("drop resource group if exists one{}, two", " ".repeat(INPUT_LIMIT));
    for code in [3, 22] {
        let asks = command(code, &long);
        talk.client.write_all(&asks).await.unwrap();
        assert!(heard(&mut talk.server, asks.len()).await == asks);
        let refused = packet(1, b"\xff\x28\x04#42000no");
        talk.server.write_all(&refused).await.unwrap();
        assert_eq!(heard(&mut talk.client, refused.len()).await, refused);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_the_client_s_reaches_the_server_that_asks_for_it() {
    let stage = Stage::new().await;
    let mut talk = Talk::new(&stage).await;
    let (load, asks) = (command(3, "load data local infile 'f' into table t"), b"\xfbf");
    talk.passes(load, asks).await;
    let file = [packet(2, b"1\n"), packet(3, b"")].concat();
    talk.client.write_all(&file).await.unwrap();
    assert_eq!(heard(&mut talk.server, file.len()).await, file);
}

/// Its thread at the server is another connection's soon, whose work the counters have then.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_whose_server_is_gone_is_counted_before_its_client_has_taken_the_rest() {
    let stage = Stage::new().await;
    let group = stage.group("own", "").await;
    let Talk { mut client, mut server, session, _closing } = Talk::over(&stage, narrow().await).await;
    client.write_all(&command(3, "set resource group own")).await.unwrap();
    heard(&mut client, packet(1, OK).len()).await;
    let select = command(3, "select 1");
    client.write_all(&select).await.unwrap();
    heard(&mut server, select.len()).await;
    // More than the sockets hold, and less than the gateway takes.
    let row = [&[0xfc, 0, 1][..], &[b'x'; 256]].concat();
    let rows = packet(4, &row).repeat(Outbox::HIGH / 2 / row.len());
    let answer = [packet(1, b"\x01"), packet(2, b"\x03def"), packet(3, b"\xfe\0\0\x02\0"), rows].concat();
    server.write_all(&answer).await.unwrap();
    drop(server);
    eventually("it is counted", || group.consumption().operations > 0).await;
    let mut said = Vec::new();
    soon("the client gets all of it", client.read_to_end(&mut said)).await.unwrap();
    assert!(said == answer, "{} bytes", said.len());
    assert!(matches!(soon("the session ends", session).await.unwrap(), Some(End::Server)));
}

/// As at a server that takes a login and says nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_takes_too_long_is_ended_with_the_reason() {
    let stage = Stage::new().await;
    let talk = Talk::begun(&stage, pair().await, Duration::from_secs(3)).await;
    let Talk { mut client, server: _server, session, _closing } = talk;
    let mut told = Vec::new();
    soon("the connection ends", client.read_to_end(&mut told)).await.unwrap();
    // ER_NET_READ_INTERRUPTED, numbered behind the login.
    assert_eq!(told[3..], *b"\x02\xff\x87\x04#08S01the login took too long");
    assert!(matches!(soon("the session ends", session).await.unwrap(), Some(End::Told(Over::Login))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_succeeded_has_no_limit() {
    let stage = Stage::new().await;
    for logged_in in [false, true] {
        let (_closing, closed) = watch::channel(false);
        let ((_client, near), (to_server, _server)) = (pair().await, pair().await);
        let listening = Listening { login_timeout: Duration::ZERO, ..listening(&stage, UPSTREAM, closed) };
        let mut session = session(listening, (near, to_server));
        if logged_in {
            MySql::happened(&mut session, Event::Login(step::Login::default()));
        }
        let over =
            timeout(LATER, poll_fn(|cx| session.ends.poll(cx, true).map_or(Poll::Pending, Poll::Ready)));
        assert_eq!(over.await.ok(), (!logged_in).then_some(Over::Login));
    }
}

/// It would never be judged, and its client would wait for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_waits_for_who_pays_goes_on_waiting_when_that_changes() {
    let stage = Stage::new().await;
    let (_closing, closed) = watch::channel(false);
    let ((_client, near), (to_server, _server)) = (pair().await, pair().await);
    let mut session = session(listening(&stage, UPSTREAM, closed), (near, to_server));
    let (sql, command) = (&b"select 1"[..], Command::Query);
    let statement =
        |number| step::Statement { number, command, sql, whole: true, template: None, explained: false };
    let asked = |number| Asked::of(&stage.governor, &statement(number));
    let waits = |session: &Session| match &session.pending {
        Some(Pending::Subject(_, Some(asked))) => Some(asked.number),
        _ => None,
    };
    session.pending = Some(Pending::Subject(Box::pin(std::future::pending()), Some(asked(7))));
    MySql::happened(&mut session, Event::DatabaseChanged { database: "other".to_owned() });
    assert_eq!((waits(&session), session.login.tenant.as_str()), (Some(7), "other"));
    // The one that asks now is the one that waits.
    session.pending = Some(Pending::Subject(Box::pin(std::future::pending()), None));
    session.look_up(Some(asked(8)));
    assert_eq!(waits(&session), Some(8));
}
