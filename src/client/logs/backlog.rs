//! The output of an app that has no log: what its mux keeps of it, or has left of it.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::LogsRequest;
use super::output::Output;
use super::watch::{FileWatch, Woken};
use crate::client::find::{self, Hint};
use crate::core::logfmt::entry::LoggedEntry;
use crate::core::wire::{Decoder, End, FrameKind, Gap, Hello, Item, Refusal, Report, Want};
use crate::screen::transcript::readable;
use crate::sys::documents::last::Last;
use crate::sys::session::{self, Patience};
use crate::sys::state::AppDir;
use crate::types::stream::{Position, Stream};
use crate::types::time::Stamp;
use crate::types::{escape, limits};

/// Prints what the mux keeps, and with --follow new output until the app ends. Returns whether there
/// was a line.
pub(super) fn show(request: &LogsRequest, app: &AppDir, report: &Report) -> Result<bool> {
    check(request, app)?;
    let is_wanted = |stream: Stream| request.wants.includes(logged(stream));
    let kept = report.streams.iter().filter(|kept| is_wanted(kept.stream));
    let mut missing: BTreeMap<Stream, u64> = kept.map(|kept| (kept.stream, kept.bytes)).collect();
    let streams = missing.keys().map(|stream| Want { stream: *stream, from: Position::Start });
    // It never holds the app back.
    let hello = Hello { streams: streams.collect(), patience_ms: Some(0), ..Hello::default() };
    let (mut socket, welcome) = find::retry(app, Some(Duration::ZERO), Hint::Start, |endpoints| {
        let file = endpoints.session().context("its mux does not support sessions")?;
        session::open(app, file, &hello, Patience::For(limits::ANSWER))
    })?;
    socket.set_read_timeout(None).context("cannot read from the mux")?;
    for begin in &welcome.streams {
        pass(&mut missing, begin.stream, begin.offset);
    }
    let mut output = Output::new(request.wants, request.whole_lines(true));
    let (mut decoder, mut buffer) = (Decoder::default(), vec![0; limits::LOG_READ]);
    let watch = FileWatch::new()?;
    loop {
        let is_complete = missing.values().all(|bytes| *bytes == 0);
        if is_complete && !request.follow {
            return output.finish();
        }
        if is_complete {
            output.rest()?;
        }
        match watch.wait_also(&request.wants, None, Some(socket.as_fd()))? {
            (Woken::Closed, _) => return Ok(true),
            (_, false) => continue,
            (_, true) => {}
        }
        let len = socket.read(&mut buffer).context("cannot read from the mux")?;
        let mut bytes = &buffer[..len];
        if len == 0 {
            return output.finish();
        }
        while let Some(item) = decoder.next(&mut bytes)? {
            match item {
                Item::Data(stream, text) => {
                    print(&mut output, stream, text)?;
                    let got = u64::try_from(text.len()).unwrap_or(u64::MAX);
                    pass(&mut missing, stream, got);
                }
                Item::Control(FrameKind::Gap, body) => {
                    let Gap { stream, from, to } = serde_json::from_slice(&body)?;
                    log::warn!("{} bytes of {stream} are lost", to.saturating_sub(from));
                    pass(&mut missing, stream, to.saturating_sub(from));
                }
                Item::Control(FrameKind::End, body) => {
                    let End { stream } = serde_json::from_slice(&body)?;
                    pass(&mut missing, stream, u64::MAX);
                }
                Item::Control(FrameKind::Exit | FrameKind::Closing | FrameKind::Detached, _) => {
                    return output.finish();
                }
                Item::Control(FrameKind::Error, body) => {
                    let Refusal { error, .. } = serde_json::from_slice(&body)?;
                    bail!("app {}: the mux refused: {}", app.name(), escape::line(&error));
                }
                Item::Control(..) | Item::Screen(_) => {}
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
        ("--json", wants.json),
    ];
    if let Some((option, _)) = needs_times.iter().find(|(_, is_given)| *is_given) {
        bail!(
            "{option} needs the times of lines: the mux of app {} does not keep them",
            app.name()
        );
    }
    Ok(())
}

/// Counts bytes of a stream that need not be waited for any more.
fn pass(missing: &mut BTreeMap<Stream, u64>, stream: Stream, bytes: u64) {
    if let Some(missing) = missing.get_mut(&stream) {
        *missing = missing.saturating_sub(bytes);
    }
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
