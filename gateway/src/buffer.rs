//! Buffers between the sockets of a session: what has come in and waits to be understood, and what waits to go out.
//!
//! Both are bounded: an inbox grows up to what its reader asks for at once, and the writer to an outbox stops at
//! [`Outbox::HIGH`], so that a slow reader slows the writer and not the gateway.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Size of a new inbox; most sessions never need more.
const SMALL: usize = 8 * 1_024;
/// Size to which an inbox grows when a read fills it.
const LARGE: usize = 64 * 1_024;

/// Bytes that have come in.
#[derive(Debug)]
pub(crate) struct Inbox {
    buf: Box<[u8]>,
    start: usize,
    end: usize,
}

/// Bytes that go out.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    buf: Vec<u8>,
    start: usize,
    /// The stream has taken bytes that it may still hold itself: TLS takes more than its socket does.
    unflushed: bool,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self { buf: vec![0; SMALL].into_boxed_slice(), start: 0, end: 0 }
    }

    /// What has come in.
    pub(crate) fn data(&self) -> &[u8] {
        self.buf.get(self.start..self.end).unwrap_or_default()
    }

    /// The first `count` bytes are done with.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start = self.start.saturating_add(count).min(self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Makes room for `wanted` bytes in all, counted from the first that is not consumed.
    pub(crate) fn reserve(&mut self, wanted: usize) {
        if self.start.saturating_add(wanted) <= self.buf.len() {
            return;
        }
        if wanted > self.buf.len() {
            let mut larger = vec![0; wanted.next_power_of_two()].into_boxed_slice();
            let held = self.data().len();
            if let Some(room) = larger.get_mut(..held) {
                room.copy_from_slice(self.data());
            }
            (self.buf, self.start, self.end) = (larger, 0, held);
        } else {
            self.buf.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
    }

    /// Whether nothing more can be read before some is consumed.
    pub(crate) fn is_full(&self) -> bool {
        self.end == self.buf.len()
    }

    /// Reads once, as much as there is room for. Zero bytes are the end of the stream.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> Poll<io::Result<usize>> {
        self.poll_read_at_most(cx, stream, usize::MAX)
    }

    /// The same for at most so many bytes, of which there is at least one.
    pub(crate) fn poll_read_at_most(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut (impl AsyncRead + Unpin),
        most: usize,
    ) -> Poll<io::Result<usize>> {
        if self.is_full() {
            self.reserve(self.data().len().saturating_add(1));
        }
        let until = self.end.saturating_add(most).min(self.buf.len());
        let mut room = ReadBuf::new(self.buf.get_mut(self.end..until).unwrap_or_default());
        ready!(Pin::new(stream).poll_read(cx, &mut room))?;
        let count = room.filled().len();
        self.end += count;
        if self.is_full() && self.buf.len() < LARGE {
            self.reserve(LARGE);
        }
        Poll::Ready(Ok(count))
    }
}

impl Outbox {
    /// From here on callers should add no more.
    pub(crate) const HIGH: usize = 64 * 1_024;

    fn is_empty(&self) -> bool {
        self.start == self.buf.len()
    }

    /// Whether nothing is left, neither here nor in the stream.
    pub(crate) fn has_gone_out(&self) -> bool {
        self.is_empty() && !self.unflushed
    }

    pub(crate) fn len(&self) -> usize {
        self.buf.len() - self.start
    }

    /// How much more should be added.
    pub(crate) fn room(&self) -> usize {
        Self::HIGH.saturating_sub(self.len())
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
    }

    /// Where to add.
    pub(crate) fn vec(&mut self) -> &mut Vec<u8> {
        &mut self.buf
    }

    /// What has gone out makes room: to a peer that is slower than the other one something is always left to send. To
    /// move the rest costs no more than was sent since the last time.
    fn forget_sent(&mut self) {
        if self.start >= self.len() {
            self.buf.drain(..self.start);
            self.start = 0;
        }
    }

