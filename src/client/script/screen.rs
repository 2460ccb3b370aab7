//! `screen`: prints what the terminal of an app shows.

use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use tokio::time::timeout_at;

use super::quiet::Quiet;
use super::script_session::SessionEvent;
use super::view::{self, View};
use crate::client::tokio_runtime::block_on;
use crate::screen::shown::{KeyModes, Run, Shown};
use crate::sys::diagnostics;
use crate::sys::print::{print_on, print_raw, unless_unread};
use crate::sys::state::AppDir;
use crate::types::exit::Exit;
use crate::types::size::Size;

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
        ScreenForm::Json => super::document(&JsonScreen::new(&shown))?,
        ScreenForm::Svg => shown.svg(),
    };
    let parts = request.follow && request.form != ScreenForm::Json;
    let text = if parts { text + "\u{c}\n" } else { text };
    let print = if request.form == ScreenForm::Ansi { print_raw } else { print_on };
    print(&text)
}

/// The document of a screen.
#[derive(Serialize)]
struct JsonScreen<'a> {
    size: Size,
    cursor: JsonCursor,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    alternate: bool,
    keys: KeyModes,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    above: Vec<JsonRow<'a>>,
    rows: Vec<JsonRow<'a>>,
}

#[derive(Serialize)]
struct JsonCursor {
    row: u16,
    col: u16,
    shown: bool,
}

#[derive(Serialize)]
struct JsonRow<'a> {
    text: String,
    /// The parts of it that are not plain.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    runs: Vec<JsonRun<'a>>,
}

/// A part of a row, by its columns.
#[derive(Serialize)]
struct JsonRun<'a> {
    text: &'a str,
    /// The numbers of its look, as in `CSI … m`.
    #[serde(skip_serializing_if = "String::is_empty")]
    style: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<&'a str>,
}

impl<'a> JsonScreen<'a> {
    fn new(shown: &'a Shown) -> Self {
        let run = |run: &'a Run| JsonRun {
            text: &run.text,
            style: run.numbers(),
            link: run.style.link.as_deref().and_then(|link| Some(link.split_once(';')?.1)),
        };
        let row = |row: &'a Vec<Run>| JsonRow {
            text: Shown::text(row),
            runs: if row.iter().all(Run::is_plain) {
                Vec::new()
            } else {
                row.iter().map(run).collect()
            },
        };
        let (row_number, col) = shown.cursor;
        Self {
            size: shown.size,
            cursor: JsonCursor { row: row_number, col, shown: shown.shows_cursor },
            title: shown.title.as_deref(),
            alternate: shown.is_alternate,
            keys: shown.keys,
            above: shown.above.iter().map(row).collect(),
            rows: shown.rows.iter().map(row).collect(),
        }
    }
}
