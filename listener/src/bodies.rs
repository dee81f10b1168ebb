//! Bodies of requests: the bytes that all of them hold together, and the time for each.
//!
//! A REST body is held until it is answered. A gRPC stream has no end, so each of its messages counts from its first
//! byte to its last. Small bodies are outside of the budget: a sender that fills it with large ones does not keep the
//! renewals of nodes out.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::Status;

use super::Surface;

/// Bytes that unfinished bodies hold together. Half of it is eight of the largest at once; twice of it would let any
/// sender take a part of a small machine's memory.
const BUDGET: usize = 64 << 20;
/// Bytes of one body outside of the budget. Half of it is less than a renewal of a thousand groups; twice of it, times
/// all connections, would exceed the budget itself.
const FREE: usize = 64 << 10;
/// Time from the first byte of a body, or of a message, to its last. With half of it, 4 MiB need more than 2 Mbit/s;
/// with twice of it, a slow sender holds the budget for longer.
const WITHIN: Duration = Duration::from_secs(30);

/// Bytes of a REST body that are passed on at once. Half of it is what HTTP/1 reads at once; with twice of it, the bytes
/// outside of the budget would take more memory before they are passed on.
const PIECE: usize = FREE;

/// The budget of all bodies.
#[derive(Debug, Default)]
pub struct Bodies {
    held: AtomicUsize,
}

impl Bodies {
    /// Bytes of the budget in use.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> bool {
        let taken = self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
            held.checked_add(bytes).filter(|held| *held <= BUDGET)
        });
        taken.is_ok()
    }
}

/// Bytes of the budget that one body holds, until this is dropped.
#[derive(Debug)]
struct Hold {
    bodies: Arc<Bodies>,
    /// All bytes of the body, and those of the budget.
    bytes: usize,
    taken: usize,
}

impl Hold {
    fn grow(&mut self, bytes: usize) -> bool {
        self.bytes = self.bytes.saturating_add(bytes);
        let more = self.bytes.saturating_sub(FREE).saturating_sub(self.taken);
        let grown = more == 0 || self.bodies.take(more);
        if grown {
            self.taken += more;
        }
        grown
    }

    fn clear(&mut self) {
        self.bodies.held.fetch_sub(self.taken, Ordering::Relaxed);
        (self.bytes, self.taken) = (0, 0);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Why a body was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// There are too many large bodies at once.
    #[error("large requests hold all of the {} MiB that there are for them; try again in a second", BUDGET >> 20)]
    Full,
    /// The body took too long.
    #[error("the request was not there within {} s; send it faster, or in parts", WITHIN.as_secs())]
    Slow,
}

impl BodyError {
    /// The label of metrics.
    fn reason(self) -> &'static str {
        match self {
            Self::Full => "bodies",
            Self::Slow => "slow_body",
        }
    }

    /// The `BodyError` at the bottom of an error.
    pub fn below(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref() {
                return Some(*found);
            }
            next = error.source();
        }
        None
    }

    fn status(self) -> Status {
        match self {
            Self::Full => Status::resource_exhausted(self.to_string()),
            Self::Slow => Status::deadline_exceeded(self.to_string()),
        }
    }
}

/// The bounds of messages in a gRPC body: one byte, four bytes of length, and that many bytes.
#[derive(Debug, Default)]
struct Messages {
    head: [u8; 5],
    /// Bytes of the head that have arrived.
    filled: usize,
    /// Bytes of the message that are missing.
    missing: usize,
}

/// What came of bytes that were passed on.
#[derive(Debug, PartialEq, Eq)]
struct Passed {
    /// A message ended in them.
    has_ended: bool,
    /// How many of them are of a message that has not ended.
    open: usize,
}

