//! What gives up a session's settings, and with them the group that it chose: `DISCARD ALL`, which pools send before
//! the session is another user's, and `RESET ALL`, which drivers do.
//!
//! The server's word counts, since a statement may fail. It says the same of `RESET ALL` as of `RESET work_mem`, so
//! that there the text is looked at, too.

/// What the server has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reset {
    /// One setting is reset, or all are.
    Some,
    /// All is discarded.
    All,
}

impl Reset {
    /// The reset that the tag of a completed command means.
    pub(super) fn of_tag(tag: &[u8]) -> Option<Self> {
        match tag.split_last()? {
            (0, b"DISCARD ALL") => Some(Self::All),
            (0, b"RESET") => Some(Self::Some),
            _ => None,
        }
    }
}

/// Whether this template of one statement resets all settings.
pub(super) fn is_reset_all(template: &str) -> bool {
    template.trim().eq_ignore_ascii_case("reset all")
}

/// Whether one of the statements of this template does.
pub(super) fn has_reset_all(template: &str) -> bool {
    // Literals are taken away, and with them all semicolons but those between statements and in names.
    template.split(';').any(is_reset_all)
}

#[cfg(test)]
mod tests {
    use tidegate_cost_model::{SqlDialect, Template};

    use super::*;

    #[test]
    fn tags_tell_what_was_reset() {
        let table: [(&[u8], Option<Reset>); 5] = [
            (b"DISCARD ALL\0", Some(Reset::All)),
            (b"RESET\0", Some(Reset::Some)),
            (b"DISCARD TEMP\0", None),
            (b"SELECT 1\0", None),
            (b"", None),
        ];
        for (tag, reset) in table {
            assert_eq!(Reset::of_tag(tag), reset, "{tag:?}");
        }
    }

    #[test]
    fn texts_tell_whether_all_is() {
        for (text, all) in [
            ("reset all", true),
            (" RESET  ALL ; -- to the pool", true),
            ("select pg_advisory_unlock_all(); close all; unlisten *; RESET ALL;", true),
            ("reset work_mem", false),
            ("reset role; select '; reset all;'", false),
        ] {
            let template = Template::new(SqlDialect::PostgreSql, text);
            assert_eq!(has_reset_all(template.text()), all, "{text}: {}", template.text());
        }
    }
}
