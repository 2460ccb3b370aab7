//! `screen`: prints what the terminal of an app shows.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use tokio::time::timeout_at;

use super::quiet::Quiet;
use super::script_session::SessionEvent;
use super::view::{self, View};
use crate::client::tokio_runtime::block_on;
use crate::screen::shown::{Run, Shown};
use crate::sys::diagnostics;
use crate::sys::print::{print_on, print_raw, unless_unread};
use crate::sys::state::AppDir;
use crate::types::exit::Exit;

/// Pause after which a changed screen is printed again: programs draw in several writes.
const QUIET: Duration = Duration::from_millis(100);

/// How long a screen that changes all the time is printed at the latest.
const BUSY: Duration = Duration::from_secs(1);

/// How a screen is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScreenForm {
    /// Text.
    Text,
    /// Text with colours and links.
    Ansi,
    /// A JSON document.
    Json,
    /// A picture.
    Svg,
}

/// A screen that is wanted.
#[derive(Debug)]
pub(crate) struct ScreenRequest {
    pub(crate) dir: AppDir,
    pub(crate) form: ScreenForm,
    /// The most rows above it.
    pub(crate) above: usize,
    /// Whether it is printed again when it has changed.
    pub(crate) follow: bool,
}

/// Prints the screen.
pub(crate) fn screen(request: &ScreenRequest) -> Result<Exit> {
    unless_unread(block_on(show(request)))
}

async fn show(request: &ScreenRequest) -> Result<Exit> {
    let (mut session, mut view) = view::open_terminal(&request.dir, request.above).await?;
    print_view(request, &view)?;
    if !request.follow {
        return Ok(Exit::Done);
    }
    let mut quiet = Quiet::new(QUIET, BUSY);
    loop {
        let until = quiet.due().unwrap_or_else(|| super::until(None));
        match timeout_at(until, session.next_or_over()).await {
            Ok(Ok(news @ (SessionEvent::Ended(_) | SessionEvent::Over(_)))) => {
                quiet.due().map(|_| print_view(request, &view)).transpose()?;
                if let SessionEvent::Ended(status) | SessionEvent::Over(Some(status)) = news {
                    diagnostics::say(&format!("app {} ended {status}", request.dir.name()));
                }
                return Ok(Exit::Done);
            }
            Ok(Ok(news)) if view.take(&news) => quiet.disturb(),
            Ok(Ok(_)) => {}
            Ok(Err(e)) => return Err(e),
            Err(_) => {}
        }
        if quiet.take() {
            print_view(request, &view)?;
        }
    }
}

fn print_view(request: &ScreenRequest, view: &View) -> Result<()> {
    let Some(shown) = view.shown() else { return Ok(()) };
    let text = match request.form {
        ScreenForm::Text => shown.lines(),
        ScreenForm::Ansi => shown.ansi(),
        ScreenForm::Json => super::document(&document(&shown))?,
        ScreenForm::Svg => shown.svg(),
    };
    let parts = request.follow && request.form != ScreenForm::Json;
    let text = if parts { text + "\u{c}\n" } else { text };
    let print = if request.form == ScreenForm::Ansi { print_raw } else { print_on };
    print(&text)
}

/// The document of a screen.
fn document(shown: &Shown) -> Value {
    let run = |run: &Run| {
        let mut part = json!({"text": run.text});
        let style = run.numbers();
        if !style.is_empty() {
            // The numbers of its look, as in `CSI … m`.
            part["style"] = style.into();
        }
        if let Some((_, link)) = run.style.link.as_deref().and_then(|link| link.split_once(';')) {
            part["link"] = link.into();
        }
        part
    };
    let row = |row: &Vec<Run>| {
        let mut line = json!({"text": Shown::text(row)});
        if !row.iter().all(Run::is_plain) {
            line["runs"] = row.iter().map(run).collect();
        }
        line
    };
    let (line, col) = shown.cursor;
    let mut screen = json!({
        "size": shown.size,
        "cursor": {"row": line, "col": col, "shown": shown.shows_cursor},
        "alternate": shown.is_alternate,
        "keys": shown.keys,
        "rows": shown.rows.iter().map(row).collect::<Value>(),
    });
    if let Some(title) = &shown.title {
        screen["title"] = title.as_str().into();
    }
    if !shown.above.is_empty() {
        screen["above"] = shown.above.iter().map(row).collect();
    }
    screen
}
