//! What a file may hold at most.

/// Bytes of all files together. The controller takes 4 MiB in one change, which comments and blanks may double; half would
/// refuse what it takes, twice is memory for nothing.
pub(crate) const MAX_TEXT: u64 = 8 * 1_024 * 1_024;
/// Files of a directory. Twice as many would be a directory that is not meant.
pub(crate) const MAX_FILES: usize = 10_000;
/// Nodes of the documents of a file, each use of an alias counted with all that is below it: with it, and not with the
/// length of a text, memory grows. 10,000 groups with every field are 400,000.
pub(crate) const MAX_NODES: usize = 500_000;
/// Levels of lists and maps in each other. Definitions have three.
pub(crate) const MAX_LEVELS: usize = 16;
/// Fields of one map. A group has 18; each is compared with all before it.
pub(crate) const MAX_FIELDS: usize = 256;
/// Faults that are reported; those beyond are counted.
pub(crate) const MAX_FAULTS: usize = 100;
/// Bytes of a change that the controller takes.
pub(crate) const MAX_MESSAGE: usize = 4 * 1_024 * 1_024;
/// Bytes of the answer to a change: of 10,000 groups the states before and after.
pub(crate) const MAX_ANSWER: usize = 64 * 1_024 * 1_024;
