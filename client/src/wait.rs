//! A place in a group's queue, as a future. Dropping it gives up the place, or what had just been given.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tidegate_core::node::WaiterId;
use tidegate_core::units::Ru;
use tokio::sync::oneshot;

use crate::cell::{Answer, Place, Wish};
use crate::groups::GroupCell;
use crate::permit::Permit;
use crate::refused::Refused;

/// Waits for admission.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    cell: &'a Arc<GroupCell>,
    id: WaiterId,
    cost: Ru,
    place: Place,
    answer: oneshot::Receiver<Answer>,
    heard: bool,
}

impl<'a> Waiting<'a> {
    pub(crate) fn new(
        cell: &'a Arc<GroupCell>,
        id: WaiterId,
        wish: Wish,
        answer: oneshot::Receiver<Answer>,
    ) -> Self {
        let Wish { cost, place, .. } = wish;
        Self { cell, id, cost, place, answer, heard: false }
    }
}

impl<'a> Future for Waiting<'a> {
    type Output = Result<Permit<'a>, Refused>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(Pin::new(&mut self.answer).poll(context));
        self.heard = true;
        Poll::Ready(match answer {
            Ok(Ok((at, admitted))) => {
                let at = self.cell.shared().clock.tick_at(at);
                Ok(Permit::admitted(self.cell, self.cost, (at, admitted)))
            }
            Ok(Err(refusal)) => Err(self.cell.refused(self.cost, refusal).into_owned()),
            // The sender is kept until it has sent.
            Err(_) => Err(Refused::ShutDown { group: self.cell.name().clone() }),
        })
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.heard {
            let (cell, id, cost, answer) = (self.cell, self.id, self.cost, &mut self.answer);
            cell.with(|state, now| state.leave(now, id, cost, answer));
            if self.place == Place::Only {
                cell.shared().counters.abandoned.add();
            }
        }
    }
}