    /// Writes as much as goes. Ready when nothing is left, neither here nor in the stream.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        while !self.is_empty() {
            let rest = self.buf.get(self.start..).unwrap_or_default();
            match Pin::new(&mut *stream).poll_write(cx, rest)? {
                Poll::Ready(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(count) => self.start += count,
                Poll::Pending => {
                    self.forget_sent();
                    return Poll::Pending;
                }
            }
            self.unflushed = true;
        }
        if !self.unflushed {
            return Poll::Ready(Ok(()));
        }
        self.start = 0;
        self.buf.clear();
        // One large result must not be paid for until the session ends.
        if self.buf.capacity() > 2 * Self::HIGH {
            self.buf.shrink_to(Self::HIGH);
        }
        ready!(Pin::new(stream).poll_flush(cx))?;
        self.unflushed = false;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn an_inbox_grows_as_it_is_asked_and_keeps_what_it_has() {
        let bytes: Vec<u8> = (0..100_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        let (mut inbox, mut stream) = (Inbox::new(), &bytes[..]);
        let mut seen = Vec::new();
        while poll_fn(|cx| inbox.poll_read(cx, &mut stream)).await.unwrap() > 0 {
            if inbox.data().len() > 3 {
                seen.extend_from_slice(&inbox.data()[..3]);
                inbox.consume(3);
                inbox.reserve(inbox.data().len() + 10);
            }
        }
        seen.extend_from_slice(inbox.data());
        assert_eq!(seen, bytes);
    }

    #[tokio::test]
    async fn an_outbox_writes_all_and_is_empty() {
        let (mut outbox, mut stream) = (Outbox::default(), Vec::new());
        outbox.add(b"ab");
        outbox.vec().extend([b'c'; Outbox::HIGH]);
        assert_eq!((outbox.len(), outbox.room()), (Outbox::HIGH + 2, 0));
        poll_fn(|cx| outbox.poll_write(cx, &mut stream)).await.unwrap();
        assert!(outbox.is_empty() && stream.len() == Outbox::HIGH + 2);
    }

    /// Most sessions never need more than a small inbox; a client that sends much gets a large one; and what a reader
    /// asks for beyond that is as much as it asks for.
    #[tokio::test]
    async fn an_inbox_is_as_large_as_what_fills_it_needs() {
        let bytes = vec![7; 4 * LARGE];
        let (mut inbox, mut stream) = (Inbox::new(), &bytes[..SMALL - 1]);
        assert_eq!(poll_fn(|cx| inbox.poll_read(cx, &mut stream)).await.unwrap(), SMALL - 1);
        assert_eq!((inbox.buf.len(), inbox.is_full()), (SMALL, false));
        let mut stream = &bytes[..];
        assert_eq!(poll_fn(|cx| inbox.poll_read(cx, &mut stream)).await.unwrap(), 1);
        assert_eq!((inbox.buf.len(), inbox.data().len(), inbox.is_full()), (LARGE, SMALL, false));
        assert_eq!(poll_fn(|cx| inbox.poll_read(cx, &mut stream)).await.unwrap(), LARGE - SMALL);
        assert_eq!((inbox.buf.len(), inbox.is_full()), (LARGE, true));
        // Consumed at its beginning, it has room without more memory.
        inbox.consume(10);
        assert_eq!(poll_fn(|cx| inbox.poll_read(cx, &mut stream)).await.unwrap(), 10);
        assert_eq!((inbox.buf.len(), inbox.data().len()), (LARGE, LARGE));
        inbox.consume(usize::MAX);
        assert!(inbox.data().is_empty());
        inbox.reserve(LARGE);
        assert_eq!(inbox.buf.len(), LARGE, "there is room for as much");
        inbox.reserve(LARGE + 1);
        assert_eq!(inbox.buf.len(), 2 * LARGE);
    }

    #[tokio::test]
    async fn what_is_moved_to_make_room_stays_what_it_is() {
        let bytes: Vec<u8> =
            (0..SMALL).map(|n| n.to_le_bytes()[0].wrapping_add(n.to_le_bytes()[1])).collect();
        for (consumed, wanted) in
            [(SMALL - 100, SMALL), (SMALL - 100, SMALL + 1), (100, SMALL - 100), (0, 2 * SMALL)]
        {
            let (mut inbox, mut stream) = (Inbox::new(), &bytes[..]);
            let most = SMALL - 1;
            assert_eq!(poll_fn(|cx| inbox.poll_read_at_most(cx, &mut stream, most)).await.unwrap(), most);
            inbox.consume(consumed);
            let held = inbox.data().to_vec();
            inbox.reserve(wanted);
            assert_eq!(inbox.data(), held, "{consumed} {wanted}");
            assert!(inbox.buf.len() - inbox.start >= wanted, "{consumed} {wanted}");
            assert_eq!(inbox.buf.len() > SMALL, wanted > SMALL, "{consumed} {wanted}");
            inbox.consume(held.len());
            assert!(inbox.data().is_empty() && inbox.start == 0, "all of it is room again");
        }
    }

    /// A stream that takes few bytes at once, and none now and then; it counts how often it is flushed.
    struct Slow {
        taken: usize,
        rests: bool,
        flushed: u32,
    }

    impl AsyncWrite for Slow {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.rests = !self.rests && self.taken.is_multiple_of(50_000) && self.taken > 0;
            if self.rests {
                return Poll::Pending;
            }
            let count = bytes.len().min(1_000);
            self.taken += count;
            Poll::Ready(Ok(count))
        }

        fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.flushed += 1;
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// A stream that takes all and may hold it, as TLS does over a socket that is full.
    struct Holding(bool);

    impl AsyncWrite for Holding {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            if self.0 { Poll::Pending } else { Poll::Ready(Ok(())) }
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn what_the_stream_still_holds_has_not_gone_out() {
        let (mut outbox, mut stream) = (Outbox::default(), Holding(true));
        assert!(outbox.has_gone_out());
        outbox.add(b"ab");
        assert!(!outbox.has_gone_out());
        for _ in 0..2 {
            assert!(poll_fn(|cx| Poll::Ready(outbox.poll_write(cx, &mut stream).is_pending())).await);
            assert!(outbox.is_empty() && !outbox.has_gone_out());
        }
        stream.0 = false;
        poll_fn(|cx| outbox.poll_write(cx, &mut stream)).await.unwrap();
        assert!(outbox.has_gone_out());
    }

    /// A large result leaves no memory behind, and what is not sent yet counts as such.
    #[tokio::test]
    async fn an_outbox_is_small_again_once_it_is_sent_and_flushes_once() {
        let mut stream = Slow { taken: 0, rests: false, flushed: 0 };
        let mut outbox = Outbox::default();
        poll_fn(|cx| outbox.poll_write(cx, &mut stream)).await.unwrap();
        assert_eq!(stream.flushed, 0, "nothing was written");
        outbox.add(&vec![7; 3 * Outbox::HIGH]);
        let first = poll_fn(|cx| Poll::Ready(outbox.poll_write(cx, &mut stream).is_pending())).await;
        assert!(first, "it takes no more for now");
        assert_eq!((outbox.len(), outbox.room()), (3 * Outbox::HIGH - 50_000, 0));
        while poll_fn(|cx| Poll::Ready(outbox.poll_write(cx, &mut stream).is_pending())).await {}
        assert_eq!((outbox.len(), outbox.room(), stream.flushed), (0, Outbox::HIGH, 1));
        assert!(outbox.buf.capacity() <= 2 * Outbox::HIGH, "{}", outbox.buf.capacity());
        poll_fn(|cx| outbox.poll_write(cx, &mut stream)).await.unwrap();
        assert_eq!(stream.flushed, 1, "nothing was written since");
        outbox.add(&[7; Outbox::HIGH]);
        while poll_fn(|cx| Poll::Ready(outbox.poll_write(cx, &mut stream).is_pending())).await {}
        assert!(outbox.buf.capacity() >= Outbox::HIGH && stream.flushed == 2);
    }

    /// It is never empty then.
    #[tokio::test]
    async fn an_outbox_to_a_slow_peer_holds_no_more_than_is_to_be_sent() {
        let (mut outbox, mut sent) = (Outbox::default(), Vec::new());
        let all: Vec<u8> = (0..40 * 50_000_u32).map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]).collect();
        let (mut stream, mut rest) = (Slow { taken: 0, rests: false, flushed: 0 }, &all[..]);
        while !rest.is_empty() || !outbox.is_empty() {
            let (added, later) = rest.split_at(outbox.room().min(rest.len()));
            outbox.add(added);
            rest = later;
            let held = outbox.buf[outbox.start..].to_vec();
            let pending = poll_fn(|cx| Poll::Ready(outbox.poll_write(cx, &mut stream).is_pending())).await;
            assert_eq!(pending, !outbox.is_empty());
            sent.extend_from_slice(&held[..held.len() - outbox.len()]);
            assert!(outbox.buf.capacity() <= 4 * Outbox::HIGH, "{}", outbox.buf.capacity());
        }
        assert!(sent == all && stream.taken == all.len());
    }
}
