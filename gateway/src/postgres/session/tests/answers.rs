//! Answers of the gateway itself, and when their client gets them.

use super::*;

/// A `Parse` of this text, without a name.
fn parse(text: &str) -> Vec<u8> {
    message(b'P', format!("\0{text}\0\0\0").as_bytes())
}

/// A `Bind` of that.
fn bind() -> Vec<u8> {
    message(b'B', &[0; 8])
}

/// An `Execute` of that, of at most so many rows.
fn execute(rows: u8) -> Vec<u8> {
    message(b'E', &[0, 0, 0, 0, rows])
}

fn flush() -> Vec<u8> {
    message(b'H', &[])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_sends_a_flush_gets_all_that_the_gateway_answers_itself() {
    let scene = Scene::new("", false).await;
    let mut talk = scene.talk().await;
    let own = [parse("show resource groups"), bind(), flush()].concat();
    talk.client.write_all(&own).await.unwrap();
    hears(&mut talk.client, &[message(b'1', &[]), message(b'2', &[])].concat()).await;
    talk.client.write_all(&[bind(), flush()].concat()).await.unwrap();
    hears(&mut talk.client, &message(b'2', &[])).await;
    // The server, which got nothing but these, has nothing to say.
    hears(&mut talk.server, &flush().repeat(2)).await;
}

/// An explanation of one row is refused, and so is what stands in a `Bind` that is too long for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_sends_a_flush_gets_a_refusal_at_once() {
    let scene = Scene::new("", false).await;
    let mut talk = scene.talk().await;
    let taken = [message(b'1', &[]), message(b'2', &[])].concat();
    let prepared = [parse("explain ru select 1"), bind(), flush()].concat();
    talk.client.write_all(&prepared).await.unwrap();
    hears(&mut talk.server, &[parse("select 1"), bind(), flush()].concat()).await;
    talk.server.write_all(&taken).await.unwrap();
    hears(&mut talk.client, &taken).await;
    talk.client.write_all(&[execute(1), flush()].concat()).await.unwrap();
    assert_eq!(soon("it is refused", talk.client.read_u8()).await.unwrap(), b'E');
}

/// What is seen of it may say something else than all of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_is_not_seen_to_its_end_is_the_server_s_whatever_it_begins_with() {
    let scene = Scene::new("", false).await;
    let mut talk = scene.talk().await;
    let long = format!("drop resource group own{}, other", " ".repeat(65_536));
    for asks in [query(&long), parse(&long)] {
        talk.asks(&[asks, message(b'S', &[])].concat()).await;
    }
    assert!(scene.stage.governor.group("own").is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_behind_statements_of_the_gateway_s_own_goes_without_a_word_of_the_server() {
    let scene = Scene::new("", false).await;
    let mut talk = scene.talk().await;
    let own = [parse("show resource groups"), bind(), query("select 1")].concat();
    talk.client.write_all(&own).await.unwrap();
    hears(&mut talk.client, &[message(b'1', &[]), message(b'2', &[])].concat()).await;
    hears(&mut talk.server, &query("select 1")).await;
    talk.server.write_all(&done("SELECT 1")).await.unwrap();
    hears(&mut talk.client, &done("SELECT 1")).await;
}

/// A driver prepares a statement once, and executes it whenever it likes.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_of_the_gateway_that_was_described_before_is_answered_as_things_are_when_it_runs() {
    let scene = Scene::new("", false).await;
    scene.stage.group("other", "").await;
    let mut talk = scene.talk().await;
    let sync = message(b'S', &[]);
    let described = [parse("select current_resource_group()"), message(b'D', b"S\0"), sync.clone()].concat();
    let executed = [bind(), execute(0), sync.clone()].concat();
    for (group, asks) in [("own", described), ("other", executed.clone()), ("own", executed)] {
        talk.client.write_all(&query(&format!("set resource group {group}"))).await.unwrap();
        unit(&mut talk.client).await;
        talk.client.write_all(&asks).await.unwrap();
        hears(&mut talk.server, &sync).await;
        talk.server.write_all(READY).await.unwrap();
        let said = unit(&mut talk.client).await;
        let named = said.windows(group.len()).any(|name| name == group.as_bytes());
        assert_eq!(named, asks.starts_with(b"B"), "{group}: {:?}", String::from_utf8_lossy(&said));
    }
}

