//! A future that knows how much CPU its polls used.
//!
//! The task may move between threads; each poll is measured on the thread that runs it, and the sum is exact.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tidegate_core::usage::Usage;

use super::CpuTimer;

pin_project! {
    /// Wraps a future; its output is the inner output with the `Usage` (CPU only) of all polls.
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct Metered<F> {
        #[pin]
        inner: F,
        cpu_ns: u64,
    }
}

impl<F> Metered<F> {
    /// Measures every poll of `inner`.
    pub fn new(inner: F) -> Self {
        Self { inner, cpu_ns: 0 }
    }

    /// CPU used so far, in nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        self.cpu_ns
    }
}

impl<F: Future> Future for Metered<F> {
    type Output = (F::Output, Usage);

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let timer = CpuTimer::begin();
        let polled = this.inner.poll(context);
        *this.cpu_ns = this.cpu_ns.saturating_add(timer.elapsed_ns());
        let value = ready!(polled);
        Poll::Ready((value, Usage { cpu_ns: *this.cpu_ns, ..Usage::default() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn polls_add_up_and_waiting_is_free() {
        let burn = |ns| {
            let timer = CpuTimer::begin();
            while timer.elapsed_ns() < ns {
                std::hint::spin_loop();
            }
        };
        let (value, usage) = Metered::new(async {
            burn(1_000_000);
            tokio::time::sleep(std::time::Duration::from_secs(3_600)).await;
            burn(1_000_000);
            7
        })
        .await;
        assert_eq!(value, 7);
        assert!((2_000_000..1_000_000_000).contains(&usage.cpu_ns), "{usage:?}");
    }
}
