//! The app as a unit of systemd: how it ended, in the words of those who know it.
//!
//! Pure but for the environment, which [`ended`] and [`started`] read: texts in, a status out.

use std::env;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use nix::libc;
use nix::sys::signal::Signal;

use crate::proto::{AppStatus, Started};

/// What systemd tells an `ExecStopPost=` hook of the main process in its environment.
///
/// # Errors
/// When this is no such hook, or there was no main process.
pub fn ended() -> Result<AppStatus> {
    let variable = |name: &str| {
        env::var(name).with_context(|| format!("no ExecStopPost= hook of an app that ran: {name}"))
    };
    // Set in such a hook only, even when the others are not.
    variable("SERVICE_RESULT")?;
    let (code, status) = (variable("EXIT_CODE")?, variable("EXIT_STATUS")?);
    told_to_hook(&code, &status).with_context(|| {
        let (code, status) = (code.escape_debug(), status.escape_debug());
        format!("EXIT_CODE={code} with EXIT_STATUS={status} is no end of an app")
    })
}

/// What systemd tells an `ExecStartPost=` hook of the main process in its environment.
///
/// # Errors
/// When this is no such hook, or there is no main process.
pub fn started() -> Result<Started> {
    let pid = env::var("MAINPID").context("no ExecStartPost= hook of an app that runs: MAINPID")?;
    match pid.parse() {
        Ok(pid) if pid > 0 => Ok(Started { pid }),
        _ => bail!("MAINPID={} is no process", pid.escape_debug()),
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
    u8::try_from(number).ok().filter(|number| (1..=64).contains(number))
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
}
