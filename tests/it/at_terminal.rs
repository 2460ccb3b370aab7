//! What only these tests do with the terminal of a person.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::sys::termios::{LocalFlags, SetArg, tcgetattr, tcsetattr};
use rustix::termios::tcgetwinsize;

use crate::proc::Proc;
use crate::pty::Pty;
use crate::rig::{APP, Rig};

/// The number of the next mark.
static MARKS: AtomicUsize = AtomicUsize::new(0);

/// Rows and columns of a terminal.
pub fn size_of(terminal: &File) -> (u16, u16) {
    let size = tcgetwinsize(terminal).unwrap();
    (size.ws_row, size.ws_col)
}

/// A person at a terminal of 24 rows, who is attached to the app's terminal and sees its prompt; and
/// the app's end.
pub fn at_prompt(rig: &Rig, cols: u16, options: &[&str]) -> (Pty, Proc, File) {
    let local = Pty::open(24, cols);
    let attach = local.spawn(rig.command([&["attach", "--app", APP], options].concat()));
    let mut app = rig.slave();
    app.write_all(b"$ ").unwrap();
    local.shown.wait_for("$ ");
    (local, attach, app)
}

impl Pty {
    /// As [`Pty::spawn`], with another input than this terminal.
    pub fn spawn_with_input(&self, mut command: Command, input: OwnedFd) -> Proc {
        let slave = || self.slave.try_clone().unwrap();
        command.stdin(input).stdout(slave()).stderr(slave());
        iottymux::sys::calls::in_own_session(&mut command, false);
        Proc::spawn(command)
    }

    /// Everything that was shown until now.
    pub fn shown_before_mark(&self) -> String {
        let mark = format!("<mark {}>", MARKS.fetch_add(1, Ordering::Relaxed));
        (&self.slave).write_all(mark.as_bytes()).unwrap();
        self.shown.wait_for(&mark);
        self.shown.so_far().replace(&mark, "")
    }

    /// Bytes typed that nobody at this terminal has read yet.
    pub fn unread(&self) -> u64 {
        rustix::io::ioctl_fionread(&self.slave).unwrap()
    }

    /// The same, of a terminal that edits lines.
    pub fn unread_keys(&self) -> u64 {
        let mut modes = tcgetattr(&self.slave).unwrap();
        modes.local_flags.remove(LocalFlags::ICANON);
        tcsetattr(&self.slave, SetArg::TCSANOW, &modes).unwrap();
        self.unread()
    }

    /// Whether it shows what is typed.
    pub fn echoes(&self) -> bool {
        tcgetattr(&self.slave).unwrap().local_flags.contains(LocalFlags::ECHO)
    }
}
