//! All of the program's `unsafe`, each with its reason, behind calls that are safe.

#![allow(unsafe_code, reason = "the one module that may")]

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::AtomicU64;

use nix::libc;
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigHandler, SigSet, Signal, raise, signal};
use nix::unistd::{getpid, getppid, setsid};
use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::io::{FdFlags, fcntl_setfd};

/// Takes over descriptors that systemd passed, `first` to `first + count - 1`, and keeps them from
/// children. Ends at the first number that is not open.
///
/// To be called once, before anything else has opened descriptors: from then on they are ours.
pub(crate) fn adopt(first: RawFd, count: usize) -> Vec<OwnedFd> {
    (first..)
        .take(count)
        .map_while(|number| {
            // SAFETY: the number is only borrowed for this call, which fails when it is not open.
            let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
            fcntl_setfd(borrowed, FdFlags::CLOEXEC).ok()?;
            // SAFETY: it is open, and by sd_listen_fds(3) it belongs to this process, which has
            // not opened or adopted anything at this number before.
            Some(unsafe { OwnedFd::from_raw_fd(number) })
        })
        .collect()
}

/// The local date of a time in seconds since 1970: year, month and day.
pub(crate) fn local_date(seconds: i64) -> Option<[i32; 3]> {
    let mut local = MaybeUninit::<libc::tm>::uninit();
    // SAFETY: both pointers are valid, and the call keeps neither of them.
    let done = unsafe { libc::localtime_r(&raw const seconds, local.as_mut_ptr()) };
    if done.is_null() {
        return None;
    }
    // SAFETY: the call has succeeded, so it has filled the structure.
    let local = unsafe { local.assume_init() };
    Some([local.tm_year + 1900, local.tm_mon + 1, local.tm_mday])
}

/// The time in seconds since 1970 of a local date (year, month and day, which may be beyond the
/// end of the month), and of seconds after the beginning of that day.
pub(crate) fn local_time([year, month, day]: [i32; 3], seconds: i32) -> Option<i64> {
    // SAFETY: zero is a valid value of each member: numbers and a pointer that is not read.
    let mut local: libc::tm = unsafe { MaybeUninit::zeroed().assume_init() };
    (local.tm_year, local.tm_mon, local.tm_mday) = (year - 1900, month - 1, day);
    (local.tm_hour, local.tm_min) = (seconds / 3600, seconds / 60 % 60);
    (local.tm_sec, local.tm_isdst) = (seconds % 60, -1);
    // SAFETY: the pointer is valid, and the call does not keep it.
    let time = unsafe { libc::mktime(&raw mut local) };
    (time != -1).then_some(time)
}

