//! The local terminal: raw while attached, and as it was before on every way out.
//!
//! Invariant: from the moment it is raw, [`restore`] is called before this process ends, be it by
//! its end, a signal, or a panic in any thread. Calling it twice does no harm.

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use rustix::termios::tcgetwinsize;

use super::undo::Undo;
use crate::limits;
use crate::proto::Size;

/// The modes to be put back. Locked for moments only.
static MODES: Mutex<Option<Termios>> = Mutex::new(None);
/// What the app has changed on the screen, where its output goes to a terminal. Locked while
/// something is written there, which may take as long as the terminal does.
static SCREEN: Mutex<Option<Undo>> = Mutex::new(None);
/// Whether everything is being put back for good. Who has locked the screen and finds it false
/// comes first.
static OVER: AtomicBool = AtomicBool::new(false);

/// Bytes written to the terminal under one lock: few, so that a slow one can be put back soon.
const PIECE: usize = 4096;
/// Pause between two looks at the lock of the screen, where nothing tells that it is free.
const LOOK: Duration = Duration::from_millis(5);

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
    // Saved before it is changed: from here on every way out puts it back.
    *lock(&SCREEN) = io::stdout().is_terminal().then(Undo::default);
    *lock(&MODES) = Some(modes);
    set(&raw)?;
    Ok(true)
}

/// Makes it raw again after [`suspend`].
///
/// # Errors
/// Those of tcsetattr(3).
pub fn resume() -> io::Result<()> {
    let Some(mut raw) = lock(&MODES).clone() else { return Ok(()) };
    cfmakeraw(&mut raw);
    set(&raw)
}

/// Shows bytes of the app's terminal by `write`. Its modes are noted first, and once all has been
/// put back nothing is shown any more: what the app does then must not reach the shell's terminal.
///
/// # Errors
/// Those of `write`.
pub fn show(bytes: &[u8], write: impl Fn(&[u8]) -> io::Result<()>) -> io::Result<()> {
    for piece in bytes.chunks(PIECE) {
        let mut screen = lock(&SCREEN);
        if OVER.load(Ordering::Relaxed) {
            return Ok(());
        }
        if let Some(undo) = screen.as_mut() {
            undo.read(piece);
            // Under the lock, so that it does not come after what undoes it.
            write(piece)?;
        } else {
            drop(screen);
            write(piece)?;
        }
    }
    Ok(())
}

/// Puts everything back for a while; see [`resume`].
pub fn suspend() {
    undo_modes();
    if let Some(modes) = lock(&MODES).as_ref() {
        let _ = set(modes);
    }
}

/// Puts everything back for good.
pub fn restore() {
    // First, so that a flood of output does not keep this waiting for the screen.
    OVER.store(true, Ordering::Relaxed);
    undo_modes();
    if let Some(modes) = lock(&MODES).take() {
        let _ = set(&modes);
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

/// Undoes what the app has changed on the screen, unless the terminal takes nothing.
pub fn undo_modes() {
    let until = Instant::now() + limits::STUCK;
    let screen = loop {
        match SCREEN.try_lock() {
            Ok(screen) => break screen,
            Err(TryLockError::Poisoned(screen)) => break screen.into_inner(),
            Err(TryLockError::WouldBlock) if Instant::now() < until => thread::sleep(LOOK),
            // Somebody is stuck in writing to it.
            Err(TryLockError::WouldBlock) => return,
        }
    };
    let Some(undo) = screen.as_ref() else { return };
    let out = io::stdout();
    let left = until.saturating_duration_since(Instant::now());
    let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
    if let Ok(1..) = poll(&mut [PollFd::new(out.as_fd(), PollFlags::POLLOUT)], timeout) {
        // A terminal that is gone needs nothing undone.
        let _ = nix::unistd::write(&out, &undo.sequence());
    }
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

/// What is kept; a panic in another thread does not make it less true.
fn lock<T>(kept: &Mutex<T>) -> MutexGuard<'_, T> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}
