//! The app as a unit of systemd: how it ended, in the words of those who know it.
//!
//! Texts in, a status out; [`ended`] and [`started`] read the environment, and [`inquiry`] asks.

mod inquiry;

use std::env;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use nix::libc;
use nix::sys::signal::Signal;

pub(crate) use super::unit::inquiry::Inquiry;

use crate::wire::{AppStatus, Started};

/// Whether this very process is one of a unit: the variables are inherited by everything that is
/// started from one.
pub(crate) fn is_ours() -> bool {
    // Since 248; before, the other has to do.
    let us = env::var("SYSTEMD_EXEC_PID").map_or(true, |pid| pid == std::process::id().to_string());
    us && env::var_os("INVOCATION_ID").is_some()
}

/// Whether the manager that has started this process is a user's.
pub(crate) fn is_of_user() -> bool {
    env::var_os("MANAGERPID").is_some()
}

/// The number of the run of a unit that this process belongs to.
#[must_use]
pub fn run() -> Option<String> {
    env::var("INVOCATION_ID").ok()
}

/// The highest number of a signal.
const LAST_SIGNAL: u8 = 64;

/// What systemd tells an `ExecStopPost=` hook of the main process in its environment; `None` where there
/// was none, as after an `ExecStartPre=` that failed.
pub(crate) fn ended() -> Result<Option<AppStatus>> {
    // Set in such a hook only, even when the others are not.
    env::var("SERVICE_RESULT")
        .context("not an ExecStopPost= command of systemd: SERVICE_RESULT")?;
    let Ok(code) = env::var("EXIT_CODE") else { return Ok(None) };
    let status = env::var("EXIT_STATUS").context("EXIT_CODE without EXIT_STATUS")?;
    let told = told_to_hook(&code, &status).with_context(|| {
        let (code, status) = (code.escape_debug(), status.escape_debug());
        format!("invalid EXIT_CODE={code} with EXIT_STATUS={status}")
    });
    told.map(Some)
}

/// What systemd tells an `ExecStartPost=` hook of the main process in its environment; `None` where there
/// is none, as with `Type=oneshot`, which has ended by then.
pub(crate) fn started() -> Result<Option<Started>> {
    let pid = match env::var("MAINPID") {
        Ok(pid) => pid,
        Err(_) if is_ours() => return Ok(None),
        Err(e) => return Err(e).context("not an ExecStartPost= command of systemd: MAINPID"),
    };
    match pid.parse() {
        Ok(pid) if pid > 0 => Ok(Some(Started { pid })),
        _ => bail!("invalid MAINPID={}", pid.escape_debug()),
    }
}

/// `EXIT_CODE` and `EXIT_STATUS` of systemd.exec(5): a number, or the name of a signal.
fn told_to_hook(code: &str, status: &str) -> Option<AppStatus> {
    match code {
        "exited" => status.parse().ok().map(AppStatus::Status),
        "killed" | "dumped" => signal(status).map(AppStatus::Signal),
        _ => None,
    }
}

/// What PID 1 shows of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MainProcess {
    /// Its main process has ended so, and is not started again by itself.
    Ended(AppStatus),
    /// It runs, or is about to.
    Runs,
    /// Neither: there is no such unit, it has not run, or it is being stopped.
    Unknown,
}

/// The output of `systemctl show` for ActiveState, ExecMainCode and ExecMainStatus.
fn shown(text: &str) -> Result<MainProcess> {
    let property = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.with_context(|| format!("no {name} in {text:?}"))
    };
    let (state, code) = (property("ActiveState")?, property("ExecMainCode")?);
    let status = property("ExecMainStatus")?.parse::<u8>();
    // The codes are those of waitid(2): exited, killed, dumped.
    Ok(match (state, code, status) {
        ("active" | "activating" | "reloading" | "refreshing", _, _) => MainProcess::Runs,
        (_, "0", _) => MainProcess::Unknown,
        (_, "1", Ok(status)) => MainProcess::Ended(AppStatus::Status(status)),
        (_, "2" | "3", Ok(signal @ 1..=LAST_SIGNAL)) => {
            MainProcess::Ended(AppStatus::Signal(signal))
        }
        _ => bail!("cannot parse {text:?}"),
    })
}

