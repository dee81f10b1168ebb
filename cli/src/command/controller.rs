//! `tidegate controller`: runs a controller until a signal stops it.

use std::fs::DirBuilder;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use tidegate_controller::{Config, Controller, Member};
use tracing_subscriber::EnvFilter;

use crate::error::{CliError, listed};
use crate::output::{print, unless_unread};
use crate::stop;

/// Name of the store in the data directory.
pub(crate) const STORE: &str = "tidegate.redb";
/// Environment variable with the log filter, such as `debug` or `tidegate_controller=trace`.
pub(crate) const LOG_FILTER: &str = "TIDEGATE_LOG";

/// Settings of a controller. Flags override the file.
#[derive(Debug, Default, Args)]
#[command(after_help = "Examples:\n  \
    tidegate controller --data /var/lib/tidegate\n  \
    tidegate controller --config /etc/tidegate.toml --log-format json\n  \
    tidegate controller --listen 127.0.0.1:0 --http 127.0.0.1:0   (free ports; the addresses are printed)\n\n\
    The file, with its defaults:\n  \
    store = \"tidegate.redb\"\n  grpc_listen = \"127.0.0.1:7420\"\n  http_listen = \"127.0.0.1:7421\"\n  \
    http_hosts = []          # such as [\"rates.example\"]\n  \
    # tls_cert = \"controller.pem\"\n  # tls_key = \"controller-key.pem\"\n  \
    # tls_client_ca = \"ca.pem\"\n  # tls_client_crl = \"crl.pem\"\n  # tls_clients = \"required\"  # or \"optional\"\n  \
    # authentication = \"required\"  # or \"off\"; off is the default without tls_client_ca\n  \
    # anonymous_role = \"viewer\"    # where tls_clients is \"optional\"\n  \
    plaintext_off_loopback = false\n  \
    allow_remote = false\n  capacity = \"unlimited\"      # such as \"20000 RU/s\"\n  drift_ppm = 1000\n  \
    margin = \"50ms\"\n  \
    # fence = \"2s\"          # for storage that can move to another machine\n  \
    alarm_throttled_for = \"60s\"\n  alarm_resolved_after = \"60s\"\n  alarm_quota_percent = 80\n  \
    # [[identity]]           # whose a certificate of others is\n  \
    # san = \"spiffe://prod/ns/shop/sa/till\"\n  # role = \"node\"\n  # groups = [\"shop\"]\n  \
    # [[provider]]           # whose JWTs are believed\n  # name = \"dex\"\n  # issuer = \"https://dex.example\"\n  \
    # audience = \"tidegate\"\n  # [[provider.role]]\n  # claim = \"groups\"\n  # value = \"ops\"\n  \
    # role = \"operator\"\n  \
    # [[webhook]]            # who is told of alarms\n  # name = \"ops\"\n  \
    # url = \"https://hooks.example/tidegate\"\n  # secret_file = \"ops.secret\"\n  \
    # trace_endpoint = \"http://127.0.0.1:4318\"   # an OpenTelemetry collector\n  # trace_sample = 0.01\n  \
    # etcd_endpoints = [\"https://etcd1.example:2379\"]   # controllers that take over from each other\n  \
    # cluster_name = \"c1\"\n\n\
    Log filter: TIDEGATE_LOG, such as `debug`.")]
pub(crate) struct ControllerArgs {
    /// Settings, in TOML.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Directory of the store; made when missing.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where gRPC listens; port 0 takes a free one.
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Where REST, /metrics and /openapi.json listen.
    #[arg(long, value_name = "ADDR")]
    http: Option<String>,
    /// RU/s of the whole server, such as '20000 RU/s' or 'unlimited'.
    #[arg(long, value_name = "RU/s")]
    capacity: Option<String>,
    /// Host names that REST accepts besides those of loopback while it listens there, such as those of a proxy in front
    /// of it; separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    http_host: Vec<String>,
    #[command(flatten)]
    times: TimeArgs,
    #[command(flatten)]
    tls: TlsArgs,
    #[command(flatten)]
    access: AccessArgs,
    #[command(flatten)]
    alarms: AlarmArgs,
    #[command(flatten)]
    traces: TraceArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Shape of the log, which goes to the standard error.
    #[arg(long, value_enum, default_value_t, value_name = "SHAPE")]
    log_format: LogFormat,
    /// End with the standard input, as children of the demo do.
    #[arg(long, hide = true)]
    until_stdin_ends: bool,
}

