//! How the app ended, as systemd reports it.
//!
//! [`ended`] and [`started`] read the variables of a hook, and [`inquiry`] asks systemd. The other
//! functions only parse.

mod inquiry;

use std::env;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use nix::libc;
use nix::sys::signal::Signal;

pub(crate) use self::inquiry::Inquiry;

use super::bus::Properties;
use super::manager::Manager;
use super::own_process;
use crate::core::wire::{AppStatus, Started};

/// The highest number of a signal.
const LAST_SIGNAL: u8 = 64;

/// The exit status of the main process, from the variables of an `ExecStopPost=` hook; `None` if
/// there was no main process, for example after a failed `ExecStartPre=`.
pub(crate) fn ended() -> Result<Option<AppStatus>> {
    // Only such a hook has this variable, and always.
    env::var("SERVICE_RESULT")
        .context("not an ExecStopPost= command of systemd: SERVICE_RESULT")?;
    let Ok(code) = env::var("EXIT_CODE") else { return Ok(None) };
    let status = env::var("EXIT_STATUS").context("EXIT_CODE without EXIT_STATUS")?;
    let parsed = hook_status(&code, &status).with_context(|| {
        let (code, status) = (code.escape_debug(), status.escape_debug());
        format!("invalid EXIT_CODE={code} with EXIT_STATUS={status}")
    });
    parsed.map(Some)
}

/// The main process, from the variables of an `ExecStartPost=` hook; `None` if there is no main
/// process, for example with `Type=oneshot`, where it has ended by then.
pub(crate) fn started() -> Result<Option<Started>> {
    let pid = match env::var("MAINPID") {
        Ok(pid) => pid,
        Err(_) if own_process::is_of_unit() => return Ok(None),
        Err(e) => return Err(e).context("not an ExecStartPost= command of systemd: MAINPID"),
    };
    match pid.parse() {
        Ok(pid) if pid > 0 => Ok(Some(Started { pid })),
        _ => bail!("invalid MAINPID={}", pid.escape_debug()),
    }
}

/// `EXIT_CODE` and `EXIT_STATUS` of systemd.exec(5): a number, or the name of a signal.
fn hook_status(code: &str, status: &str) -> Option<AppStatus> {
    match code {
        "exited" => status.parse().ok().map(AppStatus::Status),
        "killed" | "dumped" => signal(status).map(AppStatus::Signal),
        _ => None,
    }
}

/// The state of the main process, according to systemd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MainProcess {
    /// It has ended with this status, and systemd does not start it again.
    Ended(AppStatus),
    /// It runs, or is about to run.
    Runs,
    /// The unit does not exist, has not run, or is stopping.
    Unknown,
}

/// The properties that say how a main process is.
const ASKED: [&str; 3] = ["ActiveState", "ExecMainCode", "ExecMainStatus"];

/// How the main process of a service has ended, unless it runs, or this process cannot ask.
pub(crate) fn of_service(manager: Manager, service: &str) -> Option<AppStatus> {
    match main_process(&manager.properties(service, &ASKED).ok()?).ok()? {
        MainProcess::Ended(status) => Some(status),
        MainProcess::Runs | MainProcess::Unknown => None,
    }
}

/// Parses the values of [`ASKED`].
fn main_process(values: &Properties) -> Result<MainProcess> {
    let [state, code, status] = ASKED;
    let (state, code, status) = (values.text(state), values.number(code), values.number(status));
    let (Some(code), Some(status)) = (code, status.filter(|_| !state.is_empty())) else {
        bail!("cannot parse {values:?}");
    };
    let number = u8::try_from(status);
    // The codes are those of waitid(2): exited, killed, dumped.
    Ok(match (state, code, number) {
        ("active" | "activating" | "reloading" | "refreshing", _, _) => MainProcess::Runs,
        (_, 0, _) => MainProcess::Unknown,
        (_, 1, Ok(status)) => MainProcess::Ended(AppStatus::Status(status)),
        (_, 2 | 3, Ok(signal @ 1..=LAST_SIGNAL)) => MainProcess::Ended(AppStatus::Signal(signal)),
        _ => bail!("cannot parse {values:?}"),
    })
}

/// Parses the name of a signal as systemd writes it: `TERM`, `RTMIN+3`, or a number.
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
    use crate::sys::systemd::bus::Value;

    #[test]
    fn statuses_of_hooks() {
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
            assert_eq!(hook_status(code, status), want, "{code} {status}");
        }
    }

    #[test]
    fn statuses_of_systemd() {
        use AppStatus::{Signal, Status};
        use Value::Number;
        let ended = |status| Some(MainProcess::Ended(status));
        let text = |text: &str| Value::Text(text.to_owned());
        let values = |values: Vec<Value>| ASKED.into_iter().zip(values).collect::<Properties>();
        for (state, code, status, want) in [
            ("inactive", 1, 0, ended(Status(0))),
            ("failed", 1, 255, ended(Status(255))),
            ("deactivating", 1, 3, ended(Status(3))),
            ("failed", 2, 9, ended(Signal(9))),
            ("failed", 3, 11, ended(Signal(11))),
            ("active", 0, 0, Some(MainProcess::Runs)),
            // One that runs again has ended before.
            ("active", 1, 3, Some(MainProcess::Runs)),
            ("activating", 1, 3, Some(MainProcess::Runs)),
            ("reloading", 0, 0, Some(MainProcess::Runs)),
            ("inactive", 0, 0, Some(MainProcess::Unknown)),
            ("deactivating", 0, 0, Some(MainProcess::Unknown)),
            ("failed", 1, 256, None),
            ("failed", 1, -1, None),
            ("failed", 2, 0, None),
            ("failed", 2, 65, None),
            ("failed", 4, 1, None),
            ("\u{1b}[2J", -1, 0, None),
        ] {
            let values = values(vec![text(state), Number(code), Number(status)]);
            assert_eq!(main_process(&values).ok(), want, "{values:?}");
        }
        for odd in [
            vec![],
            vec![Number(1), Number(1), Number(0)],
            vec![text("failed"), text("1"), Number(0)],
            vec![text("failed"), Number(1)],
        ] {
            assert!(main_process(&values(odd.clone())).is_err(), "{odd:?}");
        }
    }
}
