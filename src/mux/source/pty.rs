//! The terminal of an app: a pty pair whose slave is published as a link.
//!
//! The slave is held open, so that the master neither reports an end nor spins while the app has
//! not opened it yet, or has closed it. It is opened with `O_NOCTTY`: were it our controlling
//! terminal, systemd's `StandardInput=tty` would wait for it without an end.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use nix::poll::PollFlags;
use nix::unistd::Pid;
use rustix::termios::{
    Action, InputModes, LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Winsize,
};

use super::stage::Stage;
use super::{AppInput, Source};
use crate::sys;
use crate::sys::files::replace_link;
use crate::sys::ready;
use crate::sys::state::AppDir;
use crate::sys::systemd::notify::Notify;
use crate::sys::systemd::store::Stored;
use crate::types::size::{Size, Window};
use crate::types::stream::Stream;
use crate::types::terminal_identity::TerminalId;

/// Size asked for that of a terminal, bytes: a read from a terminal never gives more, and the
/// kernel takes pages for as much as fits before it looks how much there is.
const PTY_STAGE: usize = 4096;
/// A special character that no key is (`_POSIX_VDISABLE`).
const DISABLED: u8 = 0;
/// Bytes of one write to a terminal: so many are unknown when the mux is killed in it.
const TERMINAL_WRITE: usize = 4096;

/// Name of the master in systemd's store.
pub(crate) const STORED: &str = "tty";

/// The master of an app's terminal.
#[derive(Debug)]
pub(crate) struct Master {
    /// As the app's output.
    pub(crate) source: Source,
    /// As the app's input.
    pub(crate) input: AppInput,
}

/// A pty pair of our own.
#[derive(Debug)]
pub(crate) struct Pty {
    pub(crate) master: Master,
    /// The slave's own path.
    pub(crate) slave: PathBuf,
}

/// A pair from systemd's store, with the size it had, or a new one of the given size.
pub(crate) fn open(size: Size, stored: &mut Stored, notify: &Notify) -> Result<Pty> {
    let mut make = || -> io::Result<Pty> {
        let (master, fresh) = match stored.remove(STORED) {
            Some(master) => (master, false),
            None => {
                let master = sys::pty_pair::master()?;
                rustix::io::ioctl_fionbio(&master, true)?;
                (master, true)
            }
        };
        let held = sys::pty_pair::slave(&master)?;
        if fresh {
            resize(&master, size.into())?;
            let mut modes = rustix::termios::tcgetattr(&held)?;
            modes.input_modes |= InputModes::IUTF8;
            rustix::termios::tcsetattr(&held, OptionalActions::Now, &modes)?;
        }
        notify.store(STORED, &master);
        let slave = slave(&master)?;
        Ok(Pty { master: Master::new(master, held, stored, notify)?, slave })
    };
    make().context("cannot make a terminal")
}

/// Where the slave of a master is.
fn slave(master: &OwnedFd) -> io::Result<PathBuf> {
    let name = rustix::pty::ptsname(master, Vec::new())?;
    Ok(PathBuf::from(std::ffi::OsStr::from_bytes(name.as_bytes())))
}

/// The identity of a master's slave, if it is among the terminals that this process sees.
pub(crate) fn id(master: &OwnedFd) -> Option<TerminalId> {
    fs::metadata(slave(master).ok()?).ok().map(TerminalId::from)
}

impl Master {
    pub(super) fn new(
        master: OwnedFd,
        held: OwnedFd,
        stored: &mut Stored,
        notify: &Notify,
    ) -> io::Result<Self> {
        let mut input = AppInput::new(master.try_clone()?);
        input.most = TERMINAL_WRITE;
        let stage = Stage::open(Stream::Tty.name(), PTY_STAGE, stored, notify)?;
        Ok(Self { source: Source::new(Stream::Tty, master, Some(held)).staged(stage), input })
    }
}

/// Sets the size of the terminal; the app is notified if it changed. A size of zero rows or columns
/// is ignored.
pub(crate) fn resize(master: impl AsFd, window: Window) -> io::Result<()> {
    if window.size().is_none() {
        return Ok(());
    }
    let size = Winsize {
        ws_row: window.rows,
        ws_col: window.cols,
        ws_xpixel: window.width,
        ws_ypixel: window.height,
    };
    Ok(rustix::termios::tcsetwinsize(master, size)?)
}

/// The size of the terminal.
pub(crate) fn size(master: impl AsFd) -> io::Result<Size> {
    let size = rustix::termios::tcgetwinsize(master)?;
    Ok(Size { rows: size.ws_row, cols: size.ws_col })
}

/// The processes in the terminal's foreground, if it is anybody's.
pub(crate) fn foreground(master: impl AsFd) -> Option<Pid> {
    let group = rustix::termios::tcgetpgrp(master).ok()?;
    Some(Pid::from_raw(group.as_raw_nonzero().get()))
}

