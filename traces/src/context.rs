//! A place in a trace, as callers name it. *Source:* W3C Trace Context, level 1; for SQL the comments of sqlcommenter.
//!
//! What is malformed is as if it were not there: the call goes on, and a trace of its own may begin.

use std::fmt;

/// Identity of a trace; not zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceId(pub(crate) [u8; 16]);

/// Identity of a span in its trace; not zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanId(pub(crate) [u8; 8]);

/// A span somewhere, and whether its trace is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// Its trace.
    pub trace: TraceId,
    /// The span.
    pub span: SpanId,
    /// Whether it is recorded.
    pub sampled: bool,
}

/// A `traceparent` that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Bytes of version 00.
const LENGTH: usize = 55;
/// Longest value that is looked at: later versions may have more behind what is known, within reason.
const MAX_LENGTH: usize = 256;
/// Bytes of a comment in which a context is looked for. sqlcommenter's have half a dozen keys; with twice of it, each
/// statement that ends with a comment would cost more to look through.
const MAX_COMMENT: usize = 1_024;

impl Context {
    /// Reads the value of a `traceparent`.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let known = value.get(..LENGTH).filter(|_| value.len() <= MAX_LENGTH)?;
        let (version, rest) = known.split_at_checked(3)?;
        let (trace, rest) = rest.split_at_checked(33)?;
        let (span, flags) = rest.split_at_checked(17)?;
        let [version] = hex::<1>(version.strip_suffix(b"-")?)?;
        let (trace, span) = (hex(trace.strip_suffix(b"-")?)?, hex(span.strip_suffix(b"-")?)?);
        let [flags] = hex::<1>(flags)?;
        let fits = match version {
            0xff => false,
            0 => value.len() == LENGTH,
            _ => value.get(LENGTH).is_none_or(|next| *next == b'-'),
        };
        let is_some = trace != [0; 16] && span != [0; 8];
        (fits && is_some).then_some(Self {
            trace: TraceId(trace),
            span: SpanId(span),
            sampled: flags & 1 == 1,
        })
    }

    /// Looks for `traceparent='…'` in the comment that a whole statement begins or ends with. No string can be taken for
    /// either.
    pub(crate) fn in_sql(text: &[u8]) -> Option<Result<Self, Malformed>> {
        let text = text.trim_ascii();
        let last = text.strip_suffix(b";").unwrap_or(text).trim_ascii_end();
        let behind = last.strip_suffix(b"*/").and_then(|text| {
            let seen = text.get(text.len().saturating_sub(MAX_COMMENT)..)?;
            seen.get(seen.windows(2).rposition(|two| two == b"/*")? + 2..)
        });
        let before = text.strip_prefix(b"/*").and_then(|text| {
            let seen = text.get(..text.len().min(MAX_COMMENT))?;
            seen.get(..seen.windows(2).position(|two| two == b"*/")?)
        });
        behind.and_then(keyed).or_else(|| before.and_then(keyed))
    }
}

/// The context among the keys of a comment: `key='value',key='value'`.
fn keyed(comment: &[u8]) -> Option<Result<Context, Malformed>> {
    let mut pairs = comment.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    let value = pairs.find_map(|pair| pair.strip_prefix(b"traceparent="))?;
    let quoted = value.strip_prefix(b"'").and_then(|value| value.strip_suffix(b"'"));
    Some(quoted.and_then(Context::parse).ok_or(Malformed))
}

