//! The system calls of a mux, as filters of the kernel (seccomp(2)).
//!
//! A mux of a unit has the `SystemCallFilter=` of the templates. That of a container has no unit: it
//! refuses all but [`ALLOWED`] itself, which the templates allow as well.

use std::io;

use nix::libc;

use super::sys;

/// Names of system calls, with their numbers.
macro_rules! calls {
    ($($name:ident)*) => { &[$((stringify!($name), libc::$name)),*] };
}

/// A system call that is refused for some values of one of its arguments.
struct RefusedCall {
    call: libc::c_long,
    /// Where the filter finds it.
    argument: u32,
    values: &'static [u32],
    /// Whether these values alone are allowed, instead of refused.
    are_allowed: bool,
}

/// Calls that reach other processes of the same user: signals about a descriptor, which can be any
/// signal for any process (`F_SETOWN` and `F_SETSIG` of fcntl(2), and the same by ioctl(2)), and
/// limits of another process.
const REACHING_OTHERS: [RefusedCall; 3] = [
    RefusedCall {
        call: libc::SYS_fcntl,
        argument: argument(1),
        values: &[8, 10, 15],
        are_allowed: false,
    },
    RefusedCall {
        call: libc::SYS_ioctl,
        argument: argument(1),
        values: &[0x8901, 0x8902],
        are_allowed: false,
    },
    RefusedCall {
        call: libc::SYS_prlimit64,
        argument: argument(0),
        values: &[0],
        are_allowed: true,
    },
];

/// Makes this thread and what it starts get EPERM for sending a signal to another process by a
/// descriptor, and for setting its limits. `SystemCallFilter=` cannot do that: it does not see
/// arguments. This fails if the kernel has no filters, or the process lacks `no_new_privs`.
pub(crate) fn refuse_to_reach_others() -> io::Result<()> {
    let end = |what: u32| instruction(RETURN, what);
    let (allow, refuse) =
        (libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned());
    let mut program = Vec::new();
    for RefusedCall { call, argument, values, are_allowed } in REACHING_OTHERS {
        let (listed, others) = if are_allowed { (allow, refuse) } else { (refuse, allow) };
        let mut body = vec![instruction(LOAD, argument)];
        body.extend(values.iter().flat_map(|value| [unless(*value, 1), end(listed)]));
        body.push(end(others));
        let call = u32::try_from(call).map_err(io::Error::other)?;
        let length = u8::try_from(body.len()).map_err(io::Error::other)?;
        program.extend([instruction(LOAD, NUMBER), unless(call, length)]);
        program.extend(body);
    }
    program.push(end(allow));
    sys::filter(&mut program)
}

/// What the mux of a container may call. It is the list of the templates, less what a mux does not
/// do: executing programs, extended attributes, interval timers. Whole groups stay where another
/// libc or kernel uses other calls for the same.
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
    SYS_mkdirat SYS_mknodat SYS_newfstatat SYS_openat SYS_openat2 SYS_readlinkat SYS_renameat2
    SYS_statfs SYS_statx SYS_symlinkat SYS_truncate SYS_unlinkat SYS_utimensat

    SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_eventfd2 SYS_ppoll
    SYS_pselect6

    SYS_accept SYS_accept4 SYS_bind SYS_connect SYS_getpeername SYS_getsockname SYS_getsockopt
    SYS_listen SYS_recvfrom SYS_recvmmsg SYS_recvmsg SYS_sendmmsg SYS_sendmsg SYS_sendto
    SYS_setsockopt SYS_shutdown SYS_socketpair

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

/// Makes this thread and what it starts get EPERM for all calls but those of [`ALLOWED`] and the
/// given ones, and for sockets that are not unix sockets. It fails as [`sys::filter`] does.
pub fn refuse_other_calls(besides: &[libc::c_long]) -> io::Result<()> {
    let refuse = instruction(RETURN, libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned());
    let allow = instruction(RETURN, libc::SECCOMP_RET_ALLOW);
    let mut program = Vec::new();
    if let Some(machine) = MACHINE {
        // Other machines, such as the 32 bits of this one, have other numbers.
        let is_ours = libc::sock_filter { jt: 1, ..instruction(JUMP_IF_EQUAL, machine) };
        program.extend([instruction(LOAD, MACHINE_OFFSET), is_ours, refuse]);
    }
    program.push(instruction(LOAD, NUMBER));
    let allowed = ALLOWED.iter().chain(ALLOWED_OLD).map(|(_, call)| call);
    for call in allowed.chain(besides) {
        let call = u32::try_from(*call).map_err(io::Error::other)?;
        program.extend([unless(call, 1), allow]);
    }
    let socket = u32::try_from(libc::SYS_socket).map_err(io::Error::other)?;
    let unix = u32::try_from(libc::AF_UNIX).map_err(io::Error::other)?;
    program.extend([unless(socket, 3), instruction(LOAD, argument(0)), unless(unix, 1), allow]);
    program.push(refuse);
    sys::filter(&mut program)
}

