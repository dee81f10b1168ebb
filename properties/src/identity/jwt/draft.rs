//! A JWT as somebody might write it: its header, its claims, who signs it, and what becomes of it on the way.

use super::keys::{KIDS, PAIRS, algorithms, b64, public, sign, sign_by_public};
use crate::input::Input;

/// Words of algorithms in a header.
const WORDS: [&str; 11] =
    ["EdDSA", "ES256", "ES384", "RS256", "RS512", "PS256", "HS256", "none", "None", "eddsa", "ES512"];
/// Texts of the claims that name and map.
const TEXTS: [&str; 11] =
    ["ann", "admins", "ops", "team", "shop", "true", "node.1", "a@b", "a b", "", "Admins"];
/// Audiences as JSON, and the texts in them.
const AUDIENCES: [(&str, &[&str]); 10] = [
    ("\"t\"", &["t"]),
    ("[\"x\",\"t\"]", &["x", "t"]),
    ("[5,\"u\"]", &["u"]),
    ("\"T\"", &["T"]),
    ("\"t \"", &["t "]),
    ("[]", &[]),
    ("[[\"t\"]]", &[]),
    ("5", &[]),
    ("{\"t\":\"t\"}", &[]),
    ("", &[]),
];
/// What is no time.
const ODD_TIMES: [&str; 9] = [
    "\"1577836900\"",
    "-1",
    "-0.5",
    "null",
    "true",
    "[1577836900]",
    "1.5e300",
    "18446744073709551616",
    "1e400",
];

