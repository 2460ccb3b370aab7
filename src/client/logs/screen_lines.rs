//! The lines of a terminal without a log: those on its screen and above it, from its mux.

use std::borrow::Cow;

use anyhow::{Context, Result, bail};
use tokio::time::timeout;

use super::LogsRequest;
use super::kept_output;
use super::line_output::Output;
use super::whole::WholeLines;
use crate::client::script::script_session::{AT_ONCE, Session, SessionEvent};
use crate::client::tokio_runtime::block_on;
use crate::core::logfmt::entry::LoggedEntry;
use crate::core::wire::{Hello, History, Redraw, Want};
use crate::sys::state::AppDir;
use crate::types::limits;
use crate::types::stream::{Position, Stream};
use crate::types::time::Stamp;

/// Prints the lines. Returns whether there was one.
pub(super) fn show(request: &LogsRequest, app: &AppDir) -> Result<bool> {
    kept_output::check(request, app)?;
    let lines = block_on(async {
        let lines = timeout(limits::ANSWER, fetch(app)).await;
        lines.with_context(|| format!("no lines from the mux of app {}", app.name()))?
    })?;
    let whole = WholeLines::new(request.grep.clone(), request.tail);
    let mut output = Output::new(request.wants, Some(whole));
    let lines = lines.strip_suffix(b"\n").unwrap_or(&lines);
    for text in lines.split(|byte| *byte == b'\n') {
        let (stamp, written, stream) = (Stamp::default(), Cow::Borrowed(""), Stream::Stdout);
        output.print(&LoggedEntry { stamp, written, stream, text: text.into(), ends: true })?;
    }
    output.finish()
}

async fn fetch(app: &AppDir) -> Result<Vec<u8>> {
    let hello = Hello {
        streams: vec![Want { stream: Stream::Tty, from: Position::Now }],
        redraw: Some(Redraw::Screen),
        history: Some(History::Only),
        patience_ms: Some(0),
        ..Hello::default()
    };
    let mut session = Session::open(app, hello, None, None, AT_ONCE).await?;
    loop {
        match session.next().await? {
            SessionEvent::Screen(lines, _) => return Ok(lines),
            SessionEvent::Over(_) => bail!("app {} has ended", app.name()),
            _ => {}
        }
    }
}
