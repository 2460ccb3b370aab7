//! A terminal of a test: what a person sits at.

use std::fs::File;
use std::io::Write;
use std::process::Command;

use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::pair::pair;
use crate::proc::{Proc, Said};

pub struct Pty {
    master: File,
    /// Held, so that the master never hangs up and modes can be read when all have left.
    pub slave: File,
    /// What was shown.
    pub shown: Said,
    before: Termios,
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
        let pty = Self { master, slave, shown, before };
        pty.resize(rows, cols);
        pty
    }

    /// Starts a command at this terminal, as the leader of its session.
    pub fn spawn(&self, command: Command) -> Proc {
        self.spawn_as("xterm", command)
    }

    /// As [`Pty::spawn`], at a terminal of this kind.
    pub fn spawn_as(&self, kind: &str, mut command: Command) -> Proc {
        let slave = || self.slave.try_clone().unwrap();
        command.stdin(slave()).stdout(slave()).stderr(slave()).env("TERM", kind);
        iottymux::sys::calls::in_own_session(&mut command, true);
        Proc::spawn(command)
    }

    /// Types.
    pub fn press(&self, keys: &[u8]) {
        (&self.master).write_all(keys).unwrap();
    }

    pub fn resize(&self, rows: u16, cols: u16) {
        self.resize_in_pixels((rows, cols), (0, 0));
    }

    /// The pixels are width and height.
    pub fn resize_in_pixels(
        &self,
        (ws_row, ws_col): (u16, u16),
        (ws_xpixel, ws_ypixel): (u16, u16),
    ) {
        let size = Winsize { ws_row, ws_col, ws_xpixel, ws_ypixel };
        tcsetwinsize(&self.master, size).unwrap();
    }

    pub fn is_raw(&self) -> bool {
        let cooked = LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG;
        !tcgetattr(&self.slave).unwrap().local_flags.intersects(cooked)
    }

    /// Whether its modes are those it began with.
    pub fn is_as_before(&self) -> bool {
        tcgetattr(&self.slave).unwrap() == self.before
    }
}
