//! What was typed means: resolved against rkt's variables and the machine, and checked. Everything
//! after this module sees only what is valid.

use std::env;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::app::App;
use crate::attach::Request;
use crate::cli::{AttachArgs, MuxArgs, RunArgs, StreamArgs, TtyArgs};
use crate::limits;
use crate::mux::{Plan, Streams};
use crate::proto::Size;
use crate::state::{AppDir, StateDir};
use crate::stream::Stream;

/// How long to wait: `None` for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait(pub Option<Duration>);

/// The plan of `stream`.
#[must_use]
pub fn stream(args: &StreamArgs, state: &StateDir) -> Plan {
    let enabled = match (&args.streams, rkt_streams()) {
        (Some(streams), _) => in_order(streams),
        (None, Some(streams)) => streams,
        (None, None) => Stream::PLAIN.to_vec(),
    };
    fifos(state.app(&args.app.name), enabled, &args.mux)
}

/// The plan of a mux for these FIFOs. In rkt's mixed modes (a terminal for some of the streams) no
/// FIFO is made: those of the terminal must stay away.
#[must_use]
pub fn fifos(dir: AppDir, enabled: Vec<Stream>, mux: &MuxArgs) -> Plan {
    let make = !go_bool("STAGE2_TTY");
    plan(dir, Streams::Fifos { enabled, make }, mux, None)
}

/// The plan of `tty`.
#[must_use]
pub fn tty(args: &TtyArgs, state: &StateDir) -> Plan {
    terminal(state.app(&args.app.name), args.size, &args.mux)
}

/// The plan of a mux for a terminal.
#[must_use]
pub fn terminal(dir: AppDir, size: Size, mux: &MuxArgs) -> Plan {
    plan(dir, Streams::Terminal { size }, mux, None)
}

fn plan(dir: AppDir, streams: Streams, mux: &MuxArgs, app: Option<App>) -> Plan {
    Plan { dir, streams, backlog: mux.backlog, patience: mux.client_patience, app }
}

/// The plan of `run`.
#[must_use]
pub fn run(args: &RunArgs, state: &StateDir) -> Plan {
    let (rows, cols) = limits::SIZE;
    let streams = if args.tty {
        Streams::Terminal { size: args.size.unwrap_or(Size { rows, cols }) }
    } else {
        Streams::Fifos { enabled: Stream::PLAIN.to_vec(), make: true }
    };
    let waits_until = args.await_client.then(|| Instant::now() + limits::FIRST_CLIENT);
    let app = App::new(&args.command, args.tty, waits_until);
    plan(state.app(&args.app.name), streams, &args.mux, Some(app))
}

/// What `attach` is to do.
#[must_use]
pub fn attach(args: &AttachArgs, state: &StateDir) -> Request {
    Request {
        dir: state.app(&args.app.name),
        mode: args.mode.clone(),
        wait: args.wait.map_or(Some(Duration::ZERO), |wait| wait.0),
        stdin_once: args.stdin_once,
        from: args.from,
        detach_keys: args.keys.detach_keys.clone(),
    }
}

/// The streams that rkt's variables enable; `None` when none of them is set.
#[must_use]
pub fn rkt_streams() -> Option<Vec<Stream>> {
    const NAMES: [(&str, Stream); 3] = [
        ("STAGE2_STDIN", Stream::Stdin),
        ("STAGE2_STDOUT", Stream::Stdout),
        ("STAGE2_STDERR", Stream::Stderr),
    ];
    let set = NAMES.iter().any(|(name, _)| env::var_os(name).is_some());
    let enabled = NAMES.iter().filter(|(name, _)| go_bool(name)).map(|(_, stream)| *stream);
    set.then(|| enabled.collect())
}

/// A variable as Go's `strconv.ParseBool` reads it; unset or anything else is false.
#[must_use]
pub fn go_bool(name: &str) -> bool {
    env::var(name).is_ok_and(|value| is_true(&value))
}

fn is_true(text: &str) -> bool {
    matches!(text, "1" | "t" | "T" | "TRUE" | "true" | "True")
}

/// Each stream once, in the order of `endpoints`.
fn in_order(streams: &[Stream]) -> Vec<Stream> {
    Stream::PLAIN.into_iter().filter(|s| streams.contains(s)).collect()
}

/// Parses one of the streams that can have a FIFO.
///
/// # Errors
/// When it is none.
pub fn plain_stream(text: &str) -> Result<Stream, String> {
    let plain = Stream::PLAIN.into_iter().find(|s| s.name() == text);
    plain.ok_or_else(|| "a stream is stdin, stdout or stderr".to_owned())
}

/// Parses `ROWSxCOLS`.
///
/// # Errors
/// When it is not two numbers from 1 to 65535.
pub fn size(text: &str) -> Result<Size, String> {
    let parse = || {
        let (rows, cols) = text.split_once('x')?;
        let size = Size { rows: rows.parse().ok()?, cols: cols.parse().ok()? };
        (size.rows > 0 && size.cols > 0).then_some(size)
    };
    parse().ok_or_else(|| "a size is ROWSxCOLS, each from 1 to 65535".to_owned())
}

/// Parses a time in seconds, or `inf`.
///
/// # Errors
/// When it is neither.
pub fn wait(text: &str) -> Result<Wait, String> {
    if text == "inf" {
        return Ok(Wait(None));
    }
    seconds(text).map(|wait| Wait(Some(wait))).map_err(|why| why + ", or inf")
}

/// Parses a time in seconds, from 0 to 4 million.
///
/// # Errors
/// When it is none.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
    // So that it is a number of milliseconds that fits 32 bits.
    seconds
        .filter(|time| u32::try_from(time.as_millis()).is_ok())
        .ok_or_else(|| "a time is a number of seconds".to_owned())
}

/// Parses the size of the backlog in bytes.
///
/// # Errors
/// When it is no size, or out of the limits.
pub fn backlog(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'M') => (&text[..text.len() - 1], 1 << 20),
        Some(b'G') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    digits
        .parse::<usize>()
        .ok()
        .and_then(|number| number.checked_mul(unit))
        .filter(|bytes| (limits::BACKLOG_MIN..=limits::BACKLOG_MAX).contains(bytes))
        .ok_or_else(|| "a backlog is a number of bytes from 4K to 1G".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_their_limits() {
        assert_eq!(size("24x80"), Ok(Size { rows: 24, cols: 80 }));
        for bad in ["", "24", "0x80", "24x0", "24x65536", "x", "-1x2", "24x80x1"] {
            assert!(size(bad).is_err(), "{bad}");
        }
        for (text, want) in [
            ("4096", Some(4096)),
            ("256K", Some(262_144)),
            ("1G", Some(1 << 30)),
            ("4095", None),
            ("2G", None),
            ("K", None),
            ("", None),
            ("99999999999999999999G", None),
            ("1é", None),
        ] {
            assert_eq!(backlog(text).ok(), want, "{text}");
        }
        assert_eq!(wait("1.5"), Ok(Wait(Some(Duration::from_millis(1500)))));
        assert_eq!(wait("inf"), Ok(Wait(None)));
        for bad in ["", "-1", "NaN", "1s"] {
            assert!(wait(bad).is_err(), "{bad}");
        }
        for (text, want) in [("T", true), ("true", true), ("1", true), ("yes", false), ("", false)]
        {
            assert_eq!(is_true(text), want, "{text}");
        }
        assert_eq!(
            in_order(&[Stream::Stderr, Stream::Stdin, Stream::Stderr]),
            [Stream::Stdin, Stream::Stderr]
        );
    }
}
