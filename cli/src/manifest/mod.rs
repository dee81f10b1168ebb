//! Definitions in files: documents of YAML or JSON, one for each group, binding, cost table and watch.
//!
//! A document names its `kind` and has the fields of REST and `--output json`, so that the output of a list can be
//! applied. All faults of all files are reported at once, each with its place. Everything is bounded: see [`limits`].

mod diff;
mod fault;
mod fields;
mod json;
pub(crate) mod limits;
mod node;
mod object;
mod read;
mod source;
mod write;

pub(crate) use diff::unified;
pub(crate) use fault::{Fault, Faults};
pub(crate) use object::Object;
pub(crate) use source::{Source, sources};
pub(crate) use write::{Comments, document};

use object::objects;

/// What a change does about things that no source names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unnamed {
    /// It leaves them.
    Stay,
    /// It deletes them, so that every source has to show that nothing of it is missing.
    Go,
}

/// Reads all sources; reports every fault of all of them.
pub(crate) fn manifest(sources: &[Source], unnamed: Unnamed) -> Result<Vec<Object>, Faults> {
    let mut faults = Faults::default();
    let read: Vec<_> = sources.iter().map(|source| (source, read::documents(source))).collect();
    if unnamed == Unnamed::Go {
        let unended = read.iter().filter_map(|(source, read)| read::unended(source, read.as_ref().ok()));
        unended.for_each(|fault| faults.add(fault));
    }
    let mut all = Vec::new();
    for (source, read) in read {
        match read {
            Ok(documents) => all.extend(objects(source, &documents.nodes, &mut faults)),
            Err(wrong) => wrong.into_iter().for_each(|fault| faults.add(fault)),
        }
    }
    object::refuse_twice(&all, &mut faults);
    if all.is_empty() && faults.is_empty() {
        for source in sources {
            let message = "no document is in it; is it the right file?".to_owned();
            faults.add(Fault { file: source.name.clone(), line: 1, place: String::new(), message });
        }
    }
    faults.result(all)
}
