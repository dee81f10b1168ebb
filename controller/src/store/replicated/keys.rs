//! The keys of the log in the shared store: all of them, under one prefix.
//!
//! Numbers have twenty digits, so that their order is the order of the keys and a person can read them.

use tidegate_consensus::end_of;

use super::super::StoreError;

/// The keys under a prefix.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: String,
}

/// Keys from the first to before the second.
pub(super) type Range = (Vec<u8>, Vec<u8>);

impl Keys {
    pub(super) fn new(prefix: &str) -> Result<Self, StoreError> {
        if !prefix.ends_with('/') {
            let reason = format!("the prefix {prefix:?} does not end in /; add one");
            return Err(StoreError::Shared { operation: "name its keys", reason });
        }
        Ok(Self { prefix: prefix.to_owned() })
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    fn key(&self, rest: &str) -> Vec<u8> {
        format!("{}{rest}", self.prefix).into_bytes()
    }

    /// The version of all that is below the prefix.
    pub(super) fn format(&self) -> Vec<u8> {
        self.key("format")
    }

    /// A random word that is drawn with the format: which log this is.
    pub(super) fn cluster(&self) -> Vec<u8> {
        self.key("cluster")
    }

    /// Who owns the log.
    pub(super) fn own(&self) -> Vec<u8> {
        self.key("own/0")
    }

    /// A count by which the owner shows that it lives.
    pub(super) fn beat(&self) -> Vec<u8> {
        self.key("beat/0")
    }

    /// What a controller says of itself. Its name has no `/`.
    pub(super) fn member(&self, name: &str) -> Vec<u8> {
        self.key(&format!("member/{name}"))
    }

    /// What all controllers say of themselves.
    pub(super) fn members(&self) -> Range {
        (self.key("member/"), self.end("member/"))
    }

    /// The number of the last segment, which never gets smaller.
    pub(super) fn head(&self) -> Vec<u8> {
        self.key("head/0")
    }

    /// The newest checkpoint.
    pub(super) fn checkpoint(&self) -> Vec<u8> {
        self.key("ckpt/0")
    }

    /// A segment of the log.
    pub(super) fn segment(&self, n: u64) -> Vec<u8> {
        self.key(&format!("log/0/{n:020}"))
    }

    /// The segments from number `n` on.
    pub(super) fn segments(&self, n: u64) -> Range {
        (self.segment(n), self.end("log/0/"))
    }

    /// The number of a segment.
    pub(super) fn number(&self, key: &[u8]) -> Option<u64> {
        let digits = key.strip_prefix(self.key("log/0/").as_slice())?;
        std::str::from_utf8(digits).ok().filter(|digits| digits.len() == 20)?.parse().ok()
    }

    /// A page of a checkpoint.
    pub(super) fn page(&self, generation: u64, i: u64) -> Vec<u8> {
        self.key(&format!("page/0/{generation:020}/{i:020}"))
    }

    /// The pages of a checkpoint from number `i` on.
    pub(super) fn pages(&self, generation: u64, i: u64) -> Range {
        (self.page(generation, i), self.end(&format!("page/0/{generation:020}/")))
    }

    /// The pages of all checkpoints before one.
    pub(super) fn pages_before(&self, generation: u64) -> Range {
        (self.key("page/0/"), self.page(generation, 0))
    }

    fn end(&self, rest: &str) -> Vec<u8> {
        // A key that ends in `/` has an end.
        end_of(&self.key(rest)).unwrap_or_default()
    }
}

/// The value of [`Keys::head`].
pub(super) fn head_value(n: u64) -> Vec<u8> {
    n.to_string().into_bytes()
}

/// A key in a message.
pub(super) fn shown(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_order_and_ranges_hold_what_they_name() {
        assert!(Keys::new("a").unwrap_err().to_string().contains("does not end in /"));
        let keys = Keys::new("a/").unwrap();
        assert_eq!(keys.segment(7), b"a/log/0/00000000000000000007");
        assert_eq!(keys.number(&keys.segment(u64::MAX)), Some(u64::MAX));
        assert_eq!(keys.number(b"a/log/0/7"), None);
        assert_eq!(keys.number(b"b/log/0/00000000000000000007"), None);
        let inside = |(from, to): Range, key: Vec<u8>| from <= key && key < to;
        assert!(inside(keys.segments(9), keys.segment(10)) && !inside(keys.segments(9), keys.segment(8)));
        assert!(inside(keys.pages(9, 0), keys.page(9, u64::MAX)));
        assert!(!inside(keys.pages(9, 0), keys.page(10, 0)) && !inside(keys.pages(9, 1), keys.page(9, 0)));
        assert!(inside(keys.members(), keys.member("c1")) && !inside(keys.members(), keys.own()));
        assert!(
            inside(keys.pages_before(9), keys.page(8, 3)) && !inside(keys.pages_before(9), keys.page(9, 0))
        );
    }
}
