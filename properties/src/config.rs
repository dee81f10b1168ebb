//! Configuration files: any text is read in full or refused with every error named; what is read keeps the rules.
//!
//! The same input is also read as one quantity, since every number of a configuration or a definition is one.

use std::net::SocketAddr;
use std::path::Path;

use tidegate_controller::alarms::{Thresholds, Webhook};
use tidegate_controller::config::{Access, Authentication, Config, ConfigError};
use tidegate_controller::identity::Rule;
use tidegate_controller::identity::provider::{Mapping, Provider, Source};
use tidegate_controller::quantity::{
    QuantityError, amount_text, limit_text, parse_amount, parse_limit, parse_rate, parse_span, rate_text,
};
use tidegate_core::units::{MICRO, Rate, Ru, Span};
use tidegate_tls::{Clients, ServerFiles};

/// Longest error that is still readable: a syntax error quotes a line of the file.
const LONGEST_ERROR: usize = 1_000;

/// Runs one input.
pub(super) fn run(bytes: &[u8]) {
    // The command line refuses a file that is not UTF-8 before it comes here.
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    quantity(text);
    match Config::parse(text) {
        Ok(config) => accepted(&config),
        Err(errors) => refused(text, &errors),
    }
}

fn accepted(config: &Config) {
    assert_eq!(config.check(), Ok(()), "what was read passes the check at start");
    assert!(config.drift_ppm <= 100_000 && config.margin <= Span::secs(60), "{config:?}");
    assert!(config.capacity.is_none_or(|rate| Rate(1) <= rate && rate <= Rate::MAX), "{config:?}");
    assert!(!config.store.as_os_str().is_empty(), "{config:?}");
    let local = |address: SocketAddr| address.ip().is_loopback();
    let is_local = local(config.grpc_listen) && local(config.http_listen);
    let proven = config.tls.as_ref().is_some_and(|tls| matches!(tls.clients, Clients::Required(_)));
    let required = config.authentication() == Authentication::Required;
    assert!(is_local || config.allow_remote || proven || required, "{config:?}");
    assert!(is_local || config.plaintext_off_loopback || config.tls.is_some(), "{config:?}");
    assert_eq!(Config::parse(&written(config)).as_ref(), Ok(config), "a configuration reads back as it is");
}

/// The settings of TLS as lines of a file.
fn files(tls: &ServerFiles) -> String {
    let line = |key: &str, path: &Path| {
        format!("{key} = {}\n", toml::Value::from(path.to_str().expect("a path from a text")))
    };
    let lists = tls.revoked.as_ref().map(|path| line("tls_client_crl", path)).unwrap_or_default();
    let own = line("tls_cert", &tls.certificate) + &line("tls_key", &tls.key) + &lists;
    match &tls.clients {
        Clients::Anonymous => own,
        Clients::Required(path) => own + &line("tls_client_ca", path),
        Clients::Optional(path) => own + &line("tls_client_ca", path) + "tls_clients = \"optional\"\n",
    }
}

/// The settings of who may call: the words before the other settings, and the rules behind them.
fn access(access: &Access) -> (String, String) {
    let authentication = match access.authentication {
        None => "",
        Some(Authentication::Required) => "authentication = \"required\"\n",
        Some(Authentication::Off) => "authentication = \"off\"\n",
    };
    let role = access.anonymous_role.map_or(String::new(), |role| format!("anonymous_role = \"{role}\"\n"));
    let rules = access.rules.iter().map(rule).chain(access.providers.iter().map(provider));
    (authentication.to_owned() + &role, rules.collect())
}

fn rule(rule: &Rule) -> String {
    let identity = rule.identity();
    let groups = identity.scope.as_ref().map_or(String::new(), |scope| {
        let names: Vec<String> = scope.iter().map(|group| format!("\"{group}\"")).collect();
        format!("groups = [{}]\n", names.join(", "))
    });
    let (san, role, name) = (toml::Value::from(rule.san()), identity.role, &identity.name);
    format!("\n[[identity]]\nsan = {san}\nrole = \"{role}\"\nname = \"{name}\"\n{groups}")
}

fn quoted(text: &str) -> toml::Value {
    toml::Value::from(text)
}