/// Gives the terminal the modes of a new one; its special characters stay.
pub(crate) fn reset(master: impl AsFd) -> io::Result<()> {
    use rustix::termios::{ControlModes, LocalModes, OutputModes};
    let mut modes = rustix::termios::tcgetattr(&master)?;
    modes.input_modes = InputModes::ICRNL | InputModes::IXON | InputModes::IUTF8;
    modes.output_modes = OutputModes::OPOST | OutputModes::ONLCR;
    modes.control_modes |= ControlModes::CREAD | ControlModes::CS8;
    modes.local_modes = LocalModes::ISIG
        | LocalModes::ICANON
        | LocalModes::IEXTEN
        | LocalModes::ECHO
        | LocalModes::ECHOE
        | LocalModes::ECHOK
        | LocalModes::ECHOCTL
        | LocalModes::ECHOKE;
    // Earlier output keeps the old modes.
    Ok(rustix::termios::tcsetattr(&master, OptionalActions::Now, &modes)?)
}

/// The slave of a terminal of our own. Ours may be dead: the kernel closes it for all when the
/// session of an app ends.
fn open_slave(source: &Source) -> io::Result<Option<OwnedFd>> {
    let is_ours = source.held.is_some();
    is_ours.then(|| sys::pty_pair::slave(&source.fd)).transpose()
}

/// Whether a client has stopped the output by a key (`VSTOP`): there is nothing to read, but the app
/// cannot write.
pub(crate) fn is_stopped(source: &Source) -> io::Result<bool> {
    let Some(slave) = open_slave(source)? else { return Ok(false) };
    Ok(!ready::is(&slave, PollFlags::POLLOUT) && source.is_empty())
}

/// The key at which the terminal empties a line, if it edits lines for the app now: longer ones than
/// `limits::TERMINAL_LINE` are cut without a word. If it has no such key, that of a line's end.
pub(crate) fn kill_key(source: &Source) -> Option<u8> {
    let modes = rustix::termios::tcgetattr(&source.fd).ok()?;
    let key = modes.special_codes[SpecialCodeIndex::VKILL];
    let key = if key == DISABLED { b'\n' } else { key };
    modes.local_modes.contains(LocalModes::ICANON).then_some(key)
}

/// Whether the terminal edits lines, and does not show what is typed.
pub(crate) fn hides_lines(source: &Source) -> bool {
    let lines = LocalModes::ICANON | LocalModes::ECHO;
    rustix::termios::tcgetattr(&source.fd)
        .is_ok_and(|modes| modes.local_modes & lines == LocalModes::ICANON)
}

/// Bytes of input that the app has not read; of a terminal that edits lines, those of whole ones. 0 where
/// that cannot be seen.
pub(crate) fn unread(source: &Source) -> u64 {
    let Ok(Some(slave)) = open_slave(source) else { return 0 };
    // What was just written is on its way there, and is not counted: the kernel's n_tty_poll has it arrive.
    let _ = ready::is(&slave, PollFlags::POLLIN);
    rustix::io::ioctl_fionread(&slave).unwrap_or(0)
}

/// Undoes the stop by a key. The kernel only does that after a stop by a program.
pub(crate) fn start_output(source: &Source) -> io::Result<()> {
    let Some(slave) = open_slave(source)? else { return Ok(()) };
    rustix::termios::tcflow(&slave, Action::OOff)?;
    Ok(rustix::termios::tcflow(&slave, Action::OOn)?)
}

/// Throws away the input that the app has not read.
pub(crate) fn forget_input(source: &Source) -> io::Result<()> {
    let Some(slave) = open_slave(source)? else { return Ok(()) };
    // On its way to the slave, and there.
    rustix::termios::tcflush(&source.fd, QueueSelector::OFlush)?;
    Ok(rustix::termios::tcflush(&slave, QueueSelector::IFlush)?)
}

/// Publishes the slave under the name in the app's `TTYPath=`, in one step. Replaces anything that
/// an earlier mux or rkt's own left there (a link, a file, a stale bind mount).
pub(crate) fn publish(dir: &AppDir, slave: &Path) -> Result<()> {
    let (file, path) = (Stream::Tty.stage2(), dir.end(Stream::Tty.stage2()));
    let make = || -> io::Result<()> {
        unmount(&path)?;
        let end = dir.place_end(file)?;
        replace_link(&end, slave)?;
        dir.lead_to_end(file)
    };
    make().with_context(|| format!("cannot publish the terminal as {}", path.display()))
}

/// Sees to the name of a terminal that was published before, perhaps by a mux with other rules.
pub(crate) fn place(dir: &AppDir) -> Result<()> {
    let file = Stream::Tty.stage2();
    let place = || dir.place_end(file).and_then(|_| dir.lead_to_end(file));
    place().with_context(|| format!("cannot publish the terminal as {}", dir.end(file).display()))
}

/// Whether the service manager keeps a terminal of our own.
pub(crate) fn is_stored(stored: &Stored) -> bool {
    stored.has(STORED)
}

/// Takes away every bind mount on a path: each restart of rkt's own mux could leave one more.
fn unmount(path: &Path) -> io::Result<()> {
    loop {
        match umount2(path, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
            Ok(()) => log::warn!("took a stale mount off {}", path.display()),
            // Not a mount point, not there, or not root: then there is nothing of ours to take off.
            Err(Errno::EINVAL | Errno::ENOENT | Errno::EPERM) => return Ok(()),
            Err(e) => return Err(e.into()),
        }
    }
}
