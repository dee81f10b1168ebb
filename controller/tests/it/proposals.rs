//! A change that is proposed: stored, compared with what is in force, begun again, and gone with its group.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;
use tidegate_controller::audit::Actor;
use tidegate_controller::limits::MOST_BELOW;
use tidegate_controller::service::Service;
use tidegate_proto::v1;

use crate::console::Browser;
use crate::support::{Lab, MemoryStore, Node, group, report, started, tell};

const SECOND_US: u64 = 1_000_000;
const MINUTE_US: u64 = 60 * SECOND_US;

fn actor() -> Actor {
    Actor::new(Some("test"), "here")
}

fn create(service: &Service, name: &str) {
    service.definitions().create_group(&actor(), &group(name, "100"), false).unwrap();
}

fn propose(service: &Service, name: &str, rate: &str) -> Result<(), String> {
    let mask = ["ru_per_sec".to_owned()];
    service
        .definitions()
        .put_proposal(&actor(), &group(name, rate), &mask, 0)
        .map(drop)
        .map_err(|error| error.to_string())
}

fn alter(service: &Service, name: &str, rate: &str) -> u64 {
    let mask = ["ru_per_sec".to_owned()];
    let altered = service.definitions().alter_group(&actor(), &group(name, rate), &mask, 0).unwrap();
    altered.group.revision
}

fn seen(service: &Service, name: &str) -> v1::ProposalReply {
    service.accounts().proposal(name).unwrap()
}

/// Reports that so much more is charged each second, for so long.
struct Work {
    seq: u64,
    sum: i64,
}

impl Work {
    fn on(&mut self, service: &Service, now: &AtomicU64, seconds: u64, ru: i64) {
        let session = service.leasing().hello("node", 1, "test").unwrap();
        for _ in 0..seconds {
            (self.seq, self.sum) = (self.seq + 1, self.sum + ru);
            tell(service, &session, self.seq, 1, self.sum);
            service.upkeep().flush().unwrap();
            now.fetch_add(SECOND_US, Ordering::Relaxed);
        }
    }
}

/// RU admitted under the settings in force and the proposed ones.
fn admitted(reply: &v1::ProposalReply) -> [u64; 2] {
    let compared = reply.comparison.clone().unwrap();
    [compared.current, compared.proposed].map(|outcome| {
        let even = outcome.unwrap().even.unwrap();
        even.admitted_ru.split('.').next().unwrap().parse().unwrap()
    })
}

#[test]
fn a_proposal_is_compared_since_it_was_made_and_begins_again_with_a_change() {
    let store = Arc::new(MemoryStore::default());
    let now = Arc::new(AtomicU64::new(100 * MINUTE_US));
    let service = started(&store, &now);
    alter(&service, "default", "100");
    let mut work = Work { seq: 0, sum: 0 };
    // What was before it is none of the comparison.
    work.on(&service, &now, 30, 90);
    propose(&service, "default", "10").unwrap();
    assert!(seen(&service, "default").comparison.is_none());
    let note = seen(&service, "default").notes.concat();
    assert!(note.starts_with("nothing is recorded since"), "{note}");
    work.on(&service, &now, 60, 50);
    let reply = seen(&service, "default");
    let compared = reply.comparison.clone().unwrap();
    assert_eq!((compared.resolution.as_str(), compared.wanted_ru.as_str()), ("second", "3000"));
    let [live, proposed] = admitted(&reply);
    assert_eq!(live, 3_000);
    // A minute of it, the burst of a second, and what waits a second at the end.
    assert!((590..=640).contains(&proposed), "{proposed}");
    let outcome = compared.proposed.unwrap().even.unwrap();
    assert!(outcome.throttled_time_ppm > 900_000 && outcome.p99_wait_us <= 1_020_000, "{outcome:?}");

    // By the minute, once seconds are not kept any more, and after a start, too.
    work.on(&service, &now, 600, 50);
    service.upkeep().tidy().unwrap();
    for service in [service, started(&store, &now)] {
        let reply = seen(&service, "default");
        assert_eq!(reply.comparison.as_ref().unwrap().resolution, "minute");
        let [live, proposed] = admitted(&reply);
        assert!((29_000..=33_000).contains(&live) && proposed < live / 4, "{live}, {proposed}");
    }

    // The group is changed: the comparison begins again, says so, and a start keeps that.
    let service = started(&store, &now);
    let before = seen(&service, "default").proposal.unwrap();
    now.fetch_add(5 * SECOND_US, Ordering::Relaxed);
    let revision = alter(&service, "default", "40");
    for service in [service, started(&store, &now)] {
        let reply = seen(&service, "default");
        let after = reply.proposal.clone().unwrap();
        assert_eq!((after.revision, after.live_revision), (before.revision, revision));
        assert!(after.since_unix_s > before.since_unix_s && after.proposed_unix_s == before.proposed_unix_s);
        assert!(
            reply.notes.iter().any(|note| note.contains("was changed since this was proposed")),
            "{reply:?}"
        );
    }
    let service = started(&store, &now);
    Work { seq: 0, sum: work.sum }.on(&service, &now, 20, 50);
    let reply = seen(&service, "default");
    let compared = reply.comparison.clone().unwrap();
    assert_eq!((compared.current.unwrap().ru_per_sec.as_str(), compared.wanted_ru.as_str()), ("40", "1000"));

    assert!(service.definitions().delete_proposal(&actor(), "default").unwrap());
    assert!(!service.definitions().delete_proposal(&actor(), "default").unwrap());
    let gone = started(&store, &now).accounts().proposal("default").unwrap_err().to_string();
    assert!(gone.contains("nothing is proposed for group default"), "{gone}");
    let audited = service.definitions().audit_log("", 0, 10).unwrap();
    let actions: Vec<_> = audited.iter().map(|entry| entry.action.as_str()).collect();
    assert_eq!(actions[..2], ["withdraw proposal", "alter group"]);
    assert!(actions.contains(&"propose"), "{actions:?}");
}

