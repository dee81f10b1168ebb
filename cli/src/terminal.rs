//! The whole terminal, while something is drawn on it again and again: the alternate screen, without a cursor, and, for
//! keys, raw. It is given back as it was when this ends, whether by return, error, panic or SIGTERM.

use std::io::{self, Write as _, stdout};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, DisableLineWrap, EnableLineWrap, EndSynchronizedUpdate,
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use crossterm::{execute, queue};

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
                // What the panic says is for the screen that stays.
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

    /// Puts `lines`, which fit, in the place of what is there.
    pub(crate) fn draw(&mut self, lines: &[String]) -> Result<(), CliError> {
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

    /// Hands the terminal to the shell, until it says to go on.
    pub(crate) fn suspend(&mut self) -> Result<(), CliError> {
        use rustix::process::{Signal, getpid, kill_process};
        give_back();
        kill_process(getpid(), Signal::TSTP).map_err(|error| CliError::Output(error.into()))?;
        self.enter().map_err(CliError::Output)
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
