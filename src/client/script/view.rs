//! The screen of an app's terminal, as a session shows it.

use anyhow::{Context, Result, bail};
use tokio::time::timeout;

use super::script_session::{AT_ONCE, MuxWait, Session, SessionEvent};
use crate::core::wire::{Hello, History, Redraw};
use crate::screen::Screen;
use crate::screen::shown::Shown;
use crate::sys::state::AppDir;
use crate::types::limits;
use crate::types::stream::Position;

/// See the module.
#[derive(Default)]
pub(crate) struct View {
    /// The most rows above the screen.
    above: usize,
    screen: Option<Screen>,
}

/// Opens a session that shows the screen of an app with this many rows above, and waits for the first
/// one. It has none if the app has no terminal.
pub(crate) async fn open(dir: &AppDir, above: usize, wait: MuxWait) -> Result<(Session, View)> {
    let history = (above > 0).then_some(History::Before);
    let hello = Hello { redraw: Some(Redraw::Screen), history, events: true, ..Hello::default() };
    let mut session = Session::open(dir, hello, Some(Position::Now), None, wait).await?;
    let mut view = View { above, screen: None };
    if !session.has_terminal() {
        return Ok((session, view));
    }
    let name = dir.name();
    let first = async {
        while view.screen.is_none() {
            let news = session.next().await?;
            view.take(&news);
            if let SessionEvent::Over(_) = news {
                bail!("app {name} has ended");
            }
        }
        Ok(())
    };
    timeout(limits::ANSWER, first)
        .await
        .with_context(|| format!("app {name}: no screen from its mux"))??;
    Ok((session, view))
}

/// Why there is no screen.
pub(super) fn no_terminal(dir: &AppDir) -> String {
    let name = dir.name();
    format!("app {name} has no terminal; try iottymux logs {name}")
}

/// The same of an app that must have a terminal.
pub(crate) async fn open_terminal(dir: &AppDir, above: usize) -> Result<(Session, View)> {
    let (session, view) = open(dir, above, AT_ONCE).await?;
    if !session.has_terminal() {
        bail!(no_terminal(dir));
    }
    Ok((session, view))
}

impl View {
    /// Takes what happened. Whether the screen may have changed by it.
    pub(crate) fn take(&mut self, news: &SessionEvent) -> bool {
        match news {
            SessionEvent::Screen(bytes, size) => {
                let mut screen = Screen::new(*size).showing_above(self.above);
                screen.process(bytes);
                self.screen = Some(screen);
                true
            }
            SessionEvent::Output(_, bytes, _) => {
                self.screen.iter_mut().for_each(|screen| screen.process(bytes));
                self.screen.is_some()
            }
            _ => false,
        }
    }

    /// The screen, if the app has a terminal.
    pub(crate) fn into_screen(self) -> Option<Screen> {
        self.screen
    }

    /// What it shows, once that is known.
    pub(crate) fn shown(&self) -> Option<Shown> {
        self.screen.as_ref().map(Screen::shown)
    }
}
