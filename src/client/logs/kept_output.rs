//! The output of an app that has no log: what its mux keeps of it, or has left of it.

use std::io::{self, IsTerminal};

use anyhow::{Result, bail};

use super::LogsRequest;
use super::line_output::Output;
use crate::client::script::script_session::{AT_ONCE, Session, SessionEvent};
use crate::client::tokio_runtime::block_on;
use crate::core::logfmt::entry::LoggedEntry;
use crate::core::wire::{Gap, Hello, Report, Want};
use crate::screen::transcript::readable;
use crate::sys::documents::last::Last;
use crate::sys::state::AppDir;
use crate::types::limits;
use crate::types::stream::{Position, Stream};
use crate::types::time::Stamp;

/// Prints what the mux keeps, and with --follow new output until the app ends. Returns whether there
/// was a line.
pub(super) fn show(request: &LogsRequest, app: &AppDir, report: &Report) -> Result<bool> {
    check(request, app)?;
    let kept = report.streams.iter().filter(|kept| request.wants.includes(logged(kept.stream)));
    // Up to where the output of each stream was there before.
    let mut missing: Vec<(Stream, u64)> = kept.map(|kept| (kept.stream, kept.bytes)).collect();
    let want = |(stream, _): &(Stream, u64)| Want { stream: *stream, from: Position::Start };
    let streams = missing.iter().map(want).collect();
    // It never holds the app back.
    let hello = Hello { streams, patience_ms: Some(0), ..Hello::default() };
    let mut output = Output::new(request.wants, request.whole_lines(true));
    block_on(async {
        let mut session = Session::open(app, hello, None, None, AT_ONCE).await?;
        missing.retain(|(stream, end)| session.offset(*stream).is_some_and(|at| at < *end));
        while request.follow || !missing.is_empty() {
            if missing.is_empty() {
                output.rest()?;
            }
            match session.next_or_over().await? {
                SessionEvent::Output(stream, text, at) => {
                    missing.retain(|(missing, end)| *missing != stream || at < *end);
                    print(&mut output, stream, &text)?;
                }
                SessionEvent::Lost(Some(Gap { stream, from, to })) => {
                    missing.retain(|(missing, end)| *missing != stream || to < *end);
                    log::warn!("{} bytes of {stream} are lost", to.saturating_sub(from));
                }
                SessionEvent::Lost(None) => missing.clear(),
                SessionEvent::Over(_) => break,
                _ => {}
            }
        }
        output.finish()
    })
}

/// Prints what the last mux has left. Returns whether there was a line.
pub(super) fn show_last(request: &LogsRequest, app: &AppDir, last: &Last) -> Result<bool> {
    check(request, app)?;
    let mut output = Output::new(request.wants, request.whole_lines(true));
    for stream in last.streams.iter().filter(|of| request.wants.includes(logged(of.stream))) {
        if stream.bytes > limits::TAIL as u64 {
            log::warn!("only the last {} bytes of {} are left", limits::TAIL, stream.stream);
        }
        // Somebody reads it; a program gets the bytes.
        let is_read = stream.stream == Stream::Tty && io::stdout().is_terminal();
        let tail =
            if is_read { readable(stream.stream, &stream.tail) } else { stream.tail.clone() };
        print(&mut output, stream.stream, tail.as_bytes())?;
    }
    output.finish()
}

/// Refuses options that need the time of a line.
pub(super) fn check(request: &LogsRequest, app: &AppDir) -> Result<()> {
    let wants = &request.wants;
    let needs_times = [
        ("--since", wants.since > Stamp::default()),
        ("--until", wants.until.is_some()),
        ("--timestamps", wants.stamps),
    ];
    if let Some((option, _)) = needs_times.iter().find(|(_, is_given)| *is_given) {
        bail!(
            "{option} needs the times of lines: the mux of app {} does not keep them",
            app.name()
        );
    }
    Ok(())
}

/// The stream of which these bytes would be in a log.
fn logged(stream: Stream) -> Stream {
    if stream == Stream::Stderr { Stream::Stderr } else { Stream::Stdout }
}

fn print(output: &mut Output, stream: Stream, text: &[u8]) -> Result<()> {
    for part in text.split_inclusive(|byte| *byte == b'\n') {
        let line = part.strip_suffix(b"\n");
        output.print(&LoggedEntry {
            stamp: Stamp::default(),
            written: "".into(),
            stream: logged(stream),
            text: line.unwrap_or(part).into(),
            ends: line.is_some(),
        })?;
    }
    Ok(())
}
