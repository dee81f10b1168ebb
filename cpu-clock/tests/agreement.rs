//! The clock beside the kernel's, in what may happen to a thread.

#![cfg(test)]

use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;

use rustix::process::{Pid, WaitOptions, waitpid};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use tidegate_cpu_clock::Reading;

/// Work whose CPU time is compared.
const WORK_NS: u64 = 50_000_000;
/// More readings than are made by system calls at first.
const WARM: usize = 1_000;

fn kernel_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap()
}

fn warm_up() {
    for _ in 0..WARM {
        Reading::now();
    }
}

fn burn(ns: u64) {
    let end = kernel_ns() + ns;
    while kernel_ns() < end {}
}

/// Repeats `step` for [`WORK_NS`], reading the clock all the while.
fn agrees(mut step: impl FnMut()) {
    warm_up();
    let (began, kernel_began) = (Reading::now(), kernel_ns());
    let mut last = began.ns();
    while kernel_ns() - kernel_began < WORK_NS {
        step();
        let now = Reading::now().ns();
        assert!(now >= last, "{now} after {last}");
        last = now;
    }
    let (ours, kernels) = (began.elapsed_ns(), kernel_ns() - kernel_began);
    let allowed = kernels / 10 + 1_000_000;
    assert!(ours.abs_diff(kernels) <= allowed, "{ours} ns beside the kernel's {kernels}");
}

#[test]
fn it_agrees_on_a_thread_that_computes() {
    agrees(|| ());
}

#[test]
fn it_agrees_on_threads_that_take_each_other_from_the_processors() {
    let threads = 2 * thread::available_parallelism().unwrap().get() + 1;
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| agrees(|| ()));
        }
    });
}

#[test]
fn it_agrees_on_a_thread_that_moves_between_processors() {
    let whole = sched_getaffinity(None).unwrap();
    let processors: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|processor| whole.is_set(*processor)).collect();
    let mut next = processors.iter().cycle();
    thread::scope(|scope| {
        scope.spawn(|| {
            agrees(|| {
                let mut one = CpuSet::new();
                one.set(*next.next().unwrap());
                // A processor may have been taken away meanwhile.
                let _ = sched_setaffinity(None, &one);
            });
        });
    });
}

#[test]
fn waiting_is_not_counted() {
    const ROUNDS: u64 = 1_000;
    const BURN_NS: u64 = 100_000;
    let (ask, asked) = channel::<()>();
    let (answer, answered) = channel();
    let partner = thread::spawn(move || {
        for () in asked {
            burn(BURN_NS);
            answer.send(()).unwrap();
        }
    });
    warm_up();
    let (mut ours, mut kernels) = (0, 0);
    for _ in 0..ROUNDS {
        let (kernel_began, began) = (kernel_ns(), Reading::now());
        ask.send(()).unwrap();
        answered.recv().unwrap();
        ours += began.elapsed_ns();
        kernels += kernel_ns() - kernel_began;
    }
    drop(ask);
    partner.join().unwrap();
    let waited = ROUNDS * BURN_NS;
    assert!(
        ours <= kernels + waited / 10,
        "{ours} ns beside the kernel's {kernels}; waited at least {waited}"
    );
}

#[test]
fn readings_go_on_in_a_forked_child() {
    warm_up();
    let began = Reading::now();
    // SAFETY: the child does nothing but read clocks and end, which needs no lock that another thread may hold.
    let forked = unsafe { libc::fork() };
    if forked == 0 {
        let own = Reading::now();
        burn(2_000_000);
        let right = own.elapsed_ns() >= 1_000_000 && began.elapsed_ns() < 60_000_000_000;
        // SAFETY: ends the child without running what the parent's test runner has registered.
        unsafe { libc::_exit(i32::from(!right)) };
    }
    let child = Pid::from_raw(forked).expect("fork");
    let (_, status) = waitpid(Some(child), WaitOptions::empty()).unwrap().unwrap();
    assert_eq!(status.exit_status(), Some(0), "{status:?}");
    burn(2_000_000);
    assert!(began.elapsed_ns() >= 1_000_000, "the parent's clock stands");
}

#[test]
fn a_reading_of_another_thread_counts_nothing() {
    for reading in [Reading::now(), thread::spawn(Reading::now).join().unwrap()] {
        let elapsed = thread::spawn(move || {
            burn(1_000_000);
            reading.elapsed_ns()
        });
        assert_eq!(elapsed.join().unwrap(), 0);
    }
}

#[test]
fn an_ending_thread_can_read() {
    static READ: Mutex<Vec<u64>> = Mutex::new(Vec::new());
    struct AtEnd;
    impl Drop for AtEnd {
        fn drop(&mut self) {
            let began = Reading::now();
            burn(2_000_000);
            READ.lock().unwrap().push(began.elapsed_ns());
        }
    }
    thread_local! {
        static BEFORE: AtEnd = const { AtEnd };
        static AFTER: AtEnd = const { AtEnd };
    }
    // One destructor runs before that of the clock and one after it, in whatever order they are run.
    let thread = thread::spawn(|| {
        BEFORE.with(|_| ());
        warm_up();
        AFTER.with(|_| ());
    });
    thread.join().unwrap();
    let read = READ.lock().unwrap();
    assert!(read.len() == 2 && read.iter().all(|ns| *ns >= 1_000_000), "{read:?}");
}
