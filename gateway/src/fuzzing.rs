//! The protocols' machines under any input, for fuzz targets: what either side sends, in pieces, with any decision
//! about each statement.
//!
//! An input is pieces of a control byte, a length byte and so many bytes. The lowest bit of the control byte selects
//! the side, the others decide about the statements in the piece.

use std::sync::Arc;

use tidegate_cost_model::{SqlDialect, Template};

use crate::{mysql, postgres};

/// Steps that one piece may take for each byte that is there, and besides: a machine that needs more does not come to
/// an end.
const STEPS: usize = 64;

/// PostgreSQL's protocol.
///
/// # Panics
/// When bytes are made up, lost or kept beyond their limit.
pub fn postgres(input: &[u8]) {
    let mut link = postgres::fuzzed::Link::new(Arc::new(Template::new(SqlDialect::PostgreSql, "")));
    for (control, bytes) in pieces(input) {
        if link.hear(control, bytes).is_err() {
            return;
        }
    }
}

/// MySQL's protocol.
///
/// # Panics
/// When bytes are made up, lost or kept beyond their limit.
pub fn mysql(input: &[u8]) {
    let Some((settings, rest)) = input.split_first() else { return };
    let mut link = mysql::fuzzed::Link::new(*settings);
    for (control, bytes) in pieces(rest) {
        if link.hear(control, bytes).is_err() {
            return;
        }
    }
    link.end();
}

/// A piece that may take this many steps, with `bytes` to be read.
pub(crate) fn patience(bytes: usize) -> usize {
    bytes.saturating_add(1).saturating_mul(STEPS)
}

fn pieces(mut rest: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (control, behind) = rest.split_first()?;
        let (length, behind) = behind.split_first()?;
        let (piece, behind) = behind.split_at(usize::from(*length).min(behind.len()));
        rest = behind;
        Some((*control, piece))
    })
}
