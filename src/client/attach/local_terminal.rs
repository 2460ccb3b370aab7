//! The local terminal: raw while attached, and restored on every way out.
//!
//! Invariant: from the moment it is raw, [`restore`] is called before this process ends, be it by
//! its end, a signal, or a panic in any thread. Calling it twice is harmless. After it no output of
//! the app is shown.

use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use memchr::memmem;
use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::unistd::getpgrp;
use rustix::io::{Errno, ioctl_fionread};
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, Winsize,
    tcflush, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr,
};

use super::keys::Keys;
use super::mark;
use crate::screen::filter::{Filter, Pass};
use crate::screen::restore::Restorer;
use crate::sys::diagnostics::say_on_screen;
use crate::sys::print::write_all;
use crate::sys::ready;
use crate::types::size::{Size, Window};
use crate::types::stream::Stream;
use crate::types::{escape, limits};

/// How long a line of ours waits for the end of the app's current sequence. Mostly the rest comes
/// with the next write; otherwise it continues behind the line.
const NOTE_HOLD: Duration = Duration::from_millis(50);

/// Replies of the terminal to the app are expected for so long: a mux waits for them no longer.
const REPLY: Duration = Duration::from_secs(5);
/// How long attach waits for them at its end, at most: the way to a terminal and back may take a second.
const REPLY_WAIT: Duration = Duration::from_millis(1400);
/// Replies behind the first one that attach waits for come within this time.
const REPLY_PAUSE: Duration = Duration::from_millis(30);
/// What a special code of a terminal is if no key is to have it.
const NO_KEY: u8 = 0;
/// A query that every terminal knows (DSR), and its reply.
const ASK: &[u8] = b"\x1b[5n";
const REPLIED: &[u8] = b"\x1b[0n";

/// The modes of the terminal before and during attach. Locked for moments only.
static MODES: Mutex<Option<SavedTermios>> = Mutex::new(None);
/// Locked while something is written to the screen, which may take as long as the terminal does.
static SCREEN: ScreenLock = ScreenLock {
    screen: Mutex::new(TerminalScreen {
        restorer: None,
        filter: None,
        has_text: false,
        wipe_notice: Vec::new(),
        has_last_row: false,
        asked_at: None,
    }),
    is_wanted: AtomicBool::new(false),
    is_inside_line: AtomicBool::new(false),
};
/// Set when everything is restored for good. No output is shown after that.
static RESTORED: AtomicBool = AtomicBool::new(false);
/// Which of the standard descriptors were terminals at the start. A terminal that has hung up no
/// longer answers that, and would be taken for a pipe without a reader, or for an input that ends.
static TERMINALS: OnceLock<Terminals> = OnceLock::new();

/// See [`terminals`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terminals {
    pub(crate) stdin: bool,
    pub(crate) stdout: bool,
    pub(crate) stderr: bool,
}

#[derive(Clone)]
struct SavedTermios {
    before: Termios,
    raw: Termios,
    /// Input that is unread when the modes are restored stays for the next reader.
    keeps_unread: bool,
    /// Of a terminal that edits lines: the modes for reading single keys.
    single_keys: Option<Termios>,
    /// Whether these are set.
    reads_keys: bool,
}

/// The keys that stop and resume output at a terminal, unless that is switched off.
const FLOW_KEYS: [u8; 2] = [0x11, 0x13];

/// The screen, which a flood of the app's output lets go of as soon as another thread wants it.
struct ScreenLock {
    screen: Mutex<TerminalScreen>,
    /// Set while another thread waits for it.
    is_wanted: AtomicBool,
    /// The last line, of the app or typed, has no end yet. Beside the lock, since who types does not
    /// wait for a slow terminal.
    is_inside_line: AtomicBool,
}

struct TerminalScreen {
    /// Undoes the changes of the app, where its terminal output goes to a terminal.
    restorer: Option<Restorer>,
    /// Drops strings of all streams of the app: a terminal that shows both standard streams may get
    /// a string in parts. Has memory for the output.
    filter: Option<(Filter, Vec<u8>)>,
    /// It shows text from before attach.
    has_text: bool,
    /// Wipes away the lines that lie over the app's output, as long as the output has not moved.
    wipe_notice: Vec<u8>,
    /// A line lies on the last row of a full screen, where the app may draw.
    has_last_row: bool,
    /// When the app last asked the terminal something.
    asked_at: Option<Instant>,
}

