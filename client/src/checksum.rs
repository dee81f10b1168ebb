//! The checksum of what the client keeps on disk.

/// FNV-1a, 64 bits: distinguishes torn from whole records, and does not guard against someone who edits the file.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
