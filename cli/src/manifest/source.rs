//! Where documents come from: files, directories and the standard input.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::limits::{MAX_FILES, MAX_TEXT};
use crate::error::CliError;

/// A text and its name.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// As it was given, or `(standard input)`.
    pub(crate) name: String,
    pub(crate) text: String,
}

/// Reads everything that was named: files, directories with files `*.yaml`, `*.yml` and `*.json`, and `-`.
pub(crate) fn sources(named: &[PathBuf]) -> Result<Vec<Source>, CliError> {
    let mut room = MAX_TEXT;
    let mut sources = Vec::new();
    for path in named {
        if path.as_os_str() == "-" {
            sources.push(read(io::stdin().lock(), Path::new("(standard input)"), &mut room)?);
        } else if path.is_dir() {
            for file in files(path)? {
                sources.push(open(&file, &mut room)?);
            }
        } else {
            sources.push(open(path, &mut room)?);
        }
    }
    Ok(sources)
}

/// The files of a directory, in order of their names.
fn files(folder: &Path) -> Result<Vec<PathBuf>, CliError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(CliError::file("read", folder))? {
        let path = entry.map_err(CliError::file("read", folder))?.path();
        let fits = path.extension().is_some_and(|end| end == "yaml" || end == "yml" || end == "json");
        if fits && path.is_file() {
            files.push(path);
        }
        if files.len() > MAX_FILES {
            let message = format!("more than {MAX_FILES} files are in it; name those that are meant");
            return Err(CliError::Content { path: folder.to_owned(), message });
        }
    }
    if files.is_empty() {
        let message = "no file *.yaml, *.yml or *.json is in it".to_owned();
        return Err(CliError::Content { path: folder.to_owned(), message });
    }
    files.sort_unstable();
    Ok(files)
}

fn open(path: &Path, room: &mut u64) -> Result<Source, CliError> {
    let file = File::open(path).map_err(CliError::file("read", path))?;
    read(file, path, room)
}

/// Reads to the end, or until it is too much: also where the length is not known, as of a pipe.
fn read(input: impl io::Read, path: &Path, room: &mut u64) -> Result<Source, CliError> {
    let mut bytes = Vec::new();
    input.take(*room + 1).read_to_end(&mut bytes).map_err(CliError::file("read", path))?;
    let content = |message: String| CliError::Content { path: path.to_owned(), message };
    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    *room = room.checked_sub(length).ok_or_else(|| {
        content(format!(
            "it is too large: {MAX_TEXT} bytes are read in one change; apply a part of it at a time"
        ))
    })?;
    let text = String::from_utf8(bytes).map_err(|error| {
        content(format!("byte {} is not UTF-8; save the file as UTF-8", error.utf8_error().valid_up_to()))
    })?;
    Ok(Source { name: path.display().to_string(), text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_up_to_the_limit_and_not_beyond() {
        let path = Path::new("endless");
        let mut room = 10;
        assert_eq!(read("12345".as_bytes(), path, &mut room).unwrap().text, "12345");
        assert_eq!(room, 5);
        assert!(read(io::repeat(b'a'), path, &mut room).unwrap_err().to_string().contains("too large"));
        let mut room = 10;
        let error = read(&b"a\xffb"[..], path, &mut room).unwrap_err().to_string();
        assert!(error.contains("byte 1 is not UTF-8"), "{error}");
    }

    #[test]
    fn a_directory_is_its_files_in_order() {
        let folder = tempfile::tempdir().unwrap();
        assert!(sources(&[folder.path().to_owned()]).is_err());
        for (name, text) in [("b.yaml", "2"), ("a.json", "1"), ("c.yml", "3"), ("notes.txt", "no")] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        fs::create_dir(folder.path().join("d.yaml")).unwrap();
        let read = sources(&[folder.path().to_owned()]).unwrap();
        assert_eq!(read.iter().map(|source| source.text.as_str()).collect::<String>(), "123");
    }
}
