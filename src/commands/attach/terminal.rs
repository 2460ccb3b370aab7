//! The local terminal: raw while attached, and as it was before on every way out.
//!
//! Invariant: from the moment it is raw, [`restore`] is called before this process ends, be it by
//! its end, a signal, or a panic in any thread. Calling it twice does no harm. While the screen is not
//! the app's, nothing of the app is shown, and nothing is lost.

use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::termios::{
    FlushArg, LocalFlags, SetArg, Termios, cfmakeraw, tcflush, tcgetattr, tcsetattr,
};
use rustix::termios::tcgetwinsize;

use super::filter::{Filter, Pass};
use super::undo::Undo;
use crate::os::diagnostics::say_on_screen;
use crate::types::stream::Stream;
use crate::types::{escape, limits};
use crate::wire::Size;

/// Those to be put back, and those until then. Locked for moments only.
static MODES: Mutex<Option<SavedTermios>> = Mutex::new(None);
/// Locked while something is written there, which may take as long as the terminal does.
static SCREEN: Mutex<TerminalScreen> = Mutex::new(TerminalScreen {
    undo: None,
    filter: None,
    owner: ScreenOwner::App,
    note: String::new(),
});
/// Tells those who wait for it that the screen is the app's again.
static BACK: Condvar = Condvar::new();
/// Whether somebody waits for the screen: who shows a flood of output lets go of it for a moment.
static WANTED: AtomicBool = AtomicBool::new(false);
/// Whether everything is being put back for good. Who has locked the screen and finds it false
/// comes first.
static OVER: AtomicBool = AtomicBool::new(false);
/// Whether standard output and standard error are terminals.
static TERMINALS: OnceLock<[bool; 2]> = OnceLock::new();

/// The modes of the terminal.
#[derive(Clone)]
struct SavedTermios {
    before: Termios,
    raw: Termios,
    /// Whether what nobody has read when they are put back was typed for whoever comes then.
    keeps_typed: bool,
}

/// What is known of the screen.
struct TerminalScreen {
    /// What the app has changed on it, where its output goes to a terminal.
    undo: Option<Undo>,
    /// What keeps strings of the app away from it, whichever stream they come by: those of a terminal
    /// that shows both may be cut anywhere.
    filter: Option<(Filter, Vec<u8>)>,
    owner: ScreenOwner,
    /// What wipes away our lines among the app's, as long as they are where they were written.
    note: String,
}

/// Whose the screen is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScreenOwner {
    App,
    /// Ours, on the alternate screen.
    Page,
    /// The shell's, from which attach was started.
    Shell,
}

/// Bytes written to the terminal under one lock: few, so that a slow one can be put back soon.
const PIECE: usize = 4096;
/// Pause between two looks at the lock of the screen, where nothing tells that it is free.
const LOOK: Duration = Duration::from_millis(5);

/// The window of the local terminal, if there is one with a size.
pub(crate) fn size() -> Option<Size> {
    let size = tcgetwinsize(io::stdin()).or_else(|_| tcgetwinsize(io::stdout())).ok()?;
    (size.ws_row > 0 && size.ws_col > 0).then_some(Size { rows: size.ws_row, cols: size.ws_col })
}

/// Notes from now on what the app changes on the terminal on standard output, to undo it; whether there
/// is one.
pub(crate) fn watch_screen() -> bool {
    let is_terminal = io::stdout().is_terminal();
    lock(&SCREEN).undo = is_terminal.then(Undo::default);
    is_terminal
}

/// Lets only these strings of the app reach a terminal on standard output or standard error.
pub(crate) fn filter(pass: Pass) {
    let terminals = [io::stdout().is_terminal(), io::stderr().is_terminal()];
    let terminals = TERMINALS.get_or_init(|| terminals);
    lock(&SCREEN).filter = terminals.contains(&true).then(|| (Filter::new(pass), Vec::new()));
}

/// Whether a stream of the app goes to a terminal.
pub(crate) fn shows(stream: Stream) -> bool {
    let [stdout, stderr] = *TERMINALS.get_or_init(Default::default);
    if stream == Stream::Stderr { stderr } else { stdout }
}

