//! New terminals.

use std::io;
use std::os::fd::OwnedFd;

use rustix::pty::OpenptFlags;
use rustix::termios::OptionalActions;

/// Closed on exec, and never this process's own terminal.
const FLAGS: OpenptFlags = OpenptFlags::RDWR.union(OpenptFlags::NOCTTY).union(OpenptFlags::CLOEXEC);

/// A master.
pub(crate) fn master() -> io::Result<OwnedFd> {
    let master = rustix::pty::openpt(FLAGS)?;
    rustix::pty::grantpt(&master)?;
    rustix::pty::unlockpt(&master)?;
    Ok(master)
}

/// The slave of a master, whatever its path leads to.
pub(crate) fn slave(master: &OwnedFd) -> io::Result<OwnedFd> {
    Ok(rustix::pty::ioctl_tiocgptpeer(master, FLAGS)?)
}

/// The master and the slave of a terminal that changes no byte.
pub(crate) fn raw_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let master = master()?;
    let slave = slave(&master)?;
    let mut modes = rustix::termios::tcgetattr(&slave)?;
    modes.make_raw();
    rustix::termios::tcsetattr(&slave, OptionalActions::Now, &modes)?;
    Ok((master, slave))
}
