//! The lines of a terminal without a log: those on its screen and above it, from its mux.

use std::borrow::Cow;
use std::io::{ErrorKind, Read};

use anyhow::{Context, Result};

use super::LogsRequest;
use super::backlog;
use super::output::Output;
use super::whole::WholeLines;
use crate::client::find;
use crate::core::logfmt::entry::LoggedEntry;
use crate::core::wire::{Decoder, FrameKind, Hello, History, Item, Redraw, Redrawn, Want};
use crate::sys::documents::endpoints::Endpoints;
use crate::sys::session::{self, Patience};
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
    backlog::check(request, app)?;
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
    let Some(file) = endpoints.session().filter(|_| is_terminal) else { return Ok(None) };
    let hello = Hello {
        streams: vec![Want { stream: Stream::Tty, from: Position::Now }],
        redraw: Some(Redraw::Screen),
        history: Some(History::Only),
        patience_ms: Some(0),
        ..Hello::default()
    };
    let (mut socket, welcome) = session::open(app, file, &hello, Patience::For(limits::ANSWER))?;
    if !welcome.history {
        return Ok(None);
    }
    let what = || format!("no lines from the mux of app {}", app.name());
    socket.set_read_timeout(Some(limits::ANSWER)).with_context(what)?;
    let (mut decoder, mut buffer) = (Decoder::default(), vec![0; limits::READ]);
    let (mut lines, mut wanted) = (Vec::new(), None);
    loop {
        if wanted == Some(lines.len() as u64) {
            return Ok(Some(lines));
        }
        let mut bytes = match socket.read(&mut buffer) {
            Ok(0) => return Ok(None),
            Ok(len) => &buffer[..len],
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) => return Err(e).with_context(what),
        };
        while let Some(item) = decoder.next(&mut bytes)? {
            match item {
                Item::Screen(bytes) => lines.extend_from_slice(bytes),
                Item::Control(FrameKind::Redraw, body) => {
                    lines.clear();
                    wanted = Some(serde_json::from_slice::<Redrawn>(&body)?.bytes);
                }
                _ => {}
            }
        }
    }
}