/// The number that a reaper of rkt writes. It is that of a signal where one ended the app, which
/// cannot be told from a status.
fn reaped(text: &[u8]) -> Result<AppStatus> {
    let number = text.strip_suffix(b"\n").unwrap_or(text);
    let status = std::str::from_utf8(number).ok().filter(|n| !n.starts_with('+'));
    match status.and_then(|n| n.parse().ok()) {
        Some(status) => Ok(AppStatus::Status(status)),
        None => bail!("invalid exit status \"{}\"", text.escape_ascii()),
    }
}

/// The number of a signal as systemd names it: `TERM`, `RTMIN+3`, or a number.
fn signal(name: &str) -> Option<u8> {
    let number = if let Some(above) = name.strip_prefix("RTMIN+") {
        libc::SIGRTMIN().checked_add(above.parse::<u8>().ok()?.into())?
    } else if name == "RTMIN" {
        libc::SIGRTMIN()
    } else if let Ok(signal) = Signal::from_str(&format!("SIG{name}")) {
        signal as i32
    } else {
        name.parse::<u8>().ok()?.into()
    };
    u8::try_from(number).ok().filter(|number| (1..=LAST_SIGNAL).contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hooks_are_told() {
        use AppStatus::{Signal, Status};
        for (code, status, want) in [
            ("exited", "0", Some(Status(0))),
            ("exited", "255", Some(Status(255))),
            ("exited", "256", None),
            ("exited", "", None),
            ("exited", "TERM", None),
            ("killed", "TERM", Some(Signal(15))),
            ("killed", "KILL", Some(Signal(9))),
            ("dumped", "SEGV", Some(Signal(11))),
            ("killed", "RTMIN+3", u8::try_from(libc::SIGRTMIN() + 3).ok().map(Signal)),
            ("killed", "RTMIN+99", None),
            ("killed", "RTMIN+-1", None),
            ("killed", "35", Some(Signal(35))),
            ("killed", "0", None),
            ("killed", "SIGTERM", None),
            ("killed", "\u{1b}[2J", None),
            ("Killed", "TERM", None),
            ("", "", None),
        ] {
            assert_eq!(told_to_hook(code, status), want, "{code} {status}");
        }
    }

    #[test]
    fn what_pid_1_shows() {
        use AppStatus::{Signal, Status};
        let ended = |status| Some(MainProcess::Ended(status));
        for (state, code, status, want) in [
            ("inactive", "1", "0", ended(Status(0))),
            ("failed", "1", "255", ended(Status(255))),
            ("deactivating", "1", "3", ended(Status(3))),
            ("failed", "2", "9", ended(Signal(9))),
            ("failed", "3", "11", ended(Signal(11))),
            ("active", "0", "0", Some(MainProcess::Runs)),
            // One that runs again has ended before.
            ("active", "1", "3", Some(MainProcess::Runs)),
            ("activating", "1", "3", Some(MainProcess::Runs)),
            ("reloading", "0", "0", Some(MainProcess::Runs)),
            ("inactive", "0", "0", Some(MainProcess::Unknown)),
            ("deactivating", "0", "0", Some(MainProcess::Unknown)),
            ("failed", "1", "256", None),
            ("failed", "1", "-1", None),
            ("failed", "1", "", None),
            ("failed", "2", "0", None),
            ("failed", "2", "65", None),
            ("failed", "4", "1", None),
            ("failed", "exited", "1", None),
            ("\u{1b}[2J", "", "", None),
        ] {
            let text =
                format!("ExecMainCode={code}\nExecMainStatus={status}\nActiveState={state}\n");
            assert_eq!(shown(&text).ok(), want, "{text:?}");
        }
        for odd in ["", "ActiveState=failed\n", "ExecMainCode 1", "\n\n"] {
            assert!(shown(odd).is_err(), "{odd:?}");
        }
    }

    #[test]
    fn what_a_reaper_writes() {
        for (text, want) in [
            (&b"0\n"[..], Some(0)),
            (b"3", Some(3)),
            (b"255\n", Some(255)),
            (b"256\n", None),
            (b"-1\n", None),
            (b"+1\n", None),
            (b"3\n\n", None),
            (b" 3\n", None),
            (b"demo\n", None),
            (b"\x1b[2J", None),
            (b"\xff\n", None),
            (b"\n", None),
        ] {
            assert_eq!(reaped(text).ok(), want.map(AppStatus::Status), "{}", text.escape_ascii());
        }
    }
}