impl Messages {
    /// Passes bytes on.
    fn pass(&mut self, bytes: &[u8]) -> Passed {
        let (mut rest, mut has_ended, mut open) = (bytes, false, 0);
        while !rest.is_empty() {
            let part = self.missing.min(rest.len());
            if let Some(behind) = rest.get(part..).filter(|_| part > 0) {
                (self.missing, rest) = (self.missing - part, behind);
                open += part;
            } else if let Some((byte, behind)) = rest.split_first() {
                if let Some(place) = self.head.get_mut(self.filled) {
                    *place = *byte;
                }
                (self.filled, rest) = (self.filled + 1, behind);
                open += 1;
                if self.filled < self.head.len() {
                    continue;
                }
                let [_, length @ ..] = self.head;
                self.missing = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
                self.filled = 0;
            }
            if self.missing == 0 {
                (has_ended, open) = (true, 0);
            }
        }
        Passed { has_ended, open }
    }
}

/// A body that holds a part of the budget, and has a deadline.
pub(super) struct Held<B> {
    body: B,
    hold: Hold,
    /// The message bounds of a gRPC body.
    messages: Option<Messages>,
    /// Of a REST body, what is not passed on yet, and what was read and is not gathered yet.
    gathered: Vec<u8>,
    read: Bytes,
    has_ended: bool,
    /// The deadline; `None` between messages.
    due: Option<Pin<Box<Sleep>>>,
    refused: Box<dyn Fn(&'static str) + Send + Sync>,
}

impl<B> Held<B> {
    pub(super) fn new(
        body: B,
        surface: Surface,
        bodies: &Arc<Bodies>,
        refused: impl Fn(&'static str) + Send + Sync + 'static,
    ) -> Self {
        Self {
            body,
            hold: Hold { bodies: Arc::clone(bodies), bytes: 0, taken: 0 },
            messages: (surface == Surface::Grpc).then(Messages::default),
            gathered: Vec::new(),
            read: Bytes::new(),
            has_ended: false,
            due: Some(Box::pin(sleep_until(Instant::now() + WITHIN))),
            refused: Box::new(refused),
        }
    }

    fn refuse(&self, error: BodyError) -> Box<dyn Error + Send + Sync> {
        (self.refused)(error.reason());
        if self.messages.is_some() { Box::new(error.status()) } else { Box::new(error) }
    }

    fn passed(&mut self, bytes: &[u8]) -> Result<(), Box<dyn Error + Send + Sync>> {
        if !self.hold.grow(bytes.len()) {
            return Err(self.refuse(BodyError::Full));
        }
        if let Some(messages) = &mut self.messages {
            let Passed { has_ended, open } = messages.pass(bytes);
            if has_ended {
                self.hold.clear();
                self.due = None;
                if !self.hold.grow(open) {
                    return Err(self.refuse(BodyError::Full));
                }
            }
            if open > 0 && self.due.is_none() {
                self.due = Some(Box::pin(sleep_until(Instant::now() + WITHIN)));
            }
        }
        Ok(())
    }

    /// Copies of what was read as much as a piece has room for; returns whether it is full.
    fn gather(&mut self) -> bool {
        if self.gathered.capacity() == 0 && !self.read.is_empty() {
            self.gathered.reserve_exact(PIECE);
        }
        let room = PIECE.saturating_sub(self.gathered.len());
        let part = self.read.split_to(room.min(self.read.len()));
        self.gathered.extend_from_slice(&part);
        self.gathered.len() >= PIECE
    }

    /// What was gathered, in memory of its own. A frame is a part of the buffer that it was read into, and keeps all of it,
    /// 8 KiB and more: a body that is sent byte by byte would hold that much for each byte until it is whole.
    fn piece(&mut self) -> Option<Bytes> {
        let piece = std::mem::take(&mut self.gathered);
        (!piece.is_empty()).then(|| piece.into_boxed_slice().into())
    }
}

impl<B> HttpBody for Held<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        while !this.gather() && !this.has_ended {
            let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) else {
                if let Some(due) = &mut this.due {
                    ready!(due.as_mut().poll(context));
                    return Poll::Ready(Some(Err(this.refuse(BodyError::Slow))));
                }
                return Poll::Pending;
            };
            let Some(frame) = frame.transpose().map_err(Into::into)? else {
                (this.due, this.has_ended) = (None, true);
                break;
            };
            if let Some(bytes) = frame.data_ref() {
                this.passed(bytes)?;
            }
            if this.messages.is_some() {
                return Poll::Ready(Some(Ok(frame)));
            }
            // What follows the data of a REST body is read by nobody.
            this.read = frame.into_data().unwrap_or_default();
        }
        Poll::Ready(this.piece().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.gathered.is_empty() && self.read.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let here = self.gathered.len().saturating_add(self.read.len());
        let (mut hint, gathered) = (self.body.size_hint(), u64::try_from(here).unwrap_or(u64::MAX));
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper.saturating_add(gathered));
        }
        hint.set_lower(hint.lower().saturating_add(gathered));
        hint
    }
}

