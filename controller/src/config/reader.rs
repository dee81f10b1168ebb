//! Takes settings out of a TOML table one by one and collects every error.

use std::net::SocketAddr;
use std::path::PathBuf;

use tidegate_core::units::{Rate, Span};
use toml::{Table, Value};

use super::ConfigError;
use crate::quantity::{cut, parse_limit, parse_span};

/// Host names that REST accepts: a proxy has a few, and each request is compared with all of them.
const MAX_HOSTS: usize = 64;

/// A table from which settings are taken.
pub(super) struct Reader {
    table: Table,
    known: Vec<&'static str>,
    errors: Vec<ConfigError>,
}

impl Reader {
    pub(super) fn new(table: Table) -> Self {
        Self { table, known: Vec::new(), errors: Vec::new() }
    }

    /// All errors so far; a setting that nobody took is unknown.
    pub(super) fn finish(mut self) -> Vec<ConfigError> {
        let known = self.known.join(", ");
        let unknown = |key: &String| ConfigError::Unknown { key: cut(key), known: known.clone() };
        self.errors.extend(self.table.keys().map(unknown));
        self.errors
    }

    pub(super) fn path(&mut self, key: &'static str) -> Option<PathBuf> {
        let text = self.text(key, "a path in quotes")?;
        self.checked(key, if text.is_empty() { Err("is empty; write a path") } else { Ok(text.into()) })
    }

    pub(super) fn address(&mut self, key: &'static str) -> Option<SocketAddr> {
        let text = self.text(key, "an address in quotes, such as \"127.0.0.1:7420\"")?;
        let wrong = |_| format!("{:?} is not an address such as \"127.0.0.1:7420\"", cut(&text));
        let address = text.parse().map_err(wrong);
        self.checked(key, address)
    }

    pub(super) fn hosts(&mut self, key: &'static str) -> Option<Vec<String>> {
        let expected = "names in quotes, such as [\"rates.example\"]";
        let values = match self.take(key)? {
            Value::Array(values) => values,
            other => return self.checked(key, Err(mismatch(&other, expected))),
        };
        let hosts = values.into_iter().map(|value| match value {
            Value::String(name) if is_host(&name) => Ok(name),
            other => Err(mismatch(&other, &format!("{expected}, without a scheme, a port or a path"))),
        });
        let hosts: Result<Vec<String>, String> = hosts.collect();
        let hosts = hosts.and_then(|hosts| match hosts.len() {
            count if count > MAX_HOSTS => Err(format!("{count} names are too many: at most {MAX_HOSTS}")),
            _ => Ok(hosts),
        });
        self.checked(key, hosts)
    }

    pub(super) fn switch(&mut self, key: &'static str) -> Option<bool> {
        match self.take(key)? {
            Value::Boolean(value) => Some(value),
            other => self.checked(key, Err(mismatch(&other, "true or false"))),
        }
    }

    /// One of these words.
    pub(super) fn word(&mut self, key: &'static str, words: &[&'static str]) -> Option<&'static str> {
        let expected = format!("one of {}, in quotes", words.join(", "));
        let text = self.text(key, &expected)?;
        let known = words.iter().find(|word| **word == text).copied();
        self.checked(key, known.ok_or_else(|| format!("{:?} is not {expected}", cut(&text))))
    }

    /// A text that no error shows, as it may be a secret.
    pub(super) fn hidden(&mut self, key: &'static str, expected: &str) -> Option<String> {
        match self.take(key)? {
            Value::String(text) => Some(text),
            _ => self.checked(key, Err(format!("is no text; write {expected} in quotes"))),
        }
    }

    /// A decimal as it is written, with quotes or without.
    pub(super) fn decimal(&mut self, key: &'static str) -> Option<String> {
        match self.take(key)? {
            Value::String(text) => Some(text),
            other => Some(other.to_string()),
        }
    }

    /// A text that is not empty.
    pub(super) fn line(&mut self, key: &'static str) -> Option<String> {
        let text = self.text(key, "a text in quotes")?;
        self.checked(
            key,
            if text.is_empty() { Err("is empty; write one, or leave it out") } else { Ok(text) },
        )
    }

    /// A name that passes a check.
    pub(super) fn named<E: ToString>(
        &mut self,
        key: &'static str,
        check: impl Fn(&str) -> Result<String, E>,
    ) -> Option<String> {
        let text = self.text(key, "a name in quotes")?;
        self.checked(key, check(&text))
    }

    /// Texts, as they are written.
    pub(super) fn texts(&mut self, key: &'static str, expected: &str) -> Option<Vec<String>> {
        let values = match self.take(key)? {
            Value::Array(values) => values,
            other => return self.checked(key, Err(mismatch(&other, expected))),
        };
        let texts = values.into_iter().map(|value| match value {
            Value::String(text) => Ok(text),
            other => Err(mismatch(&other, expected)),
        });
        let texts: Result<Vec<String>, String> = texts.collect();
        self.checked(key, texts)
    }

    /// Whether this setting was refused.
    pub(super) fn has_refused(&self, of: &str) -> bool {
        self.errors.iter().any(|error| matches!(error, ConfigError::Value { key, .. } if *key == of))
    }

    /// Refuses a setting because of others.
    pub(super) fn refuse(&mut self, key: &'static str, message: &str) {
        self.errors.push(ConfigError::Value { key, message: message.to_owned() });
    }

    pub(super) fn number(&mut self, key: &'static str, min: u32, max: u32) -> Option<u32> {
        let value = match self.take(key)? {
            Value::Integer(value) => value,
            other => return self.checked(key, Err(mismatch(&other, "a whole number"))),
        };
        let number = u32::try_from(value).ok().filter(|number| (min..=max).contains(number));
        self.checked(key, number.ok_or_else(|| format!("{value} is out of range: {min} to {max}")))
    }

    pub(super) fn span(&mut self, key: &'static str, min: Span, max: Span) -> Option<Span> {
        let text = self.text(key, "a duration in quotes, such as \"50ms\"")?;
        let span = parse_span(&text).map_err(|error| error.to_string()).and_then(|span| {
            let out_of_range = || format!("{span} is out of range: {min} to {max}");
            Some(span).filter(|span| min <= *span && *span <= max).ok_or_else(out_of_range)
        });
        self.checked(key, span)
    }

    pub(super) fn limit(&mut self, key: &'static str) -> Option<Option<Rate>> {
        let text = self.text(key, "a rate in quotes, such as \"20000 RU/s\"")?;
        self.checked(key, parse_limit(&text))
    }

    /// Tables, each written `[[key]]`.
    pub(super) fn tables<T>(
        &mut self,
        key: &'static str,
        most: usize,
        read: impl Fn(Table) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let expected = format!("a table for each, headed [[{key}]]");
        let values = match self.take(key)? {
            Value::Array(values) if values.len() <= most => values,
            Value::Array(values) => {
                return self.checked(key, Err(format!("{} are too many: at most {most}", values.len())));
            }
            other => return self.checked(key, Err(mismatch(&other, &expected))),
        };
        let all: Result<Vec<T>, String> = (1..)
            .zip(values)
            .map(|(number, value)| match value {
                Value::Table(table) => read(table).map_err(|message| format!("rule {number}: {message}")),
                other => Err(mismatch(&other, &expected)),
            })
            .collect();
        self.checked(key, all)
    }

    fn text(&mut self, key: &'static str, expected: &str) -> Option<String> {
        match self.take(key)? {
            Value::String(text) => Some(text),
            other => self.checked(key, Err(mismatch(&other, expected))),
        }
    }

    fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.table.remove(key)
    }

    fn checked<T, E: ToString>(&mut self, key: &'static str, value: Result<T, E>) -> Option<T> {
        value.map_err(|error| self.errors.push(ConfigError::Value { key, message: error.to_string() })).ok()
    }
}

