//! SQL text from a file or the standard input.

use std::io::Read as _;
use std::path::Path;

use crate::error::CliError;

/// The text of `file`; of the standard input when there is none, or it is `-`.
pub(crate) fn read(file: Option<&Path>) -> Result<String, CliError> {
    match file {
        Some(path) if path != Path::new("-") => {
            std::fs::read_to_string(path).map_err(CliError::file("read", path))
        }
        _ => {
            let mut text = String::new();
            let read = std::io::stdin().read_to_string(&mut text);
            read.map_err(CliError::file("read", "the standard input")).map(|_| text)
        }
    }
}
