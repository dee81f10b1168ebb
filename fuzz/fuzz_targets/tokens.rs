//! The target `tokens`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tidegate_properties::run("tokens", input));