/// Whether the text is a DNS name.
fn is_host(name: &str) -> bool {
    let part = |part: &str| {
        (1..=63).contains(&part.len())
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    name.len() <= 253 && name.split('.').all(part)
}

/// What is wrong with a value of another kind, and what to write.
pub(super) fn mismatch(value: &Value, expected: &str) -> String {
    let kind = match value {
        Value::Integer(_) => "an integer",
        Value::Array(_) => "a list",
        other => &format!("a {}", other.type_str()),
    };
    format!("{} is {kind}; write {expected}", cut(&value.to_string()))
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    #[test]
    fn a_value_of_another_kind_is_shown_with_what_to_write() {
        let names = vec!["\"a\""; 65].join(", ");
        let hook = "[[webhook]]\nname = \"a\"\nurl = \"https://a/\"\nsecret_file = \"s\"\n".repeat(17);
        let cluster = "etcd_endpoints = [\"http://127.0.0.1:2379\"]\n";
        for (text, said) in [
            ("store = 5", "store: 5 is an integer; write a path in quotes"),
            ("store = \"\"", "store: is empty; write a path"),
            ("grpc_listen = 7420", "grpc_listen: 7420 is an integer; write an address in quotes, such as"),
            ("http_hosts = \"a\"", "http_hosts: \"a\" is a string; write names in quotes, such as"),
            ("http_hosts = [1]", "http_hosts: 1 is an integer; write names in quotes, such as"),
            (&format!("http_hosts = [{names}]"), "http_hosts: 65 names are too many: at most 64"),
            ("allow_remote = \"yes\"", "allow_remote: \"yes\" is a string; write true or false"),
            (
                "authentication = true",
                "authentication: true is a boolean; write one of off, required, in quotes",
            ),
            ("drift_ppm = \"5\"", "drift_ppm: \"5\" is a string; write a whole number"),
            ("drift_ppm = 1.5", "drift_ppm: 1.5 is a float; write a whole number"),
            ("drift_ppm = -1", "drift_ppm: -1 is out of range: 0 to 100000"),
            ("margin = [1]", "margin: [1] is a list; write a duration in quotes, such as \"50ms\""),
            ("margin = \"-5s\"", "margin: \"-5s\" is out of range: 0us to "),
            ("margin = \"61s\"", "margin: 61s is out of range: 0ms to 60s"),
            ("capacity = 20000", "capacity: 20000 is an integer; write a rate in quotes, such as"),
            ("identity = 5", "identity: 5 is an integer; write a table for each, headed [[identity]]"),
            ("etcd_endpoints = [5]", "etcd_endpoints: 5 is an integer; write addresses in quotes, such as"),
            (&format!("{cluster}cluster_name = 5"), "cluster_name: 5 is an integer; write a name in quotes"),
            (&hook, "webhook: 17 are too many: at most 16"),
        ] {
            let errors = Config::parse(text).unwrap_err();
            let first = errors[0].to_string();
            assert!(errors.len() == 1 && first.starts_with(said), "{text}: {errors:?}");
        }
        let most = format!("http_hosts = [{}]", vec!["\"a\""; 64].join(", "));
        assert_eq!(Config::parse(&most).unwrap().http_hosts.len(), 64);
    }
}