/// The type of body that routes take.
pub(super) fn boxed<B>(held: Held<B>) -> Body
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    Body::new(held)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::future::poll_fn;

    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
    use tokio::time::sleep;

    use super::*;

    /// What comes of a body, and its length; `None` is a moment in which nothing does.
    struct Coming(VecDeque<Option<Bytes>>, u64);

    impl HttpBody for Coming {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            match self.0.pop_front() {
                None => Poll::Ready(None),
                Some(Some(bytes)) => {
                    self.1 -= bytes.len() as u64;
                    Poll::Ready(Some(Ok(Frame::data(bytes))))
                }
                Some(None) => {
                    context.waker().wake_by_ref();
                    Poll::Pending
                }
            }
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(self.1)
        }
    }

    /// The frames in which a body is passed on.
    async fn passed_on(coming: Vec<Option<Bytes>>, surface: Surface) -> Vec<Bytes> {
        let bodies = Arc::new(Bodies::default());
        let length: u64 = coming.iter().flatten().map(|bytes| bytes.len() as u64).sum();
        let mut held =
            Held::new(Coming(coming.into(), length), surface, &bodies, |reason| panic!("{reason}"));
        let (mut frames, mut passed) = (Vec::new(), 0);
        while let Some(frame) = poll_fn(|context| Pin::new(&mut held).poll_frame(context)).await {
            let bytes = frame.unwrap().into_data().unwrap();
            passed += bytes.len() as u64;
            frames.push(bytes);
            assert_eq!(held.size_hint().exact(), Some(length - passed));
        }
        assert!(poll_fn(|context| Pin::new(&mut held).poll_frame(context)).await.is_none());
        drop(held);
        assert_eq!(bodies.held(), 0);
        frames
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_byte_by_byte_is_passed_on_in_pieces_of_their_own_memory() {
        let buffer = Bytes::from((0..=250).cycle().take(PIECE * 2 + 10).collect::<Vec<u8>>());
        let bytes = (0..buffer.len()).flat_map(|at| [Some(buffer.slice(at..=at)), None]);
        let pieces = passed_on(bytes.collect(), Surface::Rest).await;
        assert_eq!(pieces.len(), 3);
        assert_eq!(pieces.iter().map(Bytes::len).collect::<Vec<_>>(), [PIECE, PIECE, 10]);
        assert!(pieces.concat() == buffer);
        assert!(buffer.is_unique(), "no piece is a part of what was read");
        let large = vec![Some(buffer.slice(..5)), Some(buffer.slice(5..)), None];
        let pieces = passed_on(large, Surface::Rest).await;
        assert_eq!(pieces.iter().map(Bytes::len).collect::<Vec<_>>(), [PIECE, PIECE, 10]);
        assert!(pieces.concat() == buffer && buffer.is_unique());
        assert!(passed_on(vec![None], Surface::Rest).await.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_is_passed_on_as_it_comes() {
        let frames = [&[0, 0, 0][..], &[0, 2], &[7, 7]].map(|part| Some(Bytes::from_static(part)));
        assert_eq!(passed_on(frames.to_vec(), Surface::Grpc).await.len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_may_carry_more_than_the_budget_in_all() {
        let length = 1_u32 << 20;
        let head = Bytes::from([&[0], &length.to_be_bytes()[..]].concat());
        let message = Bytes::from(vec![7; 1 << 20]);
        let messages = (0..=BUDGET >> 20).flat_map(|_| [Some(head.clone()), Some(message.clone())]);
        let frames = passed_on(messages.collect(), Surface::Grpc).await;
        assert!(frames.iter().map(Bytes::len).sum::<usize>() > BUDGET);
    }

    /// A body of which this comes as it is sent.
    struct Sent(UnboundedReceiver<&'static [u8]>);

    impl HttpBody for Sent {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            self.0.poll_recv(context).map(|part| part.map(|part| Ok(Frame::data(Bytes::from_static(part)))))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_body_is_an_error_of_its_protocol_and_counted() {
        for surface in [Surface::Grpc, Surface::Rest] {
            let bodies = Arc::new(Bodies::default());
            let mut full = hold(&bodies);
            assert!(full.grow(BUDGET));
            let large = Coming([Some(vec![0; BUDGET].into())].into(), BUDGET as u64);
            let mut large = Held::new(large, surface, &bodies, |reason| assert_eq!(reason, "bodies"));
            let large = poll_fn(|context| Pin::new(&mut large).poll_frame(context)).await;
            let began = Instant::now();
            let (_open, silent) = unbounded_channel();
            let mut slow =
                Held::new(Sent(silent), surface, &bodies, |reason| assert_eq!(reason, "slow_body"));
            let slow = poll_fn(|context| Pin::new(&mut slow).poll_frame(context)).await;
            assert_eq!(began.elapsed(), WITHIN);
            for (error, expected, code) in [
                (large, BodyError::Full, tonic::Code::ResourceExhausted),
                (slow, BodyError::Slow, tonic::Code::DeadlineExceeded),
            ] {
                let error = error.unwrap().unwrap_err();
                if surface == Surface::Rest {
                    assert_eq!(BodyError::below(&*error), Some(expected));
                } else {
                    let status: &Status = error.downcast_ref().unwrap();
                    assert_eq!((status.code(), status.message()), (code, &*expected.to_string()));
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_rests_between_messages_and_each_has_its_time_from_its_first_byte_on() {
        let (part, began) = (WITHIN / 4, Instant::now());
        let coming: [(Duration, &[u8]); 5] = [
            (part, &[0, 0, 0, 0, 1, 7]),
            // It rests for longer than a message may take, and then a message comes byte by byte.
            (WITHIN * 10, &[0]),
            (part * 2, &[0]),
            (part, &[0]),
            (part * 2, &[0]),
        ];
        let bodies = Arc::new(Bodies::default());
        let (send, sent) = unbounded_channel();
        tokio::spawn(async move {
            for (pause, bytes) in coming {
                sleep(pause).await;
                send.send(bytes).unwrap();
            }
        });
        let mut held =
            Held::new(Sent(sent), Surface::Grpc, &bodies, |reason| assert_eq!(reason, "slow_body"));
        for _ in 0..4 {
            let frame = poll_fn(|context| Pin::new(&mut held).poll_frame(context)).await;
            assert!(frame.unwrap().is_ok());
        }
        let refused = poll_fn(|context| Pin::new(&mut held).poll_frame(context)).await.unwrap();
        assert!(refused.is_err());
        assert_eq!(began.elapsed(), part + WITHIN * 10 + WITHIN);
    }

    /// As a proxy passes messages on that follow each other closely: each frame has the end of one and the first byte of
    /// the next.
    #[tokio::test(start_paused = true)]
    async fn a_message_counts_from_its_first_byte_on_also_where_that_is_in_the_frame_of_the_one_before() {
        let length = 1_u32 << 20;
        let message = [&[0], &length.to_be_bytes()[..], &vec![7; 1 << 20]].concat();
        let whole = Bytes::from([&message[1..], &message[..1]].concat());
        let frames = std::iter::once(Bytes::from_static(&[0]))
            .chain(std::iter::repeat_n(whole, (BUDGET >> 20) + 2))
            .chain([Bytes::from(message[1..].to_vec())]);
        assert_eq!(passed_on(frames.map(Some).collect(), Surface::Grpc).await.len(), (BUDGET >> 20) + 4);

        let (bodies, began) = (Arc::new(Bodies::default()), Instant::now());
        let (send, sent) = unbounded_channel();
        let sending = tokio::spawn(async move {
            for bytes in [&[0][..], &[0, 0, 0, 1, 7, 0], &[0, 0, 0, 1, 7, 0], &[0, 0, 0, 1, 7, 0], &[0]] {
                send.send(bytes).unwrap();
                sleep(WITHIN / 2).await;
            }
            std::future::pending::<()>().await;
        });
        let mut held =
            Held::new(Sent(sent), Surface::Grpc, &bodies, |reason| assert_eq!(reason, "slow_body"));
        let mut frames = 0;
        while poll_fn(|context| Pin::new(&mut held).poll_frame(context)).await.unwrap().is_ok() {
            frames += 1;
        }
        // The last message began with the fourth frame.
        assert_eq!((frames, began.elapsed()), (5, WITHIN / 2 * 3 + WITHIN));
        sending.abort();
    }

    /// However steadily it comes, and however it is spread over calls of its reader.
    #[tokio::test(start_paused = true)]
    async fn a_body_has_its_time_from_its_first_byte_on_and_no_byte_extends_it() {
        for surface in [Surface::Rest, Surface::Grpc] {
            let (bodies, began) = (Arc::new(Bodies::default()), Instant::now());
            let (send, sent) = unbounded_channel();
            let sending = tokio::spawn(async move {
                // Of gRPC, a message of 256 bytes.
                for byte in
                    [&[0_u8][..], &[0], &[0], &[1]].into_iter().chain(std::iter::repeat_n(&[0][..], 9))
                {
                    send.send(byte).unwrap();
                    sleep(WITHIN / 4).await;
                }
            });
            let mut held = Held::new(Sent(sent), surface, &bodies, |reason| assert_eq!(reason, "slow_body"));
            let error = loop {
                let frame = poll_fn(|context| Pin::new(&mut held).poll_frame(context)).await;
                if let Err(error) = frame.unwrap() {
                    break error;
                }
            };
            assert_eq!((began.elapsed(), error.to_string().contains("within 30 s")), (WITHIN, true));
            drop(held);
            sending.abort();
        }
    }

    fn hold(bodies: &Arc<Bodies>) -> Hold {
        Hold { bodies: Arc::clone(bodies), bytes: 0, taken: 0 }
    }

    #[test]
    fn large_bodies_share_a_budget_that_small_ones_do_not_need() {
        let bodies = Arc::new(Bodies::default());
        let mut held: Vec<Hold> = Vec::new();
        for _ in 0..100 {
            let mut next = hold(&bodies);
            if !(0..4).all(|_| next.grow(1 << 20)) {
                break;
            }
            held.push(next);
        }
        assert_eq!(held.len(), 16, "64 MiB by 4 MiB, less what is free");
        let mut small = hold(&bodies);
        assert!(small.grow(FREE) && !small.grow(4 << 20));
        drop((held, small));
        assert_eq!(bodies.held.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn messages_end_where_their_lengths_say() {
        let mut bytes = Vec::new();
        for length in [0_u8, 3, 200] {
            bytes.extend([0, 0, 0, 0, length]);
            bytes.extend(std::iter::repeat_n(7, usize::from(length)));
        }
        for step in 1..=bytes.len() {
            let mut messages = Messages::default();
            let passed: Vec<Passed> = bytes.chunks(step).map(|chunk| messages.pass(chunk)).collect();
            assert_eq!(passed.last(), Some(&Passed { has_ended: true, open: 0 }), "{step}");
            assert_eq!(messages.pass(&[0, 0]), Passed { has_ended: false, open: 2 });
            assert_eq!(messages.pass(&[0, 0, 1]), Passed { has_ended: false, open: 3 });
            assert_eq!(messages.pass(&[7, 0, 0]), Passed { has_ended: true, open: 2 });
            assert_eq!(messages.pass(&[0, 0, 0, 0]), Passed { has_ended: true, open: 1 });
        }
        let mut messages = Messages::default();
        assert_eq!(messages.pass(&[0, 255, 255, 255, 255]), Passed { has_ended: false, open: 5 });
        assert_eq!(messages.missing, u32::MAX as usize);
    }
}
