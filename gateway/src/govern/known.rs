//! What is known of a statement before it runs: its template, and its text or the digest of that.

use std::sync::Arc;

use tidegate_cost_model::Template;
use tidegate_sql::{Naming, TextDigest};
use tidegate_traces::Context;

/// A prepared statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) template: Arc<Template>,
    /// Worked out once, when it is prepared: its executions come without the text. `None` when that was not seen to
    /// its end.
    pub(crate) digest: Option<TextDigest>,
    /// What it does with names that SQL gives to statements.
    pub(crate) naming: Option<Arc<Naming<Known>>>,
    /// The caller that its text names, where traces are recorded: rare, so it takes little room in every session.
    pub(crate) caller: Option<Arc<Context>>,
}

/// A statement's text, for who watches texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SqlText<'t> {
    /// All of it.
    Whole(&'t [u8]),
    /// It was seen before, when it was prepared.
    Before(Option<TextDigest>, Option<Context>),
    /// It was not seen, or not to its end: another may begin like it.
    Unseen,
}

impl<'t> SqlText<'t> {
    /// The text as far as it was seen.
    pub(crate) fn of(seen: &'t [u8], whole: bool) -> Self {
        if whole { Self::Whole(seen) } else { Self::Unseen }
    }

    pub(super) fn digest(self) -> Option<TextDigest> {
        match self {
            Self::Whole(text) => TextDigest::of(text),
            Self::Before(digest, _) => digest,
            Self::Unseen => None,
        }
    }
}

impl Known {
    pub(crate) fn new(template: Arc<Template>, text: SqlText<'_>) -> Self {
        Self { template, digest: text.digest(), naming: None, caller: None }
    }

    /// Its text, for its execution.
    pub(crate) fn text(&self) -> SqlText<'static> {
        SqlText::Before(self.digest, self.caller.as_deref().copied())
    }
}

/// The fingerprint that statements of a template share; `None` when the text has no statement, or was not seen: such
/// statements share nothing else.
pub(super) fn fingerprint(template: &Template) -> Option<String> {
    (!template.text().is_empty()).then(|| template.fingerprint().to_string())
}

#[cfg(test)]
mod tests {
    use tidegate_cost_model::SqlDialect;

    use super::*;

    #[test]
    fn what_was_not_seen_has_no_identity() {
        let template = |text: &str| Template::new(SqlDialect::PostgreSql, text);
        assert_eq!((fingerprint(&template("")), fingerprint(&template("-- nothing"))), (None, None));
        assert!(fingerprint(&template("select 1")).is_some());
        assert_eq!(SqlText::of(b"select 1", false).digest(), None);
        assert_eq!((SqlText::of(b"", true).digest(), SqlText::Unseen.digest()), (None, None));
        let digest = TextDigest::of(b"select 1");
        assert_eq!(
            (SqlText::of(b"select 1;", true).digest(), SqlText::Before(digest, None).digest()),
            (digest, digest)
        );
    }
}