/// How far clocks and stores are trusted.
#[derive(Debug, Default, Args)]
struct TimeArgs {
    /// How much faster or slower than this machine's a node's clock may run, in millionths [default: 1000].
    #[arg(long, value_name = "PPM")]
    drift_ppm: Option<u32>,
    /// Added to the end of every lease here [default: 50ms].
    #[arg(long, value_name = "TIME")]
    margin: Option<String>,
    /// Grant nothing when the store could not be written to for this long, 1s to 60s: for storage that can move to
    /// another machine [default: none; 1s in a cluster].
    #[arg(long, value_name = "TIME")]
    fence: Option<String>,
}

/// Who may call.
#[derive(Debug, Default, Args)]
struct AccessArgs {
    /// Whether callers prove who they are, by a certificate or a token, and do what their role allows [default: required
    /// with --tls-client-ca, else off: all who reach it may do everything].
    #[arg(long, value_name = "off|required")]
    authentication: Option<String>,
    /// Role of callers without a certificate and a token, where those are optional [default: none, which is health checks only].
    #[arg(long, value_name = "ROLE")]
    anonymous_role: Option<String>,
    /// Listen beyond the own machine where callers prove nothing: all who reach it may do everything.
    #[arg(long)]
    allow_remote: bool,
}

/// When alarms are raised, which the log, the status and webhooks show.
#[derive(Debug, Default, Args)]
struct AlarmArgs {
    /// How long operations of a group wait before that is an alarm, 1s to 24h [default: 60s].
    #[arg(long, value_name = "TIME")]
    alarm_throttled_for: Option<String>,
    /// How long its condition does not hold before an alarm is over, 1s to 24h [default: 60s].
    #[arg(long, value_name = "TIME")]
    alarm_resolved_after: Option<String>,
    /// How much of a quota is used when that is an alarm, 1 to 98 [default: 80].
    #[arg(long, value_name = "PERCENT")]
    alarm_quota_percent: Option<u32>,
}

/// Where spans of renewals and of commits are sent.
#[derive(Debug, Default, Args)]
struct TraceArgs {
    /// An OpenTelemetry collector to send spans to, over OTLP/HTTP: http://HOST:4318, or https:// beyond the own machine.
    #[arg(long, value_name = "URL")]
    trace_endpoint: Option<String>,
    /// Share of the traces that begin here which are recorded, 0 to 1; callers decide about theirs [default: 0.01].
    #[arg(long, value_name = "SHARE")]
    trace_sample: Option<String>,
    /// File with headers that the collector wants, `name: value` a line, for its owner only.
    #[arg(long, value_name = "FILE")]
    trace_headers_file: Option<String>,
    /// Authorities that sign the collector's certificate, in PEM; those the machine trusts when left out.
    #[arg(long, value_name = "FILE")]
    trace_ca: Option<String>,
    /// Send spans to another machine without TLS: everyone on the way can read groups and statements.
    #[arg(long)]
    trace_plaintext_off_loopback: bool,
}

/// Controllers that take over from each other, with their state in etcd.
#[derive(Debug, Default, Args)]
struct ClusterArgs {
    #[command(flatten)]
    etcd: EtcdArgs,
    /// The gRPC address that callers of a standby are told [default: the one that gRPC listens on].
    #[arg(long, value_name = "URL")]
    cluster_address: Option<String>,
    /// Begin an empty cluster with what the local store holds.
    #[arg(long)]
    cluster_seed: bool,
    /// Let answers to nodes wait for a beat, so that a leader whose machine was halted, clocks and all, grants nothing.
    #[arg(long)]
    cluster_strict: bool,
}

/// Which cluster it is, and where its state is.
#[derive(Debug, Default, Args)]
pub(crate) struct EtcdArgs {
    /// A member of etcd: the controllers of a cluster have their state there, one leads, and another takes over when it
    /// is gone; for each member once.
    #[arg(long = "etcd", value_name = "URL")]
    etcd: Vec<String>,
    /// This controller's name, of its own in the cluster.
    #[arg(long, value_name = "NAME")]
    cluster_name: Option<String>,
    /// What the keys of the cluster begin with [default: tidegate/].
    #[arg(long, value_name = "PREFIX/")]
    cluster_prefix: Option<String>,
    /// Authorities that sign the certificates of etcd, in PEM; those the machine trusts when left out.
    #[arg(long, value_name = "FILE")]
    etcd_ca: Option<String>,
    /// Certificate to show etcd, in PEM.
    #[arg(long, value_name = "FILE")]
    etcd_cert: Option<String>,
    /// Its key, in PEM, which nobody else may read.
    #[arg(long, value_name = "FILE")]
    etcd_key: Option<String>,
    /// User of etcd, where its authentication is on.
    #[arg(long, value_name = "NAME")]
    etcd_user: Option<String>,
    /// File with that user's password, for its owner only.
    #[arg(long, value_name = "FILE")]
    etcd_password_file: Option<String>,
    /// Speak to etcd on other machines without TLS: everyone on the way can read and change the state of the cluster.
    #[arg(long)]
    etcd_plaintext_off_loopback: bool,
}

