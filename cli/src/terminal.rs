//! The whole terminal, while something is drawn on it again and again: the alternate screen, without a cursor, and, for
//! keys, raw. It is given back as it was when this ends, whether by return, error, panic or a signal, and while it is
//! suspended.

use std::io::{self, Write as _, stdout};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, DisableLineWrap, EnableLineWrap, EndSynchronizedUpdate,
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use crossterm::{execute, queue};
use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{self, SignalKind};

use crate::error::CliError;

/// A terminal that is drawn on.
#[derive(Debug)]
pub(crate) struct Terminal {
    keys: bool,
}

/// Something is to be given back.
static TAKEN: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();

impl Terminal {
    /// Takes the terminal of the standard output; with `keys`, its keys come one by one, Ctrl-C among them.
    pub(crate) fn take(keys: bool) -> Result<Self, CliError> {
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                // The panic's message is for the screen that stays.
                give_back();
                before(panic);
            }));
        });
        let terminal = Self { keys };
        terminal.enter().map_err(CliError::Output)?;
        Ok(terminal)
    }

    fn enter(&self) -> io::Result<()> {
        TAKEN.store(true, Ordering::SeqCst);
        if self.keys {
            enable_raw_mode()?;
        }
        execute!(stdout(), EnterAlternateScreen, DisableLineWrap, Hide)
    }

    /// Puts `lines`, which fit, in the place of what is there. Nothing while it is suspended.
    pub(crate) fn draw(&mut self, lines: &[String]) -> Result<(), CliError> {
        if !TAKEN.load(Ordering::SeqCst) {
            return Ok(());
        }
        let put = |out: &mut io::StdoutLock<'_>| {
            queue!(out, BeginSynchronizedUpdate)?;
            for (row, line) in lines.iter().enumerate() {
                // Cleared first: behind a line as wide as the terminal the cursor stands on its last sign.
                let row = u16::try_from(row).unwrap_or(u16::MAX);
                queue!(out, MoveTo(0, row), Clear(ClearType::UntilNewLine))?;
                out.write_all(line.as_bytes())?;
            }
            let below = u16::try_from(lines.len()).unwrap_or(u16::MAX);
            // There is no row below the last, and the last would be taken for it.
            if size().is_ok_and(|(_, rows)| below < rows) {
                queue!(out, MoveTo(0, below), Clear(ClearType::FromCursorDown))?;
            }
            queue!(out, EndSynchronizedUpdate)?;
            out.flush()
        };
        put(&mut stdout().lock()).map_err(CliError::Output)
    }

    /// Hands the terminal to the shell, until it lets the process go on, which [`Signals`] report.
    pub(crate) fn suspend(&mut self) -> Result<(), CliError> {
        give_back();
        // Not SIGTSTP, which is heard here.
        kill_process(getpid(), Signal::STOP).map_err(|error| CliError::Output(error.into()))
    }

    /// Takes the terminal again: another process had it meanwhile, whatever stopped this one.
    pub(crate) fn resume(&mut self) -> Result<(), CliError> {
        if self.keys {
            // crossterm does not make a raw terminal raw again, but the shell may have undone it.
            disable_raw_mode().map_err(CliError::Output)?;
        }
        self.enter().map_err(CliError::Output)
    }
}

/// The request of a signal to a program that has the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// The terminal has another size.
    Draw,
    /// Hand the terminal over.
    Suspend,
    /// Take it again.
    Resume,
    /// Give it back and end.
    End,
}

/// The signals that ask something of a program that has the terminal. Heard from the moment this is made, so that none of
/// them ends the program in the middle of taking it.
#[derive(Debug)]
pub(crate) struct Signals {
    resized: unix::Signal,
    stopped: unix::Signal,
    resumed: unix::Signal,
    interrupted: unix::Signal,
    terminated: unix::Signal,
    /// The terminal is gone.
    hung_up: unix::Signal,
}

impl Signals {
    /// Listens.
    pub(crate) fn listen() -> Result<Self, CliError> {
        let listen = |kind| unix::signal(kind).map_err(CliError::Output);
        Ok(Self {
            resized: listen(SignalKind::window_change())?,
            stopped: listen(SignalKind::from_raw(Signal::TSTP.as_raw()))?,
            resumed: listen(SignalKind::from_raw(Signal::CONT.as_raw()))?,
            interrupted: listen(SignalKind::interrupt())?,
            terminated: listen(SignalKind::terminate())?,
            hung_up: listen(SignalKind::hangup())?,
        })
    }

    /// The next.
    pub(crate) async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.resized.recv() => Asked::Draw,
            _ = self.stopped.recv() => Asked::Suspend,
            _ = self.resumed.recv() => Asked::Resume,
            _ = self.interrupted.recv() => Asked::End,
            _ = self.terminated.recv() => Asked::End,
            _ = self.hung_up.recv() => Asked::End,
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        give_back();
    }
}

fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        // A terminal that is gone needs nothing.
        let _ = execute!(stdout(), EndSynchronizedUpdate, Show, EnableLineWrap, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}
