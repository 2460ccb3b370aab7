//! All of the program's `unsafe`, each with its reason, behind calls that are safe.

#![allow(unsafe_code, reason = "the one module that may")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::NonNull;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::libc;
use nix::sys::mman::{MmapAdvise, madvise};
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::unistd::setsid;
use tokio::io::unix::AsyncFd;

/// Takes over descriptors that systemd passed, `first` to `first + count - 1`, and keeps them from
/// children. Ends at the first number that is not open.
///
/// To be called once, before anything else has opened descriptors: from then on they are ours.
#[must_use]
pub fn adopt(first: RawFd, count: usize) -> Vec<OwnedFd> {
    (first..)
        .take(count)
        .map_while(|number| {
            // SAFETY: the number is only borrowed for this call, which fails when it is not open.
            let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
            fcntl(borrowed, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).ok()?;
            // SAFETY: it is open, and by sd_listen_fds(3) it belongs to this process, which has
            // not opened or adopted anything at this number before.
            Some(unsafe { OwnedFd::from_raw_fd(number) })
        })
        .collect()
}

/// Makes the command's process the leader of a session of its own; with `terminal`, its standard
/// input becomes the controlling terminal of that session.
pub fn in_own_session(command: &mut Command, terminal: bool) {
    let prepare = move || -> io::Result<()> {
        setsid()?;
        if terminal {
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec only system calls are made; nothing is allocated or locked.
    unsafe { command.pre_exec(prepare) };
}

/// Has the command's process ignore SIGTERM.
pub fn ignoring_sigterm(command: &mut Command) {
    let prepare = || -> io::Result<()> {
        // SAFETY: nothing is called when the signal comes.
        unsafe { signal(Signal::SIGTERM, SigHandler::SigIgn) }?;
        Ok(())
    };
    // SAFETY: between fork and exec only a system call is made; nothing is allocated or locked.
    unsafe { command.pre_exec(prepare) };
}

/// Lets go of the pages of code that only starting up needed: reading a command line touches
/// nearly all of the program, serving an app a small part of it. What is needed again comes back
/// from the page cache.
///
/// # Errors
/// When this process's mappings cannot be read.
pub fn forget_startup_code() -> io::Result<()> {
    let ours = std::fs::read_link("/proc/self/exe")?;
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let code = maps.lines().filter(|line| {
        // Code, and the constants at the file's beginning: segments that no process writes to, not
        // even the loader (what it relocates lies in a later segment).
        (line.contains(" r-xp ") || line.contains(" r--p 00000000 "))
            && line.ends_with(&*ours.to_string_lossy())
    });
    let range = |line: &str| {
        let (from, to) = line.split(' ').next()?.split_once('-')?;
        let from = usize::from_str_radix(from, 16).ok()?;
        let len = usize::from_str_radix(to, 16).ok()?.checked_sub(from)?;
        Some((NonNull::new(std::ptr::with_exposed_provenance_mut(from))?, len))
    };
    let ranges: Vec<_> = code.filter_map(range).collect();
    drop((ours, maps));
    // All else is done by now: what runs from here on is what serving needs.
    for (start, len) in ranges {
        // SAFETY: the range is a private, read-only mapping of this program's own file as the
        // kernel has just told; dropping its clean pages changes nothing that can be read.
        unsafe { madvise(start, len, MmapAdvise::MADV_DONTNEED) }?;
    }
    Ok(())
}

/// The supplementary groups of the process at the other end of a unix socket (`SO_PEERGROUPS`,
/// socket(7)).
///
/// # Errors
/// Those of getsockopt(2).
pub fn peer_groups(socket: impl AsFd) -> io::Result<Vec<u32>> {
    let mut groups = vec![0u32; 64];
    loop {
        let room = size_of_val(&groups[..]);
        let mut len = libc::socklen_t::try_from(room).map_err(io::Error::other)?;
        // SAFETY: the kernel writes at most `len` bytes, which is the size of what the pointer leads
        // to, and any bytes are valid numbers.
        let done = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut len,
            )
        };
        let error = io::Error::last_os_error();
        groups.resize(len as usize / size_of::<u32>(), 0);
        if done == 0 {
            return Ok(groups);
        }
        // It needs more room, and has told how much.
        if error.raw_os_error() != Some(libc::ERANGE) || (len as usize) <= room {
            return Err(error);
        }
    }
}

/// Watches a descriptor with the runtime.
///
/// # Errors
/// When the kernel cannot watch it.
pub fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd gives the same open descriptor for as long as it lives, and lives in the
    // returned value.
    unsafe { AsyncFd::register(fd) }.map_err(|e| e.into_parts().1)
}
