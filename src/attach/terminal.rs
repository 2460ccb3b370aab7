//! The local terminal: raw while attached, and as it was before on every way out.
//!
//! Invariant: from the moment it is raw, [`restore`] is called before this process ends, be it by
//! its end, a signal, or a panic in any thread. Calling it twice does no harm.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use rustix::termios::tcgetwinsize;

use super::undo::Undo;
use crate::proto::Size;

/// What is to be put back.
struct Saved {
    modes: Termios,
    /// Where the app's output goes, if that is a terminal.
    shown: Option<Undo>,
}

static SAVED: Mutex<Option<Saved>> = Mutex::new(None);
/// Whether everything is being put back for good. Who holds [`SAVED`] and finds it false comes first.
static OVER: AtomicBool = AtomicBool::new(false);

/// Bytes written to the terminal while it cannot be put back: few, so that a slow one can.
const PIECE: usize = 4096;

/// The window of the local terminal, if there is one with a size.
#[must_use]
pub fn size() -> Option<Size> {
    let size = tcgetwinsize(io::stdin()).or_else(|_| tcgetwinsize(io::stdout())).ok()?;
    (size.ws_row > 0 && size.ws_col > 0).then_some(Size { rows: size.ws_row, cols: size.ws_col })
}

/// Makes the terminal on standard input raw; whether there is one.
///
/// # Errors
/// When it is one and cannot be made raw.
pub fn make_raw() -> io::Result<bool> {
    if !io::stdin().is_terminal() {
        return Ok(false);
    }
    let modes = tcgetattr(io::stdin())?;
    let mut raw = modes.clone();
    cfmakeraw(&mut raw);
    let shown = io::stdout().is_terminal().then(Undo::default);
    // Saved before it is changed: from here on every way out puts it back.
    *saved() = Some(Saved { modes, shown });
    set(&raw)?;
    Ok(true)
}

/// Makes it raw again after [`suspend`].
///
/// # Errors
/// Those of tcsetattr(3).
pub fn resume() -> io::Result<()> {
    let raw = saved().as_ref().map(|saved| {
        let mut raw = saved.modes.clone();
        cfmakeraw(&mut raw);
        raw
    });
    raw.map_or(Ok(()), |raw| set(&raw))
}

/// Shows bytes of the app's terminal by `write`. Its modes are noted first, and once all has been
/// put back nothing is shown any more: what the app does then must not reach the shell's terminal.
///
/// # Errors
/// Those of `write`.
pub fn show(bytes: &[u8], write: impl Fn(&[u8]) -> io::Result<()>) -> io::Result<()> {
    for piece in bytes.chunks(PIECE) {
        let mut saved = saved();
        if OVER.load(Ordering::Relaxed) {
            return Ok(());
        }
        if let Some(Saved { shown: Some(undo), .. }) = saved.as_mut() {
            undo.read(piece);
            // Under the lock, so that it does not come after what undoes it.
            write(piece)?;
        } else {
            drop(saved);
            write(piece)?;
        }
    }
    Ok(())
}

/// Puts everything back for a while; see [`resume`].
pub fn suspend() {
    if let Some(saved) = saved().as_ref() {
        put_back(saved);
    }
}

/// Puts everything back for good.
pub fn restore() {
    // First, so that a flood of output does not keep this waiting for the lock.
    OVER.store(true, Ordering::Relaxed);
    let mut saved = saved();
    if let Some(saved) = saved.take() {
        put_back(&saved);
    }
}

/// Has a panic in any thread put everything back before it is reported.
pub fn restore_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        restore();
        report(info);
    }));
}

fn put_back(saved: &Saved) {
    if let Some(undo) = &saved.shown {
        let mut out = io::stdout();
        // A terminal that is gone needs nothing undone.
        let _ = out.write_all(&undo.sequence()).and_then(|()| out.flush());
    }
    let _ = set(&saved.modes);
}

/// Changes the modes, in the background too, where the kernel would otherwise stop this process.
fn set(modes: &Termios) -> io::Result<()> {
    let mut blocked = SigSet::empty();
    blocked.add(Signal::SIGTTOU);
    let before = blocked.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK)?;
    let done = tcsetattr(io::stdin().as_fd(), SetArg::TCSANOW, modes);
    before.thread_set_mask()?;
    Ok(done?)
}

/// What is saved; a panic in another thread does not make it less true.
fn saved() -> std::sync::MutexGuard<'static, Option<Saved>> {
    SAVED.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