/// Makes the terminal on standard input raw; whether there is one. For who only looks, ^C and the like
/// stay signals for this process, and what is typed is nobody's, also what has not been read at the end.
pub(crate) fn make_raw(types: bool) -> io::Result<bool> {
    if !io::stdin().is_terminal() {
        return Ok(false);
    }
    let before = tcgetattr(io::stdin())?;
    let mut raw = before.clone();
    cfmakeraw(&mut raw);
    raw.local_flags.set(LocalFlags::ISIG, !types);
    // Saved before it is changed: from here on every way out puts it back.
    *lock(&MODES) = Some(SavedTermios { before, raw: raw.clone(), keeps_typed: types });
    take(&raw)?;
    Ok(true)
}

/// Makes it raw again, if it was, and the screen the app's, after [`suspend`] or [`page`], but not after
/// [`restore`]. What the app had on the screen is not put back.
pub(crate) fn resume() -> io::Result<()> {
    let modes = lock(&MODES).clone();
    if let Some(SavedTermios { raw, .. }) = modes {
        take(&raw)?;
    }
    hand_over(ScreenOwner::App, "");
    Ok(())
}

/// Shows a page of our own in place of what the app has on the screen, until [`resume`]; whether the
/// terminal takes it. The main screen is behind it, as it was.
pub(crate) fn page(text: &str) -> bool {
    hand_over(ScreenOwner::Page, text)
}

/// Shows a line on the last row of the app's full screen, whose cursor stays where it is; whether there
/// is such a screen. Elsewhere a line can be told as usual, and stays.
pub(crate) fn note(line: &str) -> bool {
    write_note(true, |Size { rows, cols }| {
        // The last column stays free: what is written there may go on in the next row.
        let line: String = escape::line(line).chars().take(usize::from(cols) - 1).collect();
        (format!("\x1b[{rows};1H{line}\x1b[0m\x1b[K"), String::new())
    })
}

/// Shows lines at the top right, where a prompt is least, or the last one on the last row of a full screen, for a while:
/// whoever calls this has the screen drawn again. Each is cut to its row. Whether it was shown.
pub(crate) fn greet(lines: &[String]) -> bool {
    let lines: Vec<String> = lines.iter().map(|line| format!("iottymux: {line}")).collect();
    lines.last().is_some_and(|line| note(line))
        || write_note(false, |Size { rows, cols }| {
            let (mut out, mut wipe) = (String::new(), String::new());
            for (row, line) in (1..rows).zip(&lines) {
                let line: String = escape::line(line).chars().take(usize::from(cols) - 1).collect();
                let len = line.chars().count();
                let place = format!("\x1b[{row};{}H", usize::from(cols) - len);
                // Writing into a string does not fail.
                let _ = write!(wipe, "{place}\x1b[{len}X");
                let _ = write!(out, "{place}{line}");
            }
            (out, wipe)
        })
}

/// Tells something on a line of its own, behind what the app has shown.
pub(crate) fn say(line: &str) {
    let until = Instant::now() + limits::STUCK;
    let screen = lock_between(until);
    let undo = screen.as_ref().and_then(|screen| screen.undo.as_ref());
    let undo = undo.filter(|_| io::stderr().is_terminal() && !OVER.load(Ordering::Relaxed));
    write_soon(undo.map_or("", Undo::end).as_bytes(), until);
    say_on_screen(line);
    write_soon(&undo.map(Undo::begun).unwrap_or_default(), until);
}

/// Writes a text of ours on the app's screen, in a look of its own, if that is a `full` one as is wanted. The
/// second text is what wipes it away.
fn write_note(full: bool, text: impl Fn(Size) -> (String, String)) -> bool {
    // Cursor, colours, character set and origin are saved and restored together.
    let aside =
        |look: &str, text: &str| format!("\x1b7\x1b[?6l\x1b[{look}m\x1b(B\x0f{text}\x1b[0m\x1b8");
    let until = Instant::now() + limits::STUCK;
    let Some(mut screen) = lock_between(until) else { return false };
    let is_apps = screen.owner == ScreenOwner::App && !OVER.load(Ordering::Relaxed);
    let Some(undo) = &screen.undo else { return false };
    let is_wanted = is_apps && undo.is_full_screen() == full;
    let Some(size) = size().filter(|_| is_wanted) else { return false };
    let (text, wipe) = text(size);
    let text = format!("{}{}", undo.end(), aside("0;7", &text));
    let written = write_soon(&[text.as_bytes(), &undo.begun()].concat(), until);
    if written && !wipe.is_empty() {
        screen.note = aside("0", &wipe);
    }
    written
}