/// A start forgets the seconds before it, and what they had belongs to the comparison.
#[test]
fn after_a_start_a_proposal_is_compared_by_the_minutes_that_began_before_it() {
    let store = Arc::new(MemoryStore::default());
    let now = Arc::new(AtomicU64::new(100 * MINUTE_US));
    let service = started(&store, &now);
    alter(&service, "default", "100");
    propose(&service, "default", "10").unwrap();
    let mut work = Work { seq: 0, sum: 0 };
    work.on(&service, &now, 240, 50);
    let service = started(&store, &now);
    work.on(&service, &now, 60, 20);
    let compared = seen(&service, "default").comparison.unwrap();
    assert_eq!((compared.resolution.as_str(), compared.wanted_ru.as_str()), ("minute", "13200"));
    // Where nothing of the minutes is kept, what is known by the second is better than nothing.
    now.fetch_add(40 * SECOND_US, Ordering::Relaxed);
    alter(&service, "default", "90");
    let service = started(&store, &now);
    work.on(&service, &now, 10, 20);
    let compared = seen(&service, "default").comparison.unwrap();
    assert_eq!((compared.resolution.as_str(), compared.wanted_ru.as_str()), ("second", "200"));
}

/// Both are whole seconds, of which the start is in the first.
#[test]
fn a_proposal_of_the_second_in_which_the_controller_started_is_compared_by_the_second() {
    let store = Arc::new(MemoryStore::default());
    let now = Arc::new(AtomicU64::new(100 * MINUTE_US + 400_000));
    let service = started(&store, &now);
    alter(&service, "default", "100");
    propose(&service, "default", "10").unwrap();
    Work { seq: 0, sum: 0 }.on(&service, &now, 10, 20);
    now.fetch_add(800_000, Ordering::Relaxed);
    let compared = seen(&service, "default").comparison.unwrap();
    assert_eq!((compared.resolution.as_str(), compared.wanted_ru.as_str()), ("second", "200"));
}

#[test]
fn a_deleted_group_takes_its_proposal_along_and_there_are_at_most_a_hundred() {
    let store = Arc::new(MemoryStore::default());
    let now = Arc::new(AtomicU64::new(100 * MINUTE_US));
    let service = started(&store, &now);
    for number in 0..101 {
        create(&service, &format!("g{number:03}"));
    }
    for number in 0..100 {
        propose(&service, &format!("g{number:03}"), "50").unwrap();
    }
    let full = propose(&service, "g100", "50").unwrap_err();
    assert!(full.contains("the limit of 100 proposals is reached"), "{full}");
    // Another one takes the place of the first.
    propose(&service, "g000", "60").unwrap();
    service.definitions().delete_group(&actor(), "g007", "", 0, false).unwrap();
    create(&service, "g007");
    for service in [service, started(&store, &now)] {
        let all = service.definitions().proposals();
        let names: Vec<_> =
            all.iter().map(|proposal| proposal.group.as_ref().unwrap().name.as_str()).collect();
        assert_eq!((names.len(), names.contains(&"g007")), (99, false));
        assert_eq!(all[0].group.as_ref().unwrap().ru_per_sec, "60");
    }
    propose(&started(&store, &now), "g100", "50").unwrap();
}

