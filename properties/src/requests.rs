//! Requests as text: an input has requests with lines of `---` between them, each a line with method and path, headers,
//! an empty line and the body.

use axum::http::{HeaderName, HeaderValue, Method, Uri};

/// The parts between lines of `---`.
pub(super) fn split(bytes: &[u8]) -> Vec<&[u8]> {
    const SEPARATOR: &[u8] = b"\n---\n";
    let mut parts = Vec::new();
    let mut rest = bytes;
    while let Some(at) = rest.windows(SEPARATOR.len()).position(|window| window == SEPARATOR) {
        let (part, after) = rest.split_at(at);
        parts.push(part);
        rest = after.get(SEPARATOR.len()..).unwrap_or_default();
    }
    parts.push(rest);
    parts
}

/// A request.
pub(super) struct Asked {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) body: Vec<u8>,
}

impl Asked {
    /// A request as it would come out of the HTTP parser; `None` where that refuses.
    pub(super) fn read(text: &[u8]) -> Option<Self> {
        let end = text.windows(2).position(|window| window == b"\n\n");
        let (head, body) = text.split_at(end.unwrap_or(text.len()));
        let mut lines = head.split(|byte| *byte == b'\n');
        let mut words = lines.next()?.splitn(2, |byte| *byte == b' ');
        let method = Method::from_bytes(words.next()?).ok()?;
        let uri = Uri::try_from(words.next()?).ok()?;
        let headers = lines.filter_map(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            let (name, value) = line.split_at(colon);
            let value = value.get(1..)?.trim_ascii();
            Some((HeaderName::from_bytes(name).ok()?, HeaderValue::from_bytes(value).ok()?))
        });
        let body = body.get(2..).unwrap_or_default().to_vec();
        Some(Self { method, uri, headers: headers.collect(), body })
    }
}
