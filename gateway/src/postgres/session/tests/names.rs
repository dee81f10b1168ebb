//! Names of statements, whichever way they were given: what runs under one is what is judged.

use super::*;

/// What the group refuses.
const WATCHED: &str = "select 2 from b";

fn parse(name: &str, text: &str) -> Vec<u8> {
    message(b'P', format!("{name}\0{text}\0\0\0").as_bytes())
}

fn bind() -> Vec<u8> {
    message(b'B', &[0; 8])
}

fn sync() -> Vec<u8> {
    message(b'S', &[])
}

/// Prepares this text by the extended protocol, and runs it.
fn run(text: &str) -> Vec<u8> {
    [parse("", text), bind(), message(b'E', &[0; 5]), sync()].concat()
}

/// A name would be a way around the watches of a group.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_covers_a_statement_whichever_way_it_has_got_its_name_and_is_run() {
    let scene = Scene::new("", false).await;
    scene.stage.watch(&scene.group, WATCHED).await;
    let prepare = format!("prepare s as {WATCHED}");
    let parsed = [&message(b'1', &[])[..], READY].concat();
    let bound = [message(b'1', &[]), message(b'2', &[])].concat();
    let given = [
        vec![(query(&prepare), done("PREPARE"))],
        vec![(run(&prepare), [bound.clone(), done("PREPARE")].concat())],
        vec![([parse("s", WATCHED), sync()].concat(), parsed.clone())],
        vec![([parse("p", &prepare), sync()].concat(), parsed), (query("execute p"), done("PREPARE"))],
    ];
    for (at, given) in given.iter().enumerate() {
        for extended in [false, true] {
            let mut talk = scene.talk().await;
            for (asks, answer) in given {
                talk.asks(asks).await;
                talk.server.write_all(answer).await.unwrap();
                hears(&mut talk.client, answer).await;
            }
            if extended {
                talk.client.write_all(&run("execute s")).await.unwrap();
                // All but what would run it.
                hears(&mut talk.server, &[parse("", "execute s"), bind(), sync()].concat()).await;
                talk.server.write_all(&[&bound[..], READY].concat()).await.unwrap();
            } else {
                talk.client.write_all(&query("execute s")).await.unwrap();
            }
            let said = unit(&mut talk.client).await;
            let said = String::from_utf8_lossy(&said);
            assert!(said.contains("of resource group own covers it"), "{at} {extended}: {said:?}");
        }
    }
}
