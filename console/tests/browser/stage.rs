//! A controller, a node with a load above its cap, and a browser.

use std::path::Path;
use std::time::Duration;

use fantoccini::error::CmdError;
use fantoccini::wd::{Capabilities, WebDriverCompatibleCommand};
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_client::Client as Node;
use tidegate_controller::audit::Actor;
use tidegate_controller::config::{Access, Authentication, Config};
use tidegate_controller::{Controller, Running};
use tidegate_core::units::Ru;
use tidegate_core::usage::RuParts;
use tidegate_proto::v1;
use tidegate_test_servers::{Browser, free_port};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// Time for anything to happen, beside other load.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// A controller on a port that stays its own.
pub(crate) struct Site {
    running: Option<Running>,
    config: Config,
    _folder: TempDir,
}

impl Site {
    pub(crate) async fn start(authentication: Authentication) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let access = Access { authentication: Some(authentication), ..Access::default() };
        let config = Config {
            store: folder.path().join("store.redb"),
            grpc_listen: "127.0.0.1:0".parse().unwrap(),
            http_listen: format!("127.0.0.1:{}", free_port().unwrap()).parse().unwrap(),
            access,
            ..Config::default()
        };
        let mut site = Self { running: None, config, _folder: folder };
        site.begin().await;
        site
    }

    /// Starts the controller, after another one in its place has stopped.
    pub(crate) async fn begin(&mut self) {
        self.running = Some(Controller::start(self.config.clone()).await.unwrap());
    }

    pub(crate) async fn stop(&mut self) {
        self.running.take().unwrap().shutdown().await.unwrap();
    }

    pub(crate) fn running(&self) -> &Running {
        self.running.as_ref().unwrap()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.config.http_listen)
    }

    pub(crate) fn group(&self, name: &str, parent: &str, rate: &str) {
        let text = str::to_owned;
        let group = v1::Group {
            name: text(name),
            parent: text(parent),
            ru_per_sec: text(rate),
            ..Default::default()
        };
        self.running()
            .service()
            .definitions()
            .create_group(&Actor::new(None, "test"), &group, false)
            .unwrap();
    }

    /// Alters a group as somebody else would.
    pub(crate) fn alter(&self, name: &str, change: impl FnOnce(&mut v1::Group)) {
        let definitions = self.running().service().definitions();
        let mut group = definitions.group(name).unwrap().group;
        change(&mut group);
        let mask: Vec<String> = ["ru_per_sec", "burst", "comment"].map(str::to_owned).into();
        definitions.alter_group(&Actor::new(Some("ann"), "test"), &group, &mask, 0).unwrap();
    }

    pub(crate) fn token(&self, role: &str) -> String {
        let wish =
            v1::CreateTokenRequest { name: role.to_owned(), role: role.to_owned(), ..Default::default() };
        let (_, secret) = self.running().service().tokens().create(&Actor::new(None, "test"), &wish).unwrap();
        secret.reveal().to_owned()
    }

    /// A node whose operations in this group always wait.
    pub(crate) async fn load(&self, group: &'static str) -> Load {
        let endpoint = format!("http://{}", self.running().grpc_addr);
        let node = Node::connect([endpoint], format!("node-of-{group}")).await.unwrap();
        let group = node.group(group).await.unwrap();
        let tasks = (0..4).map(|_| {
            let group = group.clone();
            tokio::spawn(async move {
                loop {
                    if let Ok(permit) = group.acquire(Ru::whole(2), Duration::from_secs(10)).await {
                        permit.settle_ru(RuParts { cpu: Ru::whole(2), ..RuParts::default() });
                    }
                }
            })
        });
        Load { tasks: tasks.collect(), _node: node }
    }
}

pub(crate) struct Load {
    tasks: Vec<JoinHandle<()>>,
    _node: Node,
}

impl Drop for Load {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// What the browser wrote into its console since the last look.
#[derive(Debug)]
struct Log;

impl WebDriverCompatibleCommand for Log {
    fn endpoint(&self, base: &url::Url, session: Option<&str>) -> Result<url::Url, url::ParseError> {
        base.join(&format!("session/{}/se/log", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _: &url::Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(json!({"type": "browser"}).to_string()))
    }
}

/// A page in a browser.
pub(crate) struct Tab {
    pub(crate) client: Client,
}

pub(crate) async fn tab(driver: &Browser, size: (u32, u32), is_dark: bool) -> Tab {
    let options = json!({ "args": Browser::arguments(size, is_dark) });
    let capabilities: Capabilities = [
        ("browserName".to_owned(), json!("chrome")),
        ("goog:chromeOptions".to_owned(), options),
        ("goog:loggingPrefs".to_owned(), json!({ "browser": "ALL" })),
    ]
    .into_iter()
    .collect();
    let mut builder = ClientBuilder::new(HttpConnector::new());
    let client =
        timeout(PATIENCE, builder.capabilities(capabilities).connect(&driver.url())).await.unwrap().unwrap();
    Tab { client }
}

impl Tab {
    pub(crate) async fn open(&self, url: &str) {
        self.client.goto(url).await.unwrap();
    }

    pub(crate) async fn run(&self, script: &str) -> Value {
        self.client.execute(script, Vec::new()).await.unwrap()
    }

    /// All that a person can read.
    pub(crate) async fn text(&self) -> String {
        self.run("return document.body.innerText").await.as_str().unwrap().to_owned()
    }

    /// Waits until a script returns true.
    pub(crate) async fn until(&self, what: &str, script: &str) {
        let began = Instant::now();
        while self.run(script).await != Value::Bool(true) {
            assert!(began.elapsed() < PATIENCE, "{what} did not happen: {}", self.text().await);
            sleep(LOOK).await;
        }
    }

    pub(crate) async fn until_says(&self, text: &str) {
        let script = format!("return document.body.innerText.includes({})", json!(text));
        self.until(text, &script).await;
    }

    pub(crate) async fn click(&self, css: &str) {
        self.client.find(Locator::Css(css)).await.unwrap().click().await.unwrap();
    }

    /// Types into a field, in place of what stands there.
    pub(crate) async fn fill(&self, css: &str, text: &str) {
        let field = self.client.find(Locator::Css(css)).await.unwrap();
        field.clear().await.unwrap();
        field.send_keys(text).await.unwrap();
    }

    /// What the browser complained of, but for a server that is away on purpose.
    pub(crate) async fn complaints(&self) -> Vec<String> {
        let log = self.client.issue_cmd(Log).await;
        let log = log.unwrap_or_else(|error: CmdError| panic!("{error}"));
        let messages =
            log.as_array().unwrap().iter().map(|entry| entry["message"].as_str().unwrap().to_owned());
        messages.filter(|message| !message.contains("ERR_CONNECTION")).collect()
    }

    pub(crate) async fn save(&self, path: &Path) {
        std::fs::write(path, self.client.screenshot().await.unwrap()).unwrap();
    }

    pub(crate) async fn close(self) {
        self.client.close().await.unwrap();
    }
}
