//! A byte stream that counts what goes through it into a shared counter.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tidegate_core::usage::Usage;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes read and written through any number of [`Counted`] streams. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub struct IoCounter(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    read: AtomicU64,
    written: AtomicU64,
}

impl IoCounter {
    /// Bytes read so far.
    pub fn read_bytes(&self) -> u64 {
        self.0.read.load(Ordering::Relaxed)
    }

    /// Bytes written so far.
    pub fn written_bytes(&self) -> u64 {
        self.0.written.load(Ordering::Relaxed)
    }

    /// The counts as network traffic: read is ingress, written is egress.
    pub fn as_network(&self) -> Usage {
        Usage { net_in_bytes: self.read_bytes(), net_out_bytes: self.written_bytes(), ..Usage::default() }
    }

    /// The counts as storage traffic.
    pub fn as_storage(&self) -> Usage {
        Usage { read_bytes: self.read_bytes(), write_bytes: self.written_bytes(), ..Usage::default() }
    }

    fn add_read(&self, bytes: usize) {
        self.0.read.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn add_written(&self, bytes: usize) {
        self.0.written.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

pin_project! {
    /// A reader, a writer or both, counting into an [`IoCounter`].
    #[derive(Debug)]
    pub struct Counted<S> {
        #[pin]
        inner: S,
        counter: IoCounter,
    }
}

impl<S> Counted<S> {
    /// Counts what goes through `inner` into `counter`.
    pub fn new(inner: S, counter: IoCounter) -> Self {
        Self { inner, counter }
    }

    /// The stream.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S: AsyncRead> AsyncRead for Counted<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.project();
        let before = buf.filled().len();
        let polled = this.inner.poll_read(cx, buf);
        this.counter.add_read(buf.filled().len().saturating_sub(before));
        polled
    }
}

impl<S: AsyncWrite> AsyncWrite for Counted<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.project();
        let polled = this.inner.poll_write(cx, buf);
        if let Poll::Ready(Ok(written)) = &polled {
            this.counter.add_written(*written);
        }
        polled
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.project();
        let polled = this.inner.poll_write_vectored(cx, bufs);
        if let Poll::Ready(Ok(written)) = &polled {
            this.counter.add_written(*written);
        }
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().inner.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().inner.poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn bytes_are_counted_in_both_directions() {
        let (near, mut far) = tokio::io::duplex(16);
        let counter = IoCounter::default();
        let mut near = Counted::new(near, counter.clone());
        let echo = async {
            let mut heard = [0; 100];
            far.read_exact(&mut heard).await.unwrap();
            far.write_all(&heard[..40]).await.unwrap();
        };
        let speak = async {
            near.write_all(&[1; 100]).await.unwrap();
            near.flush().await.unwrap();
            near.read_exact(&mut [0; 40]).await.unwrap();
        };
        tokio::join!(echo, speak);
        let network = counter.as_network();
        assert_eq!((network.net_in_bytes, network.net_out_bytes), (40, 100));
        let storage = counter.as_storage();
        assert_eq!((storage.read_bytes, storage.write_bytes), (40, 100));
    }

    /// Takes one buffer after the other.
    struct OneByOne(Vec<u8>);

    impl AsyncWrite for OneByOne {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            self.0.extend(buf);
            Poll::Ready(Ok(buf.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn what_is_written_from_several_buffers_at_once_is_counted_where_that_is_possible() {
        let counter = IoCounter::default();
        let buffers = [io::IoSlice::new(&[1; 30]), io::IoSlice::new(&[2; 12])];
        let mut at_once = Counted::new(Vec::new(), counter.clone());
        assert!(at_once.is_write_vectored());
        assert_eq!(at_once.write_vectored(&buffers).await.unwrap(), 42);
        assert_eq!((counter.as_storage().write_bytes, at_once.into_inner().len()), (42, 42));
        let mut one_by_one = Counted::new(OneByOne(Vec::new()), counter.clone());
        assert!(!one_by_one.is_write_vectored());
        let written = one_by_one.write_vectored(&buffers).await.unwrap();
        assert_eq!((written, counter.as_storage().write_bytes), (30, 72));
    }
}
