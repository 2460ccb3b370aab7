//! `attach --follow`: attaches again when the app runs again, or the next container of its name.
//!
//! Each attach but the first is a new execution of this program in the same process, so it finds the
//! terminal and the signals as they were.

use std::env;

use anyhow::{Context, Result};
use nix::poll::PollFlags;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::signal::Signal;

use super::attach::{AttachRequest, attach};
use super::find;
use crate::core::wire::Redraw;
use crate::sys::calls;
use crate::sys::diagnostics;
use crate::sys::documents::container::Container;
use crate::sys::documents::last::Last;
use crate::sys::ready;
use crate::sys::state::{AppDir, StateDir};
use crate::sys::systemd::own_process;
use crate::types::exit::Exit;
use crate::types::limits;
use crate::types::name::AppName;
use crate::types::stream::Position;

/// The variable with the name that is followed, which only this program sets.
const FOLLOWED: &str = "IOTTYMUX_FOLLOWED";

/// What this process follows, if it has attached before.
pub(crate) fn followed() -> Option<String> {
    env::var(FOLLOWED).ok()
}

/// Waits until the app that is found runs.
pub(crate) fn next(state: &StateDir, found: impl Fn() -> Option<AppName>) -> Result<AppDir> {
    let changes = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
    let runs = |app: &AppDir| app.is_locked() && matches!(Last::read(app), Ok(None));
    loop {
        // Watching begins before looking, so that nothing is missed in between.
        while changes.read_events().is_ok() {}
        let apps = state.apps().unwrap_or_default();
        let dirs = apps.iter().map(|app| state.app(app).dir());
        let mut is_watched = true;
        for dir in [state.path().to_owned()].into_iter().chain(dirs) {
            is_watched &= find::watch_path(&changes, &dir, AddWatchFlags::empty())?;
        }
        if let Some(app) = found().map(|app| state.app(&app)).filter(runs) {
            return Ok(app);
        }
        let again = (!is_watched).then_some(limits::LOOK_AGAIN);
        ready::wait_for(&changes, PollFlags::POLLIN, again).context("cannot wait for the app")?;
    }
}

/// Attaches, and again when the app has ended. Returns if the attach ends for another reason.
pub(crate) fn attach_on(mut request: AttachRequest, is_first: bool) -> Result<Exit> {
    // Of the next run nothing was seen yet, except by its engine.
    if !is_first && request.redraw != Redraw::Screen {
        request.from = Position::Start;
    }
    let how = match attach(&request) {
        Ok(Exit::App(status)) => format!("ended with status {status}"),
        Ok(Exit::Lost) if matches!(Last::read(&request.dir), Ok(Some(_))) => "ended".to_owned(),
        // It was short.
        Err(e) if !is_first && e.is::<find::Ended>() => format!("ended: {e:#}"),
        other => return other,
    };
    let app = &request.dir;
    let container = Container::read(app).and_then(|container| container.kubernetes);
    let name = container.map_or_else(|| app.name().to_string(), |name| name.to_string());
    // Its mux may still give its last output to other clients.
    app.await_unlocked()?;
    // What this process has caught until now would be lost with it.
    calls::end_by(&[Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM])?;
    diagnostics::say(&format!("{name} {how}; waiting until it runs again, ^C ends this"));
    Err(own_process::execute_again([(FOLLOWED, name)])).context("cannot attach again")
}
