//! Runs every script in `scenarios/` and compares its transcript with the golden one beside it.
//!
//! A new case is a new `.txt` file; `UPDATE_GOLDEN=1` writes the transcripts that differ.

use std::fs;
use std::path::Path;

use tidegate_sim::script;

#[test]
fn every_scenario_gives_its_transcript() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut scripts: Vec<_> = fs::read_dir(folder)
        .expect("the scenarios folder")
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    scripts.sort();
    assert!(scripts.len() >= 5, "the scenarios are gone: {scripts:?}");
    let mut failures = Vec::new();
    for path in scripts {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let script = fs::read_to_string(&path).expect("a readable scenario");
        let golden = path.with_extension("golden");
        match script::run(&script) {
            Err(error) => failures.push(format!("{name}: {error}")),
            Ok(transcript) => {
                let expected = fs::read_to_string(&golden).unwrap_or_default();
                if transcript != expected && std::env::var_os("UPDATE_GOLDEN").is_some() {
                    fs::write(&golden, &transcript).expect("a writable transcript");
                } else if transcript != expected {
                    failures.push(format!(
                        "{name}: the transcript differs from {}:\n{transcript}",
                        golden.display()
                    ));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}
