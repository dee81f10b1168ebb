//! The script and the styles, under names that change with their content, so that browsers may keep them for ever.

use std::sync::LazyLock;

use sha2::{Digest as _, Sha256};

use crate::link::ROOT;

/// A file that pages name.
#[derive(Debug)]
pub struct Asset {
    /// Its name, with a part of the hash of its content.
    pub name: String,
    /// Its media type.
    pub media_type: &'static str,
    /// Its content.
    pub content: &'static str,
}

/// The styles.
pub static STYLE: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("css", "text/css; charset=utf-8", include_str!("../assets/console.css")));
/// The script.
pub static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("js", "text/javascript; charset=utf-8", include_str!("../assets/console.js"))
});
/// The sign of the console in a browser's tab.
pub static ICON: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("svg", "image/svg+xml", include_str!("../assets/icon.svg")));

impl Asset {
    fn new(kind: &str, media_type: &'static str, content: &'static str) -> Self {
        let hash = Sha256::digest(content);
        let hash: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Self { name: format!("{hash}.{kind}"), media_type, content }
    }

    /// Its address.
    pub fn path(&self) -> String {
        format!("{ROOT}/assets/{}", self.name)
    }
}

/// The asset of this name.
pub fn named(name: &str) -> Option<&'static Asset> {
    [&*STYLE, &*SCRIPT, &*ICON].into_iter().find(|asset| asset.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assets_are_found_by_their_names_alone() {
        for asset in [&*STYLE, &*SCRIPT, &*ICON] {
            assert_eq!(named(&asset.name).unwrap().content, asset.content);
            assert!(asset.path().starts_with("/console/assets/"));
        }
        assert!(named("console.css").is_none() && named("").is_none());
    }

    #[test]
    fn nothing_is_fetched_from_elsewhere() {
        for asset in [&*STYLE, &*SCRIPT] {
            assert!(!asset.content.contains("//") || !asset.content.contains("http"), "{}", asset.name);
        }
    }
}
