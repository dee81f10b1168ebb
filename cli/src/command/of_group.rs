//! The group that a list is limited to, said alike by every list: `list GROUP`, or `list --group GROUP`.

use clap::Args;

/// One group, or all.
#[derive(Debug, Default, Args)]
#[group(id = "of_group", multiple = false)]
pub(crate) struct OfGroup {
    /// Only this group.
    #[arg(value_name = "GROUP")]
    group: Option<String>,
    /// The same, as an option.
    #[arg(long = "group", value_name = "GROUP", id = "group_option", hide_short_help = true)]
    option: Option<String>,
}

impl OfGroup {
    /// Its name; empty for all.
    pub(crate) fn name(&self) -> String {
        self.group.as_ref().or(self.option.as_ref()).cloned().unwrap_or_default()
    }
}