/// Shows bytes of a stream by `write`. Strings that may not pass are left out. The modes of the app's terminal
/// are noted first, and once all has been put back nothing is shown any more: what the app does then must not
/// reach the shell's terminal. Returns whether lines of ours were wiped away, which would have moved with the app's.
pub(crate) fn show(
    stream: Stream,
    bytes: &[u8],
    write: impl Fn(&[u8]) -> io::Result<()>,
) -> io::Result<bool> {
    let mut wiped = false;
    let is_filtered = shows(stream);
    for piece in bytes.chunks(PIECE) {
        let mut screen = lock(&SCREEN);
        loop {
            if OVER.load(Ordering::Relaxed) {
                return Ok(wiped);
            }
            screen = if screen.owner != ScreenOwner::App {
                BACK.wait(screen).unwrap_or_else(PoisonError::into_inner)
            } else if WANTED.load(Ordering::Relaxed) {
                BACK.wait_timeout(screen, LOOK).unwrap_or_else(PoisonError::into_inner).0
            } else {
                break;
            };
        }
        let TerminalScreen { undo, note, filter, .. } = &mut *screen;
        let passed = match filter.as_mut().filter(|_| is_filtered) {
            Some((filter, memory)) => filter.read(piece, memory),
            None => piece,
        };
        if let Some(undo) = undo.as_mut().filter(|_| stream == Stream::Tty) {
            if !note.is_empty() {
                // The screen is drawn anew, which begins so.
                if piece.contains(&0x18) {
                    note.clear();
                } else if piece.contains(&b'\n') {
                    let wipe = std::mem::take(note);
                    write(&[undo.end().as_bytes(), wipe.as_bytes(), &undo.begun()].concat())?;
                    wiped = true;
                }
            }
            undo.read(passed);
            // Under the lock, so that it does not come after what undoes it.
            write(passed)?;
        } else if is_filtered {
            write(passed)?;
        } else {
            drop(screen);
            write(piece)?;
        }
    }
    Ok(wiped)
}

/// Puts everything back for a while; see [`resume`].
pub(crate) fn suspend() {
    hand_over(ScreenOwner::Shell, "");
    if let Some(modes) = lock(&MODES).as_ref() {
        let _ = put_back(modes);
    }
}

/// Puts everything back for good.
pub(crate) fn restore() {
    // First, so that a flood of output does not keep this waiting for the screen.
    OVER.store(true, Ordering::Relaxed);
    hand_over(ScreenOwner::Shell, "");
    if let Some(modes) = lock(&MODES).take() {
        let _ = put_back(&modes);
    }
}

/// Has a panic in any thread put everything back before it is reported.
pub(crate) fn restore_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        restore();
        report(info);
    }));
}

/// Undoes what the app has changed on the screen, if it has it.
pub(crate) fn undo_modes() {
    let until = Instant::now() + limits::STUCK;
    if let Some(mut screen) = lock_soon(until).filter(|screen| screen.owner == ScreenOwner::App) {
        let undone = screen.undo.as_ref().map(Undo::sequence).unwrap_or_default();
        if write_soon(&undone, until) {
            screen.undo.iter_mut().for_each(Undo::forget);
        }
        restore_title(&mut screen, until);
        screen.undo.iter_mut().for_each(Undo::break_off);
        screen.filter.iter_mut().for_each(|(filter, _)| filter.break_off());
    }
}

/// Makes the screen somebody's, with this text on it, and undoes what who had it before has changed
/// there; whether the terminal takes that.
fn hand_over(to: ScreenOwner, text: &str) -> bool {
    let until = Instant::now() + limits::STUCK;
    let Some(mut screen) = lock_soon(until) else { return false };
    if to != ScreenOwner::Shell && OVER.load(Ordering::Relaxed) {
        return false;
    }
    let mut out = match (screen.owner, to) {
        (ScreenOwner::Page, ScreenOwner::Page)
        | (ScreenOwner::Shell, ScreenOwner::Shell)
        | (ScreenOwner::App, ScreenOwner::App) => Vec::new(),
        (ScreenOwner::App, _) => {
            let undone = screen.undo.as_ref().map(Undo::sequence).unwrap_or_default();
            [std::mem::take(&mut screen.note).into_bytes(), undone].concat()
        }
        (ScreenOwner::Page, _) => b"\x1b[?1049l".to_vec(),
        (ScreenOwner::Shell, _) => Vec::new(),
    };
    if to == ScreenOwner::Page {
        if screen.owner != to {
            out.extend_from_slice(b"\x1b[?1049h");
        }
        out.extend_from_slice(b"\x1b[2J\x1b[H");
        out.extend_from_slice(text.as_bytes());
    }
    let done = write_soon(&out, until);
    if to == ScreenOwner::Shell {
        restore_title(&mut screen, until);
    }
    if let Some(undo) = screen.undo.as_mut().filter(|_| done && to != ScreenOwner::App) {
        undo.forget();
    }
    if done || to != ScreenOwner::Page {
        screen.owner = to;
    }
    BACK.notify_all();
    done
}

