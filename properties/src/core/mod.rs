//! The machines that ship, driven by any sequence of events: the grant engine and the ledger, honest nodes on drifting
//! clocks, clients that lie, a network that loses, repeats and reorders, crashes and clean restarts.
//!
//! After every event I1 to I3 are checked (and I4, by the machines themselves). At the end honest nodes must have
//! stayed within the bound of every group (I5) while definitions stood still, every RU they charged must be in the
//! ledger once (I6), and when everyone has said goodbye nothing may be left in the ledger of leases.

mod definitions;
mod event;
mod judge;
mod liar;
mod network;
mod node;
mod system;

use super::input::Input;
use system::System;

/// Runs one input.
pub(super) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut system = System::new(&mut input);
    while !input.is_empty() {
        event::apply(&mut system, &mut input);
        system.settle();
    }
    judge::judge(system);
}