/// Lower-case digits, as the format has them.
fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    let (pairs, _) = digits.as_chunks::<2>();
    if pairs.len() != N {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

fn write_hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", self.trace, self.span, u8::from(self.sampled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn shown(context: Option<Context>) -> Option<String> {
        context.map(|context| context.to_string())
    }

    #[test]
    fn a_header_is_read_as_it_is_written_or_is_none() {
        assert_eq!(shown(Context::parse(PARENT.as_bytes())).as_deref(), Some(PARENT));
        let unsampled = PARENT.replace("-01", "-00");
        assert!(!Context::parse(unsampled.as_bytes()).unwrap().sampled);
        // Flags that are not known yet, and later versions with more behind.
        for later in [
            PARENT.replace("-01", "-03"),
            PARENT.replacen("00", "01", 1),
            PARENT.replacen("00", "cc", 1) + "-x",
        ] {
            assert!(Context::parse(later.as_bytes()).is_some_and(|context| context.sampled), "{later}");
        }
        let of_length =
            |length: usize| PARENT.replacen("00", "01", 1) + "-" + &"x".repeat(length - LENGTH - 1);
        assert!(Context::parse(of_length(MAX_LENGTH).as_bytes()).is_some());
        let long = of_length(MAX_LENGTH + 1);
        for wrong in [
            "",
            "00",
            &PARENT[..54],
            &(PARENT.to_owned() + "-"),
            &PARENT.to_uppercase(),
            &PARENT.replacen("00", "ff", 1),
            &(PARENT.replacen("00", "01", 1) + "x"),
            &PARENT.replace('-', "_"),
            &PARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &PARENT.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &PARENT.replace("4bf9", "4bg9"),
            &long,
            &"0".repeat(1 << 20),
        ] {
            assert_eq!(Context::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn a_statement_names_its_context_in_the_comment_before_or_behind_it() {
        const VALUE: usize = "traceparent=''".len() + PARENT.len();
        let comment = format!("/*db_driver='x',traceparent='{PARENT}'*/");
        for text in [
            format!("select 1 {comment}"),
            format!("select 1 {comment} ;\n"),
            format!("{comment} select 1"),
            format!(" {comment}"),
            format!("select '/*' {comment}"),
            format!("/* a */ select 1 /* b */ {comment}"),
            format!("select 1 /* traceparent='{PARENT}' , route='/x' */"),
            // Of the comments of a statement the first ends at its first end, and the last begins at its last begin.
            format!("{comment} select /*+ hint */ 1"),
            format!("{comment} select 1 /* b */"),
            format!("select /*+ hint */ 1 {comment}"),
            format!("select 1 /*{}traceparent='{PARENT}'*/", " ".repeat(MAX_COMMENT - VALUE - 2)),
            format!("/*traceparent='{PARENT}'{}*/ select 1", " ".repeat(MAX_COMMENT - VALUE - 2)),
            format!("select 1 {comment} ; "),
        ] {
            let found = Context::in_sql(text.as_bytes()).and_then(Result::ok);
            assert_eq!(shown(found).as_deref(), Some(PARENT), "{text}");
        }
        for text in [
            "select 1".to_owned(),
            String::new(),
            "/*".to_owned(),
            "*/".to_owned(),
            "/*/".to_owned(),
            format!("select '{comment}'"),
            format!("select 1 -- {PARENT}"),
            format!("select 1 /*parent='{PARENT}'*/"),
            format!("select 1 /*traceparent='{PARENT}'{}*/", " ".repeat(MAX_COMMENT)),
            format!("/*{}traceparent='{PARENT}'*/ select 1", " ".repeat(MAX_COMMENT)),
            format!("select 1 /*{}traceparent='{PARENT}'*/", " ".repeat(MAX_COMMENT - VALUE - 1)),
            format!("/*traceparent='{PARENT}'{}*/ select 1", " ".repeat(MAX_COMMENT - VALUE - 1)),
            format!("select 1 /* a */ {comment} /* b */"),
            format!("select 1 {comment};;"),
        ] {
            assert_eq!(Context::in_sql(text.as_bytes()), None, "{text}");
        }
        for text in [
            format!("select 1 /*traceparent='{}'*/", PARENT.to_uppercase()),
            format!("select 1 /*traceparent={PARENT}*/"),
            format!("/*traceparent='{PARENT}*/ select 1"),
            "select 1 /*traceparent=''*/".to_owned(),
            "select 1 /*traceparent='*/".to_owned(),
        ] {
            assert_eq!(Context::in_sql(text.as_bytes()), Some(Err(Malformed)), "{text}");
        }
    }

    /// Of two, the one behind counts, as the last that wrote it into the statement.
    #[test]
    fn a_context_behind_a_statement_counts_more_than_one_before_it() {
        let other = PARENT.replace("4bf9", "4bfa");
        let text = format!("/*traceparent='{other}'*/ select 1 /*traceparent='{PARENT}'*/");
        let found = Context::in_sql(text.as_bytes()).and_then(Result::ok);
        assert_eq!(shown(found).as_deref(), Some(PARENT));
        let broken = format!("/*traceparent='{other}'*/ select 1 /*traceparent='x'*/");
        assert_eq!(Context::in_sql(broken.as_bytes()), Some(Err(Malformed)));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_context_or_none(bytes in proptest::collection::vec(0_u8.., 0..80)) {
            if let Some(context) = Context::parse(&bytes) {
                assert_eq!(Context::parse(context.to_string().as_bytes()), Some(context));
            }
            let _ = Context::in_sql(&bytes);
        }
    }
}
