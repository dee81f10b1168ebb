//! A thread's resources for its clock go with the thread. Alone in its process, as it looks at the whole of it.

#![cfg(test)]

use std::fs::{read_dir, read_to_string};
use std::thread;

use tidegate_cpu_clock::Reading;

fn mappings() -> usize {
    read_to_string("/proc/self/maps").unwrap().lines().filter(|line| line.contains("[perf_event]")).count()
}

#[test]
fn threads_leave_neither_mappings_nor_descriptors() {
    let descriptors = || read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    for _ in 0..100 {
        let thread = thread::spawn(move || {
            for _ in 0..1_000 {
                Reading::now();
            }
            (mappings(), descriptors())
        });
        let (mapped, open) = thread.join().unwrap();
        // None where the kernel refuses.
        assert!(mapped <= 1, "{mapped}");
        assert_eq!(open, before, "the descriptor is closed once its page is mapped");
    }
    assert_eq!(mappings(), 0);
}
