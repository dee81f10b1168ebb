//! Waits of a group that ended and that the controller is not known to have on disk, in pieces.
//!
//! Waits are not cumulative: a sum of all since the start says nothing of the last minute. Each piece goes out once on a
//! stream, and again on the next stream if the report that carried it was not confirmed, or with the next report if it
//! was refused; it says where it begins, so that the controller counts it once.

use std::collections::VecDeque;

use tidegate_core::waited::Unreported;
use tidegate_proto::v1;

/// Most pieces. A controller takes no more in one report; half of it is less than the messages of a second, in which a
/// busy disk confirms nothing.
const MOST: usize = 16;

/// The pieces, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Pieces(VecDeque<Piece>);

#[derive(Debug)]
struct Piece {
    waited: v1::Waited,
    /// The message that carried it on the live stream.
    sent: Option<u64>,
}

impl Pieces {
    /// Adds the newest. Beyond the most, the oldest is given up: it was sent, and is lost only with its stream.
    pub(crate) fn add(&mut self, unreported: &Unreported) {
        if self.0.len() >= MOST {
            self.0.pop_front();
        }
        self.0.push_back(Piece { waited: message(unreported), sent: None });
    }

    /// Those for message `seq`: what was not sent on this stream.
    pub(crate) fn send(&mut self, seq: u64) -> Vec<v1::Waited> {
        let unsent = self.0.iter_mut().filter(|piece| piece.sent.is_none());
        let sent = unsent.map(|piece| {
            piece.sent = Some(seq);
            piece.waited.clone()
        });
        sent.collect()
    }

    /// Every message up to `seq` is on the controller's disk.
    pub(crate) fn durable(&mut self, seq: u64) {
        self.0.retain(|piece| piece.sent.is_none_or(|sent| sent > seq));
    }

    /// The report of message `seq` was not counted, nor were those before it.
    pub(crate) fn refused(&mut self, seq: u64) {
        self.0.iter_mut().for_each(|piece| piece.sent = piece.sent.filter(|sent| *sent > seq));
    }

    /// The stream is gone, and with it whatever had not arrived.
    pub(crate) fn session_lost(&mut self) {
        self.0.iter_mut().for_each(|piece| piece.sent = None);
    }
}

fn message(unreported: &Unreported) -> v1::Waited {
    let Unreported { since_us, waited } = unreported;
    let (lengths, waits) =
        waited.counts().map(|(length, waits)| (u32::try_from(length).unwrap_or(u32::MAX), waits)).unzip();
    // More than a field holds is 584,942 years of waiting.
    let since_us = u64::try_from(*since_us).unwrap_or(u64::MAX);
    v1::Waited { since_us, lengths, waits, in_vain: waited.in_vain() }
}

#[cfg(test)]
mod tests {
    use tidegate_core::units::Span;

    use super::*;

    fn unreported(since_us: u128) -> Unreported {
        let mut unreported = Unreported { since_us, ..Unreported::default() };
        unreported.waited.count(Span(70), false);
        unreported.waited.count(Span(60), true);
        unreported
    }

    fn begins(pieces: &[v1::Waited]) -> Vec<u64> {
        pieces.iter().map(|piece| piece.since_us).collect()
    }

    #[test]
    fn a_piece_goes_out_once_on_a_stream_and_again_on_the_next_until_it_is_durable() {
        let mut pieces = Pieces::default();
        pieces.add(&unreported(0));
        let sent = pieces.send(1);
        assert_eq!(sent, [v1::Waited { since_us: 0, lengths: vec![0, 1], waits: vec![1, 1], in_vain: 1 }]);
        pieces.add(&unreported(130));
        assert_eq!(begins(&pieces.send(2)), [130]);
        assert!(pieces.send(3).is_empty());
        pieces.durable(1);
        pieces.session_lost();
        pieces.add(&unreported(260));
        assert_eq!(begins(&pieces.send(4)), [130, 260]);
        pieces.durable(4);
        pieces.session_lost();
        assert!(pieces.send(5).is_empty());
    }

    #[test]
    fn pieces_that_nobody_confirms_are_bounded() {
        let mut pieces = Pieces::default();
        for since in 0..100 {
            pieces.add(&unreported(since));
            assert_eq!(pieces.send(since.try_into().unwrap()).len(), 1);
        }
        pieces.session_lost();
        let again = begins(&pieces.send(100));
        assert_eq!(again, (84..100).collect::<Vec<_>>());
        pieces.add(&unreported(u128::MAX));
        assert_eq!(begins(&pieces.send(101)), [u64::MAX]);
    }
}
