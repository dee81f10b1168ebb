//! Every input of `fuzz/corpus/` through its fuzz target, and a short random walk from there: without a fuzz engine.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use tidegate_sim::random::Random;

/// Changed inputs tried per target.
const CHANGED: usize = 300;
/// Longest changed input, in bytes.
const LONGEST: usize = 2_000;

/// Every input of a target with its file's name, in order.
fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut inputs: Vec<_> =
        files.map(|file| file.unwrap().path()).map(|path| (path.clone(), fs::read(&path).unwrap())).collect();
    inputs.sort();
    inputs
}

#[test]
fn every_input_of_the_corpus_keeps_the_properties() {
    let mut failed = Vec::new();
    for (target, run) in tidegate_properties::TARGETS {
        let inputs = corpus(target);
        assert!(inputs.len() >= 3, "the corpus of {target} is gone");
        failed.extend(
            inputs
                .iter()
                .filter(|(_, input)| catch_unwind(|| run(input)).is_err())
                .map(|(path, _)| path.clone()),
        );
    }
    assert!(failed.is_empty(), "these inputs break a property, told above: {failed:#?}");
}

#[test]
fn changed_inputs_keep_the_properties() {
    for (purpose, (target, run)) in (0..).zip(tidegate_properties::TARGETS) {
        let inputs: Vec<Vec<u8>> = corpus(target).into_iter().map(|(_, input)| input).collect();
        let mut random = Random::new(20_261_121, purpose);
        for round in 0..CHANGED {
            let input = changed(&inputs, &mut random);
            if catch_unwind(|| run(&input)).is_err() {
                let path = std::env::temp_dir().join(format!("tidegate-{target}-{round}"));
                fs::write(&path, &input).unwrap();
                panic!("{target}: the input in {} breaks a property, told above", path.display());
            }
        }
    }
}

/// The start of one input and the end of another, with a few bytes changed.
fn changed(inputs: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let (one, other) = (&inputs[random.below(inputs.len())], &inputs[random.below(inputs.len())]);
    let mut input = one[..random.below(one.len() + 1)].to_vec();
    input.extend_from_slice(&other[random.below(other.len() + 1)..]);
    input.truncate(LONGEST);
    for _ in 0..random.below(8) {
        if !input.is_empty() {
            let at = random.below(input.len());
            input[at] = random.bits().to_le_bytes()[0];
        }
    }
    input
}