#[tokio::test]
async fn grpc_and_rest_answer_alike_and_name_what_is_wrong() {
    let lab = Lab::start().await;
    lab.group("web", "1000").await;
    let put = v1::PutProposalRequest {
        group: Some(v1::Group { burst: "50".into(), ..group("web", "5") }),
        update_mask: vec!["ru_per_sec".into(), "burst".into()],
        expected_revision: 0,
    };
    let reply = lab.admin().await.put_proposal(put).await.unwrap().into_inner();
    assert_eq!(reply.proposal.as_ref().unwrap().fields, ["ru_per_sec", "burst"]);
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    node.report(vec![report("web", 1, 600)]).await;
    let get = || v1::GetProposalRequest { group: "web".into() };
    let reply = lab.admin().await.get_proposal(get()).await.unwrap().into_inner();
    let compared = reply.comparison.clone().unwrap();
    assert_eq!((compared.wanted_ru.as_str(), compared.resolution.as_str()), ("600", "second"));
    let at_once = |outcome: &Option<v1::WhatIfOutcome>| outcome.clone().unwrap().at_once.unwrap();
    assert_eq!(at_once(&compared.current).throttled_ru, "0");
    // The burst of 50, and 5 RU/s for a second of patience.
    assert_eq!(at_once(&compared.proposed).admitted_ru, "55");

    let path = "/v1/groups/web/proposal";
    let (status, body) = lab.http("GET", path, None).await;
    assert_eq!((status, &body), (200, &serde_json::to_value(&reply).unwrap()));
    let (_, body) = lab.http("GET", "/v1/proposals", None).await;
    assert_eq!(body["proposals"][0]["group"]["burst"], json!("50"));
    let (status, body) = lab.http("PUT", path, Some(r#"{"policy": "warm_up(10s, 3)"}"#)).await;
    assert_eq!((status, &body["proposal"]["fields"]), (200, &json!(["policy"])));
    // A change in between is not passed over.
    let alter = async |fields: &str| lab.http("PATCH", "/v1/groups/web", Some(fields)).await.0;
    let apply = async || lab.http("POST", &format!("{path}/apply"), None).await;
    assert_eq!(alter(r#"{"weight": 7}"#).await, 200);
    let (status, body) = apply().await;
    assert!(status == 409 && body.to_string().contains("changed since this was proposed"), "{status} {body}");
    let fields = r#"{"policy": "warm_up(10s, 3)"}"#;
    assert_eq!(lab.http("PUT", path, Some(fields)).await.0, 200);
    let (_, body) = lab.http("GET", path, None).await;
    let id = body["proposal"]["id"].as_u64().unwrap();
    let (status, body) = lab.http("POST", &format!("{path}/apply?expected_id={}", id + 1), None).await;
    assert!(status == 409 && body.to_string().contains("look at it again"), "{status} {body}");
    let (status, body) = lab.http("POST", &format!("{path}/apply?expected_id={id}"), None).await;
    assert_eq!((status, &body["group"]["policy"]), (200, &json!("warm_up(10s, 3)")), "{body}");
    assert_eq!(body["group"]["weight"], json!(7));
    // It is made and gone in one change.
    let (_, audit) = lab.http("GET", "/v1/audit?limit=2", None).await;
    let of = |at: usize, field: &str| audit["entries"][at][field].clone();
    assert_eq!(
        (of(0, "action"), of(1, "action")),
        (json!("withdraw proposal"), json!("alter group")),
        "{audit}"
    );
    assert_eq!(of(0, "change"), of(1, "change"), "{audit}");
    // Another one is listed, and withdrawn once.
    assert_eq!(lab.http("PUT", path, Some(r#"{"burst": "70"}"#)).await.0, 200);
    let mut admin = lab.admin().await;
    let listed = admin.list_proposals(v1::ListProposalsRequest {}).await.unwrap().into_inner();
    let (_, body) = lab.http("GET", "/v1/proposals", None).await;
    assert_eq!(body, serde_json::to_value(&listed).unwrap());
    assert_eq!(listed.proposals[0].group.as_ref().unwrap().burst, "70");
    for deleted in [true, false] {
        let request = v1::DeleteProposalRequest { group: "web".into() };
        let reply = admin.delete_proposal(request).await.unwrap().into_inner();
        assert_eq!(reply, v1::DeleteProposalReply { deleted });
        assert_eq!(lab.http("DELETE", path, None).await, (200, json!({"deleted": false})));
    }
    let request = v1::ApplyProposalRequest { group: "web".into(), expected_id: 0 };
    let nothing = lab.admin().await.apply_proposal(request).await.unwrap_err();
    assert!(nothing.message().contains("nothing is proposed for group web"), "{nothing}");

    for (group, body, status, told) in [
        ("none", json!({"burst": "5"}), 404, "group none does not exist"),
        ("web", json!({}), 400, "names no field"),
        ("web", json!({"weight": 5}), 400, "cannot be judged by a replay"),
        ("web", json!({"ru_per_sec": "unlimited"}), 400, "warm up"),
        ("web", json!({"ru_per_sec": "0"}), 400, "ru_per_sec"),
        ("web", json!({"ru_per_sec": ""}), 400, "ru_per_sec"),
        ("web", json!({"policy": "warm_up(10s, 3)"}), 400, "changes nothing"),
        ("web", json!({"limit": "5"}), 400, "limit"),
    ] {
        let (found, body) =
            lab.http("PUT", &format!("/v1/groups/{group}/proposal"), Some(&body.to_string())).await;
        assert!(found == status && body.to_string().contains(told), "{group}: {found} {body}");
    }
    assert_eq!(lab.http("PUT", path, Some(r#"{"burst": "7"}"#)).await.0, 200);
    let (status, body) = lab.http("DELETE", path, None).await;
    assert_eq!((status, &body["deleted"]), (200, &json!(true)));
    let (status, body) = lab.http("GET", path, None).await;
    assert!(
        status == 409 && body.to_string().contains("nothing is proposed for group web"),
        "{status} {body}"
    );
}

#[tokio::test]
async fn a_proposal_that_does_not_fit_its_group_any_more_is_still_seen_and_withdrawn() {
    let lab = Lab::start().await;
    let service = lab.running.service();
    let moderated = v1::Group { burstable: "moderated".into(), ..group("web", "1000") };
    service.definitions().create_group(&actor(), &moderated, false).unwrap();
    let more = v1::Group { burst_ru_per_sec: "3000".into(), ..group("web", "") };
    service.definitions().put_proposal(&actor(), &more, &["burst_ru_per_sec".to_owned()], 0).unwrap();
    let off = v1::Group { burstable: "off".into(), ..group("web", "") };
    service.definitions().alter_group(&actor(), &off, &["burstable".to_owned()], 0).unwrap();
    let reply = seen(service, "web");
    assert!(reply.proposal.is_some() && reply.comparison.is_none(), "{reply:?}");
    assert!(reply.notes.concat().contains("does not fit what group web has become"), "{:?}", reply.notes);
    let (_, proposed) = service.definitions().proposed("web").unwrap().unwrap();
    assert_eq!((proposed.burst_ru_per_sec.as_str(), proposed.ru_per_sec.as_str()), ("3000", "1000"));
    for (page, shows) in
        [("/console/groups/web", "/console/groups/web/proposal"), ("/console/groups/web/proposal", "3000")]
    {
        let (status, text) = lab.http_text("GET", page, "text/html", b"").await;
        assert!(status == 200 && text.contains(shows), "{page}: {status}");
    }
    let refused = service.definitions().apply_proposal(&actor(), "web", 0).unwrap_err();
    assert_eq!(refused.code(), "refused");
    assert!(service.definitions().delete_proposal(&actor(), "web").unwrap());
    assert_eq!(lab.http_text("GET", "/console/groups/web", "text/html", b"").await.0, 200);
}

/// Its comparison would replay more groups than a replay takes: that a proposal is stored does not depend on it.
#[tokio::test]
async fn what_is_proposed_for_a_group_with_many_below_is_answered_as_it_is_stored() {
    let lab = Lab::start().await;
    let below = |number: usize| v1::Group { parent: "web".into(), ..group(&format!("below-{number}"), "1") };
    let groups = [group("web", "1000")].into_iter().chain((0..=MOST_BELOW).map(below));
    let steps = groups.map(|group| v1::Step { kind: Some(v1::step::Kind::Group(Box::new(group))) });
    let wish = v1::ApplyRequest { steps: steps.collect(), ..v1::ApplyRequest::default() };
    lab.running.service().definitions().apply(&actor(), &wish).unwrap();
    let put = v1::PutProposalRequest {
        group: Some(group("web", "5")),
        update_mask: vec!["ru_per_sec".into()],
        expected_revision: 0,
    };
    let reply = lab.admin().await.put_proposal(put).await.unwrap().into_inner();
    assert_eq!(reply.proposal.unwrap().fields, ["ru_per_sec"]);
    let path = "/v1/groups/web/proposal";
    let (status, body) = lab.http("PUT", path, Some(r#"{"burst": "7"}"#)).await;
    assert_eq!((status, &body["proposal"]["fields"]), (200, &json!(["burst"])), "{body}");
    assert!(body["notes"][0].as_str().unwrap().starts_with("nothing is recorded since"), "{body}");
    // Its comparison is what cannot be had; the console shows what is proposed, and why that is all.
    let (status, body) = lab.http("GET", path, None).await;
    assert!(status == 400 && body.to_string().contains("too many to replay"), "{status} {body}");
    let page = Browser::at(&lab.running).get("/console/groups/web/proposal").await;
    let shows = |said: &str| page.text.contains(said);
    assert!(page.status == 200 && shows("<bdi>7</bdi>") && shows("too many to replay"), "{page:?}");
}
