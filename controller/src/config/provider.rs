//! The settings of providers of identity: `[[provider]]`, with `[[provider.role]]` below each.

use std::path::PathBuf;

use tidegate_core::units::Span;
use toml::{Table, Value};

use super::access::{groups, text};
use super::reader::{Reader, mismatch};
use crate::identity::Role;
use crate::identity::provider::{Claim, Mapping, Provider, ProviderError, Source};
use crate::quantity::{cut, parse_span};

/// Providers: a company has one for people and one for each cluster. Each is fetched from again and again.
const MAX_PROVIDERS: usize = 16;
/// Rules of one provider; each JWT is compared with all of them.
const MAX_ROLES: usize = 1_024;
/// What is allowed where nobody says what: the three that providers sign by.
const ALGORITHMS: [&str; 3] = ["RS256", "ES256", "EdDSA"];
/// How far clocks may be apart. Half of it is short for machines without a time server; twice of it lets an expired JWT
/// in for two minutes.
const SKEW: Span = Span::secs(60);
/// The most of it: a clock that is further off is wrong.
const MOST_SKEW: Span = Span::secs(300);
/// For how long the last good keys are used: half of it is short for a provider that fails at night; twice of it
/// believes a key that was taken back for as long.
const KEEP: Span = Span::secs(24 * 3_600);
/// Range of it.
const KEEP_RANGE: (Span, Span) = (Span::secs(60), Span::secs(30 * 24 * 3_600));
/// The parts of a provider, in an error.
const PARTS: &str =
    "name, issuer, audience, jwks_url, jwks_file, ca, algorithms, clock_skew, keys_kept, name_claim, role";

/// Takes the settings out of the text.
pub(super) fn providers(reader: &mut Reader) -> Vec<Provider> {
    let all = reader.tables("provider", MAX_PROVIDERS, provider).unwrap_or_default();
    for (at, one) in all.iter().enumerate() {
        if all.iter().take(at).any(|other| other.name == one.name || other.issuer == one.issuer) {
            let message =
                format!("{:?} has the name or the issuer of another; each has its own", cut(&one.name));
            reader.refuse("provider", &message);
        }
    }
    all
}

fn provider(mut table: Table) -> Result<Provider, String> {
    let missing = |key: &str, what: &str| format!("{key}: is missing; write {what}");
    let name = text(&mut table, "name")?.ok_or_else(|| missing("name", "how the audit log calls it"))?;
    let issuer = text(&mut table, "issuer")?.ok_or_else(|| missing("issuer", "what its JWTs have as iss"))?;
    let audiences = table.remove("audience").map(|value| texts("audience", value)).transpose()?;
    let audiences =
        audiences.ok_or_else(|| missing("audience", "what its JWTs for this controller have in aud"))?;
    let algorithms = match table.remove("algorithms") {
        None => ALGORITHMS.map(str::to_owned).to_vec(),
        Some(value) => texts("algorithms", value)?,
    };
    let algorithms = Provider::algorithms(&algorithms).map_err(|error| error.to_string())?;
    let source = match (text(&mut table, "jwks_url")?, path(&mut table, "jwks_file")?) {
        (None, None) => Source::Discovery,
        (Some(url), None) => Source::Url(url),
        (None, Some(file)) => Source::File(file),
        (Some(_), Some(_)) => return Err("jwks_file: goes without jwks_url; write one of them".to_owned()),
    };
    let authorities = path(&mut table, "ca")?;
    if authorities.is_some() && matches!(source, Source::File(_)) {
        return Err("ca: has no effect where the keys are in a file (jwks_file)".to_owned());
    }
    let skew = span(&mut table, "clock_skew", (Span(0), MOST_SKEW))?.unwrap_or(SKEW);
    let keep = span(&mut table, "keys_kept", KEEP_RANGE)?.unwrap_or(KEEP);
    let name_claim = text(&mut table, "name_claim")?.unwrap_or_else(|| "sub".to_owned());
    let name_claim = Claim::new(&name_claim).map_err(|error| format!("name_{error}"))?;
    let roles = table.remove("role").map(roles).transpose()?.unwrap_or_default();
    if let Some(unknown) = table.keys().next() {
        return Err(format!("{}: unknown; the parts are {PARTS}", cut(unknown)));
    }
    let provider =
        Provider { name, issuer, audiences, algorithms, source, authorities, skew, keep, name_claim, roles };
    provider.check().map_err(|error| error.to_string())?;
    Ok(provider)
}