/// Certificates of the listeners and of their callers.
#[derive(Debug, Default, Args)]
struct TlsArgs {
    /// Certificate of both listeners, and those that lead from it to its authority, in PEM; read again when it changes.
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<String>,
    /// Its key, in PEM, which nobody else may read.
    #[arg(long, value_name = "FILE")]
    tls_key: Option<String>,
    /// Authorities whose certificates callers have to show, in PEM.
    #[arg(long, value_name = "FILE")]
    tls_client_ca: Option<String>,
    /// Lists of revoked certificates of callers, in PEM: one of each authority that signs them.
    #[arg(long, value_name = "FILE")]
    tls_client_crl: Option<String>,
    /// Whether callers have to show a certificate of --tls-client-ca [default: required].
    #[arg(long, value_name = "optional|required")]
    tls_clients: Option<String>,
    /// Listen beyond the own machine without TLS: everyone on the way can read and change what is said.
    #[arg(long)]
    plaintext_off_loopback: bool,
}

/// Shape of the log.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// A JSON object per line.
    Json,
}

/// Runs the command.
pub(crate) async fn run(args: ControllerArgs) -> Result<(), CliError> {
    let config = config(&args)?;
    start_log(args.log_format)?;
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let show = |grpc, rest| unless_unread(print(&format!("grpc {scheme}://{grpc}\nrest {scheme}://{rest}")));
    let ends = args.until_stdin_ends;
    if config.cluster.is_some() {
        let member = Member::start(config).await.map_err(refused)?;
        show(member.grpc_addr, member.rest_addr)?;
        let mut asked = Ok(());
        member.run_until(async { asked = stop::requested(ends).await }).await.map_err(refused)?;
        return asked;
    }
    let running = Controller::start(config).await.map_err(refused)?;
    show(running.grpc_addr, running.rest_addr)?;
    stop::requested(ends).await?;
    running.shutdown().await.map_err(refused)
}

fn refused(error: impl ToString) -> CliError {
    CliError::Refused(error.to_string())
}

/// The settings of a controller of a cluster whose data is here: those of its file, and of these flags.
pub(crate) fn config_of(
    config: Option<PathBuf>,
    data: Option<PathBuf>,
    etcd: EtcdArgs,
) -> Result<Config, CliError> {
    let cluster = ClusterArgs { etcd, ..ClusterArgs::default() };
    self::config(&ControllerArgs { config, data, cluster, ..ControllerArgs::default() })
}

/// Lays the flags over the file, so that the errors of both are reported at once.
fn config(args: &ControllerArgs) -> Result<Config, CliError> {
    let (text, origin) = match &args.config {
        Some(path) => {
            (std::fs::read_to_string(path).map_err(CliError::file("read", path))?, path.display().to_string())
        }
        None => (String::new(), "the flags".to_owned()),
    };
    let merged = match text.parse::<toml::Table>() {
        Ok(file) => overlaid(file, args)?.to_string(),
        // The parser of the settings says what is wrong with it.
        Err(_) => text,
    };
    Config::parse(&merged).map_err(|errors| {
        let hint =
            "\n  (flags: --listen is grpc_listen, --http is http_listen, --http-host is http_hosts, --data is for store)";
        CliError::Invalid(listed(&origin, &errors) + hint)
    })
}

