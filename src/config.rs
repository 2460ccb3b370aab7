//! What was typed means: resolved against rkt's variables and the machine, and checked. Everything
//! after this module sees only what is valid.

use std::env;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::app::App;
use crate::attach;
use crate::cli::{
    AloneArgs, AttachArgs, ControlArgs, MuxArgs, OthersArgs, RequestArgs, RunArgs, StreamArgs,
    TtyArgs,
};
use crate::limits;
use crate::mux::{Plan, Streams};
use crate::proto::{Exclusive, Request, Size};
use crate::rights::Lists;
use crate::state::{AppDir, StateDir};
use crate::stream::Stream;
use crate::unit;

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
    let (backlog, patience, keeps_ends) = (mux.backlog, mux.client_patience, app.is_none());
    let OthersArgs { allow_uid, allow_gid, view_uid, view_gid } = mux.others.clone();
    let others = Lists { allow_uid, allow_gid, view_uid, view_gid };
    Plan { dir, streams, backlog, patience, others, keeps_ends, app }
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

/// What `control` is to ask for.
///
/// # Errors
/// When it is for a hook of a unit, and this is none.
pub fn request(args: &ControlArgs) -> Result<Request> {
    let what = |hook: &str| format!("control {hook} of app {}", args.app.name);
    Ok(match args.request {
        RequestArgs::Detach { client } => Request::Detach { client },
        RequestArgs::Resize { size } => Request::Resize(size),
        RequestArgs::Ended => Request::Ended(unit::ended().with_context(|| what("ended"))?),
        RequestArgs::Started => Request::Started(unit::started().with_context(|| what("started"))?),
    })
}

/// What `attach` is to do.
#[must_use]
pub fn attach(args: &AttachArgs, state: &StateDir) -> attach::Request {
    attach::Request {
        dir: state.app(&args.app.name),
        mode: args.mode.clone(),
        wait: args.wait.map_or(Some(Duration::ZERO), |wait| wait.0),
        reconnect: args.reconnect,
        read_only: args.read_only,
        stdin_once: args.stdin_once,
        exclusive: match &args.alone {
            AloneArgs { take_over: true, .. } => Some(Exclusive::Take),
            AloneArgs { exclusive: true, .. } => Some(Exclusive::Ask),
            _ => None,
        },
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_as_go_reads_them_and_streams_in_order() {
        for (text, want) in [("T", true), ("true", true), ("1", true), ("yes", false), ("", false)]
        {
            assert_eq!(is_true(text), want, "{text}");
        }
        let streams = in_order(&[Stream::Stderr, Stream::Stdin, Stream::Stderr]);
        assert_eq!(streams, [Stream::Stdin, Stream::Stderr]);
    }
}