fn roles(value: Value) -> Result<Vec<Mapping>, String> {
    let expected = "a table for each, headed [[provider.role]]";
    let tables = match value {
        Value::Array(tables) if tables.len() <= MAX_ROLES => tables,
        Value::Array(tables) => {
            return Err(format!("role: {} are too many: at most {MAX_ROLES}", tables.len()));
        }
        other => return Err(format!("role: {}", mismatch(&other, expected))),
    };
    let one = |(number, value): (usize, Value)| match value {
        Value::Table(table) => role(number, table),
        other => Err(format!("role: {}", mismatch(&other, expected))),
    };
    (1..).zip(tables).map(one).collect()
}

fn role(number: usize, mut table: Table) -> Result<Mapping, String> {
    let at = |message: String| format!("role {number}: {message}");
    let mut part = |key, what: &str| {
        let found = text(&mut table, key).map_err(at)?;
        found.ok_or_else(|| at(format!("{key}: is missing; write {what}")))
    };
    let claim = part("claim", "the claim that decides")?;
    let value = part("value", "the value that it has to have")?;
    let role = part("role", &format!("one of {}", Role::NAMES.join(", ")))?;
    let name = text(&mut table, "name").map_err(at)?;
    let tenant = text(&mut table, "tenant").map_err(at)?;
    let groups = table.remove("groups").map(groups).transpose().map_err(at)?;
    if let Some(unknown) = table.keys().next() {
        return Err(at(format!(
            "{}: unknown; the parts are claim, value, role, name, groups, tenant",
            cut(unknown)
        )));
    }
    Mapping::new(&claim, &value, &role, name.as_deref(), groups.as_deref(), tenant.as_deref())
        .map_err(|error| ProviderError::Mapping { number, error }.to_string())
}

/// One text, or several.
pub(super) fn texts(key: &'static str, value: Value) -> Result<Vec<String>, String> {
    let values = match value {
        Value::Array(values) => values,
        one => vec![one],
    };
    let text = |value| match value {
        Value::String(text) => Ok(text),
        other => Err(format!("{key}: {}", mismatch(&other, "a text in quotes, or several in brackets"))),
    };
    values.into_iter().map(text).collect()
}

pub(super) fn path(table: &mut Table, key: &'static str) -> Result<Option<PathBuf>, String> {
    match text(table, key)? {
        Some(empty) if empty.is_empty() => Err(format!("{key}: is empty; write a path")),
        found => Ok(found.map(PathBuf::from)),
    }
}

