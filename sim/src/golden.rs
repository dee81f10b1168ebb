//! The courses of seeds as they are expected: a file with a line for each block of seeds.
//!
//! Judges find what breaks a promise. A fault that breaks none, or not in these seeds, still changes the course of some
//! of them: a grant that is a trifle smaller, a renewal that comes later. So a change that alters no behaviour alters no
//! line, and one that does says in its commit why these lines change. They are those of a release build (`digest`).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hash::{Hash, Hasher};

use super::digest::Digest;

/// Seeds of one line. With more, one that differs is harder to find; with fewer, the file is longer.
const BLOCK: u64 = 20;

/// Lines by their first seed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Golden(BTreeMap<u64, u64>);

impl Golden {
    /// What seeds showed, by seed. Only blocks that ran as a whole count.
    pub fn of(courses: &BTreeMap<u64, u64>) -> Self {
        let mut blocks = BTreeMap::new();
        for (first, _) in courses.iter().filter(|(seed, _)| is_first(**seed)) {
            let block: Vec<u64> = courses.range(first..&(first + BLOCK)).map(|(_, course)| *course).collect();
            if block.len() as u64 == BLOCK {
                let mut digest = Digest::default();
                block.hash(&mut digest);
                blocks.insert(*first, digest.finish());
            }
        }
        Self(blocks)
    }

    /// Reads a file of lines.
    ///
    /// # Errors
    /// The line that is none.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut blocks = BTreeMap::new();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
            let read = line.split_once(' ').and_then(|(seeds, course)| {
                let first = seeds.split_once("..=")?.0.parse().ok().filter(|first| is_first(*first))?;
                Some((first, u64::from_str_radix(course, 16).ok()?))
            });
            let (first, course) = read
                .ok_or_else(|| format!("line {}: {line:?} is not \"1..=20 0123456789abcdef\"", number + 1))?;
            blocks.insert(first, course);
        }
        Ok(Self(blocks))
    }

    /// The file.
    pub fn text(&self) -> String {
        let mut text = format!(
            "# The courses of seeds, {BLOCK} in a line; `sim --help` says how they are made and compared.\n"
        );
        for (first, course) in &self.0 {
            let _ = writeln!(text, "{first}..={} {course:016x}", first + BLOCK - 1);
        }
        text
    }

    /// The first seeds of blocks that `ran` shows otherwise, or that are not expected at all.
    pub fn differing(&self, ran: &Self) -> Vec<u64> {
        ran.0
            .iter()
            .filter(|(first, course)| self.0.get(first) != Some(course))
            .map(|(first, _)| *first)
            .collect()
    }

    /// Blocks in it.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no block is in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What to do about blocks that differ.
pub fn advice(differing: &[u64]) -> String {
    let blocks: Vec<String> =
        differing.iter().map(|first| format!("{first}..={}", first + BLOCK - 1)).collect();
    let first = differing.first().copied().unwrap_or(1);
    format!(
        "seeds {}: nodes or controllers do something else than before\n\
         see what: sim --from {first} --seeds {BLOCK} --transcripts DIR, here and on the commit before; then diff -r\n\
         if it is meant: sim --seeds 2000 --write-golden sim/seeds.golden, and say why in the commit",
        blocks.join(", ")
    )
}

fn is_first(seed: u64) -> bool {
    seed % BLOCK == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn courses(seeds: impl Iterator<Item = u64>) -> BTreeMap<u64, u64> {
        seeds.map(|seed| (seed, seed * 7)).collect()
    }

    #[test]
    fn one_course_that_differs_shows_in_its_block_alone() {
        let expected = Golden::of(&courses(1..=60));
        assert_eq!((expected.len(), expected.differing(&expected)), (3, vec![]));
        let mut other = courses(1..=60);
        other.insert(37, 1);
        assert_eq!(expected.differing(&Golden::of(&other)), [21]);
        assert_eq!(expected.differing(&Golden::of(&courses(41..=80))), [61], "not in the file");
        assert!(Golden::of(&courses(2..=39)).is_empty(), "parts of blocks");
    }

    #[test]
    fn the_file_is_read_as_it_was_written_and_nothing_else_is() {
        let golden = Golden::of(&courses(1..=40));
        assert_eq!(Golden::read(&golden.text()), Ok(golden));
        for line in ["", "1..=20", "2..=21 00", "1..=20 xyz", "1-20 00"] {
            assert!(
                Golden::read(&format!("# so\n{line}\n")).is_err_and(|error| error.starts_with("line 2")),
                "{line}"
            );
        }
    }
}