/// Bytes written to the terminal under one lock: few, so that a slow terminal is restored soon.
const CHUNK: usize = 4096;
/// Pause between two attempts to get the screen.
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// The window of the local terminal, if there is one with a size. The mux takes no pixels that cannot be.
pub(crate) fn window() -> Option<Window> {
    let size = tcgetwinsize(io::stdin()).or_else(|_| tcgetwinsize(io::stdout())).ok()?;
    let Winsize { ws_row: rows, ws_col: cols, ws_xpixel: width, ws_ypixel: height } = size;
    (rows > 0 && cols > 0).then_some(Window { rows, cols, width, height })
}

/// The same in characters.
fn size() -> Option<Size> {
    window().map(Window::size)
}

/// Whether the terminal understands no escape sequences.
pub(crate) fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|name| name == "dumb")
}

/// Records the app's changes to the terminal on standard output from now on. Returns whether there
/// is one that can be changed.
pub(crate) fn watch_screen() -> bool {
    let is_terminal = is_terminal(Stream::Stdout) && !is_dumb();
    let mut screen = lock(&SCREEN.screen);
    screen.restorer = is_terminal.then(Restorer::default);
    screen.has_text = is_terminal;
    is_terminal
}

/// Lets only these strings of the app reach a terminal on standard output or standard error.
pub(crate) fn filter(pass: Pass) {
    let Terminals { stdout, stderr, .. } = terminals();
    let filter = || if is_dumb() { Filter::of_text() } else { Filter::new(pass) };
    lock(&SCREEN.screen).filter = (stdout || stderr).then(|| (filter(), Vec::new()));
}

/// Which standard descriptors are terminals. The first call decides, which must come before the
/// terminal can go.
pub(crate) fn terminals() -> Terminals {
    *TERMINALS.get_or_init(|| Terminals {
        stdin: io::stdin().is_terminal(),
        stdout: io::stdout().is_terminal(),
        stderr: io::stderr().is_terminal(),
    })
}

/// Whether a terminal of ours is gone: its window was closed, or its line has hung up.
pub(crate) fn is_gone() -> bool {
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    let were = terminals();
    // No event is asked for: poll always reports a hangup. A pipe without a writer has one, too.
    let mut fds: Vec<_> =
        [(stdin.as_fd(), were.stdin), (stdout.as_fd(), were.stdout), (stderr.as_fd(), were.stderr)]
            .into_iter()
            .filter(|(_, was)| *was)
            .map(|(fd, _)| PollFd::new(fd, PollFlags::empty()))
            .collect();
    let has_hung_up =
        |fd: &PollFd<'_>| fd.revents().is_some_and(|e| e.contains(PollFlags::POLLHUP));
    ready::wait(&mut fds, Some(Duration::ZERO)).is_ok() && fds.iter().any(has_hung_up)
}

/// Whether a stream of the app goes to a terminal.
pub(crate) fn is_terminal(stream: Stream) -> bool {
    let Terminals { stdout, stderr, .. } = terminals();
    if stream == Stream::Stderr { stderr } else { stdout }
}

/// Makes the terminal on standard input raw. Returns how much was typed while it edited lines,
/// `None` if there is no terminal. For a read-only client, ^C and ^\ stay signals for this process,
/// and typed input is dropped, also unread input at the end.
pub(crate) fn make_raw(types: bool) -> io::Result<Option<usize>> {
    if !terminals().stdin {
        return Ok(None);
    }
    let before = tcgetattr(io::stdin())?;
    let mut raw = before.clone();
    raw.make_raw();
    raw.local_modes.set(LocalModes::ISIG, !types);
    raw.special_codes[SpecialCodeIndex::VSUSP] = NO_KEY;
    let edited_lines = before.local_modes.contains(LocalModes::ICANON);
    // Saved before the change: from here on every way out restores it.
    save(before, raw.clone(), types, None);
    set_modes(&raw)?;
    let early = if edited_lines { ioctl_fionread(io::stdin())? } else { 0 };
    Ok(Some(usize::try_from(early).unwrap_or(0)))
}

