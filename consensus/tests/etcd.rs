//! etcd itself: real members, killed and stopped, with TLS, with users, and full.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

mod contract;
mod relay;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use relay::Relay;
use tidegate_consensus::etcd::{Etcd, Written};
use tidegate_consensus::{Consensus, ConsensusError, Guard, Outcome, Page, Step, Transaction};
use tidegate_test_servers as servers;
use tidegate_test_servers::Certificates;

/// Where nothing keeps an answer away. A machine that does other work takes its time.
const WITHIN: Duration = Duration::from_secs(60);
/// Where nobody answers.
const SOON: Duration = Duration::from_millis(300);
/// Between two tries, and tries before a cluster is given up.
const PAUSE: Duration = Duration::from_millis(50);
const TRIES: u32 = 2_000;

fn of(endpoints: Vec<String>) -> Written {
    Written { endpoints, ..Written::default() }
}

fn connect(written: Written) -> Etcd {
    Etcd::new(written.check().unwrap()).unwrap()
}

/// A store that has an answer of the first of these, whose turn it still is: a busy machine may lose a call.
fn connected(written: Written) -> Etcd {
    let store = |_| {
        let store = connect(written.clone());
        page(&store, WITHIN).is_ok().then_some(store)
    };
    (0..TRIES).find_map(store).unwrap()
}

/// The members, this one first.
fn from(server: &servers::Etcd, first: usize) -> Vec<String> {
    let mut endpoints = server.endpoints();
    endpoints.rotate_left(first);
    endpoints
}

fn leader(server: &servers::Etcd) -> usize {
    (0..TRIES)
        .find_map(|_| {
            let leader = server.leader();
            if leader.is_none() {
                std::thread::park_timeout(PAUSE);
            }
            leader
        })
        .unwrap()
}

fn put(key: &str, value: &[u8]) -> Transaction {
    Transaction { then: vec![Step::Put(key.as_bytes().to_vec(), value.to_vec())], ..Transaction::default() }
}

fn page(store: &dyn Consensus, within: Duration) -> Result<Page, ConsensusError> {
    store.range(b"k", b"l", 16, None, within)
}

