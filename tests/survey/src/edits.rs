//! Text put into a source around what its syntax tree says, without a change of the rest.

use std::cmp::Reverse;
use std::ops::Range;

/// Insertions into one source, in any order.
#[derive(Default)]
pub struct Edits(Vec<Edit>);

struct Edit {
    /// What goes; empty where text is only put in.
    range: Range<usize>,
    text: String,
    /// Of two edits at one place, which comes first.
    order: Order,
}

/// Where expressions begin and end at one place, the inner one ends first, and the outer one begins first. Of two around
/// the same text, the one that was put there first is the outer one.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Order {
    End { length: usize, later: Reverse<usize> },
    Between,
    Begin { shorter: Reverse<usize> },
    Inside,
}

impl Edits {
    /// Puts `before` and `after` around a range.
    pub fn wrap(&mut self, range: &Range<usize>, before: String, after: &str) {
        let length = range.len();
        let shorter = Reverse(length);
        let later = Reverse(self.0.len());
        self.push(range.start..range.start, before, Order::Begin { shorter });
        self.push(range.end..range.end, after.to_owned(), Order::End { length, later });
    }

    /// Puts `text` in the place of what lies between two operands.
    pub fn between(&mut self, range: Range<usize>, text: String) {
        self.push(range, text, Order::Between);
    }

    /// Puts `text` at the beginning of a block.
    pub fn begin_block(&mut self, at: usize, text: String) {
        self.push(at..at, text, Order::Inside);
    }

    /// The source with everything in its place.
    pub fn apply(mut self, source: &str) -> String {
        self.0.sort_by(|a, b| (a.range.start, &a.order).cmp(&(b.range.start, &b.order)));
        let mut text = String::new();
        let mut at = 0;
        for edit in &self.0 {
            if edit.range.start > at {
                text.push_str(&source[at..edit.range.start]);
                at = edit.range.start;
            }
            text.push_str(&edit.text);
            at = at.max(edit.range.end);
        }
        text + &source[at..]
    }

    fn push(&mut self, range: Range<usize>, text: String, order: Order) {
        self.0.push(Edit { range, text, order });
    }
}