/// What was typed before the terminal was raw, as the keys that it was: a terminal that edits lines
/// has made line ends of Enter, and marked the place of ^D.
pub(crate) fn restore_keys(typed: &mut [u8]) {
    for byte in typed {
        match *byte {
            b'\n' => *byte = b'\r',
            0 => *byte = 0x04,
            _ => {}
        }
    }
}

/// Another program in front of the terminal will change its modes, which [`restore`] then undoes.
pub(crate) fn save_modes() {
    if is_in_front()
        && let Ok(before) = tcgetattr(io::stdin())
    {
        save(before.clone(), before, true, None);
    }
}

fn save(before: Termios, raw: Termios, keeps_unread: bool, single_keys: Option<Termios>) {
    let modes = SavedTermios { before, raw, keeps_unread, single_keys, reads_keys: false };
    *lock(&MODES) = Some(modes);
}

fn is_in_front() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|group| group.as_raw_pid() == getpgrp().as_raw())
}

/// Has the terminal on standard input pass on the first key of each sequence at once, though it
/// edits lines. What is typed before that key comes with it.
pub(crate) fn watch_keys(keys: &Keys) -> io::Result<()> {
    let before = tcgetattr(io::stdin())?;
    let mut lines = before.clone();
    if let Some(key) = keys.first() {
        lines.special_codes[SpecialCodeIndex::VEOL] = key;
    }
    if keys.have(&FLOW_KEYS) {
        lines.input_modes.remove(InputModes::IXON);
    }
    let mut single = lines.clone();
    single.local_modes.remove(LocalModes::ICANON);
    single.special_codes[SpecialCodeIndex::VMIN] = 1;
    single.special_codes[SpecialCodeIndex::VTIME] = 0;
    save(before, lines.clone(), true, Some(single));
    set_modes(&lines)
}

/// Has a terminal that edits lines pass on each key at once, or whole lines again.
pub(crate) fn read_keys(single: bool) -> io::Result<()> {
    let modes = match lock(&MODES).as_mut() {
        Some(SavedTermios { single_keys: Some(keys), raw, reads_keys, .. })
            if *reads_keys != single =>
        {
            *reads_keys = single;
            if single { keys.clone() } else { raw.clone() }
        }
        _ => return Ok(()),
    };
    set_modes(&modes)
}

/// Sets the modes again that [`make_raw`] or [`watch_keys`] have set, though not after [`restore`]:
/// while this process was stopped, a shell may have changed them.
pub(crate) fn set_up_again() -> io::Result<()> {
    let raw = lock(&MODES).as_mut().map(|modes| {
        modes.reads_keys = false;
        modes.raw.clone()
    });
    raw.map_or(Ok(()), |raw| set_modes(&raw))
}

/// Shows a line on the last row of the app's full screen, and leaves the cursor in its place.
/// Returns whether there is such a screen; elsewhere [`print_line`] shows a line that stays.
pub(crate) fn show_on_last_row(line: &str) -> bool {
    write_overlay(true, |Size { rows, cols }| {
        let line = cut(line, cols);
        (format!("\x1b[{rows};1H{line}\x1b[0m\x1b[K"), String::new())
    })
}

/// Shows lines at the right in the middle, or the last line on the last row of a full screen. In the
/// middle they rarely hide a prompt, and a redraw has removed them before they scroll off. The caller
/// redraws the screen later. Returns whether they were shown.
pub(crate) fn show_over_output(lines: &[String]) -> bool {
    let lines: Vec<String> = lines.iter().map(|line| format!("iottymux: {line}")).collect();
    lines.last().is_some_and(|line| show_on_last_row(line))
        || write_overlay(false, |Size { rows, cols }| {
            let (mut out, mut wipe) = (String::new(), String::new());
            let below = rows.div_ceil(2)..rows;
            // The newest ones, if there is no room for all.
            let lines = &lines[lines.len().saturating_sub(below.len())..];
            for (row, line) in below.zip(lines) {
                let line = cut(line, cols);
                let len = line.chars().count();
                let go = format!("\x1b[{row};{}H", usize::from(cols) - len);
                // Writing into a string does not fail.
                let _ = write!(wipe, "{go}\x1b[{len}X");
                let _ = write!(out, "{go}{line}");
            }
            (out, wipe)
        })
}

/// A line for one row. The last column stays free: a terminal may wrap after it.
fn cut(line: &str, cols: u16) -> String {
    escape::line(line).chars().take(usize::from(cols) - 1).collect()
}