fn provider(provider: &Provider) -> String {
    let path = |path: &Path| quoted(path.to_str().expect("a path from a text"));
    let source = match &provider.source {
        Source::Discovery => String::new(),
        Source::Url(url) => format!("jwks_url = {}\n", quoted(url)),
        Source::File(file) => format!("jwks_file = {}\n", path(file)),
    };
    let ca = provider.authorities.as_deref().map_or(String::new(), |file| format!("ca = {}\n", path(file)));
    let audiences: Vec<String> = provider.audiences.iter().map(|text| quoted(text).to_string()).collect();
    let roles: String = provider.roles.iter().map(mapping).collect();
    assert!(
        !provider.algorithms.is_empty() && !provider.algorithm_words().contains(&"another"),
        "{provider:?}"
    );
    format!(
        "\n[[provider]]\nname = {}\nissuer = {}\naudience = [{}]\n{source}{ca}algorithms = {:?}\nclock_skew = \"{}us\"\n\
         keys_kept = \"{}us\"\nname_claim = {}\n{roles}",
        quoted(&provider.name),
        quoted(&provider.issuer),
        audiences.join(", "),
        provider.algorithm_words(),
        provider.skew.0,
        provider.keep.0,
        quoted(provider.name_claim.as_str()),
    )
}

fn webhook(webhook: &Webhook) -> String {
    let path = |path: &Path| quoted(path.to_str().expect("a path from a text"));
    let list = |key: &str, words: Vec<String>| match words.is_empty() {
        true => String::new(),
        false => format!("{key} = {words:?}\n"),
    };
    let ca = webhook.authorities.as_deref().map_or(String::new(), |file| format!("ca = {}\n", path(file)));
    let kinds = list("kinds", webhook.kinds.iter().map(|kind| kind.as_str().to_owned()).collect());
    let groups = list("groups", webhook.groups.clone());
    let url = webhook.url.reveal();
    let plaintext = if url.starts_with("http:") { "plaintext = true\n" } else { "" };
    format!(
        "\n[[webhook]]\nname = {}\nurl = {}\nsecret_file = {}\n{ca}{kinds}{groups}{plaintext}",
        quoted(&webhook.name),
        quoted(&url),
        path(&webhook.secret_file)
    )
}

fn mapping(role: &Mapping) -> String {
    let groups = role.scope.as_ref().map_or(String::new(), |scope| {
        let names: Vec<String> = scope.iter().map(|group| format!("\"{group}\"")).collect();
        format!("groups = [{}]\n", names.join(", "))
    });
    let name = role.name.as_ref().map_or(String::new(), |name| format!("name = \"{name}\"\n"));
    let (claim, value) = (quoted(role.claim.as_str()), quoted(&role.value));
    format!("[[provider.role]]\nclaim = {claim}\nvalue = {value}\nrole = \"{}\"\n{name}{groups}", role.role)
}

/// The settings of traces as lines of a file.
fn traces(config: &Config) -> String {
    let Some(traces) = &config.traces else { return String::new() };
    let line = |key: &str, path: Option<&Path>| {
        path.map_or(String::new(), |path| {
            format!("{key} = {}\n", quoted(path.to_str().expect("a path from a text")))
        })
    };
    let (endpoint, plaintext) = (quoted(&traces.endpoint.reveal()), traces.plaintext);
    format!(
        "trace_endpoint = {endpoint}\ntrace_sample = {}\ntrace_plaintext_off_loopback = {plaintext}\n{}{}",
        traces.share,
        line("trace_headers_file", traces.headers_file.as_deref()),
        line("trace_ca", traces.authorities.as_deref())
    )
}

/// The settings of a cluster as lines of a file.
fn cluster(config: &Config) -> String {
    let Some(cluster) = &config.cluster else { return String::new() };
    let etcd = cluster.etcd.written();
    let line = |key: &str, text: Option<&str>| {
        text.map_or(String::new(), |text| format!("{key} = {}\n", quoted(text)))
    };
    let path = |key: &str, path: Option<&Path>| {
        line(key, path.map(|path| path.to_str().expect("a path from a text")))
    };
    let endpoints: Vec<String> = etcd.endpoints.iter().map(|endpoint| quoted(endpoint).to_string()).collect();
    format!(
        "etcd_endpoints = [{}]\ncluster_name = {}\ncluster_prefix = {}\ncluster_seed = {}\n\
         cluster_strict = {}\netcd_plaintext_off_loopback = {}\n{}{}{}{}{}{}",
        endpoints.join(", "),
        quoted(&cluster.name),
        quoted(&cluster.prefix),
        cluster.seed,
        cluster.strict,
        etcd.plaintext,
        line("cluster_address", cluster.address.as_deref()),
        path("etcd_ca", etcd.ca.as_deref()),
        path("etcd_cert", etcd.cert.as_deref()),
        path("etcd_key", etcd.key.as_deref()),
        line("etcd_user", etcd.user.as_deref()),
        path("etcd_password_file", etcd.password_file.as_deref()),
    )
}

