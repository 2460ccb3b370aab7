//! The output of an app that has no log: what its mux keeps of it, or has left of it.

use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::LogsRequest;
use super::line_output::Output;
use super::watch::{FileWatch, Woken};
use crate::client::find::{self, Hint};
use crate::core::logfmt::entry::LoggedEntry;
use crate::core::wire::session_reader::{FromMux, MuxEvent};
use crate::core::wire::{End, Gap, Hello, Report, Want};
use crate::screen::transcript::readable;
use crate::sys::documents::endpoints::Endpoints;
use crate::sys::documents::last::Last;
use crate::sys::session::{self, OpenSession, Patience};
use crate::sys::state::AppDir;
use crate::types::limits;
use crate::types::stream::{Position, Stream};
use crate::types::time::Stamp;

/// Prints what the mux keeps, and with --follow new output until the app ends. Returns whether there
/// was a line.
pub(super) fn show(request: &LogsRequest, app: &AppDir, report: &Report) -> Result<bool> {
    check(request, app)?;
    let is_wanted = |stream: Stream| request.wants.includes(logged(stream));
    let kept = report.streams.iter().filter(|kept| is_wanted(kept.stream));
    // The streams that have not ended, and up to where their output was there before.
    let mut missing: Vec<(Stream, u64)> = kept.map(|kept| (kept.stream, kept.bytes)).collect();
    let want = |(stream, _): &(Stream, u64)| Want { stream: *stream, from: Position::Start };
    let streams = missing.iter().map(want).collect();
    // It never holds the app back.
    let hello = Hello { streams, patience_ms: Some(0), ..Hello::default() };
    let open = |endpoints: &Endpoints| {
        session::open(app, endpoints.session(), &hello, Patience::For(limits::ANSWER))
    };
    let (session, _) = find::retry(app, Duration::ZERO, Hint::Start, open)?;
    let OpenSession { mut socket, mut reader } = session;
    socket.set_read_timeout(None).context("cannot read from the mux")?;
    let mut output = Output::new(request.wants, request.whole_lines(true));
    let mut buffer = vec![0; limits::LOG_READ];
    let watch = FileWatch::new()?;
    loop {
        missing.retain(|(stream, end)| reader.offset(*stream).is_some_and(|at| at < *end));
        if missing.is_empty() && !request.follow {
            return output.finish();
        }
        if missing.is_empty() {
            output.rest()?;
        }
        match watch.wait(&request.wants, None, Some(socket.as_fd()))? {
            Woken::Readable => {}
            Woken::Closed => return Ok(true),
            Woken::Writing | Woken::Names => continue,
        }
        let len = socket.read(&mut buffer).context("cannot read from the mux")?;
        let mut bytes = &buffer[..len];
        if len == 0 {
            return output.finish();
        }
        while let Some(part) = reader.next(&mut bytes)? {
            match part {
                FromMux::Output(stream, text, _) => print(&mut output, stream, text)?,
                FromMux::Event(MuxEvent::Gap(Gap { stream, from, to })) => {
                    log::warn!("{} bytes of {stream} are lost", to.saturating_sub(from));
                }
                FromMux::Event(MuxEvent::End(End { stream })) => {
                    missing.retain(|(missing, _)| *missing != stream);
                }
                FromMux::Event(MuxEvent::Exit(_) | MuxEvent::Closing | MuxEvent::Detached) => {
                    return output.finish();
                }
                FromMux::Event(MuxEvent::Error(why)) => return Err(session::refusal(app, why)),
                FromMux::Event(_) | FromMux::Screen(..) => {}
            }
        }
    }
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