fn overlaid(mut file: toml::Table, args: &ControllerArgs) -> Result<toml::Table, CliError> {
    only_for_its_collector(&mut file, args);
    let mut set = |key: &str, value: toml::Value| drop(file.insert(key.to_owned(), value));
    if let Some(data) = &args.data {
        set("store", toml::Value::String(store_in(data)?));
    }
    let texts = [
        ("grpc_listen", &args.listen),
        ("http_listen", &args.http),
        ("capacity", &args.capacity),
        ("margin", &args.times.margin),
        ("fence", &args.times.fence),
        ("tls_cert", &args.tls.tls_cert),
        ("tls_key", &args.tls.tls_key),
        ("tls_client_ca", &args.tls.tls_client_ca),
        ("tls_client_crl", &args.tls.tls_client_crl),
        ("tls_clients", &args.tls.tls_clients),
        ("authentication", &args.access.authentication),
        ("anonymous_role", &args.access.anonymous_role),
        ("alarm_throttled_for", &args.alarms.alarm_throttled_for),
        ("alarm_resolved_after", &args.alarms.alarm_resolved_after),
        ("trace_endpoint", &args.traces.trace_endpoint),
        ("trace_sample", &args.traces.trace_sample),
        ("trace_headers_file", &args.traces.trace_headers_file),
        ("trace_ca", &args.traces.trace_ca),
        ("cluster_name", &args.cluster.etcd.cluster_name),
        ("cluster_prefix", &args.cluster.etcd.cluster_prefix),
        ("cluster_address", &args.cluster.cluster_address),
        ("etcd_ca", &args.cluster.etcd.etcd_ca),
        ("etcd_cert", &args.cluster.etcd.etcd_cert),
        ("etcd_key", &args.cluster.etcd.etcd_key),
        ("etcd_user", &args.cluster.etcd.etcd_user),
        ("etcd_password_file", &args.cluster.etcd.etcd_password_file),
    ];
    for (key, value) in texts {
        if let Some(value) = value {
            set(key, toml::Value::String(value.clone()));
        }
    }
    let numbers =
        [("drift_ppm", args.times.drift_ppm), ("alarm_quota_percent", args.alarms.alarm_quota_percent)];
    for (key, value) in numbers {
        if let Some(value) = value {
            set(key, toml::Value::Integer(value.into()));
        }
    }
    for (key, texts) in [("http_hosts", &args.http_host), ("etcd_endpoints", &args.cluster.etcd.etcd)] {
        if !texts.is_empty() {
            set(key, texts.clone().into());
        }
    }
    if let (Some(listen), None) = (&args.listen, &args.http)
        && listen.parse::<SocketAddr>().is_ok_and(|address| address.port() == 0)
        && !file.contains_key("http_listen")
    {
        // A free port is for running beside another controller.
        file.insert("http_listen".to_owned(), toml::Value::String("127.0.0.1:0".to_owned()));
    }
    let given_up = [
        ("allow_remote", args.access.allow_remote),
        ("plaintext_off_loopback", args.tls.plaintext_off_loopback),
        ("trace_plaintext_off_loopback", args.traces.trace_plaintext_off_loopback),
        ("cluster_seed", args.cluster.cluster_seed),
        ("cluster_strict", args.cluster.cluster_strict),
        ("etcd_plaintext_off_loopback", args.cluster.etcd.etcd_plaintext_off_loopback),
    ];
    for (key, _) in given_up.into_iter().filter(|(_, given)| *given) {
        file.insert(key.to_owned(), toml::Value::Boolean(true));
    }
    Ok(file)
}

/// Drops what proves who sends to the collector of the file, if spans go to another one.
fn only_for_its_collector(file: &mut toml::Table, args: &ControllerArgs) {
    if args.traces.trace_endpoint.is_some() {
        file.remove("trace_headers_file");
    }
}

/// Makes a folder for a store that only its owner can read, as the store holds the key that signs leases. An existing
/// folder stays as it is.
pub(crate) fn own_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn store_in(data: &Path) -> Result<String, CliError> {
    own_folder(data).map_err(CliError::file("make the data directory", data))?;
    let store = data.join(STORE);
    let text =
        store.to_str().ok_or_else(|| CliError::Usage(format!("--data {}: not UTF-8", data.display())))?;
    Ok(text.to_owned())
}

