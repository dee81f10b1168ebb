//! Sections as text, as JSON, and as one page of HTML that needs nothing beside it.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{LabError, Section};
use crate::frame::escaped;

const STYLE: &str = "body{font-family:system-ui,'Segoe UI',Helvetica,Arial,sans-serif;color:#2b2f36;max-width:56rem;\
    margin:2rem auto;padding:0 1rem;line-height:1.45}table{border-collapse:collapse;margin:1rem 0}\
    th,td{border:1px solid #e3e6ea;padding:.25rem .6rem;text-align:right}th:first-child,td:first-child{text-align:left}\
    th{background:#f7f8fa}svg{max-width:100%;height:auto;display:block;margin:1rem 0}";

/// What a person reads on a terminal.
pub fn text(sections: &[Section]) -> String {
    let mut text = String::new();
    for section in sections {
        let _ = writeln!(text, "{}", section.title);
        section.text.iter().for_each(|paragraph| text.push_str(&wrapped(paragraph)));
        section.tables.iter().for_each(|table| text.push_str(&table.text()));
        text.push('\n');
    }
    text
}

/// A paragraph in lines that fit a terminal, indented.
fn wrapped(paragraph: &str) -> String {
    let mut text = String::new();
    let mut line = String::from(" ");
    for word in paragraph.split(' ') {
        if line.chars().count() + 1 + word.chars().count() > 100 {
            let _ = writeln!(text, "{line}");
            line = String::from(" ");
        }
        line.push(' ');
        line.push_str(word);
    }
    let _ = writeln!(text, "{line}");
    text
}

/// What a program reads.
pub fn json(sections: &[Section], seed: Option<u64>) -> Value {
    let section = |section: &Section| {
        json!({
            "name": section.name,
            "title": section.title,
            "text": section.text,
            "tables": section.tables.iter().map(super::table::Table::json).collect::<Vec<_>>(),
        })
    };
    let sections: Vec<Value> = sections.iter().map(section).collect();
    match seed {
        Some(seed) => json!({ "seed": seed, "sections": sections }),
        None => json!({ "sections": sections }),
    }
}

/// A page with its pictures inside.
pub fn html(title: &str, sections: &[Section]) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width\">\n<title>{0}</title>\n<style>{STYLE}</style>\n<h1>{0}</h1>\n",
        escaped(title)
    );
    for section in sections {
        let _ = writeln!(page, "<h2>{}</h2>", escaped(&section.title));
        for paragraph in &section.text {
            let _ = writeln!(page, "<p>{}</p>", escaped(paragraph));
        }
        section.tables.iter().for_each(|table| page.push_str(&table.html()));
        section.pictures.iter().for_each(|picture| page.push_str(picture));
    }
    page.push_str("</html>\n");
    page
}

/// Writes the page into a directory, which is made if it is not there, and returns its path.
///
/// # Errors
/// The directory or the file cannot be written.
pub fn write(directory: &Path, name: &str, title: &str, sections: &[Section]) -> Result<PathBuf, LabError> {
    let path = directory.join(format!("{name}.html"));
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        move |error| LabError::Write { path, error }
    };
    fs::create_dir_all(directory).map_err(failed(directory))?;
    fs::write(&path, html(title, sections)).map_err(failed(&path))?;
    Ok(path)
}