/// Puts back the title from before attach, if the app has set one.
fn restore_title(screen: &mut TerminalScreen, until: Instant) {
    let Some((filter, _)) = &mut screen.filter else { return };
    let title = filter.undo();
    let restored = if shows(Stream::Stdout) {
        write_soon(title.as_bytes(), until)
    } else {
        write_to(&io::stderr(), title.as_bytes(), until)
    };
    if restored {
        filter.forget();
    }
}

/// The screen, between two characters or sequences of the app; in the middle of one, if that does not end
/// soon, or is the last that it has printed.
fn lock_between(until: Instant) -> Option<MutexGuard<'static, TerminalScreen>> {
    let hold = until.min(Instant::now() + limits::NOTE_HOLD);
    loop {
        let screen = lock_soon(until)?;
        let is_whole = screen.undo.as_ref().is_none_or(Undo::is_whole);
        if is_whole || screen.owner != ScreenOwner::App || Instant::now() >= hold {
            return Some(screen);
        }
        drop(screen);
        thread::sleep(LOOK);
    }
}

/// The screen, unless somebody is stuck in writing to it.
fn lock_soon(until: Instant) -> Option<MutexGuard<'static, TerminalScreen>> {
    WANTED.store(true, Ordering::Relaxed);
    let screen = loop {
        match SCREEN.try_lock() {
            Ok(screen) => break Some(screen),
            Err(TryLockError::Poisoned(screen)) => break Some(screen.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() < until => thread::sleep(LOOK / 2),
            Err(TryLockError::WouldBlock) => break None,
        }
    };
    WANTED.store(false, Ordering::Relaxed);
    screen
}

/// Writes to the terminal, if it takes anything by then.
fn write_soon(bytes: &[u8], until: Instant) -> bool {
    write_to(&io::stdout(), bytes, until)
}

/// As [`write_soon`], to this descriptor.
fn write_to(out: &impl AsFd, bytes: &[u8], until: Instant) -> bool {
    let left = until.saturating_duration_since(Instant::now());
    let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
    // A terminal that is gone needs nothing.
    bytes.is_empty()
        || matches!(poll(&mut [PollFd::new(out.as_fd(), PollFlags::POLLOUT)], timeout), Ok(1..))
            && nix::unistd::write(out, bytes).is_ok()
}

/// Changes the modes. In the background this stops us, until a person wants us in front: the terminal
/// is somebody else's.
fn take(modes: &Termios) -> io::Result<()> {
    loop {
        match tcsetattr(io::stdin().as_fd(), SetArg::TCSANOW, modes) {
            Err(Errno::EINTR) => {}
            done => return Ok(done?),
        }
    }
}

/// Changes the modes, in the background too, where the kernel would otherwise stop this process.
fn put_back(modes: &SavedTermios) -> io::Result<()> {
    let mut blocked = SigSet::empty();
    blocked.add(Signal::SIGTTOU);
    let mask = blocked.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK)?;
    if !modes.keeps_typed {
        let _ = tcflush(io::stdin().as_fd(), FlushArg::TCIFLUSH);
    }
    let done = tcsetattr(io::stdin().as_fd(), SetArg::TCSANOW, &modes.before);
    mask.thread_set_mask()?;
    Ok(done?)
}

/// What is kept; a panic in another thread does not make it less true.
fn lock<T>(kept: &Mutex<T>) -> MutexGuard<'_, T> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests run in processes of their own.
    #[test]
    fn a_panic_in_any_thread_puts_everything_back() {
        restore_on_panic();
        assert!(!OVER.load(Ordering::Relaxed));
        #[allow(clippy::panic, reason = "what is tested")]
        let broken = thread::spawn(|| panic!("as asked"));
        assert!(broken.join().is_err());
        assert!(OVER.load(Ordering::Relaxed));
        assert_eq!(lock(&SCREEN).owner, ScreenOwner::Shell);
    }
}
