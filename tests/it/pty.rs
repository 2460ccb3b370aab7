//! A terminal of a test: what a person sits at.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetwinsize, tcsetwinsize};

use crate::proc::{Proc, Said};

pub struct Pty {
    master: File,
    /// Held, so that the master never hangs up and modes can be read when all have left.
    slave: File,
    /// What was shown.
    pub shown: Said,
    before: Termios,
    marks: AtomicUsize,
}

/// The master and the slave of a new terminal; neither becomes the test's own.
pub fn pair() -> (File, File) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let path = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let flags = OpenptFlags::NOCTTY.bits().cast_signed();
    let slave = File::options().read(true).write(true).custom_flags(flags).open(path).unwrap();
    (master.into(), slave)
}

/// Rows and columns of a terminal.
pub fn size_of(terminal: &File) -> (u16, u16) {
    let size = tcgetwinsize(terminal).unwrap();
    (size.ws_row, size.ws_col)
}

impl Pty {
    /// A terminal of this size, in modes that are not the kernel's own: who puts back some usual
    /// modes instead of those that were there is found out.
    pub fn open(rows: u16, cols: u16) -> Self {
        let (master, slave) = pair();
        let mut modes = tcgetattr(&slave).unwrap();
        modes.local_flags.remove(LocalFlags::ECHOCTL);
        modes.control_chars[nix::libc::VMIN] = 3;
        tcsetattr(&slave, SetArg::TCSANOW, &modes).unwrap();
        let before = tcgetattr(&slave).unwrap();
        let shown = Said::follow(master.try_clone().unwrap());
        let pty = Self { master, slave, shown, before, marks: AtomicUsize::new(0) };
        pty.resize(rows, cols);
        pty
    }

    /// Starts a command at this terminal, as the leader of its session.
    pub fn spawn(&self, mut command: Command) -> Proc {
        let slave = || self.slave.try_clone().unwrap();
        command.stdin(slave()).stdout(slave()).stderr(slave()).env("TERM", "xterm");
        iottymux::os::sys::in_own_session(&mut command, true);
        Proc::spawn(command)
    }

    /// As [`Pty::spawn`], with another input than this terminal.
    pub fn spawn_with_input(&self, mut command: Command, input: OwnedFd) -> Proc {
        let slave = || self.slave.try_clone().unwrap();
        command.stdin(input).stdout(slave()).stderr(slave());
        iottymux::os::sys::in_own_session(&mut command, false);
        Proc::spawn(command)
    }

    /// Everything that was shown until now.
    pub fn shown_before_mark(&self) -> String {
        let mark = format!("<mark {}>", self.marks.fetch_add(1, Ordering::Relaxed));
        (&self.slave).write_all(mark.as_bytes()).unwrap();
        self.shown.wait_for(&mark);
        self.shown.so_far().replace(&mark, "")
    }

    /// Types.
    pub fn press(&self, keys: &[u8]) {
        (&self.master).write_all(keys).unwrap();
    }

    /// Bytes typed that nobody at this terminal has read yet.
    pub fn unread(&self) -> u64 {
        rustix::io::ioctl_fionread(&self.slave).unwrap()
    }

    pub fn resize(&self, rows: u16, cols: u16) {
        let size = Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.master, size).unwrap();
    }

    pub fn is_raw(&self) -> bool {
        let cooked = LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG;
        !tcgetattr(&self.slave).unwrap().local_flags.intersects(cooked)
    }

    /// Whether it shows what is typed.
    pub fn echoes(&self) -> bool {
        tcgetattr(&self.slave).unwrap().local_flags.contains(LocalFlags::ECHO)
    }

    /// Whether its modes are those it began with.
    pub fn is_as_before(&self) -> bool {
        tcgetattr(&self.slave).unwrap() == self.before
    }
}
