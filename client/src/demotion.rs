//! Work that a group holds back for its rate or its quota, and that goes on in the group that its definition names.
//!
//! Both are groups like any other, and one of them pays for an operation. What neither admits at once waits in the queues
//! of both: the first that admits it pays, the place in the other is given up, and what the other had just given goes
//! back whole. A group in which waiting is useless leaves the operation to the other alone. What is refused by both has
//! the error of its own group.
//!
//! Nothing else goes on: without a lease a node does not know whether the rate is used, and another group is no way
//! around a controller that is away.

use std::borrow::Borrow;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use tidegate_core::units::Ru;
use tokio::sync::oneshot;

use crate::cell::{Passing, Place, Wish};
use crate::group::Group;
use crate::groups::GroupCell;
use crate::names::GroupName;
use crate::permit::Permit;
use crate::refused::Refused;

/// Whether what is refused so may go on elsewhere. An estimate that never fits is asked for again as far as it fits.
fn is_over<G: Borrow<GroupName>>(refused: &Refused<G>, estimated: bool) -> bool {
    match refused {
        Refused::Throttled { .. } | Refused::QuotaUsedUp { .. } | Refused::TooManyWaiters { .. } => true,
        Refused::NeverFits { .. } => !estimated,
        Refused::Unavailable { .. }
        | Refused::UnknownGroup { .. }
        | Refused::InvalidCost { .. }
        | Refused::ShutDown { .. } => false,
    }
}

fn target(group: &Group) -> Option<Group> {
    let word = &group.cell.last_word;
    // Most groups have none, and a flag is cheaper to read.
    if !word.may_demote() {
        return None;
    }
    word.target().map(|cell| Group { cell })
}

/// Counts an operation as load of its group that another one pays for.
fn pass_on(group: &Group, cost: Ru) {
    group.cell.with(|state, now| Passing(state).pass_on(now, cost));
}

/// Counts an operation that another group pays for.
fn count(group: &Group, cost: Ru) {
    group.cell.demoted.count(cost);
    group.cell.shared().counters.demoted.add();
}

/// The group in which an operation goes on that `group` has just held back.
fn beyond(group: &Group, cost: Ru, estimated: bool) -> Option<Group> {
    let target = target(group)?;
    group.check_own(cost).is_err_and(|refused| is_over(&refused, estimated)).then_some(target)
}

/// Takes the cost at once in the other group.
fn takes_in(group: &Group, target: &Group, cost: Ru) -> Option<Permit<'static>> {
    let admitted = target.taken(cost)?;
    pass_on(group, cost);
    count(group, cost);
    Some(Permit::of_target(target.cell.clone(), cost, admitted))
}

/// Takes the cost at once in the group to which `group` demotes, which has just held the operation back.
#[cold]
pub(crate) fn takes(group: &Group, cost: Ru, estimated: bool) -> Option<Permit<'static>> {
    takes_in(group, &beyond(group, cost, estimated)?, cost)
}

/// The same for an operation that does not ask again: one that is refused counts as load there, too, so that a group
/// without a lease gets one.
#[cold]
pub(crate) fn tries(group: &Group, cost: Ru) -> Option<Permit<'static>> {
    let target = beyond(group, cost, false)?;
    let permit = takes_in(group, &target, cost);
    if permit.is_none() {
        pass_on(&target, cost);
    }
    permit
}

/// Whether the group to which `group` demotes would admit what this one refuses.
#[cold]
pub(crate) fn has_room(group: &Group, cost: Ru, refused: &Refused<&GroupName>) -> bool {
    is_over(refused, false) && target(group).is_some_and(|target| target.check_own(cost).is_ok())
}

/// Admits an operation in its group or in the one to which that demotes, as [`Group::acquire`] does.
pub(crate) async fn acquire(group: &Group, wish: Wish) -> Result<Permit<'_>, Refused> {
    let Wish { cost, estimated, .. } = wish;
    group.valid(cost)?;
    if let Some(admitted) = group.taken(cost) {
        return Ok(Permit::admitted(&group.cell, cost, admitted));
    }
    if let Some(permit) = takes(group, cost, estimated) {
        return Ok(permit);
    }
    let leaving = Leaving(&group.cell);
    let answer = match target(group).filter(|_| is_useless(group, wish)) {
        // What its group would refuse at once is refused there only when the other has refused it, too.
        Some(other) => match elsewhere(other, Wish { place: Place::First, ..wish }).await {
            Ok(permit) => {
                pass_on(group, cost);
                Ok(permit)
            }
            Err(_) => group.wait(Wish { place: Place::First, ..wish }).await,
        },
        None => both(group, wish).await,
    };
    std::mem::forget(leaving);
    match &answer {
        Ok(permit) if permit.is_demoted() => count(group, permit.estimate()),
        Ok(_) | Err(Refused::ShutDown { .. }) => {}
        Err(_) => group.cell.shared().counters.refused.add(),
    }
    answer
}

