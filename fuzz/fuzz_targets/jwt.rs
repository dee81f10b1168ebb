//! The target `jwt`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tidegate_properties::run("jwt", input));