fn span(table: &mut Table, key: &'static str, range: (Span, Span)) -> Result<Option<Span>, String> {
    let Some(text) = text(table, key)? else { return Ok(None) };
    let span = parse_span(&text).map_err(|error| format!("{key}: {error}"))?;
    if range.0 <= span && span <= range.1 {
        Ok(Some(span))
    } else {
        Err(format!("{key}: {span} is out of range: {} to {}", range.0, range.1))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, ConfigError};
    use super::*;

    const REQUIRED: &str = "authentication = \"required\"\n";
    const HEAD: &str =
        "[[provider]]\nname = \"dex\"\nissuer = \"https://dex.example\"\naudience = \"tidegate\"\n";
    const ROLE: &str = "[[provider.role]]\nclaim = \"groups\"\nvalue = \"ops\"\nrole = \"operator\"\n";

    fn read(parts: &[&str]) -> Result<Config, String> {
        let said =
            |errors: Vec<ConfigError>| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        Config::parse(&parts.concat()).map_err(said)
    }

    #[test]
    fn a_provider_needs_a_name_an_issuer_an_audience_and_a_role() {
        let config = read(&[REQUIRED, HEAD, ROLE]).unwrap();
        let provider = &config.access.providers[0];
        assert_eq!(provider.algorithm_words(), ALGORITHMS);
        assert_eq!((provider.skew, provider.keep, &provider.source), (SKEW, KEEP, &Source::Discovery));
        assert_eq!((provider.name_claim.as_str(), provider.roles[0].role), ("sub", Role::Operator));
        let all = "algorithms = [\"ES384\", \"PS256\"]\njwks_url = \"https://d/keys\"\nca = \"ca.pem\"\nclock_skew = \"0s\"\n\
                   keys_kept = \"1h\"\nname_claim = \"/a/b\"\n";
        let node = "[[provider.role]]\nclaim = \"/kubernetes.io/namespace\"\nvalue = \"shop\"\nrole = \"node\"\n\
                    name = \"till\"\ngroups = [\"Shop\"]\n";
        let config = read(&[REQUIRED, HEAD, all, ROLE, node]).unwrap();
        let provider = &config.access.providers[0];
        assert_eq!(provider.algorithm_words(), ["ES384", "PS256"]);
        assert_eq!((provider.skew, provider.keep), (Span(0), Span::secs(3_600)), "none is a skew, too");
        assert!(provider.roles[1].scope.as_ref().is_some_and(|scope| scope.contains("shop")));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_by_its_part() {
        let with = |line: &str| read(&[REQUIRED, HEAD, line, "\n", ROLE]);
        for (line, said) in [
            ("algorithms = [\"none\"]", "algorithms: \"none\" is none of RS256"),
            ("algorithms = [\"HS256\"]", "algorithms: \"HS256\" is none of RS256"),
            ("algorithms = []", "algorithms: is empty"),
            ("jwks_url = \"http://dex.example/keys\"", "jwks_url: "),
            ("jwks_url = \"https://u@dex.example/keys\"", "jwks_url: "),
            ("jwks_url = \"/keys\"", "jwks_url: "),
            ("jwks_url = \"https://a/\"\njwks_file = \"k\"", "jwks_file: goes without"),
            ("jwks_file = \"\"", "jwks_file: is empty"),
            ("jwks_file = \"k\"\nca = \"c\"", "ca: has no effect"),
            ("clock_skew = \"6m\"", "clock_skew: "),
            ("keys_kept = \"1s\"", "keys_kept: "),
            ("name_claim = \"\"", "name_claim: "),
            ("colour = 1", "colour: unknown"),
            (
                "algorithms = [5]",
                "algorithms: 5 is an integer; write a text in quotes, or several in brackets",
            ),
        ] {
            let refused = with(line).unwrap_err();
            assert!(refused.starts_with("provider: rule 1: ") && refused.contains(said), "{line}: {refused}");
        }
        for (role, said) in [
            ("claim = \"a\"\nvalue = \"b\"\nrole = \"root\"", "role 1: role: \"root\" is no role"),
            ("claim = \"a\"\nrole = \"admin\"", "role 1: value: is missing"),
            (
                "claim = \"a\"\nvalue = \"\"\nrole = \"admin\"",
                "role 1: value: write the text that the claim has",
            ),
            ("claim = \"a\"\nvalue = true\nrole = \"admin\"", "role 1: value: true is a boolean"),
            (
                "claim = \"a\"\nvalue = \"b\"\nrole = \"admin\"\ncolour = 1",
                "role 1: colour: unknown; the parts are claim, value, role",
            ),
            ("claim = \"\"\nvalue = \"b\"\nrole = \"admin\"", "role 1: claim: write"),
            ("claim = \"a\"\nvalue = \"b\"\nrole = \"node\"\nname = \"a.b\"", "role 1: name: "),
            ("claim = \"a\"\nvalue = \"b\"\nrole = \"admin\"\ngroups = [\"g\"]", "role 1: groups: "),
            ("claim = \"a\"\nvalue = \"b\"\nrole = \"node\"\ngroups = []", "role 1: groups: is empty"),
        ] {
            let refused = read(&[REQUIRED, HEAD, "[[provider.role]]\n", role]).unwrap_err();
            assert!(refused.contains(said), "{role}: {refused}");
        }
        assert!(read(&[REQUIRED, HEAD]).unwrap_err().contains("role: is missing"));
        for (part, wrong, said) in [
            ("name = \"dex\"\n", "", "name: is missing; write how the audit log calls it"),
            ("issuer = \"https://dex.example\"\n", "", "issuer: is missing; write what its JWTs have as iss"),
            ("https://dex.example", "", "issuer: is empty or longer than 2048 bytes"),
            ("dex.example", &"x".repeat(2_048), "issuer: is empty or longer than 2048 bytes"),
            (
                "audience = \"tidegate\"\n",
                "",
                "audience: is missing; write what its JWTs for this controller",
            ),
            ("\"tidegate\"", "[]", "audience: write 1 to 16 texts"),
            ("\"tidegate\"", "[\"a\", \"\"]", "audience: write 1 to 16 texts"),
            ("\"tidegate\"", &format!("[{}]", vec!["\"a\""; 17].join(", ")), "audience: write 1 to 16 texts"),
        ] {
            let refused = read(&[REQUIRED, &HEAD.replace(part, wrong), ROLE]).unwrap_err();
            assert!(refused.starts_with(&format!("provider: rule 1: {said}")), "{wrong}: {refused}");
        }
        for (role, said) in [
            ("role = 5\n", "role: 5 is an integer; write a table for each, headed [[provider.role]]"),
            ("role = [5]\n", "role: 5 is an integer; write a table for each, headed [[provider.role]]"),
            (&ROLE.repeat(1_025), "role: 1025 are too many: at most 1024"),
        ] {
            let refused = read(&[REQUIRED, HEAD, role]).unwrap_err();
            assert!(refused.starts_with(&format!("provider: rule 1: {said}")), "{refused}");
        }
        assert!(read(&[REQUIRED, HEAD, &ROLE.repeat(1_024)]).is_ok());
        // Each range has its ends.
        for (line, is_read) in [
            ("clock_skew = \"5m\"", true),
            ("clock_skew = \"300000001us\"", false),
            ("keys_kept = \"60s\"", true),
            ("keys_kept = \"59999999us\"", false),
            ("keys_kept = \"720h\"", true),
            ("keys_kept = \"2592000000001us\"", false),
        ] {
            assert_eq!(with(line).is_ok(), is_read, "{line}: {:?}", with(line).err());
        }
        for (bytes, is_read) in [(2_048, true), (2_049, false)] {
            let long = "x".repeat(bytes);
            let of = |part: &str| read(&[REQUIRED, &HEAD.replace(part, &long), "jwks_file = \"k\"\n", ROLE]);
            assert_eq!(of("https://dex.example").is_ok(), is_read, "{:?}", of("https://dex.example").err());
            assert_eq!(of("tidegate").is_ok(), is_read, "{:?}", of("tidegate").err());
        }
        let audiences = format!("[{}]", vec!["\"a\""; 16].join(", "));
        assert!(read(&[REQUIRED, &HEAD.replace("\"tidegate\"", &audiences), ROLE]).is_ok());
        let http = HEAD.replace("https", "http");
        assert!(read(&[REQUIRED, &http, ROLE]).unwrap_err().contains("issuer: "));
        assert!(
            read(&[REQUIRED, &HEAD.replace("https://dex.example", "http://127.0.0.1:5556/dex"), ROLE])
                .is_ok()
        );
        assert!(read(&[REQUIRED, HEAD, ROLE, HEAD, ROLE]).unwrap_err().contains("of another"));
        for (own, other) in [("\"dex\"", "\"dex2\""), ("dex.example", "dex2.example")] {
            let second = HEAD.replace(own, other);
            let refused = read(&[REQUIRED, HEAD, ROLE, &second, ROLE]).unwrap_err();
            assert!(refused.contains("has the name or the issuer of another"), "{other}: {refused}");
        }
        assert!(
            read(&[HEAD, ROLE]).unwrap_err().contains("provider: has no effect while authentication is off")
        );
        assert!(read(&[REQUIRED, "provider = 5"]).unwrap_err().starts_with("provider: "));
    }
}
