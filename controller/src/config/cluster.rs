//! The settings of a cluster: `etcd_endpoints` and what goes with it.

use tidegate_consensus::etcd::{EtcdSettings, Written};

use super::reader::Reader;
use crate::name::controller_name;
use crate::quantity::cut;

/// Where keys are put in etcd.
const PREFIX: &str = "tidegate/";
/// The last part of `/v1/controllers/drain`, where the name of a controller stands in `/v1/controllers/{name}`.
const DRAIN: &str = "drain";
/// Bytes of a prefix: each key has it, and etcd holds keys in memory.
const MAX_PREFIX: usize = 128;

/// The cluster of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSettings {
    /// This controller's name, of its own in the cluster.
    pub name: String,
    /// What all keys of the cluster begin with.
    pub prefix: String,
    /// The gRPC address that others are told; `None`: the one it listens on.
    pub address: Option<String>,
    /// Whether an empty cluster begins with what the local store holds.
    pub seed: bool,
    /// Whether the leader's answers to nodes wait for a beat, so that no grant depends on its clock.
    pub strict: bool,
    /// Where etcd is.
    pub etcd: EtcdSettings,
}

/// The name of this controller.
fn name(reader: &mut Reader) -> Option<String> {
    let name = reader.named("cluster_name", controller_name);
    if name.as_deref() == Some(DRAIN) {
        let message = format!(
            "{DRAIN:?} is a call of REST beside the names of controllers, so that nobody could forget this one there; \
             write another name"
        );
        reader.refuse("cluster_name", &message);
    }
    name
}

/// Takes the settings out of the text; `None` without a cluster, or where they are refused.
pub(super) fn cluster(reader: &mut Reader) -> Option<ClusterSettings> {
    let endpoints = reader.texts("etcd_endpoints", "addresses in quotes, such as [\"https://HOST:2379\"]");
    let written = Written {
        endpoints: endpoints.clone().unwrap_or_default(),
        ca: reader.path("etcd_ca"),
        cert: reader.path("etcd_cert"),
        key: reader.path("etcd_key"),
        user: reader.line("etcd_user"),
        password_file: reader.path("etcd_password_file"),
        plaintext: reader.switch("etcd_plaintext_off_loopback").unwrap_or_default(),
    };
    let name = name(reader);
    let prefix = reader.line("cluster_prefix");
    let address = reader.line("cluster_address");
    let seed = reader.switch("cluster_seed");
    let strict = reader.switch("cluster_strict");
    if endpoints.is_none() {
        let idle = [
            ("etcd_ca", written.ca.is_some()),
            ("etcd_cert", written.cert.is_some()),
            ("etcd_key", written.key.is_some()),
            ("etcd_user", written.user.is_some()),
            ("etcd_password_file", written.password_file.is_some()),
            ("etcd_plaintext_off_loopback", written.plaintext),
            ("cluster_name", name.is_some()),
            ("cluster_prefix", prefix.is_some()),
            ("cluster_address", address.is_some()),
            ("cluster_seed", seed.is_some()),
            ("cluster_strict", strict.is_some()),
        ];
        // Endpoints that are there and cannot be read are an error of their own.
        let is_absent = !reader.has_refused("etcd_endpoints");
        for (key, _) in idle.into_iter().filter(|(_, given)| *given && is_absent) {
            reader.refuse(key, "has no effect without etcd_endpoints; write the members of etcd there");
        }
        return None;
    }
    let prefix = prefix.unwrap_or_else(|| PREFIX.to_owned());
    if !prefix.ends_with('/')
        || prefix.len() > MAX_PREFIX
        || prefix.bytes().any(|byte| byte.is_ascii_control())
    {
        let message =
            format!("is no prefix; write 1 to {MAX_PREFIX} bytes that end in /, such as \"{PREFIX}\"");
        reader.refuse("cluster_prefix", &message);
    }
    if let Some(address) = address.as_ref().filter(|address| !is_url(address)) {
        let message = format!(
            "{:?} is no address; write https://HOST:7420, as nodes reach this controller",
            cut(address)
        );
        reader.refuse("cluster_address", &message);
    }
    if name.is_none() && !reader.has_refused("cluster_name") {
        reader.refuse(
            "cluster_name",
            "has to name this controller: write a name that no other one of the cluster has",
        );
    }
    let etcd = match written.check() {
        Ok(etcd) => etcd,
        Err(error) => {
            let (key, message) = error.parts();
            reader.refuse(key, &message);
            return None;
        }
    };
    let (seed, strict) = (seed.unwrap_or_default(), strict.unwrap_or_default());
    Some(ClusterSettings { name: name?, prefix, address, seed, strict, etcd })
}