/// The configuration as a file.
fn written(config: &Config) -> String {
    let store = config.store.to_str().expect("a path from a text");
    let capacity = limit_text(config.capacity);
    let tls = config.tls.as_ref().map(files).unwrap_or_default();
    let (access, rules) = access(&config.access);
    let Thresholds { throttled_for, resolved_after, quota_percent } = config.alarms.thresholds;
    let alarms = format!(
        "alarm_throttled_for = \"{}us\"\nalarm_resolved_after = \"{}us\"\nalarm_quota_percent = {quota_percent}\n",
        throttled_for.0, resolved_after.0
    );
    let (traces, cluster) = (traces(config), cluster(config));
    let webhooks: String = config.alarms.webhooks.iter().map(webhook).collect();
    let fence = config.fence.map_or(String::new(), |span| format!("fence = \"{}us\"\n", span.0));
    format!(
        "store = {}\n{tls}{access}plaintext_off_loopback = {}\ngrpc_listen = \"{}\"\nhttp_listen = \"{}\"\nallow_remote = {}\ncapacity = \"{capacity}\"\n\
         drift_ppm = {}\nmargin = \"{}us\"\n{fence}{alarms}{traces}{cluster}{rules}{webhooks}",
        toml::Value::from(store),
        config.plaintext_off_loopback,
        config.grpc_listen,
        config.http_listen,
        config.allow_remote,
        config.drift_ppm,
        config.margin.0
    )
}

fn refused(text: &str, errors: &[ConfigError]) {
    assert!(!errors.is_empty(), "a refusal says why");
    for error in errors {
        let message = error.to_string();
        let quoted = text.lines().map(str::len).max().unwrap_or_default();
        let most =
            if matches!(error, ConfigError::Syntax(_)) { LONGEST_ERROR + 2 * quoted } else { LONGEST_ERROR };
        assert!(message.len() <= most && !message.contains('\n'), "{} bytes: {message}", message.len());
    }
}

/// A text is read as the number its digits say, or refused.
fn quantity(text: &str) {
    if let Ok(rate) = parse_rate(text) {
        assert!((Rate(1)..=Rate::MAX).contains(&rate), "{text:?}");
        assert_eq!(parse_rate(&rate_text(rate)), Ok(rate), "{text:?}");
        assert_eq!(Some(rate.0), decimal(text, "ru/s"), "{text:?}");
        assert_eq!(parse_limit(text), Ok(Some(rate)), "{text:?}");
    }
    if let Ok(amount) = parse_amount(text) {
        assert!((Ru::ZERO..=Ru::MAX).contains(&amount), "{text:?}");
        assert_eq!(parse_amount(&amount_text(amount)), Ok(amount), "{text:?}");
        assert_eq!(Some(amount.0), decimal(text, "ru"), "{text:?}");
    }
    if let Ok(span) = parse_span(text) {
        assert_eq!(parse_span(&format!("{}us", span.0)), Ok(span), "{text:?}");
    }
    let errors: [Option<QuantityError>; 4] =
        [parse_rate(text).err(), parse_amount(text).err(), parse_span(text).err(), parse_limit(text).err()];
    for error in errors.into_iter().flatten() {
        assert!(error.to_string().len() <= LONGEST_ERROR, "{error}");
    }
}

/// Millionths of a decimal, read digit by digit from the left.
fn decimal(text: &str, unit: &str) -> Option<i64> {
    let lower = text.trim().to_ascii_lowercase();
    let number = lower.strip_suffix(unit).unwrap_or(&lower).trim_end();
    let (mut micro, mut scale) = (0_i128, None);
    for character in number.chars() {
        match (character, scale) {
            ('.', None) => scale = Some(i128::from(MICRO)),
            ('0'..='9', None) => {
                micro = micro
                    .checked_mul(10)?
                    .checked_add(i128::from(character.to_digit(10)?) * i128::from(MICRO))?;
            }
            ('0'..='9', Some(before)) => {
                let place = before / 10;
                let digit = i128::from(character.to_digit(10)?);
                if place == 0 && digit > 0 {
                    return None;
                }
                micro += digit * place;
                scale = Some(place);
            }
            _ => return None,
        }
    }
    i64::try_from(micro).ok()
}