/// Prints a line of its own after the app's output.
pub(crate) fn print_line(line: &str) {
    let until = Instant::now() + limits::STUCK;
    let screen = lock_between_sequences(until);
    let restorer = screen.as_ref().and_then(|screen| screen.restorer.as_ref());
    let restorer = restorer.filter(|_| is_terminal(Stream::Stderr));
    let is_screen = restorer.is_some();
    let restorer = restorer.filter(|_| !is_restored());
    write_soon(restorer.map_or("", Restorer::terminator).as_bytes(), until);
    say_on_screen(line, SCREEN.is_inside_line.swap(false, Ordering::Relaxed), is_screen);
    write_soon(restorer.map(Restorer::unfinished).unwrap_or_default(), until);
}

/// Writes text over the app's output, if that is a full screen as `full` asks for. The second text
/// wipes the first one away.
fn write_overlay(full: bool, text: impl Fn(Size) -> (String, String)) -> bool {
    // ESC 7 and ESC 8 save and restore cursor, colours, character set and origin together.
    let overlay =
        |look: &str, text: &str| format!("\x1b7\x1b[?6l\x1b[{look}m\x1b(B\x0f{text}\x1b[0m\x1b8");
    let until = Instant::now() + limits::STUCK;
    let Some(mut screen) = lock_between_sequences(until) else { return false };
    let Some(restorer) = &screen.restorer else { return false };
    if is_restored() || restorer.is_full_screen() != full {
        return false;
    }
    // A serial line or `ssh -tt` of cron has no size: a terminal behind it has rarely less.
    let (text, wipe) = text(size().unwrap_or(Size::DEFAULT));
    let look = format!("0;7{}", mark::mark());
    let written = write_soon(&restorer.insert(overlay(&look, &text).as_bytes()), until);
    if written {
        screen.has_last_row = full;
        if !wipe.is_empty() {
            screen.wipe_notice = overlay("0", &wipe).into_bytes();
        }
    }
    written
}

/// Writes output of the app, without refused strings. Changes to the terminal are recorded before
/// they are made. After [`restore`] nothing is shown: it would reach the shell's terminal. Returns
/// whether lines over the output were wiped away, which would have moved with the output or been
/// mixed with it.
pub(crate) fn write_output(stream: Stream, bytes: &[u8]) -> io::Result<bool> {
    let write = |bytes: &[u8]| match stream {
        Stream::Stderr => write_all(&io::stderr(), bytes),
        _ => write_all(&io::stdout(), bytes),
    };
    if !is_terminal(stream) {
        return write(bytes).map(|()| false);
    }
    let mut wiped = false;
    for chunk in bytes.chunks(CHUNK) {
        let Some(mut screen) = lock_for_output() else { return Ok(wiped) };
        let TerminalScreen { restorer, wipe_notice, has_last_row, filter, asked_at, .. } =
            &mut *screen;
        let passed = match filter {
            Some((filter, memory)) => filter.read(chunk, memory),
            None => chunk,
        };
        if let Some(restorer) = restorer.as_mut().filter(|_| stream == Stream::Tty) {
            if chunk.contains(&0x18) {
                // A redraw begins with this byte and wipes everything.
                wipe_notice.clear();
                *has_last_row = false;
            } else if std::mem::take(has_last_row) {
                // Whatever the app draws there, the line is drawn again whole.
                wiped = true;
            } else if !wipe_notice.is_empty() && moves_output(chunk) {
                write(&restorer.insert(&std::mem::take(wipe_notice)))?;
                wiped = true;
            }
            restorer.observe(passed);
            if restorer.take_asked() {
                *asked_at = Some(Instant::now());
            }
        }
        // First, since who sees it may type behind it at once.
        if let Some(last) = passed.last() {
            SCREEN.is_inside_line.store(*last != b'\n', Ordering::Relaxed);
        }
        // Under the lock, so that it does not come after what undoes it.
        write(passed)?;
    }
    Ok(wiped)
}

/// The beginning of a line was typed and echoed.
pub(crate) fn begin_line() {
    SCREEN.is_inside_line.store(true, Ordering::Relaxed);
}

