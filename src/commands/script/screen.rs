//! `screen`: prints what the terminal of an app shows.

use std::time::Duration;

use anyhow::{Result, bail};
use serde::Serialize;
use tokio::time::{Instant, timeout_at};

use super::super::find::{self, Cure};
use super::session::{News, Purpose, Session};
use super::view::View;
use crate::core::screen::Screen;
use crate::core::screen::shown::{Run, Shown};
use crate::os::diagnostics;
use crate::os::print::print;
use crate::os::state::AppDir;
use crate::types::exit::Exit;
use crate::types::limits;
use crate::types::size::Size;
use crate::types::stream::{Position, Stream};
use crate::wire::last::Last;

/// Pause after which a changed screen is printed again: programs draw in several writes.
const QUIET: Duration = Duration::from_millis(100);

/// How a screen is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScreenForm {
    /// Text.
    Text,
    /// Text with colours and links.
    Ansi,
    /// A JSON document.
    Json,
}

/// A screen that is wanted.
#[derive(Debug)]
pub(crate) struct ScreenRequest {
    pub(crate) dir: AppDir,
    pub(crate) form: ScreenForm,
    /// Whether it is printed again when it has changed.
    pub(crate) follow: bool,
}

/// Prints the screen. That of an app that has ended is known as far as its last output tells.
pub(crate) fn screen(request: &ScreenRequest) -> Result<Exit> {
    super::block_on(show(request))
}

async fn show(request: &ScreenRequest) -> Result<Exit> {
    let wait = (Some(Duration::ZERO), Cure::Start);
    let purpose = Purpose { from: Some(Position::Now), shows_screen: true, ..Purpose::default() };
    let mut session = match Session::open(&request.dir, purpose, wait).await {
        Ok(session) => session,
        Err(e) => return show_last(request, e),
    };
    if session.outputs().all(|stream| stream != Stream::Tty) {
        bail!(no_terminal(&request.dir));
    }
    let mut view = View::default();
    let mut until = Instant::now() + limits::ANSWER;
    let mut changed = false;
    loop {
        match timeout_at(until, session.next()).await {
            Ok(Ok(news @ (News::Ended(_) | News::Over(_)))) if request.follow => {
                changed.then(|| print_view(request, &view)).transpose()?;
                return Ok(ended(request, &news));
            }
            Ok(Ok(news @ News::Over(_))) => return Ok(ended(request, &news)),
            Ok(Ok(news)) => {
                let is_first = view.shown().is_none();
                let has_changed = view.take(&news);
                if has_changed && is_first {
                    print_view(request, &view)?;
                    if !request.follow {
                        return Ok(Exit::Done);
                    }
                    until = super::until(None);
                } else if has_changed {
                    (changed, until) = (true, Instant::now() + QUIET);
                }
            }
            Ok(Err(e)) => return super::ended(e).map(|_| Exit::Done),
            Err(_) if changed => {
                print_view(request, &view)?;
                (changed, until) = (false, super::until(None));
            }
            Err(_) => bail!("app {}: no screen from its mux", request.dir.name()),
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
        ScreenForm::Json => serde_json::to_string(&JsonScreen::new(shown))? + "\n",
    };
    let parts = request.follow && request.form != ScreenForm::Json;
    print(&if parts { text + "\u{c}\n" } else { text })
}

/// Why there is no screen.
pub(super) fn no_terminal(dir: &AppDir) -> String {
    let name = dir.name();
    format!("app {name} has no terminal; try iottymux logs {name}")
}

/// The app has ended while its screen was followed.
fn ended(request: &ScreenRequest, news: &News) -> Exit {
    if let News::Ended(status) | News::Over(Some(status)) = news {
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
    let mut screen = Screen::new(Size::DEFAULT);
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
    keys: JsonKeys,
    rows: Vec<JsonRow<'a>>,
}

#[derive(Serialize)]
struct JsonCursor {
    row: u16,
    col: u16,
    shown: bool,
}

#[derive(Serialize)]
#[allow(clippy::struct_field_names, reason = "the names are those of the document")]
struct JsonKeys {
    application_cursor: bool,
    bracketed_paste: bool,
    mouse: bool,
    kitty: u16,
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
            style: run.sequence().trim_start_matches(';').to_owned(),
            link: run.link.as_deref().and_then(|link| Some(link.split_once(';')?.1)),
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
        let keys = shown.keys;
        Self {
            size: shown.size,
            cursor: JsonCursor { row: row_number, col, shown: shown.is_cursor_shown },
            title: shown.title.as_deref(),
            alternate: shown.is_alternate,
            keys: JsonKeys {
                application_cursor: keys.application_cursor,
                bracketed_paste: keys.bracketed_paste,
                mouse: keys.mouse,
                kitty: keys.kitty,
            },
            rows: shown.rows.iter().map(row).collect(),
        }
    }
}