fn unknown<T: std::fmt::Debug>(said: Result<T, ConsensusError>) -> String {
    match said {
        Err(error @ ConsensusError::Unknown { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

fn refused<T: std::fmt::Debug>(said: Result<T, ConsensusError>) -> String {
    match said {
        Err(error @ ConsensusError::Refused { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

/// What is there.
fn keys(store: &Etcd) -> Vec<String> {
    let rows = at_last(|| page(store, WITHIN)).rows;
    rows.into_iter().map(|row| String::from_utf8(row.key).unwrap()).collect()
}

/// Tries until it is done; until then nobody knows.
fn at_last<T: std::fmt::Debug>(call: impl Fn() -> Result<T, ConsensusError>) -> T {
    for _ in 0..TRIES {
        match call() {
            Ok(done) => return done,
            failed => drop(unknown(failed)),
        }
        std::thread::park_timeout(PAUSE);
    }
    panic!("never done")
}

/// Sets a key that nobody set before, with tries whose outcomes are unknown: it happens once.
fn once(store: &Etcd, key: &str) -> Outcome {
    let key = key.as_bytes().to_vec();
    let transaction = Transaction {
        when: vec![Guard::Changed(key.clone(), 0)],
        then: vec![Step::Put(key.clone(), b"v".to_vec()), Step::Get(key.clone())],
        otherwise: vec![Step::Get(key)],
    };
    at_last(|| store.transact(&transaction, Duration::from_secs(5)))
}

/// From now on it is `tidegate` with a password who may read and write from "k" to before "l".
fn turn_authentication_on(server: &servers::Etcd) {
    // The ends of the range are in base64.
    let range =
        "{\"name\":\"keys\",\"perm\":{\"permType\":\"READWRITE\",\"key\":\"aw==\",\"range_end\":\"bA==\"}}";
    for (path, body) in [
        ("auth/user/add", "{\"name\":\"root\",\"password\":\"r00t\"}"),
        ("auth/role/add", "{\"name\":\"root\"}"),
        ("auth/user/grant", "{\"user\":\"root\",\"role\":\"root\"}"),
        ("auth/user/add", "{\"name\":\"tidegate\",\"password\":\"s3cret\"}"),
        ("auth/role/add", "{\"name\":\"keys\"}"),
        ("auth/role/grant", range),
        ("auth/user/grant", "{\"user\":\"tidegate\",\"role\":\"keys\"}"),
        ("auth/enable", "{}"),
    ] {
        server.call(path, body, None).unwrap();
    }
}

fn file(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("password");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    path
}

#[test]
fn it_does_what_every_such_store_does() {
    let server = servers::Etcd::start(1, &[]).unwrap();
    let store = connect(of(server.endpoints()));
    for (rule, holds) in contract::RULES {
        println!("{rule}");
        holds(&store);
    }
}

#[test]
fn what_is_too_large_is_refused_and_a_page_that_is_too_long_is_unknown() {
    let server = servers::Etcd::start(1, &[]).unwrap();
    let store = connect(of(server.endpoints()));
    store.transact(&put("j", &vec![0; 1_500_000]), WITHIN).unwrap();
    for (bytes, reason) in [(1_600_000, "request is too large"), (3 << 20, "message larger than max")] {
        let said = refused(store.transact(&put("k", &vec![0; bytes]), WITHIN));
        assert!(said.contains(reason) && said.contains("http://127.0.0.1:"), "{said}");
    }
    let steps = (0..129).map(|i| Step::Get(vec![i])).collect();
    let said = refused(store.transact(&Transaction { then: steps, ..Transaction::default() }, WITHIN));
    assert!(said.contains("too many operations"), "{said}");
    for i in 0..19 {
        store.transact(&put(&format!("k{i}"), &[i; 512 << 10]), WITHIN).unwrap();
    }
    let said = unknown(store.range(b"k", b"l", 19, None, WITHIN));
    assert!(said.contains("too large"), "{said}");
    assert!(page(&store, WITHIN).unwrap().more);
}

#[test]
fn a_member_that_is_killed_costs_one_call() {
    let mut server = servers::Etcd::start(3, &[]).unwrap();
    let follower = (leader(&server) + 1) % 3;
    let endpoints = from(&server, follower);
    once(&connect(of(endpoints.clone())), "k1");
    let store = connected(of(endpoints.clone()));
    server.kill(follower).unwrap();
    let said = unknown(store.transact(&put("k2", b"v"), WITHIN));
    assert!(said.contains(&endpoints[0]), "{said}");
    once(&store, "k3");
    let status = at_last(|| store.status(WITHIN));
    assert!(endpoints[1..].contains(&status.member), "{status:?}");
    assert_eq!(keys(&store), ["k1", "k3"]);
}

#[test]
fn a_leader_that_is_killed_loses_nothing_and_the_others_go_on() {
    let mut server = servers::Etcd::start(3, &[]).unwrap();
    let first = leader(&server);
    let endpoints = from(&server, first);
    let store = connected(of(endpoints.clone()));
    let before = once(&store, "k1").revision;
    server.kill(first).unwrap();
    let after = once(&store, "k2");
    assert_eq!(after.revision, before + 1);
    assert_ne!(leader(&server), first);
    server.run(first).unwrap();
    server.wait().unwrap();
    let alone = connect(of(vec![endpoints[0].clone()]));
    let rows = at_last(|| page(&alone, WITHIN)).rows;
    assert_eq!(rows.iter().map(|row| row.changed).collect::<Vec<_>>(), [before, before + 1]);
    assert_eq!((alone.cluster_id(), alone.cluster_id().is_some()), (store.cluster_id(), true));
}

#[test]
fn a_member_that_stands_still_costs_one_deadline() {
    let mut server = servers::Etcd::start(3, &[]).unwrap();
    let follower = (leader(&server) + 1) % 3;
    let endpoints = from(&server, follower);
    let store = connected(of(endpoints.clone()));
    server.pause(follower).unwrap();
    let said = unknown(page(&store, SOON));
    assert!(said.contains("no answer within 300ms"), "{said}");
    once(&store, "k1");
    // One that is not connected yet, too: the kernel takes the connection.
    let other = connect(of(endpoints.clone()));
    let said = unknown(page(&other, SOON));
    assert!(said.contains(&endpoints[0]), "{said}");
    assert_eq!(keys(&other), ["k1"]);
    server.resume(follower).unwrap();
    assert_eq!(keys(&connect(of(vec![endpoints[0].clone()]))), ["k1"]);
}

#[test]
fn without_a_majority_nothing_is_known_and_with_one_all_is_there() {
    let mut server = servers::Etcd::start(3, &[]).unwrap();
    let store = connect(of(server.endpoints()));
    once(&store, "k1");
    server.kill(1).unwrap();
    server.kill(2).unwrap();
    // Each member in turn; no read is answered from what the one that is left remembers.
    for _ in 0..3 {
        unknown(store.transact(&put("k2", b"v"), SOON));
    }
    for _ in 0..3 {
        unknown(page(&store, SOON));
    }
    server.run(1).unwrap();
    server.run(2).unwrap();
    server.wait().unwrap();
    once(&store, "k3");
    // What nobody knew may have happened, or may not.
    let keys: Vec<String> = keys(&store).into_iter().filter(|key| key != "k2").collect();
    assert_eq!(keys, ["k1", "k3"]);
}

#[test]
fn a_member_of_another_cluster_is_asked_for_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let user = Written {
        user: Some("tidegate".to_owned()),
        password_file: Some(file(folder.path(), "s3cret")),
        ..Written::default()
    };
    for with in [Written::default(), user] {
        let settings: &[&str] = if with.user.is_some() { &["--bcrypt-cost", "4"] } else { &[] };
        let mut clusters = [(); 2].map(|()| servers::Etcd::start(1, settings).unwrap());
        if with.user.is_some() {
            clusters.iter().for_each(turn_authentication_on);
        }
        let endpoints = clusters.iter().flat_map(servers::Etcd::endpoints).collect();
        let store = connected(Written { endpoints, ..with.clone() });
        let first = store.cluster_id();
        clusters[0].kill(0).unwrap();
        unknown(page(&store, WITHIN));
        let said = unknown(store.transact(&put("k2", b"v"), WITHIN));
        assert!(said.contains("name members of one cluster"), "{said}");
        assert!(said.contains(&clusters[1].endpoints()[0]), "{said}");
        let other = connect(Written { endpoints: clusters[1].endpoints(), ..with });
        assert_eq!(page(&other, WITHIN).unwrap().rows, []);
        assert!(store.cluster_id() == first && other.cluster_id() != first);
    }
}

#[test]
fn a_member_of_another_cluster_at_an_address_that_is_known_is_asked_for_nothing() {
    let clusters = [(); 2].map(|()| servers::Etcd::start(1, &[]).unwrap());
    let [first, second] = clusters.each_ref().map(|cluster| cluster.endpoints().remove(0));
    let relay = Relay::to(&first);
    let store = connect(of(vec![relay.endpoint()]));
    once(&store, "k1");
    relay.turn_to(&second);
    let said = unknown(store.transact(&put("k2", b"v"), WITHIN));
    assert!(said.contains("name members of one cluster") && said.contains(&relay.endpoint()), "{said}");
    assert_eq!(keys(&connect(of(vec![second]))), [""; 0]);
    // A connection that ended costs no call.
    relay.turn_to(&first);
    assert_eq!(keys(&store), ["k1"]);
    relay.turn_to(&first);
    store.transact(&put("k3", b"v"), WITHIN).unwrap();
    relay.turn_to(&first);
    let rows = page(&store, WITHIN).unwrap().rows;
    assert_eq!(rows.iter().map(|row| &*row.key).collect::<Vec<_>>(), [b"k1", b"k3"]);
}

#[test]
fn members_are_known_by_their_authority_and_may_ask_for_a_certificate() {
    let (own, foreign) = ("IP:127.0.0.1", Certificates::new("IP:127.0.0.1").unwrap());
    let certificates = Certificates::new(own).unwrap();
    let (authority, clients) = (certificates.authority(), certificates.authority());
    let demand = ["--client-cert-auth", "--trusted-ca-file", clients.to_str().unwrap()];
    let server = servers::Etcd::secure(1, &demand, &certificates).unwrap();
    let anonymous = Written { ca: Some(authority.clone()), ..of(server.endpoints()) };
    let shown = Written {
        cert: Some(certificates.certificate()),
        key: Some(certificates.key()),
        ..anonymous.clone()
    };
    let store = connect(shown.clone());
    once(&store, "k1");
    assert_eq!(page(&store, WITHIN).unwrap().rows.len(), 1);
    let said = unknown(page(&connect(Written { ca: Some(foreign.authority()), ..shown }), WITHIN));
    assert!(said.contains("etcd_ca") && !said.contains("--ca"), "{said}");
    // A write to a connection that the member has closed may fail before what it said is read.
    let store = connect(anonymous);
    let says_why = || unknown(page(&store, WITHIN)).contains("certificate");
    assert!((0..TRIES).any(|_| says_why()));
    let plain = server.endpoints().iter().map(|endpoint| endpoint.replace("https", "http")).collect();
    unknown(page(&connect(of(plain)), WITHIN));
}

#[test]
fn a_user_is_known_by_the_password_in_the_file_and_may_do_what_etcd_says() {
    let server = servers::Etcd::start(1, &["--bcrypt-cost", "4"]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let password_file = Some(file(folder.path(), "s3cret"));
    let written = Written { user: Some("tidegate".to_owned()), password_file, ..of(server.endpoints()) };
    let said = refused(page(&connect(written.clone()), WITHIN));
    assert!(said.contains("not enabled") && said.contains("turn authentication on"), "{said}");
    turn_authentication_on(&server);
    let store = connect(written.clone());
    once(&store, "k1");
    let said = refused(store.transact(&put("m", b"v"), WITHIN));
    assert!(said.contains("permission denied"), "{said}");
    // Another password ends what the old one gave; the new one counts with the file.
    let root = server.call("auth/authenticate", "{\"name\":\"root\",\"password\":\"r00t\"}", None).unwrap();
    let token = root.split('"').skip_while(|part| *part != "token").nth(2).unwrap();
    let change = "{\"name\":\"tidegate\",\"password\":\"s3cret-2\"}";
    server.call("auth/user/changepw", change, Some(token)).unwrap();
    let said = refused(page(&store, WITHIN));
    assert!(said.contains("etcd_user (\"tidegate\")") && !said.contains("s3cret"), "{said}");
    file(folder.path(), "s3cret-2\n");
    assert_eq!(page(&store, WITHIN).unwrap().rows.len(), 1);
    once(&store, "k2");
    let shown = format!("{store:?} {written:?}");
    assert!(shown.contains("127.0.0.1") && !shown.contains("s3cret"), "{shown}");
    let said = refused(page(&connect(of(server.endpoints())), WITHIN));
    assert!(said.contains("user name is empty"), "{said}");
}

#[test]
fn callers_whose_token_has_ended_share_one_login() {
    const CALLERS: usize = 16;
    let server = servers::Etcd::start(1, &["--bcrypt-cost", "4"]).unwrap();
    turn_authentication_on(&server);
    let folder = tempfile::tempdir().unwrap();
    let password_file = Some(file(folder.path(), "s3cret"));
    let written = Written { user: Some("tidegate".to_owned()), password_file, ..of(server.endpoints()) };
    let store = connect(written);
    once(&store, "k1");
    let root = server.call("auth/authenticate", "{\"name\":\"root\",\"password\":\"r00t\"}", None).unwrap();
    let token = root.split('"').skip_while(|part| *part != "token").nth(2).unwrap();
    let change = "{\"name\":\"tidegate\",\"password\":\"s3cret-2\"}";
    server.call("auth/user/changepw", change, Some(token)).unwrap();
    file(folder.path(), "s3cret-2");
    let logins = || server.answered(0, "Authenticate").unwrap();
    let (before, together) = (logins(), std::sync::Barrier::new(CALLERS));
    std::thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                together.wait();
                assert_eq!(page(&store, WITHIN).unwrap().rows.len(), 1);
            });
        }
    });
    assert_eq!(logins() - before, 1);
}

#[test]
fn a_user_is_known_to_each_member_that_is_asked_behind_one_that_is_killed() {
    let mut server = servers::Etcd::start(3, &["--bcrypt-cost", "4"]).unwrap();
    leader(&server);
    turn_authentication_on(&server);
    let folder = tempfile::tempdir().unwrap();
    let password_file = Some(file(folder.path(), "s3cret"));
    let store =
        connect(Written { user: Some("tidegate".to_owned()), password_file, ..of(server.endpoints()) });
    once(&store, "k1");
    server.kill(0).unwrap();
    once(&store, "k2");
    assert_eq!(keys(&store), ["k1", "k2"]);
}

#[test]
fn a_store_without_space_says_so_and_still_reads_and_removes() {
    let server = servers::Etcd::start(1, &["--quota-backend-bytes", "4194304"]).unwrap();
    let store = connect(of(server.endpoints()));
    let full = (0..100).find_map(|i| store.transact(&put(&format!("k{i}"), &[i; 512 << 10]), WITHIN).err());
    let full = full.unwrap();
    assert!(matches!(full, ConsensusError::Full { .. }), "{full:?}");
    assert!(full.to_string().contains("database space exceeded"), "{full}");
    assert!(page(&store, WITHIN).unwrap().rows.len() > 1);
    let remove = Step::Delete(b"k".to_vec(), b"l".to_vec());
    store.transact(&Transaction { then: vec![remove], ..Transaction::default() }, WITHIN).unwrap();
    assert_eq!(page(&store, WITHIN).unwrap().rows, []);
    let status = store.status(WITHIN).unwrap();
    assert!(status.version.starts_with("3.") && status.size >= 3 << 20, "{status:?}");
    assert!((1..=status.size).contains(&status.in_use), "{status:?}");
    // Versions before 3.6 do not say it, which is not a quota of nothing.
    assert!(status.quota.is_none_or(|quota| quota == 4 << 20), "{status:?}");
}

#[test]
fn calls_come_from_any_thread_and_the_store_ends_on_any() {
    let server = servers::Etcd::start(1, &[]).unwrap();
    let store = std::sync::Arc::new(connect(of(server.endpoints())));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let own = std::sync::Arc::clone(&store);
        tokio::task::spawn_blocking(move || once(&own, "k1")).await.unwrap();
        // Where calls do not belong they do no harm but to wait.
        assert_eq!(page(&*store, WITHIN).unwrap().rows.len(), 1);
        drop(store);
    });
}
