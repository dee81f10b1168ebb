//! The target `console`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tidegate_tests::fuzz::run("console", input));
