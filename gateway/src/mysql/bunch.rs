//! Questions of one kind that come in bunches and are put to the server together: one query is under way at a time, and
//! the questions that come meanwhile go with the next.
//!
//! To find one session among its own a server may look at all of them, as MariaDB does: 500 logins at once, with a
//! question each, would have it look 250,000 times, while the logins wait.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Most that are asked for at once: a text of 11 kB.
const MOST: usize = 1_000;

/// See the module; what they are asked about is a connection, and `T` the answer. At most as many wait as there are
/// sessions.
#[derive(Debug)]
pub(super) struct Bunch<T>(Mutex<Waiting<T>>);

#[derive(Debug)]
struct Waiting<T> {
    asks: Vec<Ask<T>>,
    /// Somebody has the turn to ask.
    asked: bool,
}

/// A connection, and the channel for its answer.
pub(super) type Ask<T> = (u32, oneshot::Sender<T>);

/// The turn to ask, for all that wait now or later, until none waits. If the turn is given up before, they get no
/// answer.
#[derive(Debug)]
pub(super) struct Turn<T> {
    bunch: Arc<Bunch<T>>,
    over: bool,
}

impl<T> Default for Bunch<T> {
    fn default() -> Self {
        Self(Mutex::new(Waiting { asks: Vec::new(), asked: false }))
    }
}

impl<T> Bunch<T> {
    /// Waits for an answer about this connection; returns the turn to ask, too, when no other caller has it.
    pub(super) fn join(self: &Arc<Self>, connection: u32) -> (oneshot::Receiver<T>, Option<Turn<T>>) {
        let (tell, told) = oneshot::channel();
        let mut waiting = self.waiting();
        waiting.asks.push((connection, tell));
        let turn = (!waiting.asked).then(|| Turn { bunch: Arc::clone(self), over: false });
        waiting.asked = true;
        (told, turn)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Turn<T> {
    /// The connections to ask for; `None` when none waits, which ends the turn.
    pub(super) fn next(&mut self) -> Option<Vec<Ask<T>>> {
        if self.over {
            return None;
        }
        let mut waiting = self.bunch.waiting();
        let most = waiting.asks.len().min(MOST);
        let asks: Vec<Ask<T>> = waiting.asks.drain(..most).collect();
        self.over = asks.is_empty();
        waiting.asked = !self.over;
        (!self.over).then_some(asks)
    }
}

impl<T> Drop for Turn<T> {
    fn drop(&mut self) {
        if !self.over {
            let mut waiting = self.bunch.waiting();
            waiting.asks.clear();
            waiting.asked = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(asks: Option<Vec<Ask<u32>>>) -> Vec<u32> {
        asks.into_iter().flatten().map(|(connection, tell)| (connection, tell.send(connection)).0).collect()
    }

    #[test]
    fn who_comes_while_a_question_is_under_way_is_asked_for_with_the_next() {
        let bunch = Arc::new(Bunch::default());
        let (mut first, turn) = bunch.join(1);
        let mut turn = turn.unwrap();
        assert_eq!(connections(turn.next()), [1]);
        let (mut second, none) = bunch.join(2);
        assert!(none.is_none() && bunch.join(3).1.is_none(), "somebody asks");
        assert_eq!(connections(turn.next()), [2, 3]);
        assert_eq!((first.try_recv(), second.try_recv()), (Ok(1), Ok(2)));
        assert!(turn.next().is_none());
        // The turn is free, also for as long as who had it is still there.
        let (_told, again) = bunch.join(4);
        drop(turn);
        assert!(bunch.join(5).1.is_none());
        assert_eq!(connections(again.unwrap().next()), [4, 5]);
    }

    #[test]
    fn a_turn_that_is_given_up_holds_nobody() {
        let bunch = Arc::new(Bunch::<u32>::default());
        let (mut told, turn) = bunch.join(1);
        drop(turn);
        assert_eq!(told.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        let (_told, turn) = bunch.join(2);
        assert_eq!(connections(turn.unwrap().next()), [2]);
    }

    #[test]
    fn who_had_the_turn_takes_no_questions_of_the_next() {
        let bunch = Arc::new(Bunch::default());
        let (_told, turn) = bunch.join(1);
        let mut turn = turn.unwrap();
        assert_eq!(connections(turn.next()), [1]);
        assert!(turn.next().is_none());
        let (_told, next) = bunch.join(2);
        assert!(turn.next().is_none());
        assert_eq!(connections(next.unwrap().next()), [2]);
    }

    #[test]
    fn a_question_is_about_so_many_at_most() {
        let bunch = Arc::new(Bunch::<u32>::default());
        let (_told, turn) = bunch.join(0);
        for connection in 1..1_500 {
            drop(bunch.join(connection));
        }
        let mut turn = turn.unwrap();
        let counts = [(); 3].map(|()| turn.next().map(|asks| asks.len()));
        assert_eq!(counts, [Some(1_000), Some(500), None]);
    }
}
