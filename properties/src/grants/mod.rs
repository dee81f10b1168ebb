//! The grant stream: any bytes, frames and messages into the handler that ships, without a socket.
//!
//! Streams of nodes that come, lie, hang up and come again; definitions that change; a controller that crashes and
//! starts again from what it stored. Every message is answered as the protocol says or ends its stream with a fitting
//! status; what was counted is what a plain model of the ledger says, before and after every restart; and every page
//! that an operator can ask for is there.

mod books;
mod draw;
mod lab;
mod requests;
mod stream;
mod talk;

use super::input::Input;
use lab::Lab;

/// Runs one input.
pub(super) fn run(bytes: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let mut input = Input::new(bytes);
        let mut lab = Lab::start();
        while !input.is_empty() {
            requests::next(&mut lab, &mut input).await;
            lab.check();
        }
        lab.restart().await;
        lab.look().await;
    });
}