/// Scrolls text that is not the app's off the screen, before a redraw clears it. All rows are
/// scrolled: there may be text below the cursor.
pub(crate) fn keep_text() -> io::Result<()> {
    let Some(mut screen) = lock_for_output() else { return Ok(()) };
    if !std::mem::take(&mut screen.has_text) {
        return Ok(());
    }
    let rows = size().map_or(0, |size| size.rows);
    write_all(&io::stdout(), format!("\x1b[{rows}H{}", "\n".repeat(rows.into())).as_bytes())
}

/// Whether this output may move what is on the screen, or change to the other screen, which would
/// keep our lines on this one.
fn moves_output(chunk: &[u8]) -> bool {
    const OTHER_SCREEN: [&[u8]; 2] = [b"47h", b"49h"];
    let has = |ends: &[u8]| chunk.windows(ends.len()).any(|part| part == ends);
    chunk.contains(&b'\n') || OTHER_SCREEN.into_iter().any(has)
}

/// Locks the screen for output of the app; `None` when everything is restored.
fn lock_for_output() -> Option<MutexGuard<'static, TerminalScreen>> {
    loop {
        let screen = lock(&SCREEN.screen);
        if is_restored() {
            return None;
        }
        if !SCREEN.is_wanted.load(Ordering::Relaxed) {
            return Some(screen);
        }
        drop(screen);
        thread::sleep(LOCK_PAUSE);
    }
}

/// Whether the app uses the alternate screen.
pub(crate) fn is_full_screen() -> bool {
    let screen = lock_soon(Instant::now() + limits::STUCK);
    screen.is_some_and(|screen| screen.restorer.as_ref().is_some_and(Restorer::is_full_screen))
}

/// Restores everything for good.
pub(crate) fn restore() {
    // First, so that a flood of output does not keep the screen.
    RESTORED.store(true, Ordering::Relaxed);
    restore_screen();
    // Behind a program that was moved to the background is another one in front.
    if let Some(modes) = lock(&MODES).take()
        && (!modes.keeps_unread || is_in_front())
    {
        let _ = restore_modes(&modes);
    }
}

fn is_restored() -> bool {
    RESTORED.load(Ordering::Relaxed)
}

/// Makes a panic in any thread restore everything before it is reported.
pub(crate) fn restore_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        restore();
        report(info);
    }));
}

/// Undoes the app's changes to the screen.
pub(crate) fn undo_app_changes() {
    let until = Instant::now() + limits::STUCK;
    if let Some(mut screen) = lock_soon(until) {
        let undo = undo(&screen);
        if write_soon(&undo, until) {
            screen.restorer.iter_mut().for_each(Restorer::forget);
        }
        restore_title(&mut screen, until);
        screen.restorer.iter_mut().for_each(Restorer::cancel);
        screen.filter.iter_mut().for_each(|(filter, _)| filter.cancel_sequence());
    }
}

/// The bytes that undo the app's changes. Behind a full screen the cursor returns to where it was.
fn undo(screen: &TerminalScreen) -> Vec<u8> {
    let cols = size().map_or(0, |size| size.cols);
    let Some(restorer) = &screen.restorer else { return Vec::new() };
    if restorer.is_full_screen() {
        begin_line();
    }
    restorer.sequence(cols)
}

/// Undoes the app's changes to the screen for good.
fn restore_screen() {
    let until = Instant::now() + limits::STUCK;
    let Some(mut screen) = lock_soon(until) else { return };
    let undo = undo(&screen);
    write_soon(&[std::mem::take(&mut screen.wipe_notice), undo].concat(), until);
    screen.restorer = None;
    restore_title(&mut screen, until);
    if screen.asked_at.take().is_some_and(|at| at.elapsed() < REPLY) {
        drop_replies();
    }
}

/// Restores the title from before attach, if the app has set one.
fn restore_title(screen: &mut TerminalScreen, until: Instant) {
    let Some((filter, _)) = &mut screen.filter else { return };
    let title = filter.restore_title();
    let restored = if is_terminal(Stream::Stdout) {
        write_soon(title.as_bytes(), until)
    } else {
        write_to(&io::stderr(), title.as_bytes(), until)
    };
    if restored {
        filter.forget_title();
    }
}