/// The instructions of such a filter (`BPF_LD | BPF_W | BPF_ABS` and the others of linux/filter.h).
const LOAD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
/// The offsets of the call's number and of the machine in the filter's input (`struct
/// seccomp_data`).
const NUMBER: u32 = 0;
const MACHINE_OFFSET: u32 = 4;
/// This machine there (`AUDIT_ARCH_X86_64` and others of linux/audit.h), where it has several kinds
/// of numbers.
const MACHINE: Option<u32> = if cfg!(target_arch = "x86_64") {
    Some(0xc000_003e)
} else if cfg!(target_arch = "aarch64") {
    Some(0xc000_00b7)
} else {
    None
};

/// Where the lower half of an argument is there.
const fn argument(index: u32) -> u32 {
    16 + 8 * index + if cfg!(target_endian = "big") { 4 } else { 0 }
}

fn instruction(code: u16, value: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf: 0, k: value }
}

/// Skips this many instructions unless this value was loaded.
fn unless(value: u32, length: u8) -> libc::sock_filter {
    let jump = instruction(JUMP_IF_EQUAL, value);
    libc::sock_filter { jf: length, ..jump }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::process::Command;

    use nix::sys::prctl;
    use nix::unistd::getpid;

    use super::*;

    /// In a thread of its own, since a filter cannot be removed.
    #[test]
    fn calls_that_no_mux_makes_are_refused() {
        let tries = || {
            prctl::set_no_new_privs().unwrap();
            refuse_other_calls(&[]).unwrap();
            let refused = |result: io::Result<()>| {
                result.is_err_and(|e| e.raw_os_error() == Some(libc::EPERM))
            };
            assert!(refused(Command::new("/bin/true").spawn().map(drop)));
            assert!(refused(nix::sys::signal::kill(getpid(), None).map_err(io::Error::from)));
            assert!(refused(std::net::TcpListener::bind("127.0.0.1:0").map(drop)));
            // What a mux does goes on.
            assert!(std::os::unix::net::UnixStream::pair().is_ok());
            assert!(std::fs::read("/proc/self/maps").is_ok());
            std::thread::spawn(|| ()).join().unwrap();
        };
        std::thread::spawn(tries).join().unwrap();
    }

    /// The calls that these words of `SystemCallFilter=` mean, as systemd knows its groups.
    fn expanded<'a>(words: impl Iterator<Item = &'a str>) -> Option<BTreeSet<String>> {
        let mut calls = BTreeSet::new();
        for word in words {
            if !word.starts_with('@') {
                calls.insert(word.to_owned());
                continue;
            }
            let asked = Command::new("systemd-analyze").args(["syscall-filter", word]).output();
            let text = String::from_utf8(asked.ok().filter(|asked| asked.status.success())?.stdout);
            let text = text.unwrap();
            let names = text.lines().skip(1).map(str::trim);
            let (groups, names): (Vec<&str>, Vec<&str>) =
                names.filter(|name| !name.starts_with('#')).partition(|name| name.starts_with('@'));
            calls.extend(names.into_iter().map(str::to_owned));
            calls.extend(expanded(groups.into_iter())?);
        }
        Some(calls)
    }

    /// The words of `SystemCallFilter=` in the templates that allow something, or that refuse it.
    fn words_of_the_templates(are_refused: bool) -> impl Iterator<Item = &'static str> {
        let unit = include_str!("../../units/iomux@.service");
        let lines = unit.lines().filter_map(|line| line.strip_prefix("SystemCallFilter="));
        let lines = lines.filter(move |line| line.starts_with('~') == are_refused);
        lines.flat_map(|line| line.trim_start_matches('~').split_whitespace())
    }

    #[test]
    fn calls_that_the_templates_name_are_allowed() {
        for call in words_of_the_templates(false).filter(|word| !word.starts_with('@')) {
            let is_it = |(name, _): &(&str, _)| name.strip_prefix("SYS_") == Some(call);
            assert!(ALLOWED.iter().chain(ALLOWED_OLD).any(is_it), "{call}");
        }
    }

    #[test]
    fn the_templates_allow_all_of_it() {
        let Some(allowed) = expanded(words_of_the_templates(false).chain(["@default"])) else {
            println!("skipped: this machine has no systemd-analyze");
            return;
        };
        for (name, _) in ALLOWED.iter().chain(ALLOWED_OLD) {
            let name = name.trim_start_matches("SYS_");
            assert!(allowed.contains(name), "{name}");
            assert!(!words_of_the_templates(true).any(|word| word == name), "{name}");
        }
    }
}
