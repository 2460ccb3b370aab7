//! New terminals.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

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