/// Whether a text fits a pattern of the shell: fnmatch(3), without escapes.
pub(crate) fn fits(pattern: &str, text: &str) -> bool {
    let (Ok(pattern), Ok(text)) = (CString::new(pattern), CString::new(text)) else { return false };
    // SAFETY: both are strings that end with a zero, and the call keeps neither of them.
    unsafe { libc::fnmatch(pattern.as_ptr(), text.as_ptr(), libc::FNM_NOESCAPE) == 0 }
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

/// Has the command's process get a signal when the thread that started it has gone, killed or not.
pub(crate) fn ending_with_parent(command: &mut Command, by: Signal) {
    let parent = getpid();
    let prepare = move || -> io::Result<()> {
        // Up to exec(2) a handler of this process would catch it, and the command would run on.
        // SAFETY: no handler is set, and the new process has one thread.
        unsafe { signal(Signal::SIGTERM, SigHandler::SigDfl) }?;
        set_pdeathsig(by)?;
        if getppid() != parent {
            raise(by)?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec only system calls are made; nothing is allocated or locked.
    unsafe { command.pre_exec(prepare) };
}

/// Has the command's process begin with the default action of these signals, whatever this one ignores.
pub(crate) fn with_default_signals(command: &mut Command, signals: &'static [Signal]) {
    let prepare = move || -> io::Result<()> {
        for of in signals {
            // SAFETY: no handler is set, and the new process has one thread.
            unsafe { signal(*of, SigHandler::SigDfl) }?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec only system calls are made; nothing is allocated or locked.
    unsafe { command.pre_exec(prepare) };
}

/// Passes copies of descriptors to the command's process, numbered from `first` on.
pub fn passing(command: &mut Command, fds: &[&OwnedFd], first: RawFd) -> io::Result<()> {
    let above = first + RawFd::try_from(fds.len()).map_err(io::Error::other)?;
    let high = |fd: &&OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, above);
    let copies = fds.iter().map(high).collect::<Result<Vec<_>, _>>()?;
    // No descriptor of this process is to have one of these numbers meanwhile: the child would lose
    // it, among them the one by which std reports that exec(2) failed.
    let mut occupied = Vec::new();
    while let Some(fd) = copies.first() {
        let fd = rustix::io::fcntl_dupfd_cloexec(fd, first)?;
        let is_above = fd.as_raw_fd() >= above;
        occupied.push(fd);
        if is_above {
            break;
        }
    }
    let prepare = move || -> io::Result<()> {
        let _ = &occupied;
        for (number, fd) in (first..).zip(&copies) {
            // SAFETY: both numbers are plain integers, and nothing else in the child uses the
            // second.
            if unsafe { libc::dup2(fd.as_raw_fd(), number) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: between fork and exec only system calls are made; nothing is allocated or locked.
    unsafe { command.pre_exec(prepare) };
    Ok(())
}

/// Has the command's process take the signals that this one has blocked.
pub(crate) fn taking_signals(command: &mut Command) {
    let prepare = || Ok(SigSet::empty().thread_set_mask()?);
    // SAFETY: between fork and exec only a system call is made; nothing is allocated or locked.
    unsafe { command.pre_exec(prepare) };
}

/// Whether this process was started with a signal ignored, as by nohup(1) or in the background of a
/// script.
pub(crate) fn is_ignored(signal: Signal) -> bool {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: no action is set, and the present one is written to a place that is large enough.
    let done = unsafe { libc::sigaction(signal as i32, std::ptr::null(), now.as_mut_ptr()) };
    // SAFETY: all zero is a value of the struct, too.
    done == 0 && unsafe { now.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Zeroed memory of this size behind a descriptor: it lives as long as a process or systemd has the
/// descriptor. It can grow. `name` is for people.
pub(crate) fn new_memory(name: &str, size: usize) -> io::Result<OwnedFd> {
    let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&fd, size as u64)?;
    fcntl_add_seals(&fd, SealFlags::SHRINK)?;
    Ok(fd)
}

/// The words of mapped memory, in which single stores are atomic, and the bytes behind them.
pub(crate) type MappedMemory = (&'static [AtomicU64], &'static mut [u8]);

/// Maps a part of memory of [`new_memory`] until the end of this process: this many words, then this
/// many bytes, from a page on; `None` if the descriptor is not of such memory, or that ends before.
/// Pages exist only after they are written.
///
/// Call it once for a part, in the only process that uses it: a mux has the lock of its app.
pub(crate) fn map_memory(
    fd: impl AsFd,
    at: u64,
    words: usize,
    bytes: usize,
) -> io::Result<Option<MappedMemory>> {
    let header = words * size_of::<AtomicU64>();
    let size = header + bytes;
    // Only such memory has seals. With this one it cannot shrink, whichever process has the descriptor.
    let is_sealed = fcntl_get_seals(&fd).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
    let end = at.checked_add(size as u64);
    let is_there =
        end.is_some_and(|end| end <= fstat(&fd).map_or(0, |file| file.st_size.cast_unsigned()));
    if !is_there || !is_sealed {
        return Ok(None);
    }
    let at = at.try_into().map_err(io::Error::other)?;
    let length = NonZeroUsize::new(size).ok_or(io::ErrorKind::InvalidInput)?;
    let rights = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a new mapping at an address that the kernel chooses touches no other memory.
    let start = unsafe { mmap(None, length, rights, MapFlags::MAP_SHARED, fd, at) }?;
    // SAFETY: the mapping begins on a page, is `size` bytes long, holds integers that are valid for
    // any bits, is always within the file (which is sealed), and is never unmapped. The two
    // slices do not overlap, and by the contract of this function no other slices of the memory
    // exist.
    Ok(Some(unsafe {
        (
            slice::from_raw_parts(start.cast().as_ptr(), words),
            slice::from_raw_parts_mut(start.cast::<u8>().add(header).as_ptr(), bytes),
        )
    }))
}

/// Gives the whole pages of a vector's unused memory back to the system. The allocator would keep
/// them, if memory behind them is in use.
pub(crate) fn give_back_unused(memory: &mut Vec<u8>) {
    let unused = memory.spare_capacity_mut();
    if let Some((start, len)) = whole_pages(unused.as_mut_ptr().cast(), unused.len(), page()) {
        // SAFETY: the pages are within memory of the vector that holds no values.
        let _ = unsafe { madvise(start, len, MmapAdvise::MADV_DONTNEED) };
    }
}

/// The whole pages within memory: where they begin, and their length in bytes.
fn whole_pages(start: *mut u8, len: usize, page: usize) -> Option<(NonNull<libc::c_void>, usize)> {
    let before = start.align_offset(page).min(len);
    let pages = (len - before) / page * page;
    NonNull::new(start.wrapping_add(before).cast()).filter(|_| pages > 0).map(|at| (at, pages))
}

/// The size of a page: 4096 bytes, and on 64-bit ARM also 16384 or 65536. madvise(2) rounds a length
/// up to it, so with a smaller number it would take bytes that are in use.
pub(crate) fn page() -> usize {
    // SAFETY: it reads a number that the kernel gave the process at its start.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).ok().filter(|size| size.is_power_of_two()).unwrap_or(LARGEST_PAGE)
}

/// No page is larger, bytes.
const LARGEST_PAGE: usize = 64 * 1024;

/// Releases the memory that only the start needed: parsing a command line touches nearly all of the
/// program's code, and much of the heap and the stack; serving an app takes a small part of each. The
/// kernel reads pages of code again from the page cache when they are needed. To be called in the
/// main thread. In a frame of its own: amid a large one, it would not know what is in use.
#[inline(never)]
pub(crate) fn forget_startup() -> io::Result<()> {
    let ours = std::fs::read_link("/proc/self/exe")?;
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    // An address amid the part of the stack that is in use; the calls below it need this much.
    let used = (&raw const ours).addr().saturating_sub(STACK_IN_USE);
    let used = used - used % page();
    let range = |line: &str| {
        let (from, to) = line.split(' ').next()?.split_once('-')?;
        let from = usize::from_str_radix(from, 16).ok()?;
        let to = usize::from_str_radix(to, 16).ok()?;
        // Code and constants: segments that no process writes to, not even the loader (its
        // relocations are in a later segment).
        let is_code = (line.contains(" r-xp ") || line.contains(" r--p 00000000 "))
            && line.ends_with(&*ours.to_string_lossy());
        let to = match () {
            () if is_code => to,
            () if line.ends_with("[stack]") => to.min(used),
            () => return None,
        };
        let start = NonNull::new(std::ptr::with_exposed_provenance_mut(from))?;
        Some((start, to.checked_sub(from)?))
    };
    let ranges: Vec<_> = maps.lines().filter_map(range).collect();
    drop((ours, maps));
    give_back_memory();
    // Everything after this serves the app.
    for (start, len) in ranges {
        // SAFETY: the kernel has just reported this range. Either it is a private, read-only mapping
        // of this program's own file, whose clean pages may go without a change of what can be read;
        // or it is the stack below all that is in use, where nobody reads what calls have left.
        unsafe { madvise(start, len, MmapAdvise::MADV_DONTNEED) }?;
    }
    Ok(())
}

/// Bytes of the stack below a variable that calls made from its function may need meanwhile: they are
/// few and small.
const STACK_IN_USE: usize = 4096;

/// Makes all threads allocate in one heap, so that none has free memory that others need.
pub(crate) fn share_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it sets a number. Failing leaves a heap to each thread.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Gives the system back the memory that the allocator has free. It does so by itself only with
/// memory behind which nothing is in use.
pub(crate) fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it locks what it changes, and no memory in use is touched.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Ignores these signals from now on.
pub(crate) fn ignore(signals: &[Signal]) -> io::Result<()> {
    signals.iter().try_for_each(|one| handle(*one, SigHandler::SigIgn))
}

/// Lets these signals end the process again, but those that it ignores.
pub(crate) fn end_by(signals: &[Signal]) -> io::Result<()> {
    let mut caught = signals.iter().filter(|one| !is_ignored(**one));
    caught.try_for_each(|one| handle(*one, SigHandler::SigDfl))
}

/// `how` is no function.
fn handle(one: Signal, how: SigHandler) -> io::Result<()> {
    // SAFETY: nothing is called when the signal comes.
    unsafe { signal(one, how) }?;
    Ok(())
}

/// Ends this process, which has one thread, at once: by the one call that
/// [`crate::sys::call_filter::allow_only_reading_and_writing`] leaves for that, which is not the one of
/// exit(3).
pub(crate) fn exit_now(code: u8) -> ! {
    loop {
        // SAFETY: it does not come back, and nothing is left to be dropped or flushed.
        unsafe { libc::syscall(libc::SYS_exit, libc::c_long::from(code)) };
    }
}

/// The supplementary groups of the process at the other end of a unix socket (`SO_PEERGROUPS`,
/// socket(7)).
pub(crate) fn peer_groups(socket: impl AsFd) -> io::Result<Vec<u32>> {
    let mut groups = vec![0u32; 64];
    loop {
        let room = size_of_val(&groups[..]);
        let mut len = libc::socklen_t::try_from(room).map_err(io::Error::other)?;
        // SAFETY: the kernel writes at most `len` bytes, the size of the pointer's target, and any
        // bytes are valid numbers.
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
        // The kernel has reported the size that it needs.
        if error.raw_os_error() != Some(libc::ERANGE) || (len as usize) <= room {
            return Err(error);
        }
    }
}

/// Makes the kernel run this thread before all threads without real-time priority, as soon as it
/// can run; its children and the threads that it starts are usual ones.
pub(crate) fn run_first() -> io::Result<()> {
    let lowest = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the kernel only reads the struct, which lives through the call.
    let done = unsafe { libc::sched_setscheduler(0, policy, &raw const lowest) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What `PIDFD_GET_INFO` tells of a process (`struct pidfd_info` of linux/pidfd.h, its first version).
#[repr(C)]
struct PidfdInfo {
    mask: u64,
    cgroup: u64,
    /// Process, group, parent, and four pairs of user and group.
    numbers: [u32; 11],
    status: i32,
}

/// `PIDFD_INFO_EXIT` in the mask: the status of a process that was collected.
const PIDFD_INFO_EXIT: u64 = 1 << 3;

nix::ioctl_readwrite! {
    /// See pidfd.h.
    pidfd_get_info, 0xff, 11, PidfdInfo
}

/// How a process ended that its parent has collected, as wait(2) gives it; `None` if it was not
/// collected, or if this kernel (before 6.15) does not know.
pub(crate) fn exit_status(pidfd: impl AsFd) -> io::Result<Option<i32>> {
    let mut info = PidfdInfo { mask: PIDFD_INFO_EXIT, cgroup: 0, numbers: [0; 11], status: 0 };
    // SAFETY: the kernel writes at most the size in the number of the request, which is that of
    // this struct, and any bytes are valid numbers.
    unsafe { pidfd_get_info(pidfd.as_fd().as_raw_fd(), &raw mut info) }?;
    Ok((info.mask & PIDFD_INFO_EXIT != 0).then_some(info.status))
}

/// Whether a process exists, as long as its parent has not collected it.
pub(crate) fn is_uncollected(pidfd: impl AsFd) -> bool {
    let fd = pidfd.as_fd().as_raw_fd();
    // SAFETY: the numbers are those of a signal that does nothing, and the pointer may be null.
    let sent = unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, fd, 0, std::ptr::null::<libc::siginfo_t>(), 0)
    };
    sent == 0
}

/// Closes all descriptors from this number on in the command's process when it begins, also those
/// that this process was given for others.
pub(crate) fn closing_from(command: &mut Command, first: RawFd) {
    let prepare = move || -> io::Result<()> {
        // SAFETY: descriptors are closed by exec(2) only, and std's one for errors is so anyway. An
        // old kernel refuses, and the process has some descriptors that it does not use.
        unsafe {
            libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, CLOSE_RANGE_CLOEXEC)
        };
        Ok(())
    };
    // SAFETY: between fork and exec only a system call is made; nothing is allocated or locked.
    unsafe { command.pre_exec(prepare) };
}

/// `CLOSE_RANGE_CLOEXEC` of close_range(2): Linux 5.11 and later.
const CLOSE_RANGE_CLOEXEC: libc::c_uint = 4;

nix::ioctl_read_bad! {
    /// See unix(7).
    bytes_unread, libc::TIOCOUTQ, libc::c_int
}

/// How many bytes the peer of a unix socket has still to read, with what the kernel needs for them.
pub(crate) fn unread_by_peer(socket: impl AsFd) -> io::Result<usize> {
    let mut bytes = 0;
    // SAFETY: the kernel writes an integer, and it lives through the call.
    unsafe { bytes_unread(socket.as_fd().as_raw_fd(), &raw mut bytes) }?;
    Ok(usize::try_from(bytes).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::signals::CaughtSignals;
    use std::os::unix::process::ExitStatusExt;
    use std::sync::atomic::Ordering;

    #[test]
    fn memory_that_is_given_back_ends_on_a_page_of_any_size() {
        let start = |address| std::ptr::without_provenance_mut(address);
        let whole = |address, len, page| {
            whole_pages(start(address), len, page).map(|(at, len)| (at.addr().get(), len))
        };
        assert_eq!(whole(0x20000, 0x11000, 0x1000), Some((0x20000, 0x11000)));
        // A chunk of a log in pages of 64 KiB: the next chunk begins in the second one.
        assert_eq!(whole(0x20000, 0x11000, 0x10000), Some((0x20000, 0x10000)));
        assert_eq!(whole(0x21000, 0x1ffff, 0x10000), Some((0x30000, 0x10000)));
        assert_eq!(whole(0x20000, 0xffff, 0x10000), None);
        assert_eq!(whole(0x21000, 0xffff, 0x10000), None);
        assert!(page().is_multiple_of(4096));
    }

    /// In a thread of its own, since a filter cannot be removed.
    #[test]
    fn no_other_process_is_reached() {
        let tries = || {
            // SAFETY: calls with numbers only.
            let no_privileges = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
            assert_eq!(no_privileges, 0);
            let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
            let (fd, pid) = (socket.as_raw_fd(), std::process::id());
            let owner = pid.cast_signed();
            let all = || {
                // SAFETY: the descriptor is open, and each pointer is null or leads to the type
                // that the kernel expects.
                let done = unsafe {
                    [
                        libc::fcntl(fd, libc::F_SETOWN, owner),
                        libc::fcntl(fd, 10, 0),
                        libc::ioctl(fd, 0x8901, &raw const owner),
                        libc::ioctl(fd, 0x8902, &raw const owner),
                        libc::prlimit(
                            owner,
                            libc::RLIMIT_CORE,
                            std::ptr::null(),
                            std::ptr::null_mut(),
                        ),
                        libc::prlimit(0, libc::RLIMIT_CORE, std::ptr::null(), std::ptr::null_mut()),
                        libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK),
                    ]
                };
                done.map(|done| done == 0)
            };
            assert_eq!(all(), [true; 7]);
            crate::sys::call_filter::refuse_harmful_uses().unwrap();
            assert_eq!(all(), [false, false, false, false, false, true, true]);
        };
        std::thread::spawn(tries).join().unwrap();
    }

    #[test]
    fn a_confined_thread_gets_no_new_code_and_no_namespaces() {
        let tries = || {
            let map = |protection| {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                // SAFETY: the kernel chooses the place, and nothing uses it.
                let at = unsafe { libc::mmap(std::ptr::null_mut(), 1, protection, flags, -1, 0) };
                (at != libc::MAP_FAILED).then_some(at).ok_or_else(io::Error::last_os_error)
            };
            // SAFETY: the flags make namespaces for a child that ends at once, or fail.
            let clone = |call, flags: libc::c_int| match unsafe {
                libc::syscall(call, flags, 0, 0, 0, 0)
            } {
                -1 => io::Error::last_os_error().raw_os_error(),
                // SAFETY: the child only ends.
                0 => unsafe { libc::_exit(0) },
                _ => None,
            };
            crate::sys::call_filter::refuse_harmful_uses().unwrap();
            assert!(map(libc::PROT_READ | libc::PROT_EXEC).is_err());
            let plain = map(libc::PROT_READ | libc::PROT_WRITE).unwrap();
            // SAFETY: that is the memory from above, and nothing uses it.
            assert_ne!(unsafe { libc::mprotect(plain, 1, libc::PROT_EXEC) }, 0);
            for flags in [libc::CLONE_NEWUSER, libc::CLONE_NEWNS, libc::CLONE_NEWPID] {
                assert_eq!(clone(libc::SYS_clone, flags), Some(libc::EPERM));
            }
            assert_eq!(clone(libc::SYS_clone3, 0), Some(libc::ENOSYS));
        };
        std::thread::spawn(tries).join().unwrap();
    }

    #[test]
    fn a_confined_thread_cannot_leave_nor_reach_others() {
        let tries = || {
            crate::sys::call_filter::refuse_other_calls(false).unwrap();
            for call in [
                libc::SYS_execve,
                libc::SYS_execveat,
                libc::SYS_unshare,
                libc::SYS_setns,
                libc::SYS_mount,
                libc::SYS_umount2,
                libc::SYS_open_tree,
                libc::SYS_move_mount,
                libc::SYS_mount_setattr,
                libc::SYS_pivot_root,
                libc::SYS_chroot,
                libc::SYS_ptrace,
                libc::SYS_process_vm_readv,
                libc::SYS_process_vm_writev,
                libc::SYS_pidfd_open,
                libc::SYS_pidfd_getfd,
                libc::SYS_pidfd_send_signal,
                libc::SYS_kill,
                libc::SYS_tkill,
                libc::SYS_tgkill,
                libc::SYS_rt_sigqueueinfo,
                libc::SYS_rt_tgsigqueueinfo,
                libc::SYS_setresuid,
                libc::SYS_setresgid,
                libc::SYS_setgroups,
                libc::SYS_capset,
                libc::SYS_keyctl,
                libc::SYS_add_key,
                libc::SYS_request_key,
                libc::SYS_bpf,
                libc::SYS_perf_event_open,
                libc::SYS_userfaultfd,
                libc::SYS_io_uring_setup,
                libc::SYS_personality,
                libc::SYS_sched_setscheduler,
                libc::SYS_setpriority,
                libc::SYS_shmget,
                libc::SYS_msgget,
                libc::SYS_mq_open,
                libc::SYS_fchown,
                libc::SYS_fchownat,
                libc::SYS_setxattr,
                libc::SYS_openat2,
                libc::SYS_open_by_handle_at,
                // fchmodat2(2), whose number is the same on all machines: libc lacks it for some.
                452,
                libc::SYS_reboot,
                libc::SYS_init_module,
                libc::SYS_syslog,
                libc::SYS_seccomp,
            ] {
                // SAFETY: a filter refuses it; otherwise the kernel would refuse the arguments.
                let done = unsafe { libc::syscall(call, 0, 0, 0, 0, 0, 0) };
                let error = io::Error::last_os_error().raw_os_error();
                assert_eq!((done, error), (-1, Some(libc::EPERM)), "{call}");
            }
        };
        std::thread::spawn(tries).join().unwrap();
    }

    #[test]
    fn a_command_ends_whose_parent_goes_before_it_is_executed() {
        let _caught = CaughtSignals::new(&[Signal::SIGTERM]).unwrap();
        let mut command = Command::new("true");
        ending_with_parent(&mut command, Signal::SIGTERM);
        // SAFETY: a system call. The kernel does the same for a parent that goes now.
        unsafe { command.pre_exec(|| Ok(raise(Signal::SIGTERM)?)) };
        let ended = command.status().unwrap();
        assert_eq!(ended.signal(), Some(Signal::SIGTERM as i32), "{ended}");
    }

    #[test]
    fn memory_is_what_it_was_made_as_or_refused() {
        let size = 64 + 100;
        let fd = new_memory("test", size).unwrap();
        assert!(ftruncate(&fd, 0).is_err(), "it could be cut off under a mapping");
        let (words, bytes) = map_memory(&fd, 0, 8, 100).unwrap().unwrap();
        assert!(words.len() == 8 && bytes == [0; 100]);
        words[7].store(u64::MAX, Ordering::Relaxed);
        bytes[0] = 7;
        let mut seen = [0; 16];
        rustix::io::pread(&fd, &mut seen, 56).unwrap();
        assert_eq!(seen[..9], [255, 255, 255, 255, 255, 255, 255, 255, 7]);
        for (at, words, bytes) in [(0, 8, 101), (0, 9, 100), (4096, 1, 0), (u64::MAX, 1, 0)] {
            assert!(map_memory(&fd, at, words, bytes).unwrap().is_none());
        }
        // Without seals, and without memory.
        let unsealed = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&unsealed, 164).unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        for other in [unsealed, null.into()] {
            assert!(map_memory(&other, 0, 8, 100).unwrap().is_none());
        }
    }
}
