//! What the system knows of other processes: proc(5).

use std::fs::{self, File};
use std::io::Read;
use std::str::FromStr;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::time::{ClockId, clock_gettime};

/// Ticks in a second in proc(5): 100 on all processors for which this program is built.
const TICKS: u64 = 100;
/// The number of the field of `/proc/PID/stat` with the time of the start, in ticks since the boot.
const START: usize = 22;
/// More than `/proc/PID/stat` can have, bytes: 52 numbers of at most 20 digits, and a name.
const MOST: usize = 2048;
/// The number of the first field behind the name of the program, which may have spaces.
const BEHIND_NAME: usize = 3;

/// For how long a process has run; `None` if it is gone, or hidden from this user.
pub(crate) fn age(pid: u32) -> Option<Duration> {
    let start: u64 = stat(pid, START)?;
    let now = Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME).ok()?);
    now.checked_sub(Duration::from_millis(start * 1000 / TICKS))
}

/// Whether a process ignores a signal. `false` if it is gone, or hidden from this user.
pub(crate) fn ignores(pid: u32, signal: Signal) -> bool {
    has(pid, "SigIgn:", signal)
}

/// Whether a signal waits because this process has blocked it.
pub(crate) fn awaits(signal: Signal) -> bool {
    has(std::process::id(), "ShdPnd:", signal)
}

/// Whether a signal is in this set of `/proc/PID/status`.
fn has(pid: u32, set: &str, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix(set));
    let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0);
    set >> (signal as i32 - 1) & 1 == 1
}

/// The field of this number in `/proc/PID/stat`, as proc_pid_stat(5) counts them, from the third on;
/// `None` if the process is gone, or hidden from this user.
pub(crate) fn stat<T: FromStr>(pid: u32, field: usize) -> Option<T> {
    let mut stat = [0; MOST];
    // One read(2) gets all of it.
    let len = File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut stat).ok()?;
    let behind_name = stat[..len].iter().rposition(|byte| *byte == b')')? + 1;
    let fields = str::from_utf8(&stat[behind_name..len]).ok()?;
    fields.split_whitespace().nth(field.checked_sub(BEHIND_NAME)?)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, id};
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_process_is_as_old_as_it_is() {
        let before = Instant::now();
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let age_of_child = age(child.id()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        // The start is known to a tick, and the time since the boot as well.
        let tick = Duration::from_millis(2 * 1000 / TICKS);
        assert!(age_of_child <= before.elapsed() + tick, "{age_of_child:?}");
        assert!(age(id()).unwrap() + tick >= age_of_child);
        assert_eq!(age(child.id()), None);
    }
}
