//! The system calls of a mux, as filters of the kernel (seccomp(2)).
//!
//! Each mux refuses itself all but [`ALLOWED`], and what is harmful of that. The journal writer can
//! do next to nothing.

use std::collections::BTreeMap;
use std::env::consts::ARCH;
use std::io;

use nix::libc;
pub use seccompiler::SeccompCmpOp::{self, Eq, MaskedEq, Ne};
use seccompiler::{
    SeccompAction, SeccompCmpArgLen, SeccompCondition, SeccompFilter, SeccompRule, apply_filter,
};

/// Names of system calls, with their numbers.
macro_rules! calls {
    ($($name:ident)*) => { &[$((stringify!($name), libc::$name)),*] };
}

/// What a use of a call looks like: all these arguments, by index, compare so with these values.
pub type Use = &'static [(u8, SeccompCmpOp, u32)];

/// Uses of a call. One filter has at most one entry for a call.
pub type Uses = (libc::c_long, &'static [Use]);

/// What a mux may call, in whole groups where another libc or kernel uses other calls for the same.
/// It executes no programs, and takes no descriptors of others: with one, a mux that was taken over
/// would see what it is not shown.
const ALLOWED: &[(&str, libc::c_long)] = calls! {
    SYS_brk SYS_clock_getres SYS_clock_gettime SYS_clock_nanosleep SYS_exit SYS_exit_group
    SYS_futex SYS_get_robust_list SYS_getegid SYS_geteuid SYS_getgid SYS_getgroups SYS_getpgid
    SYS_getpid SYS_getppid SYS_getrandom SYS_getresgid SYS_getresuid SYS_getsid SYS_gettid
    SYS_gettimeofday SYS_getuid SYS_membarrier SYS_mmap SYS_mprotect SYS_munmap SYS_nanosleep
    SYS_prlimit64 SYS_restart_syscall SYS_rseq SYS_rt_sigreturn SYS_sched_getaffinity
    SYS_sched_yield SYS_set_robust_list SYS_set_tid_address

    SYS_close SYS_close_range SYS_dup SYS_dup3 SYS_lseek SYS_pread64 SYS_preadv SYS_preadv2
    SYS_pwrite64 SYS_pwritev SYS_pwritev2 SYS_read SYS_readv SYS_write SYS_writev

    SYS_chdir SYS_faccessat SYS_faccessat2 SYS_fallocate SYS_fchdir SYS_fchmod SYS_fchmodat
    SYS_fcntl SYS_fstat SYS_fstatfs SYS_ftruncate SYS_getcwd SYS_getdents64 SYS_linkat
    SYS_mkdirat SYS_mknodat SYS_newfstatat SYS_openat SYS_readlinkat SYS_renameat2
    SYS_statfs SYS_statx SYS_symlinkat SYS_truncate SYS_unlinkat SYS_utimensat

    SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_eventfd2 SYS_ppoll
    SYS_pselect6

    SYS_accept SYS_accept4 SYS_bind SYS_connect SYS_getpeername SYS_getsockname SYS_getsockopt
    SYS_listen SYS_recvfrom SYS_sendmmsg SYS_sendmsg SYS_sendto SYS_setsockopt SYS_shutdown

    SYS_capget SYS_clone SYS_clone3 SYS_getrusage SYS_prctl SYS_times SYS_wait4 SYS_waitid

    SYS_rt_sigaction SYS_rt_sigpending SYS_rt_sigprocmask SYS_rt_sigsuspend SYS_rt_sigtimedwait
    SYS_sigaltstack SYS_signalfd4 SYS_timerfd_create SYS_timerfd_gettime SYS_timerfd_settime

    SYS_flock SYS_getcpu SYS_getpriority SYS_ioctl SYS_madvise SYS_memfd_create SYS_mremap
    SYS_name_to_handle_at SYS_pipe2 SYS_splice SYS_sysinfo SYS_tee SYS_umask SYS_uname
};

/// The older calls for the same, which some machines still have.
#[cfg(target_arch = "x86_64")]
const ALLOWED_OLD: &[(&str, libc::c_long)] = calls! {
    SYS_access SYS_arch_prctl SYS_chmod SYS_creat SYS_dup2 SYS_epoll_create SYS_epoll_wait
    SYS_eventfd SYS_getdents SYS_getpgrp SYS_getrlimit SYS_link SYS_lstat SYS_mkdir SYS_mknod
    SYS_open SYS_pause SYS_pipe SYS_poll SYS_readlink SYS_rename SYS_renameat SYS_rmdir SYS_select
    SYS_signalfd SYS_stat SYS_symlink SYS_time SYS_unlink SYS_utime SYS_utimes
};
#[cfg(target_arch = "aarch64")]
const ALLOWED_OLD: &[(&str, libc::c_long)] = calls! { SYS_renameat };
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ALLOWED_OLD: &[(&str, libc::c_long)] = &[];

/// What a mux calls besides that stays the user that started it. Root's renews files that belonged
/// to another mux, takes off what rkt has mounted over a terminal's name, and runs before others
/// where PID 1 reads the same FIFOs. The kernel lets other users do none of that.
const ALLOWED_TO_ROOT: &[(&str, libc::c_long)] = calls! {
    SYS_fchown SYS_fchownat SYS_sched_setscheduler SYS_setpriority SYS_umount2
};
#[cfg(target_arch = "x86_64")]
const ALLOWED_TO_ROOT_OLD: &[(&str, libc::c_long)] = calls! { SYS_chown SYS_lchown };
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_TO_ROOT_OLD: &[(&str, libc::c_long)] = &[];

/// Uses of a call whose mode, this argument, would make a file run as its owner or group. Where the
/// mode does not count, it is 0.
macro_rules! sets_id {
    ($mode:literal) => {
        &[&[set($mode, SETUID)], &[set($mode, SETGID)]]
    };
}

/// Uses of allowed calls that no mux makes: code in memory that was not code from the start (a
/// process that makes itself dumpable could write over its own, in /proc/self/mem), processes of its
/// own, which would outlive it, namespaces, files that run as their owner or group, and what reaches
/// other processes of the same user. That is: signals about a descriptor, which can be any signal for
/// any process (`F_SETOWN`, `F_SETSIG` and `F_SETOWN_EX` of fcntl(2), and the same by ioctl(2)), and
/// limits of another process.
const HARMFUL: &[Uses] = &[
    (libc::SYS_fcntl, &[&[(1, Eq, 8)], &[(1, Eq, 10)], &[(1, Eq, 15)]]),
    (libc::SYS_ioctl, &[&[(1, Eq, 0x8901)], &[(1, Eq, 0x8902)]]),
    (libc::SYS_prctl, &[&[(0, Eq, libc::PR_SET_DUMPABLE.cast_unsigned()), (1, Ne, 0)]]),
    (libc::SYS_prlimit64, &[&[(0, Ne, 0)]]),
    (libc::SYS_mmap, &[&[set(2, EXECUTABLE)]]),
    (libc::SYS_mprotect, &[&[set(2, EXECUTABLE)]]),
    (
        libc::SYS_clone,
        &[
            &[(0, MaskedEq(libc::CLONE_THREAD.cast_unsigned() as u64), 0)],
            &[set(0, libc::CLONE_NEWCGROUP)],
            &[set(0, libc::CLONE_NEWIPC)],
            &[set(0, libc::CLONE_NEWNET)],
            &[set(0, libc::CLONE_NEWNS)],
            &[set(0, libc::CLONE_NEWPID)],
            &[set(0, libc::CLONE_NEWUSER)],
            &[set(0, libc::CLONE_NEWUTS)],
        ],
    ),
    (libc::SYS_fchmod, sets_id!(1)),
    (libc::SYS_fchmodat, sets_id!(2)),
    (libc::SYS_mknodat, sets_id!(2)),
    (libc::SYS_openat, sets_id!(3)),
];

/// The older calls for the same.
#[cfg(target_arch = "x86_64")]
const HARMFUL_OLD: &[Uses] = &[
    (libc::SYS_chmod, sets_id!(1)),
    (libc::SYS_creat, sets_id!(1)),
    (libc::SYS_mknod, sets_id!(1)),
    (libc::SYS_open, sets_id!(2)),
];
#[cfg(not(target_arch = "x86_64"))]
const HARMFUL_OLD: &[Uses] = &[];

/// The sockets that a mux makes.
const UNIX_SOCKETS: [Uses; 2] = [
    (libc::SYS_socket, &[&[(0, Eq, libc::AF_UNIX.cast_unsigned())]]),
    (libc::SYS_socketpair, &[&[(0, Eq, libc::AF_UNIX.cast_unsigned())]]),
];

const EXECUTABLE: i32 = libc::PROT_EXEC;
const SETUID: i32 = 0o4000;
const SETGID: i32 = 0o2000;

/// An argument that has this bit.
const fn set(argument: u8, bit: i32) -> (u8, SeccompCmpOp, u32) {
    let bit = bit.cast_unsigned();
    (argument, MaskedEq(bit as u64), bit)
}

/// Makes this thread and what it starts get EPERM for [`HARMFUL`] uses of calls. This fails if the
/// kernel has no filters.
pub(crate) fn refuse_harmful_uses() -> io::Result<()> {
    refuse(&[HARMFUL, HARMFUL_OLD].concat(), libc::EPERM)?;
    // A filter does not see its flags, which are in memory. With this error libcs use clone(2).
    refuse(&[(libc::SYS_clone3, &[])], libc::ENOSYS)
}

/// Makes this thread and what it starts get EPERM for all calls but those of [`ALLOWED`], with
/// `is_root` also those of [`ALLOWED_TO_ROOT`], and for sockets that are not unix sockets. It is the
/// last filter, since it allows no further one. This fails if the kernel has no filters.
pub(crate) fn refuse_other_calls(is_root: bool) -> io::Result<()> {
    let of_root = ALLOWED_TO_ROOT.iter().chain(ALLOWED_TO_ROOT_OLD).filter(|_| is_root);
    let names = ALLOWED.iter().chain(ALLOWED_OLD).chain(of_root);
    let allowed = names.map(|(_, call)| (*call, &[] as &[Use]));
    let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    apply(allowed.chain(UNIX_SOCKETS), refused, SeccompAction::Allow)
}

/// From here on this process, which has one thread, may only read and write open descriptors, and
/// end by [`crate::sys::calls::exit_now`]; the kernel kills it for any other system call. This fails
/// if the kernel has no filters.
pub(crate) fn allow_only_reading_and_writing() -> io::Result<()> {
    const LEFT: [libc::c_long; 3] = [libc::SYS_read, libc::SYS_write, libc::SYS_exit];
    let left = LEFT.map(|call| (call, &[] as &[Use]));
    apply(left.into_iter(), SeccompAction::KillProcess, SeccompAction::Allow)
}

/// Makes these uses of this thread and what it starts fail with this error (errno), instead of doing
/// anything. This fails if the kernel has no filters.
pub fn refuse(uses: &[Uses], error: i32) -> io::Result<()> {
    let refused = SeccompAction::Errno(error.cast_unsigned());
    apply(uses.iter().copied(), SeccompAction::Allow, refused)
}

/// Has the kernel filter the calls of this thread and what it starts, besides the filters that it
/// has. A call without uses matches always. Calls in the numbers of another machine, such as the
/// 32 bits of this one, end the process.
fn apply(
    uses: impl Iterator<Item = Uses>,
    others: SeccompAction,
    matching: SeccompAction,
) -> io::Result<()> {
    let rule = |which: &Use| {
        let compare = |(argument, how, value): &(u8, SeccompCmpOp, u32)| {
            let length = SeccompCmpArgLen::Dword;
            SeccompCondition::new(*argument, length, how.clone(), u64::from(*value))
        };
        SeccompRule::new(which.iter().map(compare).collect::<Result<_, _>>()?)
    };
    let call = |(call, uses): Uses| Ok((call, uses.iter().map(rule).collect::<Result<_, _>>()?));
    let build = || -> Result<_, seccompiler::BackendError> {
        let rules = uses.map(call).collect::<Result<BTreeMap<i64, Vec<_>>, _>>()?;
        SeccompFilter::new(rules, others, matching, ARCH.try_into()?)?.try_into()
    };
    let program: seccompiler::BpfProgram = build().map_err(io::Error::other)?;
    apply_filter(&program).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
    use std::process::Command;

    use nix::sys::prctl;
    use nix::unistd::getpid;
    use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, socketpair};

    use super::*;

    fn internet_pair() -> io::Result<()> {
        let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
        Ok(socketpair(family, kind, SocketFlags::empty(), None).map(drop)?)
    }

    fn take_descriptors() -> io::Result<()> {
        let (_writer, reader) = std::os::unix::net::UnixStream::pair()?;
        let reader = std::os::fd::OwnedFd::from(reader);
        crate::sys::fd_message::receive(&reader, &mut [0], RecvFlags::DONTWAIT).map(drop)
    }

    /// In a thread of its own, since a filter cannot be removed.
    #[test]
    fn calls_that_no_mux_makes_are_refused() {
        let tries = || {
            prctl::set_no_new_privs().unwrap();
            refuse_harmful_uses().unwrap();
            refuse_other_calls(false).unwrap();
            let refused = |result: io::Result<()>| {
                result.is_err_and(|e| e.raw_os_error() == Some(libc::EPERM))
            };
            assert!(refused(Command::new("/bin/true").spawn().map(drop)));
            // Not even as far as that a process finds no directory.
            assert!(refused(Command::new("/bin/true").current_dir("/none").spawn().map(drop)));
            assert!(refused(nix::sys::signal::kill(getpid(), None).map_err(io::Error::from)));
            assert!(refused(std::net::TcpListener::bind("127.0.0.1:0").map(drop)));
            assert!(refused(prctl::set_dumpable(true).map_err(io::Error::from)));
            assert!(refused(internet_pair()));
            assert!(refused(take_descriptors()));
            let file = tempfile::tempfile().unwrap();
            let mode = |mode| file.set_permissions(std::fs::Permissions::from_mode(mode));
            assert!(refused(mode(0o4700)) && refused(mode(0o2070)) && mode(0o1777).is_ok());
            let dir = tempfile::tempdir().unwrap();
            let make = |mode, name| {
                let mut how = std::fs::OpenOptions::new();
                how.write(true).create(true).mode(mode).open(dir.path().join(name)).map(drop)
            };
            assert!(refused(make(0o4700, "a")) && make(0o600, "a").is_ok());
            // What a mux does goes on.
            assert!(std::os::unix::net::UnixStream::pair().is_ok());
            assert!(std::fs::read("/proc/self/maps").is_ok());
            std::thread::spawn(|| ()).join().unwrap();
        };
        std::thread::spawn(tries).join().unwrap();
    }
}