/// A claim's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Is {
    Absent,
    Text(&'static str),
    Bool(bool),
    List(Vec<&'static str>),
    /// A number, an object or null.
    Odd(&'static str),
}

/// A time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    Absent,
    /// Unix seconds, and whether a half more.
    At(u64, bool),
    Odd(&'static str),
}

/// By whom a JWT is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Nobody,
    /// HMAC by a public key.
    Public(usize),
    Pair(usize, &'static str),
}

/// A JWT, before it is a text.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) word: &'static str,
    pub(super) kid: Option<&'static str>,
    pub(super) by: By,
    /// Demands something of the reader.
    pub(super) is_critical: bool,
    /// Has a key of its own in its header.
    own_key: Option<usize>,
    pub(super) issuer: Option<&'static str>,
    /// Says it twice.
    pub(super) twice: bool,
    audience: usize,
    pub(super) exp: When,
    pub(super) nbf: When,
    pub(super) iat: When,
    pub(super) sub: Is,
    pub(super) groups: Is,
    pub(super) email_verified: Is,
    pub(super) namespace: Is,
    pub(super) account: Is,
    /// Bytes that mean nothing.
    padding: usize,
}

impl Is {
    fn draw(input: &mut Input<'_>) -> Self {
        let text = |input: &mut Input<'_>| input.pick(&TEXTS).unwrap_or_default();
        match input.below(8) {
            0 | 1 => Self::Text(text(input)),
            2 | 3 => Self::List((0..input.below(4)).map(|_| text(input)).collect()),
            4 | 5 => Self::Bool(input.flag()),
            6 => Self::Absent,
            _ => Self::Odd(
                input.pick(&["5", "null", "{\"admins\":true}", "[[\"admins\"]]"]).unwrap_or_default(),
            ),
        }
    }

    fn json(&self) -> Option<String> {
        match self {
            Self::Absent => None,
            Self::Text(text) => Some(format!("{text:?}")),
            Self::Bool(is) => Some(is.to_string()),
            Self::List(all) => Some(format!("{all:?}")),
            Self::Odd(json) => Some((*json).to_owned()),
        }
    }
}

impl When {
    /// A time near now or near now and the skew.
    fn draw(input: &mut Input<'_>, now_s: u64, skew_s: u64) -> Self {
        let near = |input: &mut Input<'_>, of: u64| (of + input.between(0, 4)).saturating_sub(2);
        match input.below(8) {
            0 => Self::Absent,
            1 => Self::At(near(input, now_s), input.flag()),
            2 => Self::At(near(input, now_s - skew_s), input.flag()),
            3 => Self::At(near(input, now_s + skew_s), input.flag()),
            4 => Self::At(now_s - 3_600, false),
            5 | 6 => Self::At(now_s + 3_600, false),
            _ => Self::Odd(input.pick(&ODD_TIMES).unwrap_or_default()),
        }
    }

    fn json(self) -> Option<String> {
        match self {
            Self::Absent => None,
            Self::At(seconds, false) => Some(seconds.to_string()),
            Self::At(seconds, true) => Some(format!("{seconds}.5")),
            Self::Odd(json) => Some(json.to_owned()),
        }
    }
}

impl Draft {
    /// One that is right for the provider of the key pair `pair`, but for what the input changes.
    pub(super) fn draw(
        input: &mut Input<'_>,
        pair: usize,
        kid: Option<&'static str>,
        now_s: u64,
        skew_s: u64,
    ) -> Self {
        let by = algorithms(pair).first().copied().unwrap_or_default();
        let mut draft = Self {
            word: by,
            kid,
            by: By::Pair(pair, by),
            is_critical: false,
            own_key: None,
            issuer: Some("https://a.example"),
            twice: false,
            audience: 0,
            exp: When::At(now_s + 60, false),
            nbf: When::Absent,
            iat: When::Absent,
            sub: Is::Text("ann"),
            groups: Is::List(vec!["admins"]),
            email_verified: Is::Absent,
            namespace: Is::Text("shop"),
            account: Is::Text("till"),
            padding: 0,
        };
        for _ in 0..input.below(6) {
            draft.change(input, now_s, skew_s);
        }
        draft
    }

    fn change(&mut self, input: &mut Input<'_>, now_s: u64, skew_s: u64) {
        match input.below(18) {
            0 => self.word = input.pick(&WORDS).unwrap_or_default(),
            1 => self.kid = input.pick(&KIDS).flatten(),
            2 | 3 => {
                let pair = input.below(PAIRS);
                let by = input.pick(algorithms(pair)).unwrap_or_default();
                (self.by, self.word) = (By::Pair(pair, by), if input.flag() { by } else { self.word });
            }
            4 => self.by = By::Public(input.below(PAIRS)),
            5 => (self.by, self.word) = (By::Nobody, input.pick(&["none", "", "EdDSA"]).unwrap_or_default()),
            6 => self.is_critical = true,
            7 => self.own_key = Some(input.below(PAIRS)),
            8 => {
                let issuers =
                    ["https://b.example", "https://a.example/", "https://c.example", "HTTPS://a.example"];
                self.issuer = if input.flag() { input.pick(&issuers) } else { None };
            }
            9 => self.twice = true,
            10 => self.audience = input.below(AUDIENCES.len()),
            11 => self.exp = When::draw(input, now_s, skew_s),
            12 => self.nbf = When::draw(input, now_s, skew_s),
            13 => self.iat = When::draw(input, now_s, skew_s),
            14 => self.sub = Is::draw(input),
            15 => self.groups = Is::draw(input),
            16 => {
                let claim = Is::draw(input);
                match input.below(3) {
                    0 => self.email_verified = claim,
                    1 => self.namespace = claim,
                    _ => self.account = claim,
                }
            }
            _ => self.padding = usize::try_from(input.between(0, 7_000)).unwrap_or_default(),
        }
    }

    /// The texts in its audience.
    pub(super) fn audiences(&self) -> &'static [&'static str] {
        AUDIENCES.get(self.audience).map(|(_, texts)| *texts).unwrap_or_default()
    }

    /// Its text, signed.
    pub(super) fn text(&self) -> String {
        let mut head = format!("{{\"alg\":{:?},\"typ\":\"JWT\"", self.word);
        if let Some(kid) = self.kid {
            head += &format!(",\"kid\":{kid:?}");
        }
        if self.is_critical {
            head += ",\"crit\":[\"exp\"]";
        }
        if let Some(pair) = self.own_key {
            head += &format!(",\"jwk\":{},\"jku\":\"https://c.example/keys\"", public(pair));
        }
        let message = format!("{}.{}", b64(head + "}"), b64(self.claims()));
        let signature = match self.by {
            By::Nobody => Vec::new(),
            By::Public(pair) => sign_by_public(pair, message.as_bytes()),
            By::Pair(pair, by) => sign(pair, by, message.as_bytes()),
        };
        format!("{message}.{}", b64(signature))
    }

    fn claims(&self) -> String {
        let audience = AUDIENCES.get(self.audience).map(|(json, _)| (*json).to_owned());
        let inner = [("ns", self.namespace.json()), ("name", self.account.json())];
        let issuer = self.issuer.map(|issuer| format!("{issuer:?}"));
        let fields = [
            ("iss", issuer.clone()),
            ("aud", audience.filter(|json| !json.is_empty())),
            ("exp", self.exp.json()),
            ("nbf", self.nbf.json()),
            ("iat", self.iat.json()),
            ("sub", self.sub.json()),
            ("groups", self.groups.json()),
            ("email_verified", self.email_verified.json()),
            ("k", Some(object(&inner))),
            ("padding", (self.padding > 0).then(|| format!("{:?}", "x".repeat(self.padding)))),
            ("iss", issuer.filter(|_| self.twice)),
        ];
        object(&fields)
    }
}

fn object(fields: &[(&str, Option<String>)]) -> String {
    let written = fields.iter().filter_map(|(name, json)| Some(format!("{name:?}:{}", json.as_ref()?)));
    format!("{{{}}}", written.collect::<Vec<_>>().join(","))
}