/// Whether waiting in the group is known to be useless, for its rate or its quota.
fn is_useless(group: &Group, wish: Wish) -> bool {
    let refusal = group.cell.with(|state, now| Passing(state).denies(now, wish));
    refusal.is_some_and(|refusal| is_over(&group.cell.refused(wish.cost, refusal), wish.estimated))
}

/// Waits in the other group.
async fn elsewhere(other: Group, wish: Wish) -> Result<Permit<'static>, Refused> {
    other.wait(wish).await.map(Permit::into_demoted)
}

/// Waits in both groups. A future that is dropped gives up its place, or what it had just been given.
async fn both(group: &Group, wish: Wish) -> Result<Permit<'_>, Refused> {
    let mut own = pin!(group.wait(Wish { place: Place::First, ..wish }));
    let (mut other, mut refused) = (Other::Unknown(None), None);
    let answer = poll_fn(|context| {
        if refused.is_none()
            && let Poll::Ready(answer) = own.as_mut().poll(context)
        {
            match answer {
                Err(error) if is_over(&error, wish.estimated) => refused = Some(error),
                answer => return Poll::Ready(answer),
            }
        }
        let is_over = match other.poll(group, wish, context) {
            Poll::Ready(Some(permit)) => return Poll::Ready(Ok(permit)),
            Poll::Ready(None) => true,
            // Who is refused does not wait to hear of another group.
            Poll::Pending => matches!(other, Other::Unknown(_)),
        };
        refused.take_if(|_| is_over).map_or(Poll::Pending, |error| Poll::Ready(Err(error)))
    });
    answer.await
}

type Elsewhere = Pin<Box<dyn Future<Output = Result<Permit<'static>, Refused>> + Send>>;

/// The place in the queue of the other group.
enum Other {
    /// The group has no lease, or nothing was heard of it yet: the next answer of the controller may say more.
    Unknown(Option<oneshot::Receiver<()>>),
    Waits(Elsewhere),
    /// There is none, or it has refused.
    None,
}

impl Other {
    /// `None` once nothing can come of it.
    fn poll(
        &mut self,
        group: &Group,
        wish: Wish,
        context: &mut Context<'_>,
    ) -> Poll<Option<Permit<'static>>> {
        loop {
            match self {
                Self::None => return Poll::Ready(None),
                Self::Waits(place) => match ready!(place.as_mut().poll(context)) {
                    Ok(permit) => return Poll::Ready(Some(permit)),
                    Err(_) => *self = Self::None,
                },
                Self::Unknown(Some(answer)) => {
                    // It may have brought the operation's own turn, which is looked at first.
                    let _ = ready!(Pin::new(answer).poll(context));
                    *self = Self::Unknown(None);
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Self::Unknown(None) => *self = Self::of(group, wish),
            }
        }
    }

    fn of(group: &Group, wish: Wish) -> Self {
        // Under the lock, since an answer is taken in under it.
        let of = group.cell.with(|state, now| {
            if !group.cell.last_word.may_demote() {
                return Err(None);
            }
            let held_back =
                state.check(now, wish.cost).map_err(|refusal| group.cell.refused(wish.cost, refusal));
            // The own place asks for as much of an estimate as fits.
            let is_over = held_back.is_err_and(|refused| is_over(&refused, false));
            target(group).filter(|_| is_over).ok_or_else(|| Some(Passing(state).next_answer()))
        });
        match of {
            Ok(other) => Self::Waits(Box::pin(elsewhere(other, Wish { place: Place::Second, ..wish }))),
            Err(Some(answer)) => Self::Unknown(Some(answer)),
            Err(None) => Self::None,
        }
    }
}

/// Counts an operation that its caller gives up while it waits, in whichever queues.
struct Leaving<'g>(&'g GroupCell);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.shared().counters.abandoned.add();
    }
}