/// Whether the text is where gRPC can be: a scheme, a host and a port that can be listened on.
fn is_url(text: &str) -> bool {
    let rest = ["http://", "https://"].iter().find_map(|scheme| text.strip_prefix(scheme));
    rest.and_then(|rest| rest.rsplit_once(':')).is_some_and(|(host, port)| {
        let is_host = |sign: char| sign.is_ascii_graphic() && !"/@?#".contains(sign);
        let is_port = port.bytes().all(|digit| digit.is_ascii_digit());
        !host.is_empty()
            && host.chars().all(is_host)
            && is_port
            && port.parse().is_ok_and(|port: u16| port > 0)
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Config, FENCE_OF_A_CLUSTER};
    use super::MAX_PREFIX;

    const LEAST: &str = "etcd_endpoints = [\"http://127.0.0.1:2379\"]\ncluster_name = \"north\"\n";

    fn refused(text: &str) -> String {
        let errors = Config::parse(text).unwrap_err();
        errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    fn prefix_of(bytes: usize) -> String {
        format!("cluster_prefix = \"{}/\"", "x".repeat(bytes - 1))
    }

    #[test]
    fn every_setting_of_a_cluster_is_read() {
        let config = Config::parse(LEAST).unwrap();
        assert_eq!(config.fence, Some(FENCE_OF_A_CLUSTER), "a cluster has a fence");
        let cluster = config.cluster.unwrap();
        assert_eq!((cluster.name.as_str(), cluster.prefix.as_str()), ("north", "tidegate/"));
        assert!(cluster.address.is_none() && !cluster.seed && !cluster.strict);
        let text = "etcd_endpoints = [\"https://a.example:2379\", \"https://b.example:2379\"]\netcd_ca = \"ca.pem\"\n\
            etcd_cert = \"c.pem\"\netcd_key = \"k.pem\"\netcd_user = \"tidegate\"\netcd_password_file = \"p\"\n\
            cluster_name = \"c-1\"\ncluster_prefix = \"rates/\"\ncluster_address = \"https://c1.example:7420\"\n\
            cluster_seed = true\ncluster_strict = true\nfence = \"3s\"\n";
        let config = Config::parse(text).unwrap();
        let cluster = config.cluster.unwrap();
        assert_eq!(cluster.prefix, "rates/");
        assert_eq!(cluster.address.as_deref(), Some("https://c1.example:7420"));
        assert!(cluster.seed && cluster.strict && config.fence.is_some_and(|fence| fence.0 == 3_000_000));
        assert_eq!(Config::parse("").unwrap().cluster, None);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, said) in [
            ("cluster_name = \"a\"", "cluster_name: has no effect without etcd_endpoints"),
            ("etcd_user = \"a\"", "etcd_user: has no effect without etcd_endpoints"),
            ("cluster_seed = false", "cluster_seed: has no effect without etcd_endpoints"),
            ("cluster_strict = true", "cluster_strict: has no effect without etcd_endpoints"),
            ("etcd_endpoints = [\"http://127.0.0.1:2379\"]", "cluster_name: has to name this controller"),
            ("etcd_endpoints = []\ncluster_name = \"a\"", "etcd_endpoints: has 0 members"),
            ("etcd_endpoints = \"http://127.0.0.1:2379\"\ncluster_name = \"a\"", "etcd_endpoints: "),
            (
                "etcd_endpoints = [\"http://10.1.1.1:2379\"]\ncluster_name = \"a\"",
                "set etcd_plaintext_off_loopback",
            ),
            (&format!("{LEAST}cluster_prefix = \"rates\""), "cluster_prefix: is no prefix"),
            (&format!("{LEAST}cluster_prefix = \"\""), "cluster_prefix: is empty"),
            (&format!("{LEAST}cluster_prefix = \"ra\\u0007tes/\""), "cluster_prefix: is no prefix"),
            (
                &format!("{LEAST}{}", prefix_of(MAX_PREFIX + 1)),
                "cluster_prefix: is no prefix; write 1 to 128",
            ),
            (
                &format!("{LEAST}cluster_address = \"c1.example\""),
                "cluster_address: \"c1.example\" is no address; write https://HOST:7420",
            ),
            (&format!("{LEAST}etcd_ca = \"ca\""), "etcd_ca: has no effect without TLS"),
            (
                "etcd_endpoints = [\"http://127.0.0.1:2379\"]\ncluster_name = \"a b\"",
                "cluster_name: \"a b\" is not a",
            ),
            (
                "etcd_endpoints = [\"http://127.0.0.1:2379\"]\ncluster_name = \"drain\"",
                "cluster_name: \"drain\" is a call of REST",
            ),
        ] {
            let refused = refused(text);
            assert!(refused.contains(said), "{text}: {refused}");
        }
        for address in [
            "c1.example:7420",
            "ftp://c1.example:7420",
            "https://:7420",
            "https://c1.example",
            "https://c1.example:0",
            "https://c1.example:00",
            "https://c1.example:65536",
            "https://c1.example:+7420",
            "https://c1.example:7420/",
            "https://c1 example:7420",
            "https://c1.example :7420",
            "https:// c1.example:7420",
            "https:// :7420",
            "https://c1\\u0000example:7420",
            "https://a@c1.example:7420",
            "https://c1.example?a:7420",
        ] {
            let refused = refused(&format!("{LEAST}cluster_address = \"{address}\""));
            assert!(refused.starts_with("cluster_address: "), "{address}: {refused}");
            assert!(refused.contains("; write https://HOST:7420, as nodes reach"), "{address}: {refused}");
        }
        for address in ["http://c1:1", "https://[::1]:65535", "https://10.1.1.1:7420"] {
            let config = Config::parse(&format!("{LEAST}cluster_address = \"{address}\"")).unwrap();
            assert_eq!(config.cluster.unwrap().address.as_deref(), Some(address));
        }
        let longest = Config::parse(&format!("{LEAST}{}", prefix_of(MAX_PREFIX))).unwrap();
        assert_eq!(longest.cluster.unwrap().prefix.len(), MAX_PREFIX);
        for endpoints in ["\"http://127.0.0.1:2379\"", "[5]"] {
            let refused =
                refused(&format!("etcd_endpoints = {endpoints}\ncluster_name = \"a\"\netcd_user = \"b\""));
            assert!(
                refused.starts_with("etcd_endpoints: ") && !refused.contains("has no effect"),
                "{refused}"
            );
        }
    }
}
