//! The admin API over REST.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_controller::Controller;
use tidegate_controller::clock::Clock;
use tidegate_proto::v1;
use tokio::time::{interval, timeout};

use crate::support::{Lab, MemoryStore, Node, PATIENCE, charged, config, report};

#[tokio::test]
async fn groups_and_bindings_over_rest() {
    let lab = Lab::start().await;
    let (status, made) = lab.http("POST", "/v1/groups", Some(r#"{"name":"Web","ru_per_sec":"100"}"#)).await;
    assert_eq!(
        (status, &made["group"]["name"], &made["changed"]),
        (200, &json!("web"), &json!(true)),
        "{made}"
    );
    let revision = made["group"]["revision"].as_u64().unwrap();
    let again =
        lab.http("POST", "/v1/groups?if_not_exists=true", Some(r#"{"name":"web","ru_per_sec":"100"}"#)).await;
    assert_eq!((again.0, &again.1["changed"]), (200, &json!(false)));
    assert_eq!(lab.http("POST", "/v1/groups", Some(r#"{"name":"web","ru_per_sec":"1"}"#)).await.0, 409);

    let path = format!("/v1/groups/web?expected_revision={revision}");
    let (status, altered) = lab.http("PATCH", &path, Some(r#"{"weight":7,"comment":"x"}"#)).await;
    assert_eq!(
        (status, &altered["group"]["weight"], &altered["group"]["ru_per_sec"]),
        (200, &json!(7), &json!("100"))
    );
    let (status, error) = lab.http("PATCH", &path, Some(r#"{"weight":8}"#)).await;
    assert_eq!((status, &error["error"]["code"]), (412, &json!("revision")));

    let bound = lab.http("PUT", "/v1/bindings", Some(r#"{"tenant":"t","group":"web"}"#)).await;
    assert_eq!((bound.0, &bound.1["changed"]), (200, &json!(true)));
    let (_, resolved) = lab.http("GET", "/v1/resolve?tenant=t&user=u", None).await;
    assert_eq!(resolved, json!({"group": "web", "matched": "tenant"}));
    let (status, used) = lab.http("DELETE", "/v1/groups/web", None).await;
    assert_eq!((status, &used["error"]["code"]), (409, &json!("in_use")));
    assert_eq!(lab.http("DELETE", "/v1/bindings?tenant=t", None).await.1["removed"], json!(true));
    assert_eq!(lab.http("DELETE", "/v1/groups/web", None).await.0, 200);
    assert_eq!(lab.http("GET", "/v1/groups/web", None).await.0, 404);

    let (_, audit) = lab.http("GET", "/v1/audit?limit=1", None).await;
    assert!(audit["entries"][0]["actor"].as_str().unwrap().starts_with("tester (127.0.0.1:"), "{audit}");
}

#[tokio::test]
async fn what_does_not_decode_is_refused_in_the_shape_of_the_api_and_shortly() {
    let lab = Lab::start().await;
    let long = format!(r#"{{"{}":1}}"#, "x".repeat(100_000));
    for (method, path, body) in [
        ("GET", "/v1/groups/%ff", None),
        ("GET", "/v1/usage/%ff/history", None),
        ("POST", "/v1/groups", Some(long.as_str())),
        ("PATCH", "/v1/groups/default", Some(&long)),
        ("PUT", "/v1/bindings", Some(&long)),
        ("GET", &format!("/v1/groups?{}=1", "x".repeat(10_000)), None),
    ] {
        let (status, answer) = lab.http(method, path, body).await;
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert_eq!((status, answer["error"]["code"].as_str()), (400, Some("invalid")), "{answer}");
        assert!(!message.is_empty() && message.len() < 1_000, "{} bytes", message.len());
    }
}

#[tokio::test]
async fn everything_can_be_read() {
    let lab = Lab::start().await;
    for path in [
        "/v1/groups",
        "/v1/bindings",
        "/v1/cost-tables",
        "/v1/usage",
        "/v1/usage?per_client=true",
        "/v1/usage/default/history",
        "/v1/usage/default/history?resolution=hour",
        "/v1/clients",
        "/v1/leases",
        "/v1/leases?group=default",
        "/v1/status",
        "/v1/audit",
        "/v1/statements",
        "/v1/statements?group=default&order=calls&limit=1&last=5m",
        "/v1/watches",
        "/v1/watches?group=default",
        "/v1/runaways",
        "/v1/runaways?group=gone&limit=1",
    ] {
        let (status, body) = lab.http("GET", path, None).await;
        assert_eq!(status, 200, "{path}: {body}");
    }
    let (_, status) = lab.http("GET", "/v1/status", None).await;
    assert_eq!(
        (&status["epoch"], &status["groups"], &status["recovery_us"]),
        (&json!(1), &json!(1), &json!(0))
    );
    let (_, page) = lab.http_text("GET", "/metrics", "text/plain", b"").await;
    assert!(page.contains("# TYPE tidegate_changes_total counter\n") && !page.contains("# EOF"), "{page}");
    assert!(page.contains("tidegate_groups 1\n"), "{page}");
}

#[tokio::test]
async fn the_openapi_document_lists_what_is_served() {
    let lab = Lab::start().await;
    let (status, document) = lab.http("GET", "/openapi.json", None).await;
    assert_eq!(status, 200);
    let paths = document["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 26);
    for (path, methods) in paths {
        let real = path.replace("{name}", "no-such").replace("{group}", "no-such");
        let real = real.replace("{role}", "active").replace("{id}", "7");
        for method in methods.as_object().unwrap().keys() {
            let body = matches!(method.as_str(), "put" | "post" | "patch").then_some("{}");
            let (status, answer) = lab.http(&method.to_uppercase(), &real, body).await;
            assert_ne!(status, 405, "{method} {path}");
            assert_ne!(
                answer["error"]["message"],
                json!("no such path; see /openapi.json"),
                "{method} {path}"
            );
        }
    }
}

#[tokio::test]
async fn bad_requests_get_the_right_code_and_field() {
    let lab = Lab::start().await;
    let table = [
        ("POST", "/v1/groups", r#"{"name":"a","ru_per_sec":"0"}"#, 400, "invalid", "ru_per_sec"),
        ("POST", "/v1/groups", r#"{"name":"a","ru_per_sec":"NaN"}"#, 400, "invalid", "ru_per_sec"),
        ("POST", "/v1/groups", r#"{"name":"a","ru_per_sec":"1000000001"}"#, 400, "invalid", "ru_per_sec"),
        ("POST", "/v1/groups", r#"{"name":"a"}"#, 400, "invalid", "ru_per_sec"),
        ("POST", "/v1/groups", r#"{"name":"a","ru_per_sec":""}"#, 400, "invalid", "ru_per_sec"),
        ("POST", "/v1/groups", r#"{"name":"a","ru_per_sec":" "}"#, 400, "invalid", "ru_per_sec"),
        ("PATCH", "/v1/groups/default", r#"{"ru_per_sec":""}"#, 400, "invalid", "ru_per_sec"),
        ("PATCH", "/v1/groups/default", r#"{"fallback":""}"#, 400, "invalid", "fallback"),
        ("PATCH", "/v1/groups/default", r#"{"max_debt":""}"#, 400, "invalid", "max_debt"),
        ("PATCH", "/v1/groups/default", r#"{"name":"other","weight":3}"#, 400, "invalid", "name"),
        ("DELETE", "/v1/cost-tables/active", "", 400, "invalid", "table"),
        ("POST", "/v1/groups", r#"{"name":"a b"}"#, 400, "invalid", "name"),
        ("POST", "/v1/groups", r#"{"name":"a","ru_per_sec":"1","parent":"none"}"#, 400, "invalid", "parent"),
        ("POST", "/v1/groups", r#"{"name":"a","ru_per_sec":5}"#, 400, "invalid", "ru_per_sec"),
        ("POST", "/v1/groups", r#"{"name":"a","ru_per_sec":"1","parent":""}"#, 400, "invalid", "parent"),
        (
            "POST",
            "/v1/groups",
            r#"{"name":"a","ru_per_sec":"1","query_limit":{"ru":"","rows":5,"action":"kill"}}"#,
            400,
            "invalid",
            "query_limit.ru",
        ),
        (
            "PATCH",
            "/v1/groups/default",
            r#"{"query_limit":{"ru":" ","rows":5,"action":"kill"}}"#,
            400,
            "invalid",
            "query_limit.ru",
        ),
        ("POST", "/v1/groups", r#"{"name":"a","colour":"red"}"#, 400, "invalid", "colour"),
        ("POST", "/v1/groups", r#"{"name":"a","weight":-1}"#, 400, "invalid", "weight"),
        ("POST", "/v1/groups", r#"{"name":"#, 400, "invalid", "body"),
        ("POST", "/v1/groups", "", 400, "invalid", "body"),
        ("POST", "/v1/groups", "null", 400, "invalid", "body"),
        ("POST", "/v1/groups", "[1,2]", 400, "invalid", "body"),
        ("POST", "/v1/groups?colour=red", r#"{"name":"a"}"#, 400, "invalid", "colour"),
        ("PATCH", "/v1/groups/default", "{}", 400, "invalid", "update_mask"),
        ("PATCH", "/v1/groups/default", r#"{"weight":"heavy"}"#, 400, "invalid", "weight"),
        ("PATCH", "/v1/groups/none", r#"{"weight":3}"#, 404, "not_found", ""),
        ("DELETE", "/v1/groups/default", "", 409, "refused", ""),
        ("PUT", "/v1/bindings", r#"{"group":"default"}"#, 400, "invalid", "user"),
        ("PUT", "/v1/bindings", r#"{"user":"u","group":"none"}"#, 404, "not_found", ""),
        ("PUT", "/v1/cost-tables/other", r#"{"name":"a","version":1}"#, 400, "invalid", "role"),
        ("PUT", "/v1/cost-tables/active", r#"{"name":"a"}"#, 400, "invalid", "table"),
        ("GET", "/v1/groups?limit=1001", "", 400, "invalid", "limit"),
        ("GET", "/v1/groups?limit=many", "", 400, "invalid", "limit"),
        ("GET", "/v1/usage?group=none", "", 404, "not_found", ""),
        ("GET", "/v1/usage/default/history?resolution=day", "", 400, "invalid", "resolution"),
        ("POST", "/v1/groups", r#"{"name":"a","query_limit":{}}"#, 400, "invalid", "query_limit"),
        (
            "POST",
            "/v1/groups",
            r#"{"name":"a","query_limit":{"rows":-1}}"#,
            400,
            "invalid",
            "query_limit.rows",
        ),
        (
            "PATCH",
            "/v1/groups/default",
            r#"{"query_limit":{"rows":1,"action":"shoot"}}"#,
            400,
            "invalid",
            "query_limit.action",
        ),
        ("GET", "/v1/statements?order=size", "", 400, "invalid", "order"),
        ("GET", "/v1/statements?limit=1001", "", 400, "invalid", "limit"),
        ("GET", "/v1/statements?last=2h", "", 400, "invalid", "last"),
        ("GET", "/v1/statements?group=none", "", 404, "not_found", ""),
        ("DELETE", "/v1/statements?group=none", "", 404, "not_found", ""),
        ("POST", "/v1/watches", r#"{"group":"default"}"#, 400, "invalid", "match"),
        (
            "POST",
            "/v1/watches",
            r#"{"group":"default","match":"exact","digest":"0"}"#,
            400,
            "invalid",
            "digest",
        ),
        ("DELETE", "/v1/watches", "", 400, "invalid", "id"),
        ("DELETE", "/v1/watches?id=1&group=default", "", 400, "invalid", "id"),
        ("DELETE", "/v1/watches?group=none", "", 404, "not_found", ""),
        ("GET", "/v1/watches?group=none", "", 404, "not_found", ""),
        ("GET", "/v1/runaways?limit=1001", "", 400, "invalid", "limit"),
        ("GET", "/v1/none", "", 404, "not_found", ""),
        ("PUT", "/v1/groups", "{}", 405, "method_not_allowed", ""),
    ];
    for (method, path, body, status, code, field) in table {
        let (got, answer) = lab.http(method, path, Some(body)).await;
        let error = &answer["error"];
        assert_eq!(
            (got, error["code"].as_str().unwrap_or("none")),
            (status, code),
            "{method} {path} {body}: {answer}"
        );
        assert_eq!(error["field"].as_str().unwrap_or_default(), field, "{method} {path} {body}: {answer}");
        assert!(!error["message"].as_str().unwrap().is_empty());
    }
    let (status, _) = lab.http_text("POST", "/v1/groups", "text/plain", b"{\"name\":\"a\"}").await;
    assert_eq!(status, 415);
    let large = format!("{{\"name\":\"a\",\"comment\":\"{}\"}}", "x".repeat(5 * 1024 * 1024));
    let (status, answer) = lab.http("POST", "/v1/groups", Some(&large)).await;
    assert_eq!((status, &answer["error"]["code"]), (413, &json!("too_large")));
    assert_eq!(lab.http("GET", "/v1/groups", None).await.1["groups"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn statements_and_watches_over_rest() {
    let lab = Lab::start().await;
    let limit = r#"{"exec_elapsed_us":60000000,"rows":5,"action":"kill","watch":"similar"}"#;
    let body = format!(r#"{{"name":"web","ru_per_sec":"unlimited","query_limit":{limit}}}"#);
    let (status, made) = lab.http("POST", "/v1/groups", Some(&body)).await;
    assert_eq!((status, &made["group"]["query_limit"]["rows"]), (200, &json!(5)), "{made}");
    let (status, altered) = lab.http("PATCH", "/v1/groups/web", Some(r#"{"query_limit":null}"#)).await;
    assert_eq!((status, altered["group"].get("query_limit")), (200, None), "{altered}");

    let body =
        r#"{"group":"web","match":"similar","digest":"00000000000000AB","action":"kill","text":"SELECT ?"}"#;
    let (status, added) = lab.http("POST", "/v1/watches", Some(body)).await;
    let watch = &added["watch"];
    assert_eq!(
        (status, &watch["digest"], &watch["source"]),
        (200, &json!("00000000000000ab"), &json!("manual"))
    );
    assert_eq!(&lab.http("GET", "/v1/watches?group=web", None).await.1["watches"][0], watch);

    let conviction = v1::ConvictRequest {
        gateway: "gw".into(),
        group: "web".into(),
        r#match: "watch".into(),
        action: "kill".into(),
        fingerprint: "00000000000000ab".into(),
        ..v1::ConvictRequest::default()
    };
    lab.statements().await.convict(conviction).await.unwrap();
    let (_, runaways) = lab.http("GET", "/v1/runaways", None).await;
    assert_eq!(runaways["runaways"][0]["repeats"], json!(1));
    assert_eq!(runaways["runaways"][0]["conviction"]["match"], json!("watch"));
    let path = format!("/v1/watches?id={}", watch["id"]);
    assert_eq!(lab.http("DELETE", &path, None).await.1, json!({"removed": 1}));

    let row = v1::StatementRow {
        group: "web".into(),
        fingerprint: "00000000000000ab".into(),
        kind: "select".into(),
        calls: 2,
        cpu_micro_ru: 3_000_000,
        ..v1::StatementRow::default()
    };
    let report = v1::ReportStatementsRequest {
        gateway: "gw".into(),
        incarnation: 1,
        seq: 1,
        rows: vec![row],
        evicted: 0,
    };
    lab.statements().await.report_statements(report).await.unwrap();
    let (_, list) = lab.http("GET", "/v1/statements", None).await;
    assert_eq!(
        (&list["rows"][0]["ru"], &list["rows"][0]["average_ru"]),
        (&json!("3"), &json!("1.5")),
        "{list}"
    );
    let (_, page) = lab.http_text("GET", "/metrics", "text/plain", b"").await;
    for line in ["tidegate_statements 1", "tidegate_convictions_total{action=\"kill\"} 1"] {
        assert!(page.contains(line), "{line}: {page}");
    }
    assert_eq!(lab.http("DELETE", "/v1/statements", None).await.1, json!({"removed": 1}));
}

#[tokio::test]
async fn a_limit_is_lifted_by_name_only() {
    let lab = Lab::start().await;
    lab.group("top", "100").await;
    let body = r#"{"name":"web","parent":"top","ru_per_sec":"10","burst":"5","burstable":"moderated",
        "burst_ru_per_sec":"20","fallback_total":"3"}"#;
    assert_eq!(lab.http("POST", "/v1/groups", Some(body)).await.0, 200);
    for (field, word, then) in [
        ("burst_ru_per_sec", "default", ""),
        ("burst", "default", ""),
        ("fallback_total", "none", ""),
        ("burstable", "off", "off"),
        // Answers leave unset fields out, so that the answer also defines a new group.
        ("parent", "/", ""),
        ("ru_per_sec", "unlimited", "unlimited"),
    ] {
        let path = "/v1/groups/web";
        let before = lab.http("GET", path, None).await.1["group"].clone();
        let (status, error) = lab.http("PATCH", path, Some(&json!({ field: "" }).to_string())).await;
        assert_eq!((status, &error["error"]["field"]), (400, &json!(field)), "{error}");
        assert!(error["error"]["message"].as_str().unwrap().contains(word), "{error}");
        assert_eq!(lab.http("GET", path, None).await.1["group"], before);
        let request = v1::AlterGroupRequest {
            group: Some(v1::Group { name: "web".into(), ..v1::Group::default() }),
            update_mask: vec![field.into()],
            expected_revision: 0,
        };
        let refused = lab.admin().await.alter_group(request).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{field}: {refused}");
        let (status, altered) = lab.http("PATCH", path, Some(&json!({ field: word }).to_string())).await;
        let now = altered["group"].get(field).map_or(Some(""), Value::as_str);
        assert_eq!((status, now), (200, Some(then)), "{altered}");
    }
    // An answer can be written back, open fields included.
    let read = lab.http("GET", "/v1/groups/web", None).await.1["group"].to_string();
    let (status, same) = lab.http("PATCH", "/v1/groups/web", Some(&read)).await;
    assert_eq!((status, &same["changed"]), (200, &json!(false)), "{same}");
}

#[tokio::test]
async fn a_shadow_cost_table_is_put_and_dropped() {
    let lab = Lab::start().await;
    let (_, tables) = lab.http("GET", "/v1/cost-tables", None).await;
    let mut table = tables["active"].clone();
    table["name"] = json!("trial");
    for (role, version) in [("shadow", 1), ("active", 2)] {
        table["version"] = json!(version);
        let path = format!("/v1/cost-tables/{role}");
        let (status, put) = lab.http("PUT", &path, Some(&table.to_string())).await;
        assert_eq!((status, &put[role]["version"]), (200, &json!(version)), "{put}");
    }
    let (status, dropped) = lab.http("DELETE", "/v1/cost-tables/shadow", None).await;
    assert_eq!((status, &dropped["shadow"]), (200, &json!(null)), "{dropped}");
    assert_eq!(lab.http("POST", "/v1/cost-tables/shadow", Some("{}")).await.0, 405);
}

#[tokio::test]
async fn a_controller_that_serves_is_alive_and_ready() {
    let lab = Lab::start().await;
    for path in ["/healthz", "/readyz"] {
        assert_eq!(lab.http("GET", path, None).await, (200, json!({"status": "ok"})), "{path}");
    }
}

#[tokio::test]
async fn pages_of_every_length_list_each_binding_once() {
    let lab = Lab::start().await;
    let principals = [("s", ""), ("t", ""), ("", "u"), ("", "v"), ("s", "u"), ("t", "u"), ("t", "v")];
    for (tenant, user) in principals {
        let body = json!({"tenant": tenant, "user": user, "group": "default"}).to_string();
        assert_eq!(lab.http("PUT", "/v1/bindings", Some(&body)).await.0, 200);
    }
    let named = |binding: &Value| {
        [&binding["tenant"], &binding["user"]].map(|part| part.as_str().unwrap_or_default().to_owned())
    };
    for limit in 1..=8 {
        let (mut seen, mut after) = (Vec::new(), [String::new(), String::new()]);
        loop {
            let [tenant, user] = &after;
            let path = format!("/v1/bindings?limit={limit}&after_tenant={tenant}&after_user={user}");
            let (status, page) = lab.http("GET", &path, None).await;
            assert_eq!(status, 200, "{page}");
            let names: Vec<_> = page["bindings"].as_array().unwrap().iter().map(named).collect();
            assert!((1..=limit).contains(&names.len()), "{page}");
            after = names.last().unwrap().clone();
            seen.extend(names);
            if page["more"] != json!(true) {
                break;
            }
            assert!(seen.len() < principals.len(), "pages of {limit} go round: {seen:?}");
        }
        let all: Vec<_> = principals.map(|(tenant, user)| [tenant.to_owned(), user.to_owned()]).into();
        assert_eq!(seen, all, "pages of {limit}");
    }
}

#[tokio::test]
async fn a_parameter_that_is_there_twice_and_a_body_of_another_kind_are_refused() {
    let lab = Lab::start().await;
    let (status, answer) = lab.http("GET", "/v1/groups?limit=1&limit=2", None).await;
    assert_eq!((status, &answer["error"]["field"]), (400, &json!("query")), "{answer}");
    let body = br#"{"name":"web","ru_per_sec":"1"}"#;
    for (media, accepted) in [
        ("text/json", 415),
        ("image/svg+json", 415),
        ("application/xml", 415),
        ("Application/JSON; charset=utf-8", 200),
        ("application/vnd.shop+json", 200),
    ] {
        let (status, answer) = lab.http_text("POST", "/v1/groups?if_not_exists=true", media, body).await;
        assert_eq!(status, accepted, "{media}: {answer}");
    }
}

/// By a clock of its own: a node is not forgotten within the minute.
#[tokio::test]
async fn a_node_that_is_forgotten_over_rest_is_gone_with_all_its_starts() {
    let folder = tempfile::tempdir().unwrap();
    let us = Arc::new(AtomicU64::new(0));
    let (store, clock) = (Arc::new(MemoryStore::default()), Clock::driven(Arc::clone(&us)));
    let running = Controller::start_at(config(&folder), store, clock).await.unwrap();
    let lab = Lab { folder, running };
    for incarnation in [1, 2] {
        let mut node = Node::connect(&lab, "node-1", incarnation).await.unwrap();
        node.report(vec![report("default", incarnation, 5)]).await;
    }
    let refused = lab.http("DELETE", "/v1/clients/node-1", None).await;
    assert_eq!((refused.0, &refused.1["error"]["code"]), (409, &json!("refused")), "{refused:?}");
    us.fetch_add(180_000_000, Ordering::SeqCst);
    let mut again = interval(Duration::from_millis(50));
    let gone = async {
        loop {
            again.tick().await;
            // Its stream may still be open.
            let (status, answer) = lab.http("DELETE", "/v1/clients/node-1", None).await;
            if status != 409 {
                return (status, answer);
            }
        }
    };
    let gone = timeout(PATIENCE, gone).await.unwrap();
    assert_eq!(gone, (200, json!({"incarnations": 2, "of_each": [2]})));
    assert_eq!(lab.http("DELETE", "/v1/clients/node-1", None).await.0, 404);
    assert_eq!(charged(&lab, "default").await, 10_000_000, "what it was charged stays");
    lab.running.shutdown().await.unwrap();
}
