//! SQL text to statement templates: which texts are the same statement with other values.
//!
//! Text goes through one scanner that drops comments and white space, stands one mark for each literal
//! and collapses lists of literals. The scanner feeds either a keyed hash, which finds the template in a bounded
//! cache, or, on a miss, a normalised text, which the SQL parser turns into a template. Since both see the same
//! tokens, a template depends on nothing that the cache key does not.

mod cache;
mod collapse;
mod conditional;
mod cursor;
mod dialect;
mod hash;
mod keyword;
mod kind;
mod normalise;
mod parser_tokens;
mod scan;
mod template;
mod token;
mod token_text;

pub use cache::{CacheStats, Fingerprinter};
pub use dialect::SqlDialect;
pub use kind::StatementKind;
pub use scan::MAX_SCAN_BYTES;
pub use template::{Fingerprint, Template};
