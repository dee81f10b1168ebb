//! The fingerprinter: SQL text to template, parsing each statement once.
//!
//! In: SQL text or bytes, from any thread. Out: a shared template. The scanner's keyed hash finds the template in a
//! bounded cache (about 0.1 µs for a short statement); only a statement not seen lately is parsed (5 to 30 µs),
//! outside any lock. Hits, misses and evictions are counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::dialect::SqlDialect;
use super::hash::TokenHash;
use super::scan::scan;
use super::template::Template;
use crate::mix::random_seed;
use crate::ways::Ways;

/// Templates by the hash of their tokens. Shared between threads by reference.
pub struct Fingerprinter {
    dialect: SqlDialect,
    seed: u64,
    templates: Ways<Arc<Template>>,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// The counts of a cache since the start, and its contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Statements found.
    pub hits: u64,
    /// Statements that had to be parsed.
    pub misses: u64,
    /// Templates given up for others.
    pub evictions: u64,
    /// Templates held.
    pub entries: usize,
    /// Most templates that can be held.
    pub capacity: usize,
}

impl Fingerprinter {
    /// Templates held unless asked otherwise: at a usual 1 KiB each, 4 MiB.
    pub const DEFAULT_CAPACITY: usize = 4_096;
    /// Most templates that can be asked for. With texts of the longest kind kept, 1 GiB.
    pub const MAX_CAPACITY: usize = 131_072;

    /// A fingerprinter with room for [`Self::DEFAULT_CAPACITY`] templates.
    pub fn new(dialect: SqlDialect) -> Self {
        Self::with_capacity(dialect, Self::DEFAULT_CAPACITY)
    }

    /// A fingerprinter with room for at least `capacity` templates, at most [`Self::MAX_CAPACITY`].
    pub fn with_capacity(dialect: SqlDialect, capacity: usize) -> Self {
        Self {
            dialect,
            seed: random_seed(),
            templates: Ways::new(capacity.min(Self::MAX_CAPACITY)),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// The template of `sql`, which need not be UTF-8.
    pub fn fingerprint(&self, sql: impl AsRef<[u8]>) -> Arc<Template> {
        let sql = sql.as_ref();
        let key = scan(sql, self.dialect.rules(), TokenHash::new(self.seed)).finish();
        if let Some(template) = self.templates.get(key, |template| Arc::clone(template)) {
            self.hits.fetch_add(1, Ordering::Relaxed);
            return template;
        }
        self.misses.fetch_add(1, Ordering::Relaxed);
        let template = Arc::new(Template::new(self.dialect, sql));
        // Another thread may have been first; then all share its template.
        let shared = self.templates.get_or_insert(key, || Arc::clone(&template), |held| Arc::clone(held));
        shared.unwrap_or(template)
    }

    /// Counters and fill.
    pub fn stats(&self) -> CacheStats {
        CacheStats {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            evictions: self.templates.evicted(),
            entries: self.templates.len(),
            capacity: self.templates.capacity(),
        }
    }
}