/// Starts the log of a process that serves.
pub(crate) fn start_log(format: LogFormat) -> Result<(), CliError> {
    let filter = match std::env::var(LOG_FILTER) {
        Ok(text) => EnvFilter::try_new(&text)
            .map_err(|error| CliError::Usage(format!("{LOG_FILTER}={text}: {error}")))?,
        Err(_) => EnvFilter::new("info"),
    };
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    // The subscriber would report a failed write with `eprintln!`, which panics when that fails, too. A full disk must
    // cost the log only, not a panic between a commit and putting it in force.
    let log = log.log_internal_errors(false);
    let started = match format {
        LogFormat::Text => log.with_ansi(false).try_init(),
        LogFormat::Json => log.json().try_init(),
    };
    started.map_err(|error| CliError::Process { what: "log".to_owned(), reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use tidegate_controller::ConfigError;
    use toml::{Table, Value};

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        args: ControllerArgs,
    }

    fn over(file: &Table, words: &[&str]) -> Table {
        let words = ["controller"].iter().chain(words);
        overlaid(file.clone(), &Flags::parse_from(words).args).unwrap()
    }

    /// The words of the command line that say a setting, and what they say.
    fn said<'a>(setting: &str, data: &'a str) -> (String, &'a [&'a str], Value) {
        let list = |texts: &[&str]| Value::from(texts.to_vec());
        let (flag, words, value): (_, &[&str], _) = match setting {
            "store" => return ("--data".to_owned(), &[], Value::from(format!("{data}/{STORE}"))),
            "grpc_listen" => ("listen", &["127.0.0.1:5"], Value::from("127.0.0.1:5")),
            "http_listen" => ("http", &["127.0.0.1:6"], Value::from("127.0.0.1:6")),
            "http_hosts" => ("http-host", &["a,b"], list(&["a", "b"])),
            "etcd_endpoints" => {
                ("etcd", &["http://a", "--etcd", "http://b"], list(&["http://a", "http://b"]))
            }
            "drift_ppm" | "alarm_quota_percent" => (setting, &["7"], Value::from(7)),
            "allow_remote" | "cluster_seed" | "cluster_strict" => (setting, &[], Value::from(true)),
            _ if setting.ends_with("_off_loopback") => (setting, &[], Value::from(true)),
            _ => (setting, &["word"], Value::from("word")),
        };
        (format!("--{}", flag.replace('_', "-")), words, value)
    }

    #[test]
    fn one_flag_over_a_file_changes_its_own_setting_only() {
        let errors = Config::parse("no_such_setting = 1").unwrap_err();
        let [ConfigError::Unknown { known, .. }] = errors.as_slice() else { panic!("{errors:?}") };
        let has_flag = |setting: &&str| !["identity", "provider", "webhook"].contains(setting);
        let settings: Vec<&str> = known.split(", ").filter(has_flag).collect();
        assert!(settings.len() > 30, "{settings:?}");
        let file: Table =
            settings.iter().map(|setting| ((*setting).to_owned(), Value::from("of the file"))).collect();
        assert_eq!(over(&file, &[]), file);
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().to_str().unwrap();
        let mut wrong = Vec::new();
        for setting in settings {
            let (flag, words, value) = said(setting, data);
            let mut line = [&[flag.as_str()], words].concat();
            if setting == "store" {
                line.push(data);
            }
            let alone = Table::from_iter([(setting.to_owned(), value)]);
            let mut both = file.clone();
            both.extend(alone.clone());
            if over(&Table::new(), &line) != alone || over(&file, &line) != both {
                wrong.push(setting);
            }
        }
        // What proves who sends to the file's collector is not for another one.
        assert_eq!(wrong, ["trace_endpoint"]);
        let headers = |words: &[&str]| over(&file, words).remove("trace_headers_file");
        assert_eq!(headers(&["--trace-endpoint", "word"]), None);
        let own = headers(&["--trace-endpoint", "word", "--trace-headers-file", "own"]);
        assert_eq!(own, Some(Value::from("own")));
    }

    #[test]
    fn a_free_port_for_grpc_is_one_for_rest_where_nothing_says_where_that_listens() {
        let rest = |file: &str, words: &[&str]| {
            let table = over(&file.parse().unwrap(), words);
            table.get("http_listen").map(|listen| listen.as_str().unwrap().to_owned())
        };
        for (file, words, expected) in [
            ("", &["--listen", "127.0.0.1:0"][..], Some("127.0.0.1:0")),
            ("", &["--listen", "[::1]:0"], Some("127.0.0.1:0")),
            ("http_listen = \"127.0.0.1:7\"", &["--listen", "127.0.0.1:0"], Some("127.0.0.1:7")),
            ("", &["--listen", "127.0.0.1:0", "--http", "127.0.0.1:8"], Some("127.0.0.1:8")),
            ("", &["--listen", "127.0.0.1:9"], None),
            ("grpc_listen = \"127.0.0.1:0\"", &[], None),
        ] {
            assert_eq!(rest(file, words).as_deref(), expected, "{file} {words:?}");
        }
    }
}