/// Drops the terminal's replies to the app, which the shell would take for typed input: what comes
/// before the reply to a query of our own, and what comes together with that.
fn drop_replies() {
    let is_raw = |modes: Termios| !modes.local_modes.contains(LocalModes::ICANON);
    let mut until = Instant::now() + REPLY_WAIT;
    if !tcgetattr(io::stdin()).is_ok_and(is_raw) || !is_in_front() || !write_soon(ASK, until) {
        return;
    }
    let (mut dropped, mut buffer) = (Vec::new(), [0; 512]);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let stdin = io::stdin();
        match ready::wait_for(&stdin, PollFlags::POLLIN, Some(left)) {
            Ok(true) => {}
            Ok(false) if !left.is_zero() => continue,
            _ => return,
        }
        let Ok(len @ 1..) = rustix::io::read(&stdin, &mut buffer) else { return };
        dropped.extend_from_slice(&buffer[..len]);
        if memmem::find(&dropped, REPLIED).is_some() {
            until = until.min(Instant::now() + REPLY_PAUSE);
        }
        let old = dropped.len().saturating_sub(REPLIED.len() - 1);
        dropped.drain(..old);
    }
}

/// Locks the screen between two sequences of the app, or within one that does not end soon.
fn lock_between_sequences(until: Instant) -> Option<MutexGuard<'static, TerminalScreen>> {
    let hold = until.min(Instant::now() + NOTE_HOLD);
    loop {
        let screen = lock_soon(until)?;
        let is_between = screen.restorer.as_ref().is_none_or(Restorer::is_between_sequences);
        if is_between || Instant::now() >= hold {
            return Some(screen);
        }
        drop(screen);
        thread::sleep(LOCK_PAUSE);
    }
}

/// Locks the screen, unless a thread is stuck in writing to it.
fn lock_soon(until: Instant) -> Option<MutexGuard<'static, TerminalScreen>> {
    SCREEN.is_wanted.store(true, Ordering::Relaxed);
    let screen = loop {
        match SCREEN.screen.try_lock() {
            Ok(screen) => break Some(screen),
            Err(TryLockError::Poisoned(screen)) => break Some(screen.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() < until => {
                thread::sleep(LOCK_PAUSE / 2);
            }
            Err(TryLockError::WouldBlock) => break None,
        }
    };
    SCREEN.is_wanted.store(false, Ordering::Relaxed);
    screen
}

/// Writes to the terminal on standard output, if it accepts output in time.
fn write_soon(bytes: &[u8], until: Instant) -> bool {
    write_to(&io::stdout(), bytes, until)
}

fn write_to(out: &impl AsFd, bytes: &[u8], until: Instant) -> bool {
    let left = until.saturating_duration_since(Instant::now());
    // A terminal that is gone needs nothing.
    bytes.is_empty()
        || ready::wait_for(out, PollFlags::POLLOUT, Some(left)) == Ok(true)
            && rustix::io::write(out, bytes).is_ok()
}

/// Changes the modes. In the background the kernel stops this process here until it is in the
/// foreground, because the terminal belongs to another job.
fn set_modes(modes: &Termios) -> io::Result<()> {
    loop {
        match tcsetattr(io::stdin(), OptionalActions::Now, modes) {
            Err(Errno::INTR) => {}
            done => return Ok(done?),
        }
    }
}

/// Restores the modes, also in the background, where the kernel would otherwise stop this process.
fn restore_modes(modes: &SavedTermios) -> io::Result<()> {
    let mut blocked = SigSet::empty();
    blocked.add(Signal::SIGTTOU);
    let mask = blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    if !modes.keeps_unread {
        let _ = tcflush(io::stdin(), QueueSelector::IFlush);
    }
    let done = tcsetattr(io::stdin(), OptionalActions::Now, &modes.before);
    mask.thread_set_mask()?;
    Ok(done?)
}

/// Locks a value; a panic in another thread does not make it invalid.
fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// nextest runs each test in a process of its own.
    #[test]
    fn a_panic_in_any_thread_restores_everything() {
        restore_on_panic();
        lock(&SCREEN.screen).restorer = Some(Restorer::default());
        assert!(!is_restored());
        #[allow(clippy::panic, reason = "the test needs one")]
        let broken = thread::spawn(|| panic!("as asked"));
        assert!(broken.join().is_err());
        assert!(is_restored());
        assert!(lock(&SCREEN.screen).restorer.is_none());
    }
}
