//! A strict cluster, whose machines are halted with their clocks: what nodes hold stays within the limit.

use std::sync::Arc;
use std::time::Duration;

use tidegate_consensus::model::Model;
use tidegate_core::units::Span;
use tidegate_proto::v1;
use tidegate_proto::v1::admin_client::AdminClient;
use tidegate_proto::v1::client_message::Kind as Ask;
use tidegate_proto::v1::grants_client::GrantsClient;
use tidegate_proto::v1::server_message::Kind as Answer;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;

use super::drain::{leads, started};
use super::judge::Judge;
use super::world::{Draws, MS, SECOND, World};
use super::{FENCE, LONGER, seeds, settle, until_one_speaks};
use crate::grpc::testing::hello;

/// Seeds of one run of the test; `STRICT_SEEDS=0..=4999` asks for more.
const SEEDS: &str = "0..=149";

/// Returns how often the log was taken, and how many answers waited for a beat and came in.
fn run(seed: u64) -> (usize, u64) {
    let draws = Draws::new(!seed);
    let fences = [(); 3].map(|()| draws.among(&[FENCE, FENCE, FENCE, LONGER]));
    let world = World::new(seed, fences, true);
    world.pass(world.draws.below(SECOND));
    world.storm();
    world.pass(8 * SECOND + world.draws.below(14 * SECOND));
    world.calm();
    until_one_speaks(&world, 0, 1_500 * MS + 3 * LONGER.0, "after all is well");
    // One that was halted may believe for a fence that it leads.
    world.pass(LONGER.0);
    let waited = || world.nodes.lock().unwrap().waited;
    let before = waited();
    world.pass(5 * SECOND);
    assert!(waited() > before, "seed {seed}: no answer comes in after all is well");
    settle(&world);
    let came = (world.judge.lock().unwrap().course.takes, waited());
    world.end();
    came
}

#[test]
fn whatever_is_halted_nodes_hold_no_more_than_the_limit() {
    let (seeds, range) = seeds("STRICT_SEEDS", SEEDS);
    let (mut takes, mut waited) = (0, 0);
    for seed in range {
        let (more, answers) = run(seed);
        (takes, waited) = (takes + more, waited + answers);
    }
    eprintln!("{seeds}: {takes} takes of the log, {waited} answers waited for a beat");
    assert!(takes > 200 || seeds != SEEDS, "{takes} takes");
}

#[test]
fn a_controller_that_was_halted_believes_that_it_leads_and_nobody_hears_of_it() {
    for seed in 0..20 {
        let world = World::new(seed, [FENCE; 3], true);
        until_one_speaks(&world, 0, 4 * SECOND, "at the beginning");
        world.pass(2 * SECOND);
        let (at, term, _) = Judge::speaker(&world).unwrap();
        world.halt(at, 10 * SECOND);
        world.pass(4 * SECOND);
        let others = (0..3).filter(|other| *other != at);
        let leads =
            |other: &usize| world.machines[*other].lock().speaks.as_ref().is_some_and(|(of, _)| *of > term);
        assert!(others.clone().any(|other| leads(&other)), "seed {seed}: another one leads");
        let believes = |world: &Arc<World>| {
            let speaks = world.machines[at].lock().speaks.clone();
            speaks.is_some_and(|(of, service)| of == term && service.silence().is_none())
        };
        assert!(believes(&world), "seed {seed}: its clock stood still");
        // Nodes ask it all the time.
        world.pass(8 * SECOND);
        assert!(!believes(&world), "seed {seed}: its next beat shows what happened");
        world.end();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_has_no_answer_until_a_beat_is_stored() {
    let (model, folder) = (Arc::new(Model::new()), tempfile::tempdir().unwrap());
    // What is not stored for a while closes no fence.
    let (member, channel) = started(&model, folder.path(), "a", Span::secs(60), true).await;
    leads(&AdminClient::new(channel.clone())).await;
    let (asks, sent) = mpsc::channel(4);
    asks.try_send(hello()).unwrap();
    let mut answers =
        GrantsClient::new(channel).session(ReceiverStream::new(sent)).await.unwrap().into_inner();
    let welcome = answers.message().await.unwrap().unwrap();
    assert!(matches!(welcome.kind, Some(Answer::Welcome(_))), "{welcome:?}");
    let renew = |seq| {
        let renew = Ask::Renew(v1::Renew { seq, ..v1::Renew::default() });
        asks.try_send(v1::ClientMessage { kind: Some(renew) }).unwrap();
    };
    renew(1);
    let granted = answers.message().await.unwrap().unwrap();
    assert!(matches!(granted.kind, Some(Answer::Granted(_))), "{granted:?}");
    // No call reaches the shared store.
    model.draw(1, 1);
    renew(2);
    assert!(timeout(Duration::from_secs(1), answers.message()).await.is_err(), "it waits for a beat");
    model.calm();
    let granted = answers.message().await.unwrap().unwrap();
    assert!(matches!(granted.kind, Some(Answer::Granted(_))), "{granted:?}");
    drop(answers);
    member.shutdown().await.unwrap();
}