/// What it said of itself was said once, and is true of the run behind it.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_of_the_gateway_that_was_described_and_runs_twice_in_a_unit_is_done_twice() {
    let scene = Scene::new("", false).await;
    let mut talk = scene.talk().await;
    let sync = message(b'S', &[]);
    let (of_portal, text) = (message(b'D', b"P\0"), "select name from information_schema.resource_groups");
    let first = [parse(text), bind(), of_portal, execute(0), flush()].concat();
    talk.client.write_all(&first).await.unwrap();
    let (mut heard, done) = (Vec::new(), message(b'C', b"SELECT 2\0"));
    while !heard.ends_with(&done) {
        let read = soon("it runs", talk.client.read_buf(&mut heard)).await.unwrap();
        assert_ne!(read, 0, "{:?}", String::from_utf8_lossy(&heard));
    }
    scene.stage.group("other", "").await;
    talk.client.write_all(&[bind(), execute(0), sync.clone()].concat()).await.unwrap();
    hears(&mut talk.server, &[flush(), sync].concat()).await;
    talk.server.write_all(READY).await.unwrap();
    let said = unit(&mut talk.client).await;
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("other") && said.contains("SELECT 3"), "{said:?}");
}

/// As a client that looks at one and runs another before it sends a `Sync`.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_of_the_gateway_that_was_described_is_no_answer_to_another() {
    let scene = Scene::new("", false).await;
    let mut talk = scene.talk().await;
    let (sync, describe) = (message(b'S', &[]), message(b'D', b"S\0"));
    let described = [parse("select current_resource_group()"), describe].concat();
    let asks =
        [described, parse("show create resource group own"), bind(), execute(0), sync.clone()].concat();
    talk.client.write_all(&asks).await.unwrap();
    hears(&mut talk.server, &sync).await;
    talk.server.write_all(READY).await.unwrap();
    let said = unit(&mut talk.client).await;
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("CREATE RESOURCE GROUP"), "{said:?}");
}

/// As a driver that prepares every statement describes it: that must not run it.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_of_the_gateway_without_rows_is_described_without_being_run() {
    let scene = Scene::new("", false).await;
    scene.stage.group("other", "").await;
    let mut talk = scene.talk().await;
    let sync = message(b'S', &[]);
    let (of_statement, of_portal) = (message(b'D', b"S\0"), message(b'D', b"P\0"));
    let described =
        [parse("set resource group other"), of_statement, bind(), of_portal, sync.clone()].concat();
    // No parameters, and no columns.
    let (parameters, columns) = (message(b't', &[0; 2]), message(b'n', &[]));
    let told = [message(b'1', &[]), parameters, columns.clone(), message(b'2', &[]), columns].concat();
    let executed = [bind(), execute(0), sync.clone()].concat();
    let done = [message(b'2', &[]), message(b'C', b"SET\0")].concat();
    for (asks, told, group) in [(described, told, "own"), (executed, done, "other")] {
        talk.client.write_all(&asks).await.unwrap();
        hears(&mut talk.server, &sync).await;
        talk.server.write_all(READY).await.unwrap();
        hears(&mut talk.client, &[&told[..], READY].concat()).await;
        talk.client.write_all(&query("select current_resource_group()")).await.unwrap();
        let said = unit(&mut talk.client).await;
        let named = said.windows(group.len()).any(|name| name == group.as_bytes());
        assert!(named, "{group}: {:?}", String::from_utf8_lossy(&said));
    }
}
