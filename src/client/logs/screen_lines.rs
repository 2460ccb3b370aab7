//! The lines of a terminal without a log: those on its screen and above it, from its mux.

use std::borrow::Cow;
use std::io::{ErrorKind, Read};

use anyhow::{Context, Result};

use super::LogsRequest;
use super::kept_output;
use super::line_output::Output;
use super::whole::WholeLines;
use crate::client::find;
use crate::core::logfmt::entry::LoggedEntry;
use crate::core::wire::session_reader::{FromMux, MuxEvent};
use crate::core::wire::{Hello, History, Redraw, Redrawn, Want};
use crate::sys::documents::endpoints::Endpoints;
use crate::sys::session::{self, OpenSession, Patience};
use crate::sys::state::AppDir;
use crate::types::limits;
use crate::types::stream::{Position, Stream};
use crate::types::time::Stamp;

/// Prints the lines. Returns whether there was one, or `None` if no mux of a terminal has them.
pub(super) fn show(request: &LogsRequest, app: &AppDir) -> Result<Option<bool>> {
    let lines = match Endpoints::read(app).and_then(|endpoints| fetch(app, &endpoints)) {
        Ok(Some(lines)) => lines,
        Ok(None) => return Ok(None),
        Err(e) if find::is_absence(&e) => return Ok(None),
        Err(e) => return Err(e),
    };
    kept_output::check(request, app)?;
    let whole = WholeLines::new(request.grep.clone(), request.tail);
    let mut output = Output::new(request.wants, Some(whole));
    let lines = lines.strip_suffix(b"\n").unwrap_or(&lines);
    for text in lines.split(|byte| *byte == b'\n') {
        let (stamp, written, stream) = (Stamp::default(), Cow::Borrowed(""), Stream::Stdout);
        output.print(&LoggedEntry { stamp, written, stream, text: text.into(), ends: true })?;
    }
    output.finish().map(Some)
}

/// The lines, if the app has a terminal, and its mux knows them.
fn fetch(app: &AppDir, endpoints: &Endpoints) -> Result<Option<Vec<u8>>> {
    let is_terminal = endpoints.streams().iter().any(|(stream, _)| *stream == Stream::Tty);
    if !is_terminal || endpoints.session().is_none() {
        return Ok(None);
    }
    let hello = Hello {
        streams: vec![Want { stream: Stream::Tty, from: Position::Now }],
        redraw: Some(Redraw::Screen),
        history: Some(History::Only),
        patience_ms: Some(0),
        ..Hello::default()
    };
    let patience = Patience::For(limits::ANSWER);
    let (OpenSession { mut socket, mut reader }, welcome) =
        session::open(app, endpoints.session(), &hello, patience)?;
    if !welcome.history {
        return Ok(None);
    }
    let what = || format!("no lines from the mux of app {}", app.name());
    socket.set_read_timeout(Some(limits::ANSWER)).with_context(what)?;
    let (mut lines, mut buffer) = (Vec::new(), vec![0; limits::READ]);
    loop {
        let mut bytes = match socket.read(&mut buffer) {
            Ok(0) => return Ok(None),
            Ok(len) => &buffer[..len],
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) => return Err(e).with_context(what),
        };
        while let Some(part) = reader.next(&mut bytes)? {
            let is_whole = match part {
                FromMux::Screen(bytes, is_whole) => {
                    lines.extend_from_slice(bytes);
                    is_whole
                }
                FromMux::Event(MuxEvent::Redraw(Redrawn { bytes, .. })) => bytes == 0,
                _ => false,
            };
            if is_whole {
                return Ok(Some(lines));
            }
        }
    }
}
