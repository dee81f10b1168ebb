//! The tokens that the scanner cuts SQL into, and where they go.
//!
//! A token borrows its bytes from the text. A literal has no bytes: its value never reaches a sink, so neither a
//! hash nor a template can depend on it. A sink can be taken back to an earlier state, which is how repeated rows
//! vanish.

/// The written form of a literal. The parser accepts different kinds in different places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Literal {
    Number,
    String,
    Placeholder,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Token<'a> {
    /// Unquoted; case does not count.
    Word(&'a [u8]),
    /// A quoted identifier with its quotes.
    Quoted(&'a [u8]),
    Symbol(&'a [u8]),
    Literal(Literal),
    /// `/*+`
    HintOpen,
    /// `*/` after a hint.
    HintClose,
}

/// Where tokens go.
pub(super) trait Sink {
    type Mark: Copy;
    fn token(&mut self, token: Token<'_>);
    /// The state so far.
    fn mark(&self) -> Self::Mark;
    /// Back to an earlier state.
    fn rewind(&mut self, mark: Self::Mark);
}
