//! `tidegate top`: all groups, live.
//!
//! `column.rs`, `detail.rs` and `board.rs` say what is shown, as text; this runs them on a terminal.

mod board;
mod column;
mod detail;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

pub(crate) use board::{Board, indented};
pub(crate) use column::{table, whole};

use crate::admin::Admin;
use crate::args::Global;
use crate::clock::unix_ms;
use crate::error::CliError;
use crate::follow::look_again;
use crate::sample::sample;
use crate::screen::Screen;
use crate::terminal::{Asked, Signals, Terminal};
use board::{Act, Press};

/// How long the thread that reads keys waits before it looks whether it is to end.
const KEY_WITHIN: Duration = Duration::from_millis(50);
/// Events read ahead; who holds a key down loses no more than repeats.
const EVENTS: usize = 64;

/// Runs on a terminal until it is quit.
pub(crate) async fn run(mut admin: Admin, mut board: Board, global: &Global) -> Result<(), CliError> {
    // A first look that fails is reported on the screen that stays.
    board.saw(sample(&admin).await?, unix_ms());
    let mut signals = Signals::listen()?;
    let mut terminal = Terminal::take(true)?;
    let mut keys = Keys::listen()?;
    let mut ticks = ticks(board.interval());
    ticks.tick().await;
    loop {
        terminal.draw(&board.lines(&Screen::stdout()))?;
        let look = async {
            ticks.tick().await;
            look_again(global, &mut admin, &sample).await
        };
        tokio::select! {
            looked = look, if !board.is_paused() => match looked {
                Ok(samples) => board.saw(samples, unix_ms()),
                Err(error) if error.passes() => board.missed(error.to_string()),
                Err(error) => return Err(error),
            },
            event = keys.events.recv() => match event {
                None => return Ok(()),
                Some(press) => match board.press(press) {
                    Act::Draw => {}
                    Act::Look => ticks = self::ticks(board.interval()),
                    Act::Suspend => terminal.suspend()?,
                    Act::Quit => return Ok(()),
                },
            },
            asked = signals.next() => match asked {
                Asked::Draw => {}
                Asked::Suspend => terminal.suspend()?,
                Asked::Resume => terminal.resume()?,
                Asked::End => return Ok(()),
            },
        }
    }
}

fn ticks(interval: Duration) -> tokio::time::Interval {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Keys, read by a thread until this is dropped.
struct Keys {
    events: mpsc::Receiver<Press>,
    ended: Arc<AtomicBool>,
}

impl Keys {
    fn listen() -> Result<Self, CliError> {
        let (sender, events) = mpsc::channel(EVENTS);
        let ended = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&ended);
        let reads = move || {
            while !stop.load(Ordering::Relaxed) {
                let event = match crossterm::event::poll(KEY_WITHIN) {
                    Ok(false) => continue,
                    Ok(true) => crossterm::event::read(),
                    Err(error) => Err(error),
                };
                let press = match event {
                    Ok(Event::Key(key)) => pressed(key),
                    Ok(_) => None,
                    // The terminal is gone; the channel ends, and with it all.
                    Err(_) => return,
                };
                if let Some(press) = press
                    && sender.blocking_send(press).is_err()
                {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("keys".to_owned()).spawn(reads);
        thread.map_err(|error| CliError::Process { what: "keys".to_owned(), reason: error.to_string() })?;
        Ok(Self { events, ended })
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// A key of a terminal as the board knows it.
fn pressed(key: KeyEvent) -> Option<Press> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(match key.code {
        KeyCode::Char('c') if control => Press::Interrupt,
        KeyCode::Char('z') if control => Press::Suspend,
        KeyCode::Char(_) if control => return None,
        KeyCode::Char(c) => Press::Char(c),
        KeyCode::Up => Press::Up,
        KeyCode::Down => Press::Down,
        KeyCode::Left => Press::Left,
        KeyCode::Right => Press::Right,
        KeyCode::PageUp => Press::PageUp,
        KeyCode::PageDown => Press::PageDown,
        KeyCode::Home => Press::Home,
        KeyCode::End => Press::End,
        KeyCode::Enter => Press::Enter,
        KeyCode::Esc => Press::Escape,
        KeyCode::Backspace => Press::Backspace,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_of_the_terminal_is_the_one_that_the_board_knows() {
        let key = |code, modifiers| pressed(KeyEvent::new(code, modifiers));
        let (plain, control) = (KeyModifiers::NONE, KeyModifiers::CONTROL);
        for (code, press) in [
            (KeyCode::Char('q'), Press::Char('q')),
            (KeyCode::Up, Press::Up),
            (KeyCode::Down, Press::Down),
            (KeyCode::Left, Press::Left),
            (KeyCode::Right, Press::Right),
            (KeyCode::PageUp, Press::PageUp),
            (KeyCode::PageDown, Press::PageDown),
            (KeyCode::Home, Press::Home),
            (KeyCode::End, Press::End),
            (KeyCode::Enter, Press::Enter),
            (KeyCode::Esc, Press::Escape),
            (KeyCode::Backspace, Press::Backspace),
        ] {
            assert_eq!(key(code, plain), Some(press), "{code:?}");
        }
        // In raw mode these are keys, and the program is to end, or to stop, all the same.
        assert_eq!(key(KeyCode::Char('c'), control), Some(Press::Interrupt));
        assert_eq!(key(KeyCode::Char('z'), control), Some(Press::Suspend));
        assert_eq!(key(KeyCode::Char('q'), control), None);
        assert_eq!(key(KeyCode::F(5), plain), None);
        let mut released = KeyEvent::new(KeyCode::Char('q'), plain);
        released.kind = KeyEventKind::Release;
        assert_eq!(pressed(released), None, "a key counts once");
    }
}
