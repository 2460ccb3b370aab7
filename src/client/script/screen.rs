//! `screen`: prints what the terminal of an app shows.

use std::time::Duration;

use anyhow::{Result, bail};
use serde::Serialize;
use tokio::time::timeout_at;

use super::super::find;
use super::quiet::Quiet;
use super::session::SessionEvent;
use super::view::{self, View, no_terminal};
use crate::client::runtime::block_on;
use crate::screen::Screen;
use crate::screen::shown::{KeyModes, Run, Shown};
use crate::sys::diagnostics;
use crate::sys::documents::last::Last;
use crate::sys::print::{print_on, print_raw, unless_unread};
use crate::sys::state::AppDir;
use crate::types::exit::Exit;
use crate::types::size::Size;
use crate::types::stream::Stream;

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

/// Prints the screen. That of an app that has ended is known as far as its last output tells.
pub(crate) fn screen(request: &ScreenRequest) -> Result<Exit> {
    unless_unread(block_on(show(request)))
}

async fn show(request: &ScreenRequest) -> Result<Exit> {
    let (mut session, mut view) = match view::open_terminal(&request.dir, request.above).await {
        Ok(opened) => opened,
        Err(e) => return show_last(request, e),
    };
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
                return Ok(ended(request, &news));
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
    view.shown().map_or(Ok(()), |shown| print_screen(request, &shown))
}

fn print_screen(request: &ScreenRequest, shown: &Shown) -> Result<()> {
    let text = match request.form {
        ScreenForm::Text => shown.lines(),
        ScreenForm::Ansi => shown.ansi(),
        ScreenForm::Json => super::document(&JsonScreen::new(shown))?,
        ScreenForm::Svg => shown.svg(),
    };
    let parts = request.follow && request.form != ScreenForm::Json;
    let text = if parts { text + "\u{c}\n" } else { text };
    let print = if request.form == ScreenForm::Ansi { print_raw } else { print_on };
    print(&text)
}

/// The app has ended while its screen was followed.
fn ended(request: &ScreenRequest, news: &SessionEvent) -> Exit {
    if let SessionEvent::Ended(status) | SessionEvent::Over(Some(status)) = news {
        diagnostics::say(&format!("app {} ended {status}", request.dir.name()));
    }
    Exit::Done
}

/// Prints the screen after the last output that the mux has left.
fn show_last(request: &ScreenRequest, error: anyhow::Error) -> Result<Exit> {
    let Some(find::Ended { last: Last { streams, .. }, .. }) = error.downcast_ref() else {
        return Err(error);
    };
    let Some(tail) = streams.iter().find(|tail| tail.stream == Stream::Tty) else {
        bail!(no_terminal(&request.dir));
    };
    let mut screen = Screen::new(Size::DEFAULT).showing_above(request.above);
    screen.process(tail.tail.as_bytes());
    print_screen(request, &screen.shown())?;
    diagnostics::say(&format!("{error}"));
    Ok(Exit::Done)
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
