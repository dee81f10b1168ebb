//! Clients behind a load balancer that sends their addresses, and others.

use tidegate_gateway::{Config, Networks};
use tidegate_test_servers::HaProxy;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::block_in_place;

use crate::scene::Scene;

fn behind(networks: &'static str) -> impl Fn(&mut Config) {
    move |config| config.proxies = Networks::parse([networks]).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_behind_a_balancer_are_served_by_either_version_and_others_are_not() {
    for scene in Scene::both_unasked(behind("127.0.0.1")).await {
        for option in ["send-proxy", "send-proxy-v2"] {
            let balancer = block_in_place(|| HaProxy::start(scene.port(), option).unwrap());
            crate::common::eventually("they are answered", async || {
                scene.says_at(balancer.port(), "select 40 + 2") == "42\n"
            })
            .await;
        }
        // A client that is not behind the balancer sends no header, and is not served.
        let mut plain = TcpStream::connect(("127.0.0.1", scene.port())).await.unwrap();
        plain.write_all(&[0; 64]).await.unwrap();
        let mut said = Vec::new();
        drop(plain.read_to_end(&mut said).await);
        assert!(said.is_empty(), "{}: {said:?}", scene.name());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_from_anybody_else_is_nonsense_to_the_protocol() {
    for scene in Scene::both(behind("10.0.0.0/8")).await {
        let balancer = block_in_place(|| HaProxy::start(scene.port(), "send-proxy").unwrap());
        let said = scene.says_at(balancer.port(), "select 40 + 2");
        assert_ne!(said, "42\n", "{}", scene.name());
        assert!(scene.answers(), "{}", scene.name());
    }
}
